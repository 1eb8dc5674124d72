"""Masks of dropout drawn vector by vector (preload/plugin/random_masks.cpp): torch's, to the bit, and so is every random number after them.

Risk covered: an element, a state or a shape of tensor for which they are not.
"""

import json

import pytest
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.bool, torch.uint8, torch.int64]


def drawn(hook, ours, draws):
    """What `draws` gives behind one seed, and the state that it leaves."""
    hook.set_enabled(ours)
    try:
        torch.manual_seed(11)
        return [*draws(), torch.randn(5), torch.get_rng_state()]
    finally:
        hook.set_enabled(True)


def same(hook, draws):
    for mine, stock in zip(drawn(hook, True, draws), drawn(hook, False, draws), strict=True):
        assert mine.dtype == stock.dtype and mine.stride() == stock.stride() and torch.equal(mine, stock)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_all_types(hook, dtype):
    same(hook, lambda: [torch.empty(size, dtype=dtype).bernoulli_(p) for size in (255, 256, 257, 312, 625, 5000) for p in (0.0, 0.1, 0.5, 0.9, 1.0)])


def test_among_other_random_numbers(hook):
    same(hook, lambda: [x for size in (300, 301, 1000) for x in (torch.randn(size % 7 + 1), torch.rand(3), torch.empty(size).bernoulli_(0.3), torch.randint(9, (3,)))])


def test_tensors_that_lie_otherwise(hook):
    same(hook, lambda: [torch.zeros(40, 50).t().bernoulli_(0.5), torch.zeros(40, 50)[:, ::2].bernoulli_(0.5), torch.zeros(2, 8, 9, 9).to(memory_format=torch.channels_last).bernoulli_(0.5)])


def test_dropout_and_its_gradient(hook):
    def draws():
        x = torch.ones(64, 64, requires_grad=True)
        y = torch.nn.functional.dropout(x, 0.2)
        y.sum().backward()
        return [y.detach(), x.grad]

    same(hook, draws)


def test_a_generator_of_its_own(hook):
    def draws():
        own = torch.Generator().manual_seed(5)
        return [torch.empty(1000).bernoulli_(0.4, generator=own), own.get_state()]

    same(hook, draws)


def test_what_raises_raises(hook):
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(RuntimeError):
            torch.empty(1000).bernoulli_(p)


def test_they_are_drawn_by_us_where_torch_draws_word_by_word(hook):
    torch.manual_seed(5)
    by_words = torch.empty(1000, dtype=torch.float64).uniform_() < 0.3
    hook.set_enabled(False)
    torch.manual_seed(5)
    stock = torch.empty(1000).bernoulli_(0.3).bool()
    hook.set_enabled(True)
    before = json.loads(hook.report())["training"]["masks_drawn"]
    torch.empty(1000).bernoulli_(0.3)
    assert json.loads(hook.report())["training"]["masks_drawn"] - before == (1 if torch.equal(stock, by_words) else 0)
