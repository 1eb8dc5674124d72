"""Attention that programs write out becomes one step, and nothing else does.

Risk covered: a mask that is added, filled in or chosen at the wrong places; rows that a mask hides (NaN in stock); scores that somebody else
reads; scales before and after a mask; heads and tokens mixed up; sizes of another call.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from test_programs import Captured

B, T, H, D = 2, 24, 4, 32


def heads(*sizes, batch=B):
    """Q, K, V of [batch, heads, tokens, depth] as views of [batch, tokens, heads * depth]."""
    torch.manual_seed(7)
    return [torch.randn(batch, size, H * D).view(batch, size, H, D).transpose(1, 2) for size in sizes or (T, T, T)]


def attended(q, k, v, scores=lambda s: s / math.sqrt(D)):
    return scores(q @ k.transpose(-2, -1)).softmax(-1) @ v


def words(function, *inputs, count=1, dynamic=None):
    captured = Captured(function, *inputs, dynamic=dynamic)
    assert (f"{count} of them written out" in captured.fused()) == (count > 0), captured.fused()
    return captured


@pytest.mark.parametrize("merged", [True, False])
def test_matrices_of_heads(merged):
    def block(q, k, v):
        y = attended(q, k, v)
        return y.transpose(1, 2).reshape(q.shape[0], -1, H * D) if merged else y

    words(block, *heads())
    words(block, *heads(5, 9, 9))
    words(block, *heads(1, 70, 70, batch=1))


@pytest.mark.parametrize("keys", [T, 40])
def test_a_batch_of_matrices(keys):
    torch.manual_seed(1)
    q, k, v = torch.randn(6, T, D), torch.randn(6, keys, D), torch.randn(6, keys, D)
    words(lambda q, k, v: torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.125, dim=-1), v), q, k, v)
    bias = torch.randn(6, T, keys)
    words(lambda q, k, v, bias: torch.bmm((torch.bmm(q, k.transpose(1, 2)) + bias).softmax(2), v), q, k, v, bias)


def test_einsum():
    q, k, v = (x.transpose(1, 2) for x in heads())

    def block(q, k, v):
        return torch.einsum("bhqk,bkhd->bqhd", (torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.2).softmax(-1), v)

    words(block, q, k, v)


MASKS = {
    "row of keys": lambda: torch.randn(T),
    "of all heads": lambda: torch.randn(T, T),
    "of each head": lambda: torch.randn(H, T, T),
    "of each sequence": lambda: torch.zeros(B, 1, 1, T).masked_fill(torch.arange(T) > 17, torch.finfo(torch.float32).min),
    "full": lambda: torch.randn(B, H, T, T),
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks_that_are_added(mask):
    words(lambda q, k, v, mask: attended(q, k, v, lambda s: s / 3 + mask), *heads(), MASKS[mask]())
    words(lambda q, k, v, mask: attended(q, k, v, lambda s: mask + s), *heads(), MASKS[mask]())


def test_two_masks():
    words(lambda q, k, v, a, b: attended(q, k, v, lambda s: s * 0.5 + a + b), *heads(), MASKS["of each head"](), MASKS["of each sequence"]())


@pytest.mark.parametrize("images", [1, 3])
def test_masks_of_windows(images):
    windows = 4
    mask = torch.zeros(windows, T, T).masked_fill(torch.rand(windows, T, T) > 0.8, -100.0)

    def scores(s, mask, bias):
        s = s + bias
        return (s.view(images, windows, H, T, T) + mask.unsqueeze(1).unsqueeze(0)).view(-1, H, T, T)

    words(lambda q, k, v, mask, bias: attended(q, k, v, lambda s: scores(s, mask, bias)), *heads(batch=images * windows), mask, MASKS["of each head"]())


@pytest.mark.parametrize("number", [float("-inf"), -1e9, torch.finfo(torch.float32).min])
def test_masks_that_are_filled_in(number):
    hidden = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    words(lambda q, k, v, hidden: attended(q, k, v, lambda s: (s / 5).masked_fill(hidden, number)), *heads(), hidden)
    words(lambda q, k, v, hidden: attended(q, k, v, lambda s: s.masked_fill(hidden[None, None] == 1, number)), *heads(), hidden)
    words(lambda q, k, v, seen: attended(q, k, v, lambda s: torch.where(seen, s, number)), *heads(), ~hidden)
    words(lambda q, k, v, seen: attended(q, k, v, lambda s: torch.where(seen, s, torch.full([], number))), *heads(), ~hidden)
    words(lambda q, k, v, hidden: attended(q, k, v, lambda s: torch.where(hidden, number, s)), *heads(), hidden)


def test_a_row_that_sees_nothing_is_nan_as_in_stock():
    hidden = torch.zeros(B, 1, T, T, dtype=torch.bool)
    hidden[1, 0, 3] = True
    captured = words(lambda q, k, v, hidden: attended(q, k, v, lambda s: s.masked_fill(hidden, float("-inf"))), *heads(), hidden)
    assert captured.stock[0].isnan().sum() == H * D
    captured = words(lambda q, k, v, hidden: attended(q, k, v, lambda s: s.masked_fill(hidden, -1e30)), *heads(), hidden)
    assert not captured.stock[0].isnan().any()


def test_what_is_not_attention_stays():
    q, k, v = heads()
    mask = MASKS["of all heads"]()
    for function in (
        lambda q, k, v, mask: attended(q, k, v, lambda s: (s + mask) * 0.3),
        lambda q, k, v, mask: attended(q, k, v, lambda s: s.masked_fill(mask > 0, -1e4)),
        lambda q, k, v, mask: attended(q, k, v, lambda s: torch.tanh(s / 30) * 30),
        lambda q, k, v, mask: attended(q, k, v, lambda s: s + s),
        lambda q, k, v, mask: (q @ k.transpose(-2, -1)).softmax(-2) @ v,
        lambda q, k, v, mask: attended(q, k, v[..., :16]),
        lambda q, k, v, mask: (attended(q, k, v), (q @ k.transpose(-2, -1)).sum(-1)),
    ):
        words(function, q, k, v, mask, count=0)


def test_weights_that_are_results_stay():
    def block(q, k, v):
        weights = (q @ k.transpose(-2, -1)).softmax(-1)
        return weights @ v, weights

    words(block, *heads(), count=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_causal_layer_in_sizes_that_change(dtype):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(H * D, 3 * H * D), torch.nn.Linear(H * D, H * D)
            self.register_buffer("seen", torch.tril(torch.ones(64, 64)).view(1, 1, 64, 64))

        def forward(self, x):
            batch, tokens, width = x.shape
            q, k, v = (part.view(batch, tokens, H, D).transpose(1, 2) for part in self.qkv(x).split(width, 2))
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(D))
            scores = scores.masked_fill(self.seen[:, :, :tokens, :tokens] == 0, float("-inf"))
            return self.out((F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(batch, tokens, width))

    torch.manual_seed(2)
    layer = Layer().eval().to(dtype)
    captured = words(layer, torch.randn(3, 20, H * D, dtype=dtype), dynamic=True)
    for batch, tokens in ((3, 21), (1, 20), (2, 1), (5, 64)):
        captured(torch.randn(batch, tokens, H * D, dtype=dtype))


def test_keys_that_lie_transposed():
    q, k, v = heads()
    k = k.transpose(-2, -1).contiguous()
    words(lambda q, k, v: ((q @ k) * 0.3).softmax(-1) @ v, q, k, v)


def test_complex_numbers_on_the_way():
    turns = torch.polar(torch.ones(T, D // 2), torch.randn(T, D // 2))

    def turned(x, turns):
        return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turns).flatten(3)

    words(lambda q, k, v, turns: attended(turned(q, turns), turned(k, turns), v), *heads(), turns)
    words(lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real, torch.randn(2, 16, 16), count=0)
    words(lambda x: torch.fft.rfft(x).conj() * 2, torch.randn(3, 16), count=0)


NEVER = torch.finfo(torch.float32).min


def finite(captured):
    assert all(not one.isnan().any() for one in captured.stock)


@pytest.mark.parametrize("number", [float("-inf"), -1e9, NEVER])
@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_are_hidden_by_what_is_filled_in(number, score):
    q, k, v = heads()
    k[:, :, -3:] = score
    hidden = torch.zeros(B, 1, 1, T, dtype=torch.bool)
    hidden[..., -3:] = True
    finite(words(lambda q, k, v, hidden: attended(q, k, v, lambda s: s.masked_fill(hidden, number)), q, k, v, hidden))
    bias = torch.zeros(B, 1, 1, T).masked_fill(hidden, score)
    finite(words(lambda q, k, v, bias, hidden: attended(q, k, v, lambda s: (s + bias).masked_fill(hidden, number)), *heads(), bias, hidden))


@pytest.mark.parametrize("numbers", [(NEVER, NEVER), (-1e9, -1e9), (-1e9, NEVER)])
def test_rows_that_two_masks_hide_are_the_means_of_stock(numbers):
    keys, rows = torch.zeros(B, 1, 1, T, dtype=torch.bool), torch.zeros(B, 1, T, 1, dtype=torch.bool)
    keys[0, ..., 15:], rows[0, :, 15:] = True, True
    keys[1], rows[1] = True, True

    def scores(keys, rows):
        return lambda s: (s / 5).masked_fill(keys, numbers[0]).masked_fill(rows, numbers[1])

    finite(words(lambda q, k, v, keys, rows: attended(q, k, v, scores(keys, rows)), *heads(), keys, rows))
    added = torch.zeros(B, 1, T, T).masked_fill(rows, NEVER)
    finite(words(lambda q, k, v, keys, added: attended(q, k, v, lambda s: (s + added).masked_fill(keys, numbers[0])), *heads(), keys, added))


def test_a_row_that_is_hidden_by_a_number_beside_which_large_scores_count():
    q, k, v = heads()
    hidden = torch.zeros(B, 1, 1, T, dtype=torch.bool)
    hidden[0] = True
    finite(words(lambda q, k, v, hidden: attended(q, k, v, lambda s: torch.where(hidden, -1e9, s)), q * 40, k, v, hidden))


def test_a_row_that_sees_nothing_where_heads_of_keys_are_repeated():
    q, _, _ = heads()
    k, v = (torch.randn(B, 2, T, D) for _ in range(2))
    hidden = torch.zeros(B, 1, T, T, dtype=torch.bool)
    hidden[1, 0, 3] = True

    def repeated(x):
        return x.unsqueeze(2).expand(B, 2, H // 2, T, D).reshape(B, H, T, D)

    words(lambda q, k, v, hidden: attended(q, repeated(k), repeated(v), lambda s: s.masked_fill(hidden, float("-inf"))), q, k, v, hidden)
