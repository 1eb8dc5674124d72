"""Operators on lists of tensors: one launch for all, equal to the CPU's; lists that kernels do not take go through torch's loop."""

import pytest
import torch

from beside import BOUNDS, error

SHAPES = [(5, 5), (5,), (), (0, 3), (4095,), (1,), (4096,), (4097,), (7, 2, 3), (3000, 5), (33,)]
REAL = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def numbers(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]


ONE = torch.tensor(0.75)
EACH = [0.5 + i for i in range(len(SHAPES))]
CALLS = {
    "add scalar": lambda x, y, z: torch._foreach_add_(x, 1.5),
    "add list": lambda x, y, z: torch._foreach_add_(x, y, alpha=-0.3),
    "add each": lambda x, y, z: torch._foreach_add_(x, EACH),
    "new add": lambda x, y, z: torch._foreach_add(x, y),
    "sub list": lambda x, y, z: torch._foreach_sub_(x, y, alpha=2),
    "mul scalar": lambda x, y, z: torch._foreach_mul_(x, 0.9),
    "mul each": lambda x, y, z: torch._foreach_mul_(x, EACH),
    "mul tensor": lambda x, y, z: torch._foreach_mul_(x, ONE.to(x[0])),
    "new mul tensor": lambda x, y, z: torch._foreach_mul(x, ONE.to(x[0])),
    "div each": lambda x, y, z: torch._foreach_div_(x, EACH),
    "div list": lambda x, y, z: torch._foreach_div(x, torch._foreach_add(torch._foreach_abs(y), 1)),
    "addcmul": lambda x, y, z: torch._foreach_addcmul_(x, y, z, 0.1),
    "addcdiv each": lambda x, y, z: torch._foreach_addcdiv_(x, y, torch._foreach_add(torch._foreach_abs(z), 1), EACH),
    "lerp": lambda x, y, z: torch._foreach_lerp_(x, y, 0.2),
    "maximum": lambda x, y, z: torch._foreach_maximum_(x, y),
    "clamp": lambda x, y, z: torch._foreach_clamp_max_(x, 0.5),
    "sqrt": lambda x, y, z: torch._foreach_sqrt(torch._foreach_abs(x)),
    "neg": lambda x, y, z: torch._foreach_neg_(x),
    "pow": lambda x, y, z: torch._foreach_pow(torch._foreach_abs(x), 1.5),
    "zero": lambda x, y, z: torch._foreach_zero_(x),
    "copy": lambda x, y, z: torch._foreach_copy_(x, y),
}


def run(call, device, dtype, compute):
    x, y, z = ([one.to(compute).to(device) for one in numbers(seed, dtype)] for seed in (1, 2, 3))
    result = call(x, y, z)
    return result if result is not None else x


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", REAL[:2])
def test_one_launch_for_all(device, name, dtype):
    right = run(CALLS[name], "cpu", dtype, torch.float64)
    before = device.report()["launches"]
    device.forget_fallbacks()
    mine = run(CALLS[name], "xpu", dtype, dtype)
    assert device.report()["fallbacks"] == [] and device.report()["launches"] - before <= 5
    for one, other in zip(mine, right):
        assert one.is_xpu and one.dtype == dtype and error(one, other) < BOUNDS[dtype]


@pytest.mark.parametrize("name", ["add list", "addcdiv each", "mul tensor"])
@pytest.mark.parametrize("dtype", REAL[2:])
def test_types_of_16_bits(device, name, dtype):
    for one, other in zip(run(CALLS[name], "xpu", dtype, dtype), run(CALLS[name], "cpu", dtype, torch.float64)):
        assert one.dtype == dtype and error(one, other) < BOUNDS[dtype]


def test_lists_that_kernels_do_not_take(device):
    mixed = [torch.ones(3).xpu(), torch.ones(3, dtype=torch.int64).xpu(), torch.ones(4, 4).xpu().t()[1:]]
    torch._foreach_add_(mixed, 2)
    torch._foreach_mul_(mixed, mixed)
    assert all(bool((one == 9).all()) for one in mixed)
    assert torch._foreach_sub([torch.ones(2, 3).xpu()], [torch.ones(3, 2).xpu().t()])[0].abs().sum().item() == 0


def test_addresses_that_change(device):
    """Tables are kept by the addresses in them."""
    kept = [torch.zeros(10).xpu() for _ in range(3)]
    for i in range(300):
        others = [torch.full((10,), float(i)).xpu() for _ in range(3)]
        torch._foreach_add_(kept, others)
        if i % 3 == 0:
            torch._foreach_add_(others, kept)
        del others
    assert all(bool((one == 300 * 299 / 2).all()) for one in kept)


def test_more_tensors_than_the_ring_of_tables_holds(device):
    many = [torch.zeros(2).xpu() for _ in range(4000)]
    torch._foreach_add_(many, 1.0)
    torch._foreach_add_(many, [float(i) for i in range(4000)])
    assert torch.equal(torch.stack(many)[:, 1].cpu(), torch.arange(4000) + 1.0)


def test_gradient_scaling(device):
    torch.manual_seed(0)
    grads = [torch.randn(shape).xpu() for shape in SHAPES]
    right = [one.cpu() * 0.25 for one in grads]
    found, scale, tracker = torch.zeros(1).xpu(), torch.full((1,), 8.0).xpu(), torch.zeros(1, dtype=torch.int32).xpu()
    device.forget_fallbacks()
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.full((1,), 0.25).xpu())
    assert found.item() == 0 and all(torch.equal(one.cpu(), other) for one, other in zip(grads, right))
    grads[4][4094] = float("inf")
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.ones(1).xpu())
    assert found.item() == 1
    torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2)
    assert (scale.item(), tracker.item()) == (4.0, 0)
    for expected in [(4.0, 1), (8.0, 0)]:
        torch._amp_update_scale_(scale, tracker, torch.zeros(1).xpu(), 2.0, 0.5, 2)
        assert (scale.item(), tracker.item()) == expected
    assert device.report()["fallbacks"] == []
