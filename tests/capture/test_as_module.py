"""Whether two results count as those of one call (python/ipexrun/capture/as_module.py): no program is run.

Risk covered: results that were computed in another way pass because their squares are no numbers of their type, or good ones are refused for it."""

import os
import sys

import pytest
import torch

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")

from ipexrun.capture.as_module import is_near  # noqa: E402


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30, 1e-44])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64], ids=str)
def test_what_is_near_whatever_its_size(dtype, scale):
    if scale == 1e-44 and dtype is not torch.float64:
        pytest.skip("nothing is left of it")
    truth = (torch.randn(3, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * scale).to(dtype)
    assert is_near(truth, truth) and is_near(truth, truth * 1.05)
    assert not is_near(truth, -truth) and not is_near(truth, truth * 1.2)
    one_row = truth.clone()
    one_row[0, 0] = 0
    assert not is_near(truth, one_row)


def test_zeros_and_what_is_no_number():
    zeros, ones = torch.zeros(2, 3), torch.ones(2, 3)
    assert is_near(zeros, zeros) and not is_near(zeros, ones) and not is_near(ones, zeros)
    for strange in (float("nan"), float("inf")):
        other = ones.clone()
        other[0, 0] = strange
        assert is_near(other, other) and not is_near(ones, other) and not is_near(other, ones)
    assert is_near(torch.tensor(1.0), torch.tensor(1.0)) and not is_near(torch.tensor(1.0), torch.tensor(2.0))
    assert is_near(torch.randn(0, 3), torch.randn(0, 3)) and not is_near(ones, torch.ones(3, 2))
