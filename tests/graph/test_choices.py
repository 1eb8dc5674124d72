"""Risk: rounding turns a choice, and what follows is another computation; or bf16 is given up where nothing was chosen."""

import pytest
import torch
from ipexrun.graphs import choices
from test_programs import Captured
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

def places_of_pool(x):
    values, places = torch.nn.functional.max_pool2d((x @ x)[None, None], 2, return_indices=True)
    return torch.nn.functional.max_unpool2d(values, places, 2)


CHOOSE |= {
    "entries by rounded numbers": lambda x: x[(x @ x * 4).long().clamp(0, 15)],
    "the same, whole numbers computed with": lambda x: x.index_select(0, ((x @ x).round().int()[0] + 3).clamp(0, 15)),
    "places of a pool": places_of_pool,
    "how often": lambda x: torch.zeros_like(x).scatter_add(1, (x @ x).long().clamp(0, 15), x),
}
DO_NOT |= {
    "entries by numbers from no product": lambda x: (x @ x) + x[x.log().long().clamp(0, 15)],
    "whole numbers as a result": lambda x: (x @ x * 255).to(torch.uint8),
    "values of a pool": lambda x: torch.nn.functional.max_pool2d((x @ x)[None, None], 2, return_indices=True)[0] * 2,
    "entries by zeros of a size": lambda x: x[torch.zeros_like(x @ x, dtype=torch.int64)],
}
CHOOSE |= {
    "signs": lambda x: torch.sign(x @ x) @ x,
    "signs straight through": lambda x: ((x @ x) + (torch.sign(x @ x) - (x @ x)).detach()) @ x,
    "whole numbers": lambda x: torch.round(torch.tanh(x @ x) * 4) / 4 @ x,
    "spikes": lambda x: ((x @ x) > 0).to(x.dtype) @ x,
    "spikes in layers": lambda x: torch.nn.functional.linear(((x @ x) > 0).float().relu().view(4, 64), torch.ones(2, 64)),
    "sides": lambda x: torch.where((x @ x) > 0, 1.0, -1.0) @ x,
    "codes of a few bits": lambda x: torch.round(x @ x * 3).clamp(-8, 7) @ x,
    "few whole numbers": lambda x: (x @ x).clamp(-2, 1).to(torch.int8).float() @ x,
}
DO_NOT |= {
    "signs of what no product made": lambda x: torch.sign(x) @ x,
    "signs as a result": lambda x: torch.sign(x @ x),
    "signed roots": lambda x: (torch.sign(x @ x) * torch.sqrt(torch.abs(x @ x))) @ x,
    "relu by a mask as numbers": lambda x: ((x @ x) * ((x @ x) > 0).float()) @ x,
    "bytes, as quantizers round": lambda x: (torch.round(x @ x * 100).clamp(-128, 127) / 100) @ x,
    "bytes, cast": lambda x: (torch.round(x @ x * 100).clamp(-128, 127).to(torch.int8).float() / 100) @ x,
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


def test_which_results_products_are_behind():
    def function(x, y):
        return x + 1, (x @ y).relu() * x, y.flip(0).float(), torch.nn.functional.linear(x, y).sum()

    graph = make_fx(function, tracing_mode="fake")(torch.randn(8, 8), torch.randn(8, 8)).graph
    assert choices.results_of_products(graph) == [False, True, False, True]


def test_counts_that_bf16_has_while_they_are_small_are_not_left_to_it():
    """Of ones and zeros bf16 makes the counts of stock, and of 1001 it makes 1000."""
    weight = (torch.rand(64, 64, generator=torch.Generator().manual_seed(1)) < 0.2).float()
    for x, good in ((torch.rand(32, 64) < 0.2).float(), False), (torch.rand(32, 64), True):
        captured = Captured(lambda x, grid: (torch.nn.functional.linear(x, weight), grid * 2), x, torch.arange(9.0))
        graph = captured.graphs[-1]
        assert graph.is_accurate(captured.values, captured.bf16, True) == good
        assert graph.is_accurate(captured.values, captured.exact, False)
