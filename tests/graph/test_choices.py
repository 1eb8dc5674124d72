"""Risk: rounding turns a choice, and what follows is another computation; or bf16 is given up where nothing was chosen."""

import pytest
import torch
from ipexrun.graphs import choices
from torch.fx.experimental.proxy_tensor import make_fx


def steers(function, *inputs):
    return choices.steer(make_fx(function, tracing_mode="fake")(*inputs).graph)


CHOOSE = {
    "topk": lambda x: x[x.topk(2, 0).indices[:, 0]],
    "sort": lambda x: x.gather(0, x.sort(0).indices),
    "argmax": lambda x: torch.nn.functional.one_hot(x.argmax(-1), 16) * x,
    "max": lambda x: x.gather(0, x.max(0, keepdim=True).indices),
    "mask taken by rows": lambda x: x.index_put((x > 0,), torch.zeros(())),
    "mask turned around": lambda x: x.index_put((~(x > 0),), torch.zeros(())),
}
DO_NOT = {
    "values of topk": lambda x: x.topk(2, 0).values + 1,
    "largest": lambda x: x.max(0).values + 1,
    "the result": lambda x: (x + 1).argmax(-1),
    "relu by hand": lambda x: torch.where(x > 0, x, 0.1 * x),
    "positions of integers": lambda x: x.index_select(0, torch.full_like(x, 3, dtype=torch.int64).argmax(-1)),
}


@pytest.mark.parametrize("name", CHOOSE)
def test_choices_that_steer(name):
    assert steers(CHOOSE[name], torch.randn(16, 16))


@pytest.mark.parametrize("name", DO_NOT)
def test_what_does_not(name):
    assert not steers(DO_NOT[name], torch.randn(16, 16))


def test_a_graph_with_a_choice_has_no_form_in_bf16():
    model = torch.nn.Linear(64, 8)
    compiled = []

    def keep(graph, inputs):
        from ipexrun.graphs import backend

        return backend.backend(graph, inputs, made=compiled)

    def routed(x):
        return x[model(x).topk(2, 0).indices[:, 0]]

    x = torch.randn(16, 64)
    with torch.no_grad():
        assert torch.equal(torch.compile(routed, backend=keep)(x), routed(x))
    assert compiled and all(True not in graph.fused for graph in compiled)
