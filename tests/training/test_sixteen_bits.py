"""Training steps of programs that use 16 bits themselves (autocast, models in bfloat16 or float16): products and convolutions, forward and
backward, by way of float32 where the CPU has no such products, and by our kernel of bfloat16.

Risk covered: gradients that are further from float64 than stock's, lie otherwise, or have another dtype; overflow that a scaler no longer sees.
"""

import copy
import json
import os

import pytest
import torch
from torch import nn

CAPPED = os.environ.get("IPEXRUN_MAX_ISA") == "avx2"  # as on a CPU without products of 16 bits
NATIVE = {torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported() and not CAPPED, torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported() and not CAPPED}
DTYPES = [torch.bfloat16, torch.float16]
NETS = {
    "linear": (lambda: nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 40, bias=False)), (20, 48)),
    "linear 3d": (lambda: nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 32)), (4, 6, 48)),
    "attention": (lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), (3, 10, 32)),
    "recurrent": (lambda: First(nn.GRU(32, 48, batch_first=True)), (4, 5, 32)),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 8, 1, bias=False)), (2, 8, 12, 12)),
    "conv2d stride": (lambda: nn.Conv2d(8, 16, 3, stride=2, padding=1), (2, 8, 13, 11)),
    "conv2d dilated": (lambda: nn.Conv2d(8, 16, 3, padding=2, dilation=2), (2, 8, 12, 12)),
    "conv2d groups": (lambda: nn.Conv2d(8, 16, 3, groups=4), (2, 8, 12, 12)),
    "conv2d depthwise": (lambda: nn.Conv2d(8, 8, 3, groups=8), (2, 8, 12, 12)),
    "conv2d of one pixel": (lambda: nn.Conv2d(8, 16, 3, padding=1, stride=2), (2, 8, 1, 1)),
    "conv1d": (lambda: nn.Conv1d(8, 16, 5, padding=2), (2, 8, 30)),
    "conv3d": (lambda: nn.Conv3d(4, 8, 3, padding=1), (2, 4, 6, 7, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(8, 4, 3, stride=2), (2, 8, 6, 6)),
    "transposed groups": (lambda: nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1, output_padding=1, groups=4, bias=False), (2, 16, 6, 6)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(8, 12, 5, stride=3, padding=1), (2, 8, 20)),
}


class First(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


@pytest.fixture(params=["f32_cast", "onednn_f32_packed", "own_bf16"])
def candidate(request, hook):
    torch.nn.functional.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()  # from here on steps are training
    assert hook.force(request.param)
    return request.param


def gradients(net, x, scale=1.0):
    net.zero_grad()
    x = x.detach().clone().requires_grad_(True)
    y = net(x)
    weight = (torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape) + 0.3).to(y.dtype)
    (y * weight * scale).sum().backward()
    return [y.detach(), x.grad, *(p.grad.clone() for p in net.parameters() if p.grad is not None)]


def taken(hook, word):
    def of_training(site):
        return f"|{word}," in site and ("training=1" in site or site.startswith("convolution_backward"))

    return sum(one["taken"] for one in json.loads(hook.report())["sites"] if of_training(one["site"]))


def error(value, truth):
    return float((value.detach().double() - truth.detach()).norm() / truth.detach().norm().clamp_min(1e-30))


@pytest.mark.parametrize("last", [False, True], ids=["", "channels last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NETS)
def test_gradients_are_as_near_to_float64_as_stocks(hook, candidate, name, dtype, last):
    make, shape = NETS[name]
    if last and len(shape) != 4:
        pytest.skip("no channels last")
    if name == "conv2d of one pixel" and dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("stock's gradient of such weights is memory that nobody wrote")
    torch.manual_seed(0)
    net, x = make().to(dtype), torch.randn(shape).to(dtype)
    if last:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    truth = gradients(copy.deepcopy(net).double(), x.double())
    before = taken(hook, "bf16" if dtype == torch.bfloat16 else "f16")
    for _ in range(3):  # the first call of a kind is checked and answered by stock
        mine = gradients(net, x)
    after = taken(hook, "bf16" if dtype == torch.bfloat16 else "f16")
    hook.set_enabled(False)
    stock = gradients(net, x)
    hook.set_enabled(True)
    for one, other, exact in zip(mine, stock, truth, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride()
        assert error(one, exact) <= 1.2 * error(other, exact) + (1e-3 if dtype == torch.bfloat16 else 1e-4)
    if not NATIVE[dtype] and candidate == "f32_cast":
        assert after > before


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_added_is_rounded_once(hook, candidate, dtype):
    torch.manual_seed(0)
    a, x, w = (torch.randn(size, dtype=dtype).requires_grad_() for size in ((24, 40), (24, 48), (48, 40)))

    def found():
        y = torch.addmm(a, x, w, beta=0.5, alpha=3.0)
        return [y, *torch.autograd.grad(y.sin().sum(), [a, x, w])]

    truth = torch.addmm(a.double(), x.double(), w.double(), beta=0.5, alpha=3.0)
    for _ in range(3):
        mine = found()
    hook.set_enabled(False)
    stock = found()
    hook.set_enabled(True)
    assert error(mine[0], truth) <= 1.1 * error(stock[0], truth)
    for one, other in zip(mine, stock):
        assert one.stride() == other.stride() and error(one, other.double()) <= (1e-2 if dtype == torch.bfloat16 else 2e-3)


@pytest.mark.parametrize("name", ["linear", "conv2d"])
def test_overflow_stays_overflow(hook, candidate, name):
    """float16 ends at 65504: scaled losses overflow now and then, and their program's scaler takes the step back."""
    make, shape = NETS[name]
    torch.manual_seed(0)
    net, x = make().half(), torch.randn(shape).half()
    for scale in (1.0, 1.0, 30000.0, 1.0, 30000.0):
        mine = gradients(net, x, scale)
        hook.set_enabled(False)
        stock = gradients(net, x, scale)
        hook.set_enabled(True)
        for one, other in zip(mine, stock, strict=True):
            assert one.isfinite().all() == other.isfinite().all()  # element by element sums at the edge differ by their order


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_loop_under_autocast_learns_as_stocks(hook, dtype):
    def train():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 10))
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        x, y, losses = torch.randn(16, 3, 16, 16), torch.randint(0, 10, (16,)), []
        for _ in range(60):
            with torch.autocast("cpu", dtype):
                loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses

    hook.set_enabled(False)
    stock = train()
    hook.set_enabled(True)
    mine = train()
    assert mine[:3] == pytest.approx(stock[:3], rel=2e-2)
    assert mine[-1] < 0.1 * mine[0] and stock[-1] < 0.1 * stock[0]
