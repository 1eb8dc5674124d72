"""argmax, argmin, max and min with places, cumsum, group norm: beside the CPU, exactly where nothing is added."""

import pytest
import torch

from beside import check, error

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8]
SHAPES = [(1,), (63,), (65,), (5, 257), (3, 64, 2), (40000,), (2, 30001)]


@pytest.mark.parametrize("dtype", TYPES)
def test_places(device, dtype):
    device.forget_fallbacks()
    for shape in SHAPES:
        torch.manual_seed(0)
        x = (torch.randn(shape) * 3).to(dtype) if dtype != torch.uint8 else torch.randint(0, 9, shape, dtype=dtype)
        there = x.xpu()
        for name in ("argmax", "argmin"):
            assert getattr(there, name)().item() == getattr(x, name)().item()
            for dim in range(x.dim()):
                assert torch.equal(getattr(there, name)(dim, keepdim=True).cpu(), getattr(x, name)(dim, keepdim=True))
        for name in ("max", "min"):
            for dim in range(x.dim()):
                mine, right = getattr(there, name)(dim), getattr(x, name)(dim)
                assert torch.equal(mine.values.cpu(), right.values) and torch.equal(mine.indices.cpu(), right.indices)
    assert device.report()["fallbacks"] == []


def test_no_numbers_infinities_and_layouts(device):
    nan, inf = float("nan"), float("inf")
    for values in ([1, nan, 3, nan], [-inf, -inf], [inf, inf, 1], [nan], [3.0, 3.0, 2.0]):
        x = torch.tensor(values)
        for name in ("argmax", "argmin"):
            assert getattr(x.xpu(), name)().item() == getattr(x, name)().item(), values
    x = torch.randn(6, 7, 8)
    assert torch.equal(x.xpu().permute(2, 0, 1).argmax(1).cpu(), x.permute(2, 0, 1).argmax(1))
    assert torch.tensor(2.0).xpu().argmax().item() == 0 and torch.tensor(True).xpu().max(0).indices.item() == 0


@pytest.mark.parametrize("dtype", TYPES)
def test_running_sums(device, dtype):
    for shape in SHAPES[:6]:
        torch.manual_seed(0)
        x = (torch.rand(shape) * 3).to(dtype)
        device.forget_fallbacks()
        for dim in range(x.dim()):
            mine, right = x.xpu().cumsum(dim), (x.double() if x.is_floating_point() else x).cumsum(dim)
            assert mine.dtype == x.cumsum(dim).dtype
            assert error(mine, right) < {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float32: 1e-6}.get(dtype, 1e-14)
        assert device.report()["fallbacks"] == []
    there = torch.rand(9).xpu()
    assert torch.equal(there.cumsum_(0), there) and torch.ones(3, dtype=torch.int32).xpu().cumsum(0, dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("dtype", TYPES[:4])
def test_group_norm(device, dtype):
    F = torch.nn.functional
    torch.manual_seed(0)
    x = torch.randn(2, 6, 5, 7)
    check(device, lambda x, w, b: F.group_norm(x, 3, w, b), x, torch.randn(6), torch.randn(6), dtype=dtype)
    if dtype == torch.float32:
        check(device, lambda x: F.group_norm(x, 6), x)
        check(device, lambda x, w: F.group_norm(x.transpose(2, 3), 1, w), x, torch.randn(6))
        check(device, lambda x, w, b: F.group_norm(x, 2, w, b), torch.randn(3, 4, 1000), torch.randn(4), torch.randn(4))
