"""Kernels of ours against the CPU, and that it was they who ran. Risk covered: broadcasting, strides, promotion of types, NaN."""

import sys

import pytest
import torch

F = torch.nn.functional
ELEMENTWISE = {
    "scaled sum": lambda a, b, row: a + 2 * b - row,
    "products": lambda a, b, row: (1 - a / 3) * row * b,
    "transposed": lambda a, b, row: a.t().exp() + b.t(),
    "choice": lambda a, b, row: torch.where(a > b, a, row).masked_fill(b < -1, 7.0),
    "bounds": lambda a, b, row: a.clamp(-0.5, 0.5) + b.clamp(max=0.1) + b.clamp(min=0.2) + torch.maximum(a, row),
    "activations": lambda a, b, row: F.gelu(a) + F.gelu(b, approximate="tanh") + F.silu(a) + b.sigmoid() + a.tanh() + b.relu(),
    "three operands": lambda a, b, row: a.lerp(b, 0.3) + a.addcmul(b, row, value=0.5) + a.addcdiv(b, row.abs() + 1),
    "mixed types": lambda a, b, row: (a.half() * b.float() + row.bfloat16()).double(),
    "integers": lambda a, b, row: (a * 10).long() * 3 - (b * 5).int() + (row > 0),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(device, name):
    torch.manual_seed(0)
    a, b, row = torch.randn(6, 70), torch.randn(6, 70), torch.randn(70)
    right = ELEMENTWISE[name](a, b, row)
    there = a.xpu(), b.xpu(), row.xpu()
    device.forget_fallbacks()
    mine = ELEMENTWISE[name](*there)
    assert device.report()["fallbacks"] == []
    assert mine.dtype == right.dtype
    torch.testing.assert_close(mine.cpu(), right, rtol=1e-5, atol=1e-5)


def test_nan_and_infinities(device):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0])
    for function in (torch.relu, torch.abs, torch.sigmoid, lambda v: torch.maximum(v, torch.zeros_like(v)), lambda v: v.clamp(-1, 1), F.silu):
        torch.testing.assert_close(function(x.xpu()).cpu(), function(x), equal_nan=True)


def test_gradients_of_activations(device):
    x = torch.randn(3, 33)
    there = x.xpu().requires_grad_()
    here = x.clone().requires_grad_()
    for function in (F.gelu, F.silu, torch.tanh, torch.sigmoid, F.relu, lambda v: F.gelu(v, approximate="tanh")):
        mine, = torch.autograd.grad(function(there), there, torch.ones_like(there))
        right, = torch.autograd.grad(function(here), here, torch.ones_like(here))
        torch.testing.assert_close(mine.cpu(), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_products(device, dtype):
    torch.manual_seed(0)
    a, b, bias = torch.randn(19, 37).to(dtype), torch.randn(70, 37).to(dtype), torch.randn(70).to(dtype)
    calls = (lambda a, b, bias: F.linear(a, b, bias), lambda a, b, bias: a @ b.t(), lambda a, b, bias: a.t() @ a,
             lambda a, b, bias: torch.addmm(bias, a, b.t(), beta=0.5, alpha=2), lambda a, b, bias: a[::3, 1:] @ b[:, 1:].t())
    device.forget_fallbacks()
    for call in calls:
        right = call(a.double(), b.double(), bias.double())
        mine = call(a.xpu(), b.xpu(), bias.xpu()).cpu()
        assert mine.dtype == dtype
        tolerance = 1e-5 if dtype in (torch.float32, torch.float64) else 3e-2
        torch.testing.assert_close(mine.double(), right, rtol=tolerance, atol=tolerance)
    x = torch.randn(3, 5, 8).to(dtype)
    torch.testing.assert_close((x.xpu() @ x.xpu().transpose(1, 2)).cpu().float(), (x.float() @ x.float().transpose(1, 2)), rtol=2e-2, atol=2e-2)
    assert device.report()["fallbacks"] == []


@pytest.mark.parametrize("sizes", [(64, 64, 16), (130, 70, 33), (65, 1, 200), (9, 129, 7), (70, 70, 70)], ids=str)
def test_products_with_edges(device, sizes):
    m, n, k = sizes
    torch.manual_seed(0)
    a, b, c = torch.randn(2, m, k), torch.randn(2, k, n), torch.randn(n)
    device.forget_fallbacks()
    for left in (a, a.transpose(1, 2).contiguous().transpose(1, 2)):
        for right in (b, b.transpose(1, 2).contiguous().transpose(1, 2)):
            x, y = left.xpu(), right.xpu()
            torch.testing.assert_close((x @ y).cpu(), a @ b, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(torch.addmm(c.xpu(), x[0], y[0], beta=2, alpha=0.5).cpu(), torch.addmm(c, a[0], b[0], beta=2, alpha=0.5), rtol=1e-4, atol=1e-4)
    assert device.report()["fallbacks"] == []


def test_products_by_the_kernels_of_gpus(child):
    """The same tests, where this file's own ran those of CPUs."""
    done = child("", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "test_products and not gpus and not play", IPEXRUN_XPU_KERNELS="lanes")
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(64, 64, 16), (130, 70, 33), (9, 129, 7)], ids=str)
def test_products_of_small_types(device, dtype, sizes):
    """Beside float32 products of the same values; on devices with matrix units by these."""
    m, n, k = sizes
    torch.manual_seed(0)
    a, b, c = torch.randn(2, m, k).to(dtype), torch.randn(2, k, n).to(dtype), torch.randn(n).to(dtype)
    for left in (a, a.transpose(1, 2).contiguous().transpose(1, 2)):
        for right in (b, b.transpose(1, 2).contiguous().transpose(1, 2)):
            x, y = left.xpu(), right.xpu()
            torch.testing.assert_close((x @ y).cpu(), (a.float() @ b.float()).to(dtype), rtol=1e-2, atol=1e-2)
            one = torch.addmm(c.xpu(), x[0], y[0], beta=2, alpha=0.5).cpu()
            torch.testing.assert_close(one, torch.addmm(c.float(), a[0].float(), b[0].float(), beta=2, alpha=0.5).to(dtype), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("lanes, dtype", [("matrix", "float16"), ("matrix8", "bfloat16")])
def test_products_by_matrix_units_that_work_items_play(child, lanes, dtype):
    """gemm_matrix.cl with the order of values that the extension's text gives to lanes of 16 and of 8."""
    test = ("import sys, pytest, ipexrun.xpu as x; code = pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1], '-k', 'small_types and ' + sys.argv[2]]); x.install(); "
            "sys.exit(code)")
    done = child("", sys.executable, "-c", test, __file__, dtype, IPEXRUN_XPU_KERNELS=lanes, IPEXRUN_XPU_REPORT="1")
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout
    assert "gemm_matrix" in done.stderr, done.stderr


def test_products_of_nothing(device):
    assert torch.equal((torch.ones(3, 0).xpu() @ torch.ones(0, 4).xpu()).cpu(), torch.zeros(3, 4))
    assert (torch.ones(0, 3).xpu() @ torch.ones(3, 4).xpu()).shape == (0, 4)


ROWS = {
    "softmax": lambda x: F.softmax(x, -1),
    "softmax of columns": lambda x: F.softmax(x, 0),
    "log softmax": lambda x: F.log_softmax(x, 1),
    "layer norm": lambda x: F.layer_norm(x, (70,), torch.linspace(0, 1, 70, dtype=x.dtype).to(x.device), torch.ones(70, dtype=x.dtype).to(x.device)),
    "layer norm of two": lambda x: F.layer_norm(x, (5, 70)),
    "sum": lambda x: x.sum(-1) * 2,
    "sum of leading": lambda x: x.sum((0, 1)),
    "sum of middle": lambda x: x.sum(1, keepdim=True),
    "mean": lambda x: x.mean(),
    "mean of outer": lambda x: x.mean((0, 2)),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows(device, name, dtype):
    torch.manual_seed(0)
    x, weight = torch.randn(3, 5, 70, dtype=dtype), torch.randn(3, 5, 70, dtype=dtype)
    here = x.clone().requires_grad_()
    right = ROWS[name](here)
    (right * weight.expand_as(right) if right.shape == weight.shape else right * right).sum().backward()
    there = x.xpu().requires_grad_()
    device.forget_fallbacks()
    mine = ROWS[name](there)
    (mine * weight.xpu() if mine.shape == weight.shape else mine * mine).sum().backward()
    assert [row["name"] for row in device.report()["fallbacks"] if row["name"] != "aten::linspace"] == []
    torch.testing.assert_close(mine.cpu(), right, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(there.grad.cpu(), here.grad, rtol=1e-4, atol=1e-5)


def test_sums_of_other_types():
    x = torch.arange(24).reshape(2, 3, 4)
    assert torch.equal(x.xpu().sum(1).cpu(), x.sum(1)) and torch.equal((x > 5).xpu().sum().cpu(), (x > 5).sum())
    half = torch.randn(4, 200).half()
    torch.testing.assert_close(F.softmax(half.xpu(), -1).cpu().float(), F.softmax(half.float(), -1), rtol=2e-3, atol=1e-3)
    torch.testing.assert_close(half.xpu().mean(1).cpu().float(), half.float().mean(1), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_bounds_signs_and_roots_of_odd_numbers(dtype):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 4.0, -4.0], dtype=dtype)
    for function in (lambda v: v.clamp(1, -1), lambda v: v.clamp(-1, nan), lambda v: v.clamp(min=nan), lambda v: v.clamp(max=nan), lambda v: v.clamp(-inf, inf),
                     torch.sign, lambda v: v.pow(0.5), lambda v: v**-0.5, lambda v: v.pow(3)):
        mine, right = function(x.xpu()).cpu(), function(x)
        torch.testing.assert_close(mine, right, equal_nan=True)
        assert torch.equal(mine.signbit(), right.signbit()) or right.isnan().any()
    whole = torch.tensor([4, 9, 0])
    torch.testing.assert_close((whole.xpu() ** 0.5).cpu(), whole**0.5)


def test_numbers_beside_bytes():
    x = torch.tensor([44, 255, 0], dtype=torch.uint8)
    for function in (lambda v: v == 300, lambda v: v == -1, lambda v: v > -1, lambda v: v < 256, lambda v: v < 44.5, lambda v: v.char() * 100, lambda v: v - 5):
        assert torch.equal(function(x.xpu()).cpu(), function(x))


def test_running_statistics_that_lie_apart():
    """The CPU answers, and torch's schema does not say that it writes them."""
    x = torch.randn(3, 2, 5)
    found = []
    for where in ("cpu", "xpu"):
        mean, variance = (torch.full((2, 2), value, device=where)[:, 0] for value in (0.0, 1.0))
        F.batch_norm(x.to(where), mean, variance, training=True, momentum=0.3)
        found.append(torch.stack([mean, variance]).cpu())
    torch.testing.assert_close(*found)
    assert found[0][0].abs().min() > 0
