"""Rows of element-wise operators are one pass, with stock's results, sizes, dtypes and strides.

Risk covered: a form of an operator that means something else, tensors that broadcast or lie in another order, what is read outside of a
row, sizes that change, NaN and infinities, rows that would have to be computed before what they need.
"""

import pytest
import torch
import torch.nn.functional as F
from test_programs import Captured
from torch import nn


def row(function, *inputs, operators=None, rows=1, **options):
    captured = Captured(function, *inputs, **options)
    said = captured.fused()
    if operators == 0:
        assert "element-wise" not in said, said
    else:
        assert (rows is None or f"{rows} passes for them" in said) and (operators is None or f"{operators} element-wise operators" in said), said
    return captured


def numbers(*sizes):
    torch.manual_seed(3)
    return torch.randn(*sizes) * 2


UNARY = [torch.neg, torch.abs, torch.exp, torch.expm1, torch.tanh, torch.sigmoid, torch.relu, torch.square, torch.reciprocal, F.silu, F.gelu,
         lambda x: F.gelu(x, approximate="tanh"), F.softplus, F.mish, F.elu, F.selu, F.celu, F.leaky_relu, F.relu6, F.hardtanh, F.hardswish,
         F.hardsigmoid, lambda x: x.abs().sqrt(), lambda x: (x.abs() + 1e-3).rsqrt(), lambda x: x.abs().log(), lambda x: x.abs().log1p(),
         lambda x: x**3, lambda x: x**-1, lambda x: x.clamp(-1, 1), lambda x: x.clamp(min=0.5), lambda x: x.clamp_max(0.25), lambda x: 3 - x,
         lambda x: F.elu(x, 0.7), lambda x: F.leaky_relu(x, 0.3), lambda x: torch.sub(x, 2, alpha=3), lambda x: x / 3]


@pytest.mark.parametrize("function", UNARY, ids=range(len(UNARY)))
def test_each_operator(function):
    x = numbers(3, 5, 37)
    x.view(-1)[:5] = torch.tensor([0.0, -0.0, 30.0, -30.0, 1e-6])
    row(lambda x: function(x * 1.5) + 1, x)


BINARY = [torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, lambda x, y: torch.add(x, y, alpha=-2.5),
          lambda x, y: torch.where(x > y, x, -y), lambda x, y: x.masked_fill(y <= 0, -7.5), lambda x, y: torch.where((x < y) & (y != 0), x, 2.0),
          lambda x, y: torch.where((x >= y) | ~(y > 1), x, y), lambda x, y: torch.addcmul(x, y, x, value=0.5),
          lambda x, y: torch.addcdiv(x, x, y.abs() + 1, value=2), lambda x, y: torch.where(torch.logical_not(x > 0), x, y), lambda x, y: F.prelu(x, y[0, 0, :1].abs())]


@pytest.mark.parametrize("function", BINARY, ids=range(len(BINARY)))
@pytest.mark.parametrize("sizes", [(4, 6, 33), (33,), (6, 1), (1, 6, 33), (4, 1, 1)], ids=str)
def test_two_operands(function, sizes):
    if sizes != (4, 6, 33) and function is BINARY[-1]:
        pytest.skip("its weight is taken from y")
    row(lambda x, y: function(x, y) * 2 + 1, numbers(4, 6, 33), numbers(*sizes), rows=None)


def test_what_is_no_number():
    x = numbers(8, 40)
    x.view(-1)[:6] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e38])
    y = x.flip(1)
    row(lambda x, y: (torch.maximum(x, y) * 1, torch.minimum(x, y) * 1, torch.sigmoid(x).clamp(0.1, 0.9), torch.where(x == y, x, y) + 0, F.softplus(x) + 1), x, y, rows=5)


def test_bools_are_results():
    captured = row(lambda x: ((x * 2 > 1), (x * 2).sigmoid()), numbers(5, 20))
    assert captured.exact[0].dtype == torch.bool


def test_what_others_read_in_between_is_written():
    """A sum over the row's middle; the row goes on only where it does not need it."""
    row(lambda x: (lambda h: (h.sum(-1), h.tanh() + 1))(x.sigmoid() * 3), numbers(6, 40), operators=4)
    row(lambda x: (lambda h: h.tanh() + h.sum(-1, keepdim=True))(x.sigmoid() * 3), numbers(6, 40), operators=3)


@pytest.mark.parametrize("lies", ["channels_last", "transposed", "halves", "permuted", "columns"])
def test_strides_are_stocks(lies):
    x = {"channels_last": numbers(2, 6, 9, 7).to(memory_format=torch.channels_last), "transposed": numbers(20, 30).t(), "halves": numbers(6, 80)[:, :40],
         "permuted": numbers(2, 8, 3, 20).permute(0, 2, 1, 3), "columns": numbers(40, 50)[:, ::2]}[lies]
    row(lambda x: torch.tanh(x * 2) + 1, x)
    row(lambda x, y: torch.tanh(x * y) + 1, x, numbers(*[1] * (x.dim() - 1), x.size(-1)))


@pytest.mark.parametrize("order", [0, 1])
def test_operands_in_different_orders(order):
    """stock's result lies as the first operand does."""
    a, b = numbers(2, 6, 9, 7), numbers(2, 6, 9, 7).to(memory_format=torch.channels_last)
    row(lambda a, b: torch.tanh(a * b) + 1, *((a, b) if order == 0 else (b, a)))
    channel = numbers(1, 6, 1, 1)
    row(lambda a, c: torch.sigmoid(c * a) * a, b, channel)
    row(lambda a, c: torch.sigmoid(c * a) * a, b, numbers(9, 7))  # in another order than b


def test_dimensions_of_one():
    row(lambda x: torch.tanh(x * 2) + 1, numbers(2, 8, 1, 16).permute(0, 2, 1, 3))
    row(lambda x, y: torch.tanh(x * y) + 1, numbers(4, 1, 33), numbers(33))
    row(lambda x: torch.tanh(x * 2) + 1, numbers(1, 1, 1))


def test_a_gate_out_of_halves():
    def gated(x):
        a, b = x.chunk(2, dim=-1)
        return a * torch.sigmoid(b) + 0.5

    row(gated, numbers(10, 64), operators=3)


def test_small_operands_keep_their_size():
    """What is computed for each channel is not computed for each pixel."""
    row(lambda x, s: x * torch.sigmoid(s * 2 + 1), numbers(2, 16, 8, 8), numbers(2, 16, 1, 1), operators=3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.float16])
def test_other_dtypes_are_left_alone(dtype):
    row(lambda x: x * 2 + x, (numbers(8, 40) * 5).to(dtype), operators=0)


def test_numbers_in_tensors():
    row(lambda x, s: (x * s + 1) / s, numbers(8, 40), torch.tensor(1.7))
    row(lambda x, s: (x * s + 1) / s, numbers(8, 40), torch.tensor(1.7, dtype=torch.float64))
    row(lambda x, s: (x * s + 1) / s, numbers(8, 40), torch.tensor(3))


def test_bfloat16_is_rounded_as_stock_rounds():
    row(lambda x: torch.tanh(x * 1.5) + x, numbers(8, 40).bfloat16(), rows=1)
    row(lambda x: torch.tanh(x.float() * 1.5).bfloat16(), numbers(8, 40).bfloat16())
    row(lambda x: (x.bfloat16() * 1.5).float() + 1, numbers(8, 40))


def test_sizes_that_change():
    captured = row(lambda x, y: torch.sigmoid(x) * y + x, numbers(6, 40), numbers(40), dynamic=True)
    for rows in (1, 2, 17):
        captured(numbers(rows, 40), numbers(40))


def test_a_product_reads_bf16():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96), nn.Softplus(), nn.Linear(96, 32)).eval()
    row(lambda x: model[2](model[1](model[0](x)) * 1.5 - 0.1), numbers(40, 64))


def test_a_long_row():
    def long(x):
        for i in range(60):
            x = torch.sin(x) if i == 30 else x * 1.01 + 0.1
        return x

    row(long, numbers(8, 40), rows=4)


def test_many_operands():
    inputs = [numbers(4, 20) for _ in range(50)]
    row(lambda *inputs: sum(one * (i + 1) for i, one in enumerate(inputs)), *inputs, rows=3)


def test_numbers_that_become_bools_are_ones():
    a, b = torch.tensor([0.0, 3.0, -2.0, float("nan"), 0.5]).repeat(4, 8), numbers(4, 40)
    row(lambda a, b: (a.bool().float() + 1, a.bool() * b, torch.where(a.bool() | (b > 1), b, a), (a.bool() == b.bool()).float() * 2), a, b, rows=None)


@pytest.mark.parametrize("compare", [torch.lt, torch.le, torch.gt, torch.ge, torch.eq, torch.ne])
def test_bfloat16_is_compared_with_what_it_has_of_a_number(compare):
    x = torch.full((4, 40), 0.7).bfloat16()
    x[1], x[2] = 0.5, 0.9
    row(lambda x: torch.where(compare(x, 0.7), x * 2, -x), x)
    row(lambda x, limit: torch.where(compare(x, limit), x * 2, -x), x, torch.tensor(0.7), rows=None)


def test_a_filled_copy_is_contiguous():
    """Of what lies otherwise, too: torch's masked_fill() copies it so before it fills."""
    hidden = torch.arange(17) % 2 == 0
    row(lambda x: (x * 2).masked_fill(hidden, 0.0), numbers(17, 5).t(), operators=0)
    row(lambda x: (x * 2).masked_fill(hidden, 0.0), numbers(5, 17), operators=2)
    row(lambda x, where: (x * 2).masked_fill(where, 0.0), numbers(1, 17), numbers(17, 3).t() > 0, operators=0)
