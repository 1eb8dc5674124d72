"""`--split-sgd` (python/ipexrun/training/split_sgd.py, preload/plugin/split_weights.h): bfloat16 weights whose low halves are kept beside the optimizer.

Risk covered: an update that is not float32's to the bit; a checkpoint, copy or pickle that is not plain float32, or does not load into stock and
back; a forward pass, an evaluation or a gradient that float32 activations and a bfloat16 weight make fail; weights that are used in other ways
and must stay float32; writes of the program that a stale low half spoils.
"""

import copy
import io
import os
import pickle
import subprocess
import sys

import programs
import pytest
import torch
from torch import nn
from torch.optim import SGD

BUILD = os.environ["IPEXRUN_BUILD_DIR"]


@pytest.fixture
def split(hook):
    """The module, with the option on."""
    warm = nn.Parameter(torch.ones(2))
    warm.grad = torch.ones(2)
    SGD([warm]).step()  # the first step loads the package
    optimizers = sys.modules["ipexrun.training.optimizers"]
    optimizers.SPLIT_SGD = True
    import importlib

    yield importlib.import_module("ipexrun.training.split_sgd")
    optimizers.SPLIT_SGD = False


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 32, 7, padding=3), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 64, 32), nn.ReLU(), nn.Linear(32, 5))


def loss_of(net, step):
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 3, 8, 8, generator=generator), torch.randint(0, 5, (8,), generator=generator)
    return nn.functional.cross_entropy(net(x), y)


def train(net, optimizer, steps, first=0):
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = loss_of(net, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


SETTINGS = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    {"lr": 0.03, "momentum": 0.9, "nesterov": True},
    {"lr": 0.03, "momentum": 0.9, "dampening": 0.5, "maximize": True},
    {"lr": 0.03, "momentum": 0.9, "foreach": True},
    {"lr": torch.tensor(0.03), "momentum": 0.9},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_updates_are_those_of_float32_to_the_bit(split, hook, settings):
    torch.manual_seed(0)
    layer = nn.Linear(64, 96)
    weight = nn.Parameter(layer.weight.detach().clone())
    mine, stock = SGD([layer.weight], **settings), SGD([weight], **settings)
    for step in range(300):
        gradient = torch.randn(96, 64).mul_(10.0 ** ((step % 7) - 3)).bfloat16()
        layer.weight.grad = gradient if step else gradient.float()  # before the first step the weight is float32
        mine.step()
        weight.grad = gradient.float()
        hook.set_enabled(False)
        stock.step()
        hook.set_enabled(True)
        assert layer.weight.dtype is torch.bfloat16
        assert torch.equal(split.value_of(layer.weight).view(torch.int32), weight.detach().view(torch.int32)), step
    assert torch.allclose(layer.weight.float(), weight, rtol=2**-8, atol=0)  # the nearest bfloat16
    for one, other in zip(mine.state[layer.weight].items(), stock.state[weight].items()):
        assert one[0] == other[0] and (one[1] is other[1] or torch.equal(one[1], other[1]))


def test_the_program_keeps_its_parameters(split):
    net = network()
    before = list(net.parameters())
    strides = [one.stride() for one in before]
    optimizer = SGD(net.parameters(), lr=0.05, momentum=0.9)
    train(net, optimizer, 3)
    assert all(one is other for one, other in zip(net.parameters(), before)) and [one.stride() for one in net.parameters()] == strides
    weights = {name: one.dtype for name, one in net.named_parameters() if one.dtype is not torch.float32}
    assert weights == {"0.weight": torch.bfloat16, "4.weight": torch.bfloat16}  # the last layer has too few numbers
    assert all(one.grad.dtype is one.dtype and one.is_leaf and one.requires_grad for one in net.parameters())
    note = sys.modules["ipexrun.training.optimizers"]._steppers[optimizer].note()
    elements = sum(one.numel() for one in net.parameters() if one.dtype is torch.bfloat16)
    assert note["choice"] == "split" and note["split_weights"] == 2 and note["saved_bytes"] == 2 * elements
    halves = [split._halves[one] for one in net.parameters() if one.dtype is torch.bfloat16]
    kept = sum(half.low.numel() * half.low.element_size() for half in halves)
    kept += sum(one.numel() * one.element_size() + one.grad.numel() * one.grad.element_size() for one in net.parameters() if one.dtype is torch.bfloat16)
    assert kept == 8 * elements - note["saved_bytes"]  # stock: float32 weights and gradients


def test_losses_follow_float32(split, hook):
    net = network()
    losses = train(net, SGD(net.parameters(), lr=0.02, momentum=0.9), 60)
    hook.set_enabled(False)
    other = network()
    stock = train(other, SGD(other.parameters(), lr=0.02, momentum=0.9), 60)
    hook.set_enabled(True)
    assert losses == pytest.approx(stock, rel=0.1, abs=0.05)


def test_every_form_of_call(split, hook):
    torch.manual_seed(0)
    layer, convolution = nn.Linear(64, 96), nn.Conv1d(64, 96, 3)
    plain = nn.Linear(64, 96, bias=False)
    optimizer = SGD([*layer.parameters(), *convolution.parameters(), *plain.parameters()], lr=0.1)
    calls = [lambda x: layer(x), lambda x: plain(x), lambda x: layer(x[0]), lambda x: plain(x[0]), lambda x: layer(x.expand(4, 8, 64)),
             lambda x: plain(x.view(2, 4, 64).transpose(0, 1)), lambda x: layer(x.view(2, 4, 64).transpose(0, 1)), lambda x: convolution(x.t()[None])]
    sum(call(torch.randn(8, 64)).sum() for call in calls).backward()
    optimizer.step()
    assert layer.weight.dtype is convolution.weight.dtype is plain.weight.dtype is torch.bfloat16
    whole = [copy.deepcopy(one) for one in (layer, convolution, plain)]
    for one in whole:
        assert one.weight.dtype is torch.float32
        with torch.no_grad():
            one.weight.copy_(one.weight.bfloat16())
    stock_calls = [lambda x, call=call: call(x) for call in calls]
    for call, stock in zip(calls, stock_calls):
        x = torch.randn(8, 64, requires_grad=True)
        result = call(x)
        assert result.dtype is torch.float32
        optimizer.zero_grad()
        result.pow(2).sum().backward()
        mine = [x.grad, *(one.grad for group in optimizer.param_groups for one in group["params"])]
        with torch.no_grad():
            assert (call(x) - result).norm() <= 2e-2 * result.norm()
        x.grad = None
        parameters = [one.data for group in optimizer.param_groups for one in group["params"]]
        layer.weight.data, convolution.weight.data, plain.weight.data = (one.weight.data for one in whole)
        hook.set_enabled(False)
        optimizer.zero_grad()
        expected = stock(x)
        expected.pow(2).sum().backward()
        hook.set_enabled(True)
        theirs = [x.grad, *(one.grad for group in optimizer.param_groups for one in group["params"])]
        for group in optimizer.param_groups:
            for one, data in zip(group["params"], parameters):
                one.data = data
        assert result.shape == expected.shape and (result - expected).norm() <= 2e-2 * expected.norm()
        for one, other in zip(mine, theirs):
            assert (one is None) == (other is None)
            assert one is None or (one.float() - other.float()).norm() <= 3e-2 * other.float().norm()


@pytest.mark.parametrize("first, then", [(True, False), (False, True), (True, True)])
def test_checkpoints_are_plain_float32_and_go_both_ways(split, hook, first, then):
    optimizers = sys.modules["ipexrun.training.optimizers"]

    def run(is_split, net, optimizer, steps, begin):
        optimizers.SPLIT_SGD = is_split
        losses = train(net, optimizer, steps, begin)
        assert (net[4].weight.dtype is torch.bfloat16) == is_split
        return losses

    net = network()
    optimizer = SGD(net.parameters(), lr=0.02, momentum=0.9)
    run(first, net, optimizer, 8, 0)
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    assert all(one.dtype is torch.float32 for one in saved["net"].values() if one.is_floating_point())
    assert all(state["momentum_buffer"].dtype is torch.float32 for state in saved["optimizer"]["state"].values())
    assert saved["optimizer"]["param_groups"][0].keys() == SGD([torch.ones(1)]).state_dict()["param_groups"][0].keys()
    if first:
        assert torch.equal(saved["net"]["4.weight"], split.value_of(net[4].weight))
        assert not torch.equal(saved["net"]["4.weight"], saved["net"]["4.weight"].bfloat16().float())
    other = network()
    again = SGD(other.parameters(), lr=0.02, momentum=0.9)
    run(then, other, again, 2, 50)  # a run that has its own weights and state before it loads
    other.load_state_dict(saved["net"])
    again.load_state_dict(saved["optimizer"])
    assert torch.equal(other.state_dict()["4.weight"], saved["net"]["4.weight"])
    for state, kept in zip(again.state_dict()["state"].values(), saved["optimizer"]["state"].values()):
        assert torch.equal(state["momentum_buffer"], kept["momentum_buffer"])
    losses = run(then, other, again, 8, 8)
    optimizers.SPLIT_SGD = True
    assert losses == pytest.approx(run(first, net, optimizer, 8, 8), rel=5e-2, abs=2e-2)


def test_copies_and_pickles_are_float32(split):
    net = network()
    net[4].weight.mark = "kept"
    optimizer = SGD(net.parameters(), lr=0.02, momentum=0.9)
    train(net, optimizer, 3)
    value = split.value_of(net[4].weight)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(file, weights_only=False)):
        assert torch.equal(other[4].weight, value) and other[4].weight.requires_grad and other[4].weight.mark == "kept"
    assert net[4].weight.dtype is torch.bfloat16
    assert torch.equal(net.float()[4].weight, value)  # the program's own conversions begin with the whole number
    train(net, optimizer, 1, 3)
    assert net[4].weight.dtype is torch.bfloat16


def test_the_programs_own_writes_count(split):
    net = network()
    optimizer = SGD(net.parameters(), lr=0.0)
    train(net, optimizer, 3)
    with torch.no_grad():
        net[4].weight.fill_(1.25)
    train(net, optimizer, 1, 3)
    assert torch.equal(net.state_dict()["4.weight"], torch.full((32, 2048), 1.25))
    net[4].weight.data = torch.full((32, 2048), 0.1)
    train(net, optimizer, 1, 4)
    assert torch.equal(net.state_dict()["4.weight"], torch.full((32, 2048), 0.1))


def test_clipping_and_accumulation(split):
    net = network()
    optimizer = SGD(net.parameters(), lr=0.05)
    for step in range(6):
        for part in range(2):
            loss_of(net, 2 * step + part).backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        assert norm.isfinite()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    assert net[4].weight.dtype is torch.bfloat16 and net(torch.randn(2, 3, 8, 8)).isfinite().all()


def test_weights_that_others_use_stay_float32(split):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(128, 64)
            self.out = nn.Linear(64, 128, bias=False)
            self.out.weight = self.table.weight
            self.inner = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
            self.up = nn.ConvTranspose1d(64, 64, 3, padding=1)
            self.down = nn.Linear(64, 64)

        def forward(self, x):
            return self.out(self.down(self.up(self.inner(self.table(x)).transpose(1, 2)).transpose(1, 2)))

    net = Tied()
    optimizer = SGD(net.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randint(0, 128, (2, 7))).sum().backward()
        optimizer.step()
    assert [name for name, one in net.named_parameters() if one.dtype is torch.bfloat16] == ["down.weight"]
    with torch.no_grad():
        assert net.eval()(torch.randint(0, 128, (2, 7))).dtype is torch.float32


def test_steps_inside_a_closure_and_steps_that_raise(split):
    outer, inner = network(), network()
    first, second = SGD(outer.parameters(), lr=0.02), SGD(inner.parameters(), lr=0.02)
    functions = sys.modules["torch.optim.sgd"].sgd
    train(outer, first, 2)
    train(inner, second, 2)

    def closure():
        first.zero_grad()
        second.zero_grad()
        with torch.enable_grad():
            loss = loss_of(outer, 5) + loss_of(inner, 5)
            loss.backward()
        second.step()
        return loss

    before = split.value_of(outer[4].weight), split.value_of(inner[4].weight)
    first.step(closure)
    with pytest.raises(KeyError):
        first.step(lambda: {}["mine"])
    train(inner, second, 1)
    assert sys.modules["torch.optim.sgd"].sgd is functions
    for net, was in zip((outer, inner), before):
        value = split.value_of(net[4].weight)
        assert not torch.equal(value, was) and not torch.equal(value, value.bfloat16().float())


PROGRAM = """
import sys, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = getattr(torch.optim, sys.argv[1])(net.parameters(), lr=0.01)
x, y = torch.randn(64, 256), torch.arange(64) % 8
for step in range(40):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
print(net[0].weight.dtype, net.state_dict()["0.weight"].dtype, round(loss.item(), 3))
"""


def run(*options, optimizer="SGD"):
    done = programs.run([f"{BUILD}/bin/ipexrun", *options, sys.executable, "-c", PROGRAM, optimizer],
                        env={**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off"})
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize("options", [(), ("--select", "off"), ("--dtype", "float32")])
def test_an_unedited_program(options):
    (seen, saved, loss), said = run("--split-sgd", *options)
    assert (seen, saved) == ("torch.bfloat16", "torch.float32")
    assert said.count("--split-sgd: 1 weights of 0.07 million numbers are bfloat16") == 1 and "0.1 MB less" in said, said
    assert float(loss) == pytest.approx(float(run()[0][2]), rel=3e-2)


def test_without_the_option_and_with_other_optimizers_nothing_is_split():
    assert run()[0][:2] == ["torch.float32", "torch.float32"]
    found, said = run("--split-sgd", optimizer="AdamW")
    assert found[:2] == ["torch.float32", "torch.float32"] and "split-sgd" not in said
    assert "--split-sgd" in subprocess.run([f"{BUILD}/bin/ipexrun", "--help"], capture_output=True, text=True, check=True).stdout
