"""Training steps through `torch.compile(model, backend="ipex")`: graphs run as captured, their products as those of any training step.

Risk covered: a forward half that is taken for inference (and packs weights that change), gradients that differ from stock's, state of batch
norms or random masks that differ.
"""

import json

import pytest
import torch
from torch import nn


@pytest.fixture
def forced(hook):
    torch.nn.functional.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()  # from here on steps are training
    assert hook.force("onednn_bf16_cast")
    return hook


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2),
                         nn.Linear(16 * 36, 64), nn.GELU(), nn.Linear(64, 5))


def train(compiled, steps=6):
    net = network()
    call = torch.compile(net, backend="ipex") if compiled else net
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


def test_both_halves_are_training(forced):
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
