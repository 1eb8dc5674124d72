"""Training steps through `torch.compile(model, backend="ipex")`: graphs as captured, their products as those of any training step, or in bf16 and
channels last from end to end (python/ipexrun/training/step_graphs.py).

Risk covered: a forward half that is taken for inference (and packs weights that change), gradients that differ from stock's, state of batch
norms or random masks that differ; results of another face; a form that stays after NaN; hooks that fire twice.
"""

import json
import os
import sys

import programs
import pytest
import torch
import torch._dynamo
from ipexrun.training import step_rounding
from torch import nn


@pytest.fixture(autouse=True)
def graphs_of_its_own():
    """TorchDynamo hands a graph on to modules that look alike."""
    torch._dynamo.reset()


@pytest.fixture
def forced(hook):
    torch.nn.functional.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()  # from here on steps are training
    assert hook.force("onednn_bf16_cast")
    return hook


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2),
                         nn.Linear(16 * 36, 64), nn.GELU(), nn.Linear(64, 5))


def train(compiled, steps=6, options=None):
    net = network()
    call = torch.compile(net, backend="ipex", options=options or {"dtype": "float32"}) if compiled else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        x, y = torch.randn(16, 3, 12, 12), torch.randint(0, 5, (16,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(call(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.grad.clone() for p in net.parameters()], list(net.buffers())


def sites(hook):
    return {site["site"]: site for site in json.loads(hook.report())["sites"]}


def near(mine, stock, bound):
    mine, stock = mine.double(), stock.double()
    assert (mine - stock).norm() <= bound * stock.norm() + 1e-6


def test_both_halves_are_training(forced, needs_bf16):
    before = sites(forced)
    losses, gradients, buffers = train(True)
    grew = {key for key, site in sites(forced).items() if site["taken"] > before.get(key, {"taken": 0})["taken"]}
    assert any(key.startswith("addmm|") and "training=1" in key for key in grew), grew  # forward
    assert any(key.startswith("convolution2d|") and "training=1" in key for key in grew), grew
    assert any(key.startswith("mm|") for key in grew) and any(key.startswith("convolution_backward2d|") for key in grew), grew
    assert json.loads(forced.report())["pack_bytes"] == 0
    forced.set_enabled(False)
    stock_losses, stock_gradients, stock_buffers = train(False)
    forced.set_enabled(True)
    assert losses == pytest.approx(stock_losses, rel=5e-2, abs=5e-2)
    for one, other in zip(gradients, stock_gradients):
        near(one, other, 0.15)
    for one, other in zip(buffers, stock_buffers):
        near(one, other, 2e-2)


def test_float32_graphs_are_stocks(hook):
    hook.set_enabled(False)
    stock = train(False)
    mine = train(True)
    hook.set_enabled(True)
    assert mine[0] == pytest.approx(stock[0], rel=1e-5)
    for one, other in zip(mine[1], stock[1]):
        near(one, other, 1e-4)


def test_inference_after_training_is_inference(forced):
    train(True, 2)
    net = network().eval()
    call = torch.compile(net, backend="ipex")
    x = torch.randn(4, 3, 12, 12)
    with torch.no_grad():
        for _ in range(3):
            result = call(x)
    assert not result.requires_grad
    forced.set_enabled(False)
    with torch.no_grad():
        near(result, net(x), 3e-2)
    forced.set_enabled(True)


BF16 = {"dtype": "bfloat16"}  # asked for: used once it is right, however fast it is


def notes():
    """Of the graphs that were made last."""
    return [note for note in sys.modules["ipexrun.graphs.graph_notes"].graphs if "left_alone" not in note]


def test_bf16_from_end_to_end(hook):
    hook.set_enabled(False)
    stock_losses, stock_gradients, stock_buffers = train(False, 8)
    random = torch.get_rng_state()
    hook.set_enabled(True)
    losses, gradients, buffers = train(True, 8, BF16)
    note = notes()[-1]
    assert note["choice"] == "bf16, channels last" and note["taken"] == 7, note
    assert torch.equal(torch.get_rng_state(), random)
    assert losses == pytest.approx(stock_losses, rel=5e-2, abs=5e-2)
    for one, other in zip(gradients, stock_gradients):
        assert one.dtype == other.dtype and one.stride() == other.stride()
    near(*(torch.cat([one.flatten() for one in all]) for all in (gradients, stock_gradients)), 0.2)  # that of a bias before a norm is noise
    for one, other in zip(buffers, stock_buffers):
        assert one.dtype == other.dtype
        near(one, other, 2e-2)
    assert torch.equal(buffers[2], stock_buffers[2])  # num_batches_tracked: no step ran twice


class Shapes(nn.Module):
    """Results of several faces."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3, padding=1), nn.Linear(8, 3)

    def forward(self, x):
        image = torch.tanh(self.first(x))
        return {"image": image, "rows": self.second(image.mean((2, 3))), "count": image.argmax(1)}


@pytest.mark.parametrize("last", [False, True])
def test_results_look_like_stocks(hook, last):
    torch.manual_seed(0)
    net, x = Shapes(), torch.randn(2, 4, 6, 6)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    call = torch.compile(net, backend="ipex", options=BF16)
    for _ in range(4):
        mine, stock = call(x), net(x)
        assert mine.keys() == stock.keys()
        for name in ("image", "rows"):
            assert (mine[name].dtype, mine[name].stride(), mine[name].requires_grad) == (torch.float32, stock[name].stride(), True)
            near(mine[name].detach(), stock[name].detach(), 3e-2)
        (mine["image"].sum() + mine["rows"].sum()).backward()


def test_hooks_and_accumulated_gradients(hook):
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4)), torch.randn(16, 32)
    fired = []
    for parameter in net.parameters():
        parameter.register_hook(lambda gradient: fired.append(gradient.shape))
    call = torch.compile(net, backend="ipex", options=BF16)
    for step in range(1, 6):
        call(x).square().sum().backward()
        assert len(fired) == 4 * step  # the comparison of gradients passes hooks by
    mine = [parameter.grad.clone() for parameter in net.parameters()]
    net.zero_grad()
    (5 * net(x).square().sum()).backward()
    for one, parameter in zip(mine, net.parameters()):
        near(one, parameter.grad, 5e-2)


def test_what_cannot_be_channels_last_stays(hook):
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(4, 8, 3, padding=1), nn.Linear(8 * 36, 3)

        def forward(self, x):
            return self.last(self.first(x).view(x.shape[0], -1))

    torch.manual_seed(0)
    net, x = Views(), torch.randn(2, 4, 6, 6)
    call = torch.compile(net, backend="ipex", options=BF16)
    for _ in range(3):
        result = call(x)
        near(result.detach(), net(x).detach(), 3e-2)
        result.sum().backward()
    note = notes()[-1]
    assert note["choice"] == "captured" and "view" in note["lost"][0], note


def test_random_numbers_stay_where_they_fall(hook):
    class Noisy(nn.Module):
        """Noise counts from some step on, so that no comparison of numbers shows it."""

        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(4, 8, 3, padding=1), nn.Linear(8, 3)
            self.register_buffer("strength", torch.zeros(()))

        def forward(self, x):
            image = self.first(x)
            return self.last((image * (1 + self.strength * torch.rand_like(image))).amax((2, 3)))

    torch.manual_seed(0)
    net, x = Noisy(), torch.randn(2, 4, 6, 6)
    call = torch.compile(net, backend="ipex", options=BF16)
    for _ in range(4):
        call(x).sum().backward()
    net.strength.fill_(4.0)
    state = torch.get_rng_state()
    result = call(x)
    torch.set_rng_state(state)
    near(result.detach(), net(x).detach(), 3e-2)
    assert "another order" in notes()[-1]["lost"][0], notes()[-1]


DIVERGES = """
import sys, torch
from ipexrun.training import step_rounding
from torch import nn
import ipexrun
torch.manual_seed(0)
net, x = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4)), torch.randn(16, 32)
call = torch.compile(net, backend="ipex", options={"dtype": "bfloat16"})
for step in range(6):
    net.zero_grad()
    loss = call(x).square().sum() * (float("nan") if step == 3 else 1)
    if step == 3 and sys.argv[1] == "looks":
        assert loss.item() != loss.item()
        continue
    loss.backward()
    assert bool(net[0].weight.grad.isnan().all()) == (step == 3)
note = [note for note in ipexrun.report()["graphs"] if "choice" in note and "backward" not in note["where"]][-1]
print(note["choice"], note["taken"] > 0, any("NaN" in why or "went back" in why for why in note.get("lost", [])))
"""


@pytest.mark.parametrize("how", ["backward", "looks"])
def test_nan_takes_a_graph_back(how):
    build = os.environ["IPEXRUN_BUILD_DIR"]
    done = programs.run([f"{build}/bin/ipexrun", sys.executable, "-c", DIVERGES, how], imports="torch torch._dynamo",
                        env={**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "PYTHONPATH": f"{build}/lib/ipexrun/python"})
    assert done.stdout == "captured True True\n", done.stdout + done.stderr
    assert sum("float32" in line and "training:" in line for line in done.stderr.splitlines()) == 1, done.stderr


class Distance(nn.Module):
    """Its loss is infinite where a product is 1, which it is in bf16 for all numbers near it."""

    def __init__(self, writes):
        super().__init__()
        self.last = nn.Linear(64, 64, bias=False)
        nn.init.eye_(self.last.weight)
        self.register_buffer("calls", torch.zeros(()))
        self.writes = writes

    def forward(self, x):
        if self.writes:
            self.calls.add_(1)
        return (1 / (self.last(x) - 1)).mean()


@pytest.mark.parametrize("writes", [False, True], ids=["stock_again", "next_step"])
def test_losses_that_bf16_makes_infinite(hook, writes, capfd, monkeypatch):
    monkeypatch.setattr(step_rounding, "SMALL_HEAD", 0)  # else its product is not rounded
    net = Distance(writes)
    call = torch.compile(net, backend="ipex", options=BF16)
    losses = []
    for value in (3.0, 3.0, 3.0, 1.001, 3.0, 1.001):
        net.zero_grad()
        loss = call(torch.full((16, 64), value))
        loss.backward()
        losses.append(loss.item())
    note = notes()[-1]
    assert note["taken"] == 2 and note["choice"] == "captured" and "NaN or infinity in its loss" in note["lost"][0], note
    for i, (value, loss) in enumerate(zip((0.5, 0.5, 0.5, 1e3, 0.5, 1e3), losses, strict=True)):
        assert loss == (float("inf") if writes and i == 3 else pytest.approx(value, rel=1e-2))
    assert net.calls == (6 if writes else 0)
    assert capfd.readouterr().err.count("goes on in float32") == 1


def test_autocast_of_the_program_is_its_own(hook):
    torch.manual_seed(0)
    net, x = nn.Linear(32, 8), torch.randn(4, 32)
    call = torch.compile(net, backend="ipex", options=BF16)
    with torch.autocast("cpu", torch.bfloat16):
        result = call(x)
    assert result.dtype is torch.bfloat16


def test_a_race_ends(hook, needs_bf16):
    _, _, _ = train(True, 60, {"dtype": "auto"})
    note = notes()[-1]
    assert note["choice"] in ("captured", "bf16, channels last") and note["calls"] == 60


def test_steps_without_a_backward_pass(hook):
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4)), torch.randn(16, 32)
    call = torch.compile(net, backend="ipex", options=BF16)
    for step in range(20):
        result = call(x)
        if step >= 2:
            result.square().sum().backward()
    assert notes()[-1]["choice"] == "bf16, channels last", notes()[-1]
