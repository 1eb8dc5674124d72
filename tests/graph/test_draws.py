"""Graphs that draw random numbers (python/ipexrun/graphs/random_draws.py).

Risk covered: numbers drawn twice, in another order or not at all, so that results or the numbers that the program draws next are others.
"""

import threading

import pytest
import torch
from ipexrun.graphs import graph_notes, random_draws
from torch import nn
from torch.nn import functional


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    graph_notes.graphs.clear()


class Around(nn.Module):
    """Layers around what draws."""

    def __init__(self, drawn):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.drawn = nn.Linear(64, 128), nn.Linear(128, 64), drawn

    def forward(self, x):
        return self.last(self.drawn(functional.gelu(self.first(x))))


def unread(x):
    for _ in range(3):
        torch.rand([])
    torch.randn_like(x)
    return x


def in_order(x):
    a, b = torch.randn(128), torch.rand(x.shape[0], 1)
    torch.randperm(5)
    return functional.dropout(x * a + b, 0.2)


HELD = {
    "unread": unread,
    "in order": in_order,
    "like": lambda x: x + torch.randn_like(x) * torch.rand_like(x),
    "integers": lambda x: x * torch.randint(0, 3, (128,)) + torch.randint_like(x, 4),
    "dropout": lambda x: functional.dropout(x, 0.3),
    "all": lambda x: functional.dropout(x, 1.0) + x,
    "channels": lambda x: functional.dropout1d(x.unsqueeze(0), 0.3).squeeze(0),
    "alpha": lambda x: functional.alpha_dropout(x, 0.3, training=True),
    "written": lambda x: x + torch.empty_like(x).uniform_(-1, 2) + torch.empty(128).normal_(1, 3) + torch.zeros_like(x).bernoulli_(0.4),
    "again": lambda x: x @ torch.empty(128, 128).normal_().uniform_(-0.1, 0.1) + torch.zeros(128).normal_().normal_(2, 3),
    "of another kind": lambda x: functional.dropout(x.bfloat16(), 0.3).float() + torch.rand(128, dtype=torch.float64).float() + torch.randint(9, (128,), dtype=torch.int32),
    "gumbel": lambda x: functional.gumbel_softmax(x, tau=0.5),
    "exponential": lambda x: x * torch.empty_like(x).exponential_(2),
    "probabilities": lambda x: x * torch.bernoulli(torch.full((128,), 0.4)),
}
LEFT = {
    "values": lambda x: x * torch.bernoulli(x.sigmoid()),
    "order of memory": lambda x: x + functional.dropout(x.t(), 0.2).t(),
    "choice": lambda x: x[:, torch.multinomial(x[0].softmax(0), 128)],
}


@pytest.mark.parametrize("dtype", ["float32", "auto"])
@pytest.mark.parametrize("name", [*HELD, *LEFT])
def test_numbers_and_stream_are_those_of_stock(name, dtype):
    model = Around(HELD.get(name) or LEFT[name]).eval()
    fast = torch.compile(model, backend="ipex", dynamic=True, options={"dtype": dtype})
    bound = 1e-5 if dtype == "float32" else 2e-2
    with torch.no_grad():
        for step in range(24):
            x = torch.randn(16 + step % 3, 64, generator=torch.Generator().manual_seed(step))
            torch.manual_seed(step)
            wanted, stream = model(x), torch.get_rng_state()
            torch.manual_seed(step)
            result = fast(x)
            assert torch.equal(torch.get_rng_state(), stream), step
            assert (result - wanted).norm() <= bound * wanted.norm(), step
    left = [note["left_alone"] for note in graph_notes.graphs if "left_alone" in note]
    assert bool(left) == (name in LEFT), left


def test_a_stream_of_the_program_is_not_taken_for_torchs():
    own = torch.Generator().manual_seed(3)
    model = Around(lambda x: x + torch.rand(128, generator=own)).eval()
    with torch.no_grad():
        x, fast = torch.ones(4, 64), torch.compile(model, backend="ipex")
        torch.manual_seed(0)
        stream = torch.get_rng_state()
        mine = [fast(x) for _ in range(6)]
        assert torch.equal(torch.get_rng_state(), stream)
        own.manual_seed(3)
        assert all((one - model(x)).norm() <= 2e-2 * one.norm() for one in mine)


def test_a_call_that_raises_has_drawn_nothing():
    class Looking(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 64)

        def forward(self, places):
            return functional.dropout(self.table(places), 0.5)

    fast = torch.compile(Looking().eval(), backend="ipex")
    with torch.no_grad():
        for _ in range(8):
            fast(torch.tensor([1, 2]))
        stream = torch.get_rng_state()
        with pytest.raises(IndexError):
            fast(torch.tensor([1, 9]))
        assert torch.equal(torch.get_rng_state(), stream)
        assert not torch.equal(fast(torch.tensor([1, 2])), fast(torch.tensor([1, 2])))


def test_numbers_that_another_thread_has_drawn_meanwhile_do_not_come_again():
    def fails(values):
        drawing = threading.Thread(target=lambda: drawn.append(torch.rand(4)))
        drawing.start(), drawing.join()
        raise IndexError

    drawn = []
    with pytest.raises(IndexError):
        random_draws.WithDraws(fails, lambda: [torch.rand(2)])([])
    stream = torch.get_rng_state()
    assert not torch.equal(torch.rand(6)[2:], drawn[0])
    torch.set_rng_state(stream)
    random_draws.WithDraws(lambda values: values, lambda: [torch.rand(2)])([])
    random_draws.put_back()
    assert torch.equal(torch.get_rng_state(), stream)
