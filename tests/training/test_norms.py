"""Batch norms and dropout of captured steps as single operations of autograd (python/ipexrun/training/step_norms.py, preload/plugin/batch_norms.h and
dropouts.h) beside torch's.

Risk covered: results, gradients or running statistics that differ from batch_norm, add and relu; graphs in which a norm is moved past something that it
reads or writes; a second backward pass.
"""

import os
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")
LAST = torch.channels_last
SHAPES = [(2, 5, 3, 3), (4, 64, 14, 14), (1, 17, 1, 2), (3, 33, 5, 7)]


def by_torch(x, residual, weight, bias, mean, variance, training, relu):
    y = F.batch_norm(x, mean, variance, weight, bias, training, 0.1, 1e-5)
    y = y if residual is None else y + residual
    return F.relu(y) if relu else y


def by_us(x, residual, weight, bias, mean, variance, training, relu):
    result = torch.classes.ipexrun.Training().batch_norm(x, [residual, weight, bias, mean, variance], training, 0.1, 1e-5, relu)
    assert result is not None
    return result


def seen(form, tensors, gradient, dtype, exact, training, relu):
    """Result, gradients and running statistics."""
    kinds = [dtype, dtype, *[torch.float32] * 4]
    values = [None if one is None else one.to(kind).to(torch.float64 if exact else kind) for one, kind in zip(tensors, kinds)]
    values = [one if one is None or one.dim() < 4 else one.contiguous(memory_format=LAST) for one in values]
    leaves = [one.requires_grad_() for one in values[:4] if one is not None]
    statistics = [None if one is None else one.detach().clone() for one in values[4:]]
    result = form(*values[:4], *statistics, training, relu)
    result.backward(gradient.to(dtype).to(result.dtype).contiguous(memory_format=LAST))
    return [result.detach(), *[one.grad for one in leaves], *[one for one in statistics if one is not None]]


def error(value, truth):
    return float((value.double() - truth).norm() / truth.norm().clamp_min(1e-30))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_batch_norm(plugin, shape, training, dtype):
    torch.manual_seed(0)
    channels = shape[1]
    for relu, residual, affine, tracked in [(r, s, a, t) for r in (0, 1) for s in (0, 1) for a in (0, 1) for t in (0, 1) if t or training]:
        tensors = [2 * torch.randn(shape) + 1, torch.randn(shape) if residual else None, *[torch.rand(channels) + 0.5 if affine else None for _ in range(2)],
                   *[torch.rand(channels) + 0.5 if tracked else None for _ in range(2)]]
        gradient = torch.randn(shape)
        truth = seen(by_torch, tensors, gradient, dtype, True, training, bool(relu))
        stock = seen(by_torch, tensors, gradient, dtype, False, training, bool(relu))
        mine = seen(by_us, tensors, gradient, dtype, False, training, bool(relu))
        for exact, theirs, ours in zip(truth, stock, mine, strict=True):
            assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
            assert error(ours, exact) <= 2 * error(theirs, exact) + (1e-6 if dtype is torch.float32 else 8e-3), (relu, residual, affine, tracked)


def test_a_second_backward_pass_is_torchs(plugin):
    torch.manual_seed(0)
    values = [torch.randn(3, 4, 2, 2).contiguous(memory_format=LAST), torch.rand(4) + 0.5, torch.rand(4)]
    found = []
    for form in (by_torch, by_us):
        x, weight, bias = (one.clone(memory_format=torch.preserve_format).requires_grad_() for one in values)
        first, = torch.autograd.grad(form(x, None, weight, bias, None, None, True, True).pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.pow(2).sum(), (x, weight, bias)))
    for stock, mine in zip(*found):
        torch.testing.assert_close(mine, stock, rtol=1e-3, atol=1e-3)


def test_what_does_not_fit_is_not_touched(plugin):
    training = torch.classes.ipexrun.Training()
    statistics = [torch.zeros(4), torch.ones(4)]
    for x in (torch.randn(2, 4, 3, 3), torch.randn(2, 4, 3), torch.randn(1, 4, 1, 1).contiguous(memory_format=LAST),
              torch.randn(2, 4, 3, 3).double().contiguous(memory_format=LAST), torch.randn(0, 4, 3, 3).contiguous(memory_format=LAST)):
        assert training.batch_norm(x, [None, None, None, *statistics], True, 0.1, 1e-5, True) is None
    last = torch.randn(2, 4, 3, 3).contiguous(memory_format=LAST)
    assert training.batch_norm(last, [torch.randn(2, 4, 3, 1), None, None, *statistics], True, 0.1, 1e-5, True) is None
    assert training.batch_norm(last, [None, torch.ones(4).double(), None, *statistics], True, 0.1, 1e-5, True) is None
    assert torch.equal(statistics[0], torch.zeros(4)) and torch.equal(statistics[1], torch.ones(4))


class Written(nn.Module):
    """`kind` says how what follows the norm is written."""

    def __init__(self, kind, **settings):
        super().__init__()
        self.kind, self.first, self.second = kind, nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1)
        self.norm, self.other = nn.BatchNorm2d(6, **settings), nn.BatchNorm2d(6, **settings)

    def forward(self, x):
        y = self.norm(self.first(x))
        if self.kind == "relu":
            return self.second(torch.relu(y))
        if self.kind == "in place":
            y += x
            return self.second(y.relu_())
        if self.kind == "sum is kept":
            z = y + x
            return self.second(torch.relu(z)) + z
        if self.kind == "norm is kept":
            return self.second(torch.relu(y)) + y
        if self.kind == "other is written":
            z = self.second(x)
            z += y
            return torch.relu(z) + z
        if self.kind == "two norms":
            return self.second(torch.relu(y + self.other(self.second(x))))
        if self.kind == "twice":
            return self.norm(self.second(torch.relu(y)))
        if self.kind == "broadcast":
            return torch.relu(y + x.mean((2, 3), keepdim=True))
        if self.kind == "input is written":
            z = self.first(x)
            w = self.other(z)
            z = z + 1
            return torch.relu(w + z)
        return y


KINDS = {"relu": 1, "in place": 1, "sum is kept": 1, "norm is kept": 1, "other is written": 1, "two norms": 2, "twice": 2, "broadcast": 1,
         "input is written": 2, "alone": 1}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.3, "affine": False}, {"track_running_stats": False}, "eval"], ids=str)
def test_graphs_keep_their_meaning(plugin, kind, settings):
    from ipexrun.training import step_norms

    graphs = []
    torch.manual_seed(0)
    net = Written(kind, **({} if settings == "eval" else settings)).to(memory_format=LAST)
    net.train(settings != "eval")

    def backend(graph, _):
        graphs.append(graph)

        def both(*values):
            found = []
            for form in (graph, step_norms.fused(graph)):
                copies = [one.detach().clone(memory_format=torch.preserve_format).requires_grad_(one.requires_grad) for one in values]
                results = [one for one in form.forward(*copies) if isinstance(one, torch.Tensor)]
                sum(one.sin().sum() for one in results).backward()  # of squares a norm has no gradient
                found.append([*results, *copies, *[one.grad for one in copies if one.grad is not None]])
            for stock, mine in zip(*found, strict=True):
                torch.testing.assert_close(mine, stock, rtol=1e-3, atol=1e-3)
            return graph.forward(*values)

        return both

    torch._dynamo.reset()
    torch.compile(net, backend=backend)(torch.randn(4, 6, 5, 5).contiguous(memory_format=LAST).requires_grad_())
    (graph,) = graphs
    replaced = [node.args for node in step_norms.fused(graph).graph.nodes if node.target is step_norms.batch_norm]
    assert len(replaced) == KINDS[kind]
    if kind in ("in place", "two norms"):
        assert any(one[8] is not None and one[9] for one in replaced)
    if kind in ("norm is kept", "other is written", "broadcast"):
        assert not any(one[9] for one in replaced)
    if kind in ("other is written", "broadcast"):
        assert not any(one[8] is not None for one in replaced)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.37])
def test_dropout_is_torchs_to_the_bit(plugin, p, dtype):
    from ipexrun.training import step_norms

    found = []
    for form in (lambda x: F.dropout(x, p, True), lambda x: step_norms.dropout(x, p)):
        torch.manual_seed(3)
        x = torch.randn(37, 129).to(dtype)
        x[3, 5], x[4, 6] = float("nan"), float("inf")
        x.requires_grad_()
        y = form(x)
        first, = torch.autograd.grad(y.float().nan_to_num(0, 0, 0).pow(2).sum(), x, create_graph=True)
        second, = torch.autograd.grad(first.float().nan_to_num(0, 0, 0).pow(2).sum(), x)
        gradient, = torch.autograd.grad(form(x), x, torch.randn(37, 129).to(dtype))
        found.append([y.detach(), first.detach(), second, gradient, torch.rand(3), torch.get_rng_state()])
    for stock, mine in zip(*found, strict=True):
        assert stock.dtype == mine.dtype and torch.equal(stock.nan_to_num(7), mine.nan_to_num(7))


@pytest.mark.parametrize("p, training, inplace, replaced", [(0.2, True, False, 1), (0.2, False, False, 0), (0.2, True, True, 0), (0.0, True, False, 1)])
def test_dropouts_of_graphs(plugin, p, training, inplace, replaced):
    from ipexrun.training import step_norms

    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(lambda x: F.dropout(x.sin(), p, training, inplace) + 1, backend=backend)(torch.randn(8, 8))
    (graph,) = graphs
    made = step_norms.fused(graph)
    assert sum(node.target is step_norms.dropout for node in (made or graph).graph.nodes) == replaced
    found = []
    for form in (graph, made or graph):
        torch.manual_seed(1)
        found.append([form.forward(torch.ones(8, 8))[0], torch.rand(2)])
    assert all(torch.equal(stock, mine) for stock, mine in zip(*found))


def test_sizes_that_are_not_known(plugin):
    """Batches of other sizes: the graph has symbols, and the sum behind the norm is still found."""
    from ipexrun.training import step_norms

    graphs = []

    def backend(graph, _):
        graphs.append(step_norms.fused(graph))
        return graph.forward

    torch._dynamo.reset()
    net = torch.compile(Written("in place"), backend=backend, dynamic=True)
    for batch in (3, 4, 5):
        net(torch.randn(batch, 6, 5, 5))
    (graph,) = graphs
    (made,) = [node.args for node in graph.graph.nodes if node.target is step_norms.batch_norm]
    assert made[8] is not None and made[9]


@pytest.mark.parametrize("wants", [("weight",), ("bias",), ("weight", "bias"), ("x",), ("x", "weight", "bias")])
@pytest.mark.parametrize("layout", [torch.contiguous_format, LAST])
def test_group_norms_that_only_train_themselves(layout, wants):
    """Behind a layer that is frozen, say: torch's kernel ended the process where images lie channels last (preload/plugin/group_norms.cpp)."""
    torch.manual_seed(0)
    x, weight, bias, gradient = torch.randn(8, 16, 9, 7), torch.randn(16), torch.randn(16), torch.randn(8, 16, 9, 7)

    def gradients(kind, layout):
        tensors = {"x": x.to(kind).contiguous(memory_format=layout), "weight": weight.to(kind), "bias": bias.to(kind)}
        leaves = [tensors[name].requires_grad_() for name in wants]
        return torch.autograd.grad(F.group_norm(tensors["x"], 4, tensors["weight"], tensors["bias"]), leaves, gradient.to(kind))

    for mine, truth in zip(gradients(torch.float32, layout), gradients(torch.float64, torch.contiguous_format), strict=True):
        assert error(mine, truth) < 1e-6
