"""Products of graphs whose rows would meet in one set of a cache: they lie further apart where products and attention alone read them.

Risk covered: a view that runs over the end of a row, somebody who takes the rows for adjacent, results that leave the graph with gaps, numbers of rows
that change.
"""

import pytest
import torch
import torch.nn.functional as F
from test_programs import Captured, linear

WIDE = 1024  # 4 KiB in float32
RUNS = 10  # until the kernels of two ways of a layer are chosen


def again_and_again(captured, *inputs):
    for _ in range(RUNS):
        captured(*inputs)
    return captured


@pytest.mark.parametrize("shape", [(7, 32), (2, 5, 32), (1, 32), (1, 1, 32), (2, 3, 40, 32)], ids=str)
@pytest.mark.parametrize("wide", [WIDE, 2 * WIDE, WIDE + 32])
def test_what_lies_between_two_products(wide, shape):
    first, second = linear(32, wide), linear(wide, 48)
    again_and_again(Captured(lambda x: second(F.gelu(first(x))), torch.randn(shape)), torch.randn(shape))


def test_numbers_of_rows_that_change():
    first, second = linear(32, WIDE), linear(WIDE, 48)
    captured = Captured(lambda x: second(F.relu(first(x))), torch.randn(2, 7, 32), dynamic=True)
    for rows in (7, 3, 30, 2, 7):
        captured(torch.randn(2, rows, 32))


@pytest.mark.parametrize(
    "read",
    [
        lambda y, last: last(y) + y.sum(),
        lambda y, last: (last(y), y),
        lambda y, last: (last(y), y.view(2, -1)),
        lambda y, last: last(y.transpose(0, 1)),
        lambda y, last: last(y + 1),
        lambda y, last: last(y).view(2, -1) + y.view(2, -1).mean(),
    ],
    ids=["summed", "returned", "viewed", "turned", "added", "averaged"],
)
def test_others_read_it_as_well(read):
    first, last = linear(32, WIDE), linear(WIDE, 48)
    again_and_again(Captured(lambda x: read(first(x), last), torch.randn(2, 5, 32)), torch.randn(2, 5, 32))


def test_views_across_the_end_of_a_row():
    first, last = linear(32, WIDE), linear(5 * WIDE, 48)
    again_and_again(Captured(lambda x: last(F.relu(first(x)).view(2, 5 * WIDE)), torch.randn(2, 5, 32)), torch.randn(2, 5, 32))
    narrow = linear(WIDE // 4, 48)
    again_and_again(Captured(lambda x: narrow(F.relu(first(x)).view(2, 5, 4, WIDE // 4)), torch.randn(2, 5, 32)), torch.randn(2, 5, 32))


def test_attention():
    query, key, value, out = linear(32, WIDE), linear(32, WIDE), linear(32, WIDE), linear(WIDE, 32)

    def attend(x):
        heads = [layer(x).view(2, -1, 16, WIDE // 16).transpose(1, 2) for layer in (query, key, value)]
        return out(F.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(2, -1, WIDE))

    again_and_again(Captured(attend, torch.randn(2, 9, 32)), torch.randn(2, 9, 32))
