"""Variances, standard deviations and instance norms are computed in another way, with stock's results.

Risk covered: a mean that is large beside the deviation, one number alone, infinities and NaN, dimensions in any order, affine parameters.
"""

import pytest
import torch
from ipexrun.graphs import warned
from test_programs import Captured
from torch import nn


def words(function, *inputs, count=1):
    captured = Captured(function, *inputs)
    assert (f"{count} variances" in captured.fused()) == (count > 0), captured.fused()
    return captured


@pytest.mark.parametrize("dims", [[-1], [0], [1, 2], [2, 0]])
@pytest.mark.parametrize("offset", [0, 300])
def test_dimensions(dims, offset):
    x = torch.randn(8, 40, 64) + offset
    words(lambda x: (x.var(dims), x.std(dims, keepdim=True), x.std(dims, correction=0)), x, count=3)


def test_a_norm_that_is_written_out():
    words(lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6), torch.randn(4, 33, 256))


def test_what_is_no_number():
    x = torch.randn(64, 256)
    x[3, 7], x[5, 9] = float("inf"), float("nan")
    assert words(lambda x: x.std(-1), x).stock[0].isnan().sum() == 2
    words(lambda x: x.var(-1), torch.full((64, 256), 0.1))
    words(lambda x: x.var(1, correction=2), torch.randn(10000, 3))
    with pytest.raises(warned.Warned, match="degrees of freedom"):  # NaN, of which torch warns: whoever asked answers
        words(lambda x: x.var(1, correction=1), torch.randn(10000, 1))
    words(lambda x: x.double().var(-1), torch.randn(64, 256), count=0)
    words(lambda x: x.var(), torch.randn(64, 256), count=0)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("batch", [1, 3])
def test_instance_norms(affine, batch):
    torch.manual_seed(5)
    norm = nn.InstanceNorm2d(12, affine=affine).eval()
    if affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    words(norm, torch.randn(batch, 12, 16, 20) * 3 + 1)
    words(norm, torch.randn(batch, 12, 16, 20).to(memory_format=torch.channels_last))


def test_a_batch_norm_without_statistics_of_several_samples():
    words(nn.BatchNorm2d(6, track_running_stats=False).eval(), torch.randn(4, 6, 16, 20))


@pytest.mark.parametrize("size", [1e-25, 1e-15, 1e18, 1e25])
def test_numbers_whose_squares_float32_does_not_have(size):
    words(lambda x: (x.std(-1), x.var(0)), torch.randn(64, 256) * size, count=2)


def test_numbers_that_are_alike():
    words(lambda x: x.std(-1), torch.full((64, 256), 0.1) + torch.arange(64)[:, None])
