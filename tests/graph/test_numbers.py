"""Graphs whose results hold numbers that are computed from sizes (python/ipexrun/graphs/number_results.py).

Risk covered: a cache that counts what it has seen left to stock; a number at another's place, or of another call.
"""

import pytest
import torch
from ipexrun.graphs import graph_notes
from torch import nn


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    graph_notes.graphs.clear()


class Cache:
    def __init__(self):
        self.keys, self.seen, self.last, self.calls = torch.zeros(0, 64), 3, 5, 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x, cache):
        h = self.last(torch.nn.functional.gelu(self.first(x)))
        cache.seen, cache.last = cache.seen + x.shape[0], 2 * x.shape[0] - cache.last
        cache.keys = torch.cat([cache.keys, h])[-(cache.seen % 7 + 8):]
        return h, cache.keys.mean(0), cache.keys.shape[0]


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_numbers_stand_where_they_belong(dtype):
    model = Model().eval()
    fast = torch.compile(model, backend="ipex", dynamic=True, options={"dtype": dtype})
    mine, stock = Cache(), Cache()
    with torch.no_grad():
        for step in range(40):
            x = torch.randn(3 + step * 5 % 11, 64, generator=torch.Generator().manual_seed(step))
            results, wanted = fast(x, mine), model(x, stock)
            for one, other in ((results[0], wanted[0]), (results[1], wanted[1]), (mine.keys, stock.keys)):
                assert one.shape == other.shape and (one - other).norm() <= 1e-2 * other.norm()
            assert (mine.seen, mine.last, results[2]) == (stock.seen, stock.last, wanted[2]) and type(mine.seen) is int
    assert not any("left_alone" in note for note in graph_notes.graphs), graph_notes.graphs
    assert max(note["calls"] for note in graph_notes.graphs) >= 2, graph_notes.graphs


def test_results_that_are_whole_numbers_are_equal_or_refused():
    trial = torch.classes.ipexrun.Trial
    counts = torch.randint(0, 3000, (16, 32), generator=torch.Generator().manual_seed(0)).float()
    assert trial().check([counts], [counts.clone()], True)
    assert not trial().check([counts], [counts.bfloat16().float()], True), "3000 is 2992 in bf16"
    fractions = counts + 0.25
    assert trial().check([fractions], [fractions.bfloat16().float()], True)
    large = 1e8 + 1e9 * torch.rand(16, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(large, large.round()) and trial().check([large], [large * (1 + 2**-23)], False), "float32 has no fractions there"
    images = counts.reshape(2, 4, 8, 8).contiguous(memory_format=torch.channels_last)
    assert not trial().check([images], [images.bfloat16().float()], True)
    assert trial().check([torch.zeros(16)], [torch.zeros(16)], True)
