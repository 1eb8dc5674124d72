"""Calls in float64 (python/ipexrun/graphs/double.py), beside which results in float32 are judged.

Risk covered: a truth that is rounded on the way (a factory, a dtype that is asked for, a constant), one that writes into what the program holds, one that is
given where there is none.
"""

import os
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")

from ipexrun.graphs import double  # noqa: E402


def exact(module, *args):
    return module.double()(*(one.double() if one.is_floating_point() else one for one in args))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.first, self.norm, self.second = nn.Embedding(20, 24), nn.Conv1d(24, 24, 3, padding=1), nn.LayerNorm(24), nn.Linear(24, 5)

    def forward(self, words):
        x = self.words(words).transpose(1, 2)
        x = F.gelu(self.first(x)).transpose(1, 2)
        return {"scores": self.second(self.norm(x)).softmax(-1), "words": words}


@pytest.mark.parametrize("inference", [False, True])
def test_a_call_is_what_the_module_in_float64_gives(inference):
    torch.manual_seed(0)
    module, words = Net().eval(), torch.randint(0, 20, (3, 7))
    with torch.inference_mode(inference):
        wide = double.of_call(module, (words,), {})
    assert wide["scores"].dtype == torch.float64 and wide["words"] is words
    assert not wide["scores"].requires_grad
    assert all(parameter.dtype == torch.float32 for parameter in module.parameters())
    with torch.no_grad():
        assert torch.allclose(wide["scores"], exact(module, words)["scores"], rtol=1e-13, atol=0)


def test_factories_and_dtypes_are_wide():
    def function(x):
        table = torch.arange(4, dtype=torch.float32) / 3
        made = torch.zeros(4)
        made += x.to(torch.float32) * table
        return made.type(torch.float) + torch.full((4,), 0.1) + torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float32)

    x = torch.tensor([1.0, 2.0, 3.0, 4.0]) / 7
    wide = double.of_call(function, (x,), {})
    truth = x.double() * torch.arange(4, dtype=torch.float64) / 3 + 0.1
    assert wide.dtype == torch.float64
    assert (wide - truth - torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)).abs().max() < 1e-7  # lists are rounded where they become a tensor


def test_nothing_that_was_given_is_written():
    held = torch.ones(4)
    for function in (lambda x: held.add_(x), lambda x: torch.mul(x, 2, out=held), lambda x: torch._foreach_add_([held], [x]) or x, lambda x: held[1:].mul_(3)):
        double.of_call(function, (torch.ones(4),), {})
        assert torch.equal(held, torch.ones(4))
    assert double.of_call(lambda x: held.add_(x), (torch.ones(4),), {}) is None


def test_what_cannot_be_wide_is_nothing():
    def fails(x):
        raise RuntimeError("no float64 here")

    assert double.of_call(fails, (torch.ones(1),), {}) is None
    assert not torch.utils._python_dispatch._get_current_dispatch_mode()


class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("table", torch.arange(4.0), persistent=False)
        self.inner.seen = None

    def forward(self, x):
        if self.table.dtype != x.dtype:
            self.table = self.table.to(x.dtype)
        if x.dtype == torch.float64:
            self.inner.seen = x
        return self.inner(x * self.table)


def test_a_module_keeps_nothing_of_it():
    """A tensor of inference mode in a module would make its next training step raise."""
    module, x = Keeps(), torch.ones(2, 4)
    before = module.table
    assert double.of_call(lambda one: module(one * 1), (x,), {}) is not None  # by a function nobody looks
    module.table, module.inner.seen = before, None
    assert double.of_call(nn.Sequential(nn.Tanh(), module), (x,), {}) is None
    assert module.table is before and module.inner.seen is None and module.table.dtype == torch.float32
    module(x).sum().backward()
