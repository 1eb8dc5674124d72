"""The kernels of GPUs (docs/xpu.md, IPEXRUN_XPU_KERNELS=lanes) on a CPU's device, on sizes around their groups: items that take several elements, rows by
128 and 256 items, blocks of products, optimizers, gradients of layer norm's parameters."""

import pytest

START = """
import torch, ipexrun
from torch.nn import functional as F
torch.manual_seed(0)
def same(mine, stock, bound=1e-5):
    mine = mine.cpu()
    assert mine.dtype == stock.dtype and mine.shape == stock.shape
    if not stock.is_floating_point():
        assert torch.equal(mine, stock)
        return
    far = (mine.double() - stock.double()).abs().max() if stock.numel() else 0
    assert far <= bound * max(1.0, float(stock.double().abs().max()) if stock.numel() else 1), (mine.shape, mine.dtype, float(far))
def both(function, *tensors, bound=1e-5):
    mine, stock = function(*(one.to("xpu") for one in tensors)), function(*tensors)
    for a, b in zip(mine, stock) if isinstance(stock, tuple) else [(mine, stock)]:
        same(a, b, bound)
"""

ELEMENTWISE = """
for dtype, bound in ((torch.float32, 1e-6), (torch.float16, 1e-3), (torch.int64, 0)):
    for n in (1, 255, 257, 1023, 1025, 2048, 4099):
        x, y = (torch.randn(2, n) * 9).to(dtype)
        both(lambda a, b: (a + b, a * 3, torch.where(a > b, a, b), a == b), x, y, bound=bound)
    for rows, columns in ((1, 5), (300, 1), (77, 7), (130, 16), (40, 33), (9, 300), (3, 1100)):
        x, y = (torch.randn(rows, columns) * 9).to(dtype), (torch.randn(columns) * 9).to(dtype)
        both(lambda a, b: (a + b, a.t() * 2, (a.t().contiguous() - 1)), x, y, bound=bound)
        both(lambda a, b: (a.to(torch.float32), a.bool(), a[:, ::2].clone(), torch.zeros_like(a).t().fill_(3), torch.full_like(a, 4)), x, y)
    both(lambda a: a.permute(3, 1, 0, 2).contiguous() + 1, (torch.randn(3, 5, 7, 11) * 9).to(dtype), bound=bound)
"""

ROWS = """
for n in (5, 700, 1030, 1500, 3100, 5000):
    x, w, b, g = torch.randn(6, n, requires_grad=True), torch.randn(n, requires_grad=True), torch.randn(n), torch.randn(6, n)
    both(lambda a: (a.sum(-1), a.amax(-1), a.softmax(-1), a.log_softmax(-1), a.norm(), a.mean(), a.sum(0)), x.detach())
    def gradients(device):
        leaves = [one.detach().to(device).requires_grad_() for one in (x, w, b)]
        F.layer_norm(leaves[0], (n,), leaves[1], leaves[2]).softmax(-1).mul(g.to(device)).sum().backward()
        return [one.grad for one in leaves]
    for mine, stock in zip(gradients("xpu"), gradients("cpu")):
        same(mine, stock, 1e-5)
both(lambda a: (a.sum(), a.amin(), a.sum(0)), torch.randn(70, 9001), bound=1e-5)
image = torch.randn(4, 6, 9, 11)
def normed(device):
    norm = torch.nn.BatchNorm2d(6).to(device)
    x = image.clone().to(device).requires_grad_()
    (norm(x) * image.to(device)).sum().backward()
    out = norm.eval()(x)
    return out.detach(), x.grad, norm.weight.grad, norm.running_var
for mine, stock in zip(normed("xpu"), normed("cpu")):
    same(mine, stock)
"""

PRODUCTS = """
for m, n, k in ((1, 9, 4), (9, 64, 8), (65, 130, 17), (129, 257, 40), (200, 60, 1), (64, 300, 100)):
    a, b = torch.randn(m, k), torch.randn(k, n)
    both(lambda a, b: (a @ b, (b.t() @ a.t())), a, b, bound=1e-5)
    both(lambda a, b: (a.t().contiguous().t() @ b.t().contiguous().t()), a, b, bound=1e-5)
both(lambda a, b, c: torch.baddbmm(c, a, b, beta=0.5, alpha=2), torch.randn(3, 70, 33), torch.randn(3, 33, 66), torch.randn(3, 70, 66))
both(lambda a, b: a @ b, torch.randn(70, 33).half(), torch.randn(33, 129).half(), bound=2e-3)
"""

OPTIMIZERS = """
sizes = (1, 3, 255, 256, 1023, 1024, 1025, 5000, 7, 33)
grads = [torch.randn(size) for size in sizes]
for make in (lambda p: torch.optim.AdamW(p, lr=0.01, fused=True, amsgrad=True), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, fused=True),
             lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True)):
    found = {}
    for device in ("xpu", "cpu"):
        torch.manual_seed(1)
        parameters = [torch.nn.Parameter(torch.randn(size).to(device)) for size in sizes]
        optimizer = make(parameters)
        for step in range(3):
            for parameter, grad in zip(parameters, grads):
                parameter.grad = (grad * (step + 1)).to(device)
            optimizer.step()
        found[device] = [parameter.detach() for parameter in parameters]
    for mine, stock in zip(found["xpu"], found["cpu"]):
        same(mine, stock, 1e-5)
"""


# One kernel without gradients; tests/xpu/test_attention.py has more, with the same variable set.
ATTENTION = """
def sdpa(q, k, v, **others):
    with torch.no_grad():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **others)
for queries, keys in [(16, 1), (64, 32), (65, 33), (130, 70)]:
    q, k, v = torch.randn(2, 4, queries, 40), torch.randn(2, 2, keys, 40), torch.randn(2, 2, keys, 24)
    both(lambda q, k, v: sdpa(q, k, v), q, k, v, bound=1e-5)
    both(lambda q, k, v: sdpa(q, k, v, is_causal=True), q, k, v, bound=1e-5)
q, k, v = torch.randn(1, 2, 40, 128).half(), torch.randn(1, 2, 50, 128).half(), torch.randn(1, 2, 50, 128).half()
both(lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), q, k, v, torch.rand(40, 50) < 0.8, bound=4e-3)
"""

# Read from the image without columns in memory, forward and (stride 1) the image's gradient.
CONVOLUTIONS = """
def conv(x, w, b, **others):
    x = x.detach().requires_grad_()
    out = torch.nn.functional.conv2d(x, w, b, **others)
    out.square().sum().backward()
    return out.detach(), x.grad
for n, channels, outputs, height, width in ((1, 1, 1, 3, 3), (3, 5, 70, 9, 12), (2, 17, 130, 20, 11)):
    x, b = torch.randn(n, channels, height, width), torch.randn(outputs)
    for options in ({}, {"padding": 1}, {"padding": (2, 1), "dilation": 2}, {"stride": 2, "padding": 1}, {"padding": 2}):
        if height > 4 or "dilation" not in options:
            both(lambda x, w, b: conv(x, w, b, **options), x, torch.randn(outputs, channels, 3, 3), b, bound=2e-5)
both(lambda x, w: torch.nn.functional.conv_transpose2d(x, w), torch.randn(2, 8, 9, 9), torch.randn(8, 6, 3, 3), bound=2e-5)
"""

SORTING = """
def exactly(x, **how):
    for descending in (False, True):
        mine, right = x.xpu().sort(descending=descending, stable=True, **how), x.sort(descending=descending, stable=True, **how)
        assert torch.equal(mine.values.cpu().nan_to_num(7), right.values.nan_to_num(7)) and torch.equal(mine.indices.cpu(), right.indices), (x.shape, x.dtype)
        k = min(3, x.size(-1))
        mine, right = x.xpu().topk(k, largest=descending), x.topk(k, largest=descending)
        assert torch.equal(mine.values.cpu().nan_to_num(7), right.values.nan_to_num(7))
        assert torch.equal(x.gather(-1, mine.indices.cpu()).nan_to_num(7), right.values.nan_to_num(7))
for dtype in (torch.float32, torch.int64, torch.float16):
    for shape in ((1,), (2,), (3, 5), (7, 64), (2, 1000), (1024,), (2, 1025), (5000,)):
        exactly((torch.randn(shape) * 5).to(dtype))
exactly(torch.tensor([3.0, float("nan"), -1, float("inf"), float("nan"), -float("inf"), 3.0]))
exactly(torch.randint(0, 4, (3, 2500)))
exactly((torch.rand(9, 4, 3) * 3).to(torch.uint8), dim=0)
assert torch.equal(torch.arange(2000.0).flip(0).xpu().msort().cpu(), torch.arange(2000.0))
"""


@pytest.mark.parametrize("text", [ELEMENTWISE, ROWS, PRODUCTS, OPTIMIZERS, ATTENTION, CONVOLUTIONS, SORTING],
                         ids=["elementwise", "rows", "products", "optimizers", "attention", "convolutions", "sorting"])
def test_kernels_of_gpus(child, text):
    done = child(START + text + 'print("right")', IPEXRUN_XPU_KERNELS="lanes")
    assert done.stdout == "right\n", done.stdout + done.stderr[-3000:]
