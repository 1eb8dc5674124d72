"""What a form of a captured step could lose beside numbers (python/ipexrun/training/step_paths.py), by graphs of a few nodes.

Risk covered: a write through `.data` that is overlooked, or found where there is none, so that a module is not captured for nothing.
"""

import os
import sys
import threading

import pytest
import torch
from torch import nn

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")
from ipexrun.training import step_graphs, step_paths  # noqa: E402


def later(x, y):
    z = x.data
    z = z.transpose(0, 1)[1:]
    nn.functional.relu(z, inplace=True)
    return y


def other_memory(x, y):
    x.set_(y)
    return x


WRITES = {
    "method": (lambda x, y: x.data.mul_(y), {0}), "view first": (lambda x, y: x.view(-1).data.fill_(1), {0}), "view later": (later, {0}), "other memory": (other_memory, {0, 1}),
    "sum in place": (lambda x, y: torch.add(y, 1, out=x.data), {0}), "told": (lambda x, y: nn.functional.elu(y.data, 1.0, True), {1}),
    "read": (lambda x, y: torch.relu_(x.data * y), set()), "of what was made": (lambda x, y: (x + y).data.mul_(2), set()),
    "no data": (lambda x, y: x.mul_(y), set()), "numbers alone": (lambda x, y: (x.data.mean() + y).relu_(), None),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_that_no_version_tells(name):
    function, places = WRITES[name]
    found = step_paths.unseen_writes(torch.fx.symbolic_trace(function).graph)
    assert found == places or places is None and found <= {0}, found


def test_what_was_written_is_seen_by_numbers_too():
    x = torch.tensor([[1.0, float("nan")], [2.0, 3.0]])
    copy = x.clone()
    assert not step_paths.is_written(copy, x) and not step_paths.is_written(3, 3)
    copy.data[1, 1] = 4
    assert copy._version == 0 and step_paths.is_written(copy, x)
    sparse = torch.eye(3).to_sparse()
    assert not step_paths.is_written(sparse.clone(), sparse)


def test_ways_of_gradients():
    x = torch.randn(3, 3, requires_grad=True)
    y = x.exp()
    assert step_paths.ways([y.sum(), y, x * 2, 3]) == {(0, 1)}
    assert step_paths.ways([y.sum(), y.clone(), x * 2, 3]) == set()
    assert step_paths.saved([y.sum(), x * 2], [y.detach(), x, torch.randn(3, 3)]) == {0: {0}}


@pytest.mark.parametrize("pool", [nn.functional.fractional_max_pool2d, nn.functional.max_pool2d])
def test_pools_are_known_by_their_names(pool):
    graph = torch.fx.symbolic_trace(lambda x: pool(x, 2, 2)).graph
    assert step_graphs.may_draw(graph) == (pool is nn.functional.fractional_max_pool2d)


def test_a_walk_in_order_leaves_no_thread():
    """torch.fx makes a hidden bar of tqdm, which starts a thread."""
    module = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Dropout()))
    orders = []
    step_paths.in_order(orders)(module)(torch.ones(2, 4))
    assert "tqdm_monitor" not in [one.name for one in threading.enumerate()] and orders


def test_every_operator_that_draws_is_known_by_its_name():
    """Where one is not, the random stream is put back after a comparison only as long as no other Python thread is alive."""
    names = {name.removeprefix("aten::").split(".")[0] for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    packets = [getattr(torch.ops.aten, name) for name in names]
    drawing = {one._qualified_op_name.removeprefix("aten::") for one in packets for kind in one.overloads() if torch.Tag.nondeterministic_seeded in getattr(one, kind).tags}
    chooses = {"_fused_sdp_choice", "_nested_tensor_softmax_with_shape"}  # tagged, and draw nothing
    assert len(drawing) > 60 and {one for one in drawing - chooses if not step_graphs.MAY_DRAW.search(one)} == set()
