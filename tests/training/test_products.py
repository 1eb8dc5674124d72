"""Products and convolutions of training steps in bf16 (the op tier inside backward passes and the forward passes before them).

Risk covered: gradients that are wrong, have other strides than stock's or come from weights of an earlier step; bf16 where float32 was
asked for; a run that goes on in bf16 after NaN appeared; second derivatives, checkpoints, hooks or frozen layers that see something else.
"""

import json
import os
import sys

import programs
import pytest
import torch
from conftest import has_bf16
from torch import nn
from torch.utils.checkpoint import checkpoint

CANDIDATES = ["own_bf16", "onednn_bf16_cast", "onednn_bf16_last", "onednn_bf16_packed", "onednn_f32_packed"]
BUILD = os.environ["IPEXRUN_BUILD_DIR"]


def launched(*command, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python", **more}
    return programs.run([f"{BUILD}/bin/ipexrun", *command], env=environment)


@pytest.fixture(params=CANDIDATES)
def candidate(request, hook):
    torch.nn.functional.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()  # from here on steps are training
    assert hook.force(request.param)
    return request.param


def relative(mine, stock):
    mine, stock = mine.detach().double(), stock.detach().double()
    return ((mine - stock).norm() / stock.norm().clamp_min(1e-300)).item()


def gradients(net, x, target=None):
    net.zero_grad()
    x = x.detach().clone().requires_grad_(True)
    y = net(x)
    weight = torch.linspace(-1, 1, y.numel()).view(y.shape) + 0.3 if target is None else target
    (y * weight).sum().backward()
    return [y.detach(), x.grad, *(p.grad.clone() for p in net.parameters() if p.grad is not None)]


def same(net, x, hook, bound):
    torch.manual_seed(1)
    mine = gradients(net, x)
    mine = gradients(net, x)  # the first call of a kind is checked and answered by stock
    hook.set_enabled(False)
    stock = gradients(net, x)
    hook.set_enabled(True)
    for one, other in zip(mine, stock, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride()
        assert relative(one, other) <= bound
    return mine, stock


def beside(hook, found):
    """What `found()` gives, each with stock's."""
    mine = found()
    hook.set_enabled(False)
    stock = found()
    hook.set_enabled(True)
    return zip(mine, stock, strict=True)


NETS = {
    "linear": (lambda: nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 32, bias=False)), (20, 48)),
    "linear 3d": (lambda: nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 32)), (4, 6, 48)),
    "attention": (lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), (3, 10, 32)),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 8, 1, bias=False)), (2, 8, 12, 12)),
    "conv2d stride": (lambda: nn.Conv2d(8, 16, 3, stride=2, padding=1, dilation=1), (2, 8, 13, 11)),
    "conv2d dilated": (lambda: nn.Conv2d(8, 16, 3, padding=2, dilation=2), (2, 8, 12, 12)),
    "conv2d groups": (lambda: nn.Conv2d(8, 16, 3, groups=4), (2, 8, 12, 12)),
    "conv2d depthwise": (lambda: nn.Conv2d(8, 8, 3, groups=8), (2, 8, 12, 12)),
    "conv1d": (lambda: nn.Conv1d(8, 16, 5, padding=2), (2, 8, 30)),
    "conv3d": (lambda: nn.Conv3d(4, 8, 3, padding=1), (2, 4, 6, 7, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(8, 4, 3, stride=2), (2, 8, 6, 6)),
    "transposed further": (lambda: nn.ConvTranspose2d(8, 16, 4, stride=2, padding=1, output_padding=1, dilation=1), (3, 8, 7, 5)),
    "transposed groups": (lambda: nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, groups=4, bias=False), (2, 16, 6, 6)),
    "transposed depthwise": (lambda: nn.ConvTranspose2d(16, 16, 3, padding=1, groups=16), (2, 16, 9, 8)),
    "transposed one pixel": (lambda: nn.ConvTranspose2d(32, 48, 4), (4, 32, 1, 1)),
    "transposed to one pixel": (lambda: nn.ConvTranspose2d(16, 16, 3, padding=1), (4, 16, 1, 1)),
    "transposed strided pixels": (lambda: nn.ConvTranspose2d(16, 24, 1, stride=2), (2, 16, 7, 7)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(8, 12, 5, stride=3, padding=1), (2, 8, 20)),
    "transposed 3d": (lambda: nn.ConvTranspose3d(8, 4, 3, stride=2), (1, 8, 3, 4, 5)),
}


@pytest.mark.parametrize("name", NETS)
def test_gradients_are_near_stocks(hook, candidate, name):
    make, shape = NETS[name]
    torch.manual_seed(0)
    same(make(), torch.randn(shape), hook, 2e-2)


@pytest.mark.parametrize("batched", [False, True], ids=["", "batched"])
def test_batches_of_ever_other_sizes(hook, needs_bf16, batched):
    """After some sizes operands are copied into larger ones, of few sizes, whose rest is zero."""
    torch.nn.functional.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()
    assert hook.force("onednn_bf16_cast")
    torch.manual_seed(0)
    weight = torch.randn(48, 40, requires_grad=True)
    for count in [*range(165, 205), 300, 171, 3, 165]:
        x = torch.randn(count, 5, 48) if batched else torch.randn(count, 48)
        w = torch.randn(count, 48, 40, requires_grad=True) if batched else weight

        def found():
            y = x @ w
            y = torch.matmul(x, w) + y if batched else torch.addmm(torch.ones(40), x, w) + y
            return [y, *torch.autograd.grad((y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum(), [w])]

        found()
        for one, other in beside(hook, found):
            assert one.dtype == other.dtype and one.stride() == other.stride() and relative(one, other) < 2e-2


def test_sites_of_batched_products_are_few(hook):
    torch.nn.functional.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()
    before = len(json.loads(hook.report())["sites"])
    for count in range(130, 250, 3):
        w = torch.randn(count, 37, 41, requires_grad=True)
        (torch.randn(count, 43, 37) @ w).sum().backward()
    assert len(json.loads(hook.report())["sites"]) - before <= 6


@pytest.mark.parametrize("last", [False, True], ids=["", "channels last"])
@pytest.mark.parametrize("way", ["onednn_bf16_cast", "onednn_bf16_last"])
def test_gradients_of_transposed_convolutions_are_taken(hook, needs_bf16, way, last):
    torch.nn.functional.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()
    assert hook.force(way)
    torch.manual_seed(0)
    net, x = nn.ConvTranspose2d(32, 24, 4, stride=2, padding=1), torch.randn(2, 32, 11, 9)
    if last:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    same(net, x, hook, 2e-2)
    sites = [one for one in json.loads(hook.report())["sites"] if one["site"].startswith("convolution_backward_transpose2d|") and "ci=32,co=24" in one["site"]]
    assert sum(one["taken"] for one in sites) > 0, sites


def test_kernels_of_one_pixel_between_images_channels_last(hook, needs_bf16):
    """torch computes them as products of matrices on one thread, and the weight's gradient lies plain then."""
    torch.nn.functional.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()
    assert hook.force("onednn_bf16_cast")
    torch.manual_seed(0)
    x = torch.randn(4, 32, 14, 14).contiguous(memory_format=torch.channels_last).requires_grad_()
    weight = torch.randn(48, 32, 1, 1, requires_grad=True)
    threads = torch.get_num_threads()

    def found():
        y = nn.functional.conv2d(x, weight)
        return [y, *torch.autograd.grad(y.sin().sum(), [x, weight])]

    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            for _ in range(3):
                mine = found()
            site = next(one for one in json.loads(hook.report())["sites"] if one["site"].startswith("convolution_backward2d|f32,f32|lcl|b=4,px=256,ci=32,co=48,k=1")
                        and f"|t={count}|" in one["site"])
            assert site["taken"] > 0, site
            hook.set_enabled(False)
            stock = found()
            hook.set_enabled(True)
            for one, other in zip(mine, stock):
                assert one.stride() == other.stride() and relative(one, other) < 2e-2
    finally:
        torch.set_num_threads(threads)



@pytest.mark.parametrize("which", ["image", "weight", "both"])
def test_channels_last_stays(hook, candidate, which):
    torch.manual_seed(0)
    net, x = nn.Conv2d(8, 16, 3, padding=1), torch.randn(2, 8, 12, 12)
    if which != "image":
        net = net.to(memory_format=torch.channels_last)
    if which != "weight":
        x = x.contiguous(memory_format=torch.channels_last)
    same(net, x, hook, 2e-2)


def test_writes_of_every_kind_are_seen(hook, candidate):
    torch.manual_seed(0)
    layer, x = nn.Linear(64, 64), torch.randn(32, 64)
    for change in (
        lambda: layer.weight.data.mul_(-2.0),
        lambda: layer.weight.detach().numpy().__imul__(0.5),
        lambda: torch.nn.utils.vector_to_parameters(torch.randn(64 * 65), layer.parameters()),
        lambda: layer.load_state_dict({"weight": torch.eye(64), "bias": torch.zeros(64)}),
    ):
        same(layer, x, hook, 2e-2)
        change()
        same(layer, x, hook, 2e-2)


def test_trains_like_stock(hook, candidate):
    def run():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU(), nn.Linear(32, 4))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        x, y = torch.randn(32, 1, 8, 8), torch.arange(32) % 4
        losses = []
        for _ in range(25):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        return losses, [buffer.clone() for buffer in net.buffers()]

    losses, buffers = run()
    hook.set_enabled(False)
    stock, stock_buffers = run()
    hook.set_enabled(True)
    assert losses == pytest.approx(stock, abs=0.05)
    for one, other in zip(buffers, stock_buffers):
        assert one.dtype == other.dtype and relative(one.float(), other.float()) < 2e-2


def test_frozen_layers_hooks_and_accumulation(hook, candidate):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
    net[2].requires_grad_(False)
    seen = []
    net[4].register_full_backward_hook(lambda module, given, got: seen.append((given[0].shape, got[0].shape)))
    x = torch.randn(16, 48)
    for _ in range(3):
        net(x).square().mean().backward()
    mine = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    assert len(mine) == 4 and seen == [((16, 64), (16, 8))] * 3
    net.zero_grad()
    hook.set_enabled(False)
    for _ in range(3):
        net(x).square().mean().backward()
    hook.set_enabled(True)
    for one, other in zip(mine, (p.grad for p in net.parameters() if p.grad is not None)):
        assert relative(one, other) < 2e-2


@pytest.mark.parametrize("reentrant", [True, False])
def test_activation_checkpoints(hook, candidate, reentrant):
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(48, 96), nn.Tanh(), nn.Linear(96, 48))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=reentrant)

    same(Net(), torch.randn(32, 48), hook, 2e-2)


def test_second_derivatives(hook, candidate):
    torch.manual_seed(0)
    layer, x = nn.Linear(32, 32), torch.randn(64, 32, requires_grad=True)

    def second():
        (first,) = torch.autograd.grad(torch.tanh(layer(x)).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), [x, layer.weight])

    second()
    for one, other in beside(hook, second):
        assert relative(one, other) < 3e-2


def test_gradcheck_in_double(hook, candidate):
    x, w = torch.randn(6, 5, dtype=torch.double, requires_grad=True), torch.randn(4, 5, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(nn.functional.linear, (x, w))
    image, kernel = torch.randn(1, 2, 5, 5, dtype=torch.double, requires_grad=True), torch.randn(3, 2, 3, 3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(nn.functional.conv2d, (image, kernel))


def test_functional_gradients(hook, candidate):
    torch.manual_seed(0)
    w, x = torch.randn(32, 64), torch.randn(48, 64)
    loss = lambda w: torch.tanh(x @ w.t()).sum()  # noqa: E731
    mine = torch.func.grad(loss)(w), torch.func.jvp(loss, (w,), (torch.ones_like(w),))[1]
    per_sample = torch.func.vmap(torch.func.grad(lambda w, one: torch.tanh(w @ one).sum()), (None, 0))(w, x)
    hook.set_enabled(False)
    stock = torch.func.grad(loss)(w), torch.func.jvp(loss, (w,), (torch.ones_like(w),))[1]
    stock_per_sample = torch.func.vmap(torch.func.grad(lambda w, one: torch.tanh(w @ one).sum()), (None, 0))(w, x)
    hook.set_enabled(True)
    for one, other in zip((*mine, per_sample), (*stock, stock_per_sample)):
        assert relative(one, other) < 2e-2


def test_batches_of_every_length_are_a_few_kinds_of_call(hook):
    import json

    def kinds():
        return sum("training=1" in site["site"] for site in json.loads(hook.report())["sites"])

    torch.nn.functional.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()
    hook.force("onednn_bf16_cast")
    layer, before = nn.Linear(40, 56), kinds()
    for length in range(65, 129):
        x = torch.randn(length, 40, requires_grad=True)
        layer(x).square().mean().backward()
        q = torch.randn(6, length, 24, requires_grad=True)
        (torch.softmax(q @ q.transpose(1, 2), -1) @ q).square().mean().backward()
    assert kinds() - before <= 16


# What follows needs a process of its own: the environment is read once, and the guard acts once.
PROGRAM = """
import sys, json, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.randn(256, 256), torch.arange(256) % 4
losses, taken = [], []
def count():
    if "ipexrun" not in sys.modules and "_ipexrun_hook" not in sys.modules: return 0
    import ipexrun
    return sum(site["taken"] for site in ipexrun.report()["sites"] if "training=1" in site["site"] and "bf16" in site["choice"])
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    batch = x * float("nan") if step == int(sys.argv[2]) else x
    loss = torch.nn.functional.cross_entropy(net(batch), y)
    bad = step == int(sys.argv[2])
    if bad and sys.argv[3] != "backward":  # the program sees it, in its own way, and leaves the step out
        assert eval(sys.argv[3])
    else:
        loss.backward()
        if not bad: optimizer.step()
    losses.append(loss.item() if sys.argv[3] == "backward" or not bad else float("nan")); taken.append(count())
why = sys.modules["ipexrun"].report()["training"]["float32_because"] if "ipexrun" in sys.modules else ""
print(json.dumps({"losses": losses, "taken": taken, "why": why}))
"""


def run(*options, steps=60, nan_at=-1, seen_by="backward", launched=True, **more):
    import json

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python", **more}
    launcher = [f"{BUILD}/bin/ipexrun", *options] if launched else []
    done = programs.run([*launcher, sys.executable, "-c", PROGRAM, str(steps), str(nan_at), seen_by], env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def stock_run():
    return run(launched=False)[0]


def test_losses_of_an_unedited_loop(stock_run, needs_bf16):
    found, said = run("--dtype", "bfloat16")
    assert found["taken"][-1] > 60, said  # asked for, bf16 is used however fast it is
    assert found["losses"] == pytest.approx(stock_run["losses"], rel=2e-2)


def test_float32_stays_float32(stock_run):
    found, said = run("--dtype", "float32")
    assert found["taken"][-1] == 0
    assert found["losses"] == pytest.approx(stock_run["losses"], rel=1e-4)


def test_after_nan_training_goes_on_in_float32(needs_bf16):
    found, said = run("--dtype", "bfloat16", nan_at=40)
    assert said.count("training: float32 from here on") == 1, said
    assert found["why"].startswith("NaN or infinity")
    assert found["taken"][39] > 30 and found["taken"][-1] <= found["taken"][40]
    assert found["losses"][40] != found["losses"][40]  # the program sees its own NaN
    assert found["losses"][-1] < found["losses"][0]


def test_nan_before_any_bf16_is_the_programs_own():
    found, said = run("--dtype", "float32", nan_at=5)
    assert "training:" not in said and found["why"] == "" and found["losses"][5] != found["losses"][5]


LOOKS = ["loss.item() != loss.item()", "__import__('math').isnan(loss)", "torch.isnan(loss)", "not loss.isfinite()", "not torch.isfinite(loss.detach()).all()",
         "loss.detach().item() != 0", "bool(loss != loss)", "'nan' in str(loss)"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("look", LOOKS)
def test_a_loss_that_is_nan_and_has_no_backward_pass(look, needs_bf16):
    found, said = run("--dtype", "bfloat16", nan_at=40, seen_by=look)
    assert said.count("training: float32 from here on") == 1, said
    assert found["why"].startswith("NaN or infinity in a loss")
    assert found["taken"][39] > 30 and found["taken"][-1] <= found["taken"][40]


NUMBERS = """
import sys, torch, ipexrun
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 8))
x, bound = torch.randn(64, 256), torch.tensor(float("inf"))
for step in range(8):
    y = net(x)
    bound.item(), bool(bound == bound), torch.isnan(x).any().item(), (x / 0).max().item()  # the program's own infinities
    y.sum().backward()
    torch.tensor(float("nan")).item()  # after a backward pass: no loss that is to come
    with torch.no_grad():
        torch.isnan(net(x * float("nan"))).any().item()
print(sum(site["taken"] for site in ipexrun.report()["sites"] if "training=1" in site["site"]) > 0, ipexrun.report()["training"]["float32_because"])
"""


def test_other_numbers_are_no_losses():
    done = launched("--dtype", "bfloat16", sys.executable, "-c", NUMBERS)
    assert done.stdout == "True \n", done.stdout + done.stderr


GRADIENTS = """
import json, sys, torch, ipexrun
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Tanh(), torch.nn.Linear(512, 256), torch.nn.Tanh(), torch.nn.Linear(256, 4))
x, y, kind = torch.randn(256, 256), torch.arange(256) % 4, sys.argv[1]
plain, lines = torch.optim.SGD(net.parameters(), lr=0.01, fused=kind == "fused"), torch.optim.LBFGS(net.parameters(), max_iter=4)
def loss_of(): return torch.nn.functional.cross_entropy(net(x), y)
def closure():
    lines.zero_grad(); loss = loss_of(); loss.backward(); return loss
class Own(torch.optim.Optimizer):
    def __init__(self): super().__init__(net.parameters(), {})
    def step(self, closure):
        for _ in range(3 if kind == "own lines" else 1):
            closure()
            for p in net.parameters(): p.data.sub_(0.01 * p.grad)
own = Own()
other = torch.nn.Linear(96, 96)
beside, z = torch.optim.SGD(other.parameters(), lr=0.01), torch.randn(96, 96)
def rounded(): return sum(site["taken"] for site in ipexrun.report()["sites"] if "training=1" in site["site"] and "bf16" in site["choice"] and "96" not in site["site"])
for step in range(80):
    if kind == "after" and step == 50: before = rounded()
    if kind == "beside": beside.zero_grad(); other(z).square().mean().backward(); beside.step()
    if kind == "back": net.load_state_dict({name: one.clone() for name, one in net.state_dict().items()})
    if kind == "lines": lines.step(closure); continue
    if kind.startswith("own"): own.step(closure); continue
    net.zero_grad()
    loss = loss_of()
    if kind == "twice":
        (gradient,) = torch.autograd.grad(loss, net[0].weight, create_graph=True)
        loss = loss + gradient.square().sum()
    loss.backward()
    if kind in ("data", "new_data"):
        for p in net.parameters():
            if kind == "data": p.data.sub_(0.01 * p.grad.data)
            else: p.data = p.data - 0.01 * p.grad
    elif kind not in ("looks", "beside", "back") and not (kind == "after" and step >= 49) and not (kind == "parts" and step % 8 != 7): plain.step()
print(json.dumps({"sites": ipexrun.report()["sites"], "rounded": rounded() - (before if kind == "after" else 0), "why": ipexrun.report()["training"]["float32_because"]}))
"""


def run_gradients(kind, **more):
    import json

    done = launched("--graph-mode", "off", sys.executable, "-c", GRADIENTS, kind, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def pins(tmp_path_factory):
    """bf16 is what every kind of call was found to prefer, so that no clock decides."""
    path = tmp_path_factory.mktemp("pins") / "pins"
    sites = run_gradients("steps")[0]["sites"]
    path.write_text("".join("\t".join([site["site"], "onednn_bf16_cast", "0", "0", "0", "", "auto", "0"]) + "\n" for site in sites), encoding="utf-8")
    return str(path)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "rounded", "why"), [("steps", True, ""), ("parts", True, ""), ("data", False, ""), ("new_data", False, ""), ("fused", True, ""), ("looks", False, ""),
                                                      ("beside", False, ""), ("back", False, ""), ("after", False, ""),
                                                      ("twice", False, "gradients of gradients are asked for"),
                                                      ("lines", False, "its optimizer searches along lines")])
def test_only_gradients_of_steps_are_rounded(pins, kind, rounded, why):
    found, said = run_gradients(kind, IPEXRUN_DECISIONS=pins)
    assert (found["rounded"] > 0) == (rounded and has_bf16()) and found["why"] == why, found
    assert "training:" not in said


@pytest.mark.parametrize(("kind", "why"), [("own", ""), ("own lines", "its optimizer searches along lines")])
def test_an_optimizer_of_the_programs_that_asks_its_closure_again_searches_lines(kind, why):
    assert run_gradients(kind)[0]["why"] == why


BY_HAND = """
import json, sys, torch, ipexrun
torch.manual_seed(0)
net, x, kind = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh(), torch.nn.Linear(512, 4)), torch.randn(512, 512), sys.argv[1]
for step in range(96):
    net.zero_grad()
    net(x).square().mean().backward()
    if kind == "lines": torch.nn.utils.vector_to_parameters(0.99 * torch.nn.utils.parameters_to_vector(net.parameters()).detach(), net.parameters())
found = ipexrun.report()
rounded = sum(site["taken"] for site in found["sites"] if "training=1" in site["site"] and "bf16" in site["choice"])
print(rounded > 0 or any("bf16" in (one.get("form") or "") for one in found["modules"]), found["training"]["float32_because"])
"""


@pytest.mark.parametrize("more", [{"IPEXRUN_GRAPH_WAIT": "0.01"}, {"IPEXRUN_GRAPH_WAIT": "0", "IPEXRUN_GRAPH_MODE": "dynamo"}])
@pytest.mark.parametrize("kind", ["lines", "looks"])
def test_gradients_of_weights_that_no_optimizer_changes_are_float32(needs_bf16, kind, more):
    """Captured or not, from the begin; SciPy's minimize() does what "lines" does."""
    done = launched(sys.executable, "-W", "ignore", "-c", BY_HAND, kind, **more)
    assert done.stdout.strip() == "False", done.stdout + done.stderr


RATIOS = """
import sys, torch, ipexrun
torch.manual_seed(0)
net, x, kind = torch.nn.Linear(8, 3), torch.randn(64, 8), sys.argv[1]
plain = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(4):
    with torch.no_grad(): old = net(x).log_softmax(-1)
    new = net(x).log_softmax(-1)
    if kind == "ratio": behind = new - old
    if kind == "far": behind = new - old + new - 3
    if kind == "both": behind = new - net(x).log_softmax(-1)
    if kind == "softmax": behind = new - new.max(-1, keepdim=True)[0].detach()
    if kind == "unrecorded": behind = old - old.flip(0) * 0.99
    plain.zero_grad()
    loss = (new + behind.exp()).square().mean()
    loss.backward()
    plain.step()
print(ipexrun.report()["training"]["float32_because"])
"""


@pytest.mark.parametrize(("kind", "exact"), [("ratio", True), ("far", False), ("both", False), ("softmax", False), ("unrecorded", False)])
def test_ratios_of_recorded_to_unrecorded_results_are_float32(kind, exact):
    """PPO's first ratio is 1."""
    done = launched("--graph-mode", "off", sys.executable, "-c", RATIOS, kind)
    assert ("PPO" in done.stdout) == exact, done.stdout + done.stderr
