"""Risk: a taken product with int8 weights is off at a tail, a scale lands on another column, or an error of stock's is lost."""

import pytest
import torch
from conftest import bound, relative, report, same_face

product = torch.ops.aten._weight_int8pack_mm


@pytest.fixture
def own_f32(hook):
    assert hook.force("own_f32")


def taken(hook):
    return next((op["taken"] for op in report(hook)["ops"] if op["op"] == "_weight_int8pack_mm"), 0)


def operands(m, n, k, dtype):
    return torch.randn(m, k).to(dtype), torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n).div(100).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("m", [1, 3, 4, 5, 17, 130])
def test_products_equal_stocks(m, dtype, own_f32, hook, stock):
    for n, k in ((32, 32), (768, 768), (64, 2048), (2304, 96), (96, 4096)):
        a, b, scales = operands(m, n, k, dtype)
        mine, theirs = product(a, b, scales), stock(product, a, b, scales)
        same_face(mine, theirs)
        truth = (a.double() @ b.double().t()) * scales.double()
        assert relative(mine, truth) <= bound("own_f32", dtype)
        assert relative(mine, truth) <= 2 * relative(theirs, truth) + 1e-6
    assert taken(hook) > 0


def test_a_changed_weight_counts_at_once(own_f32, stock):
    a, b, scales = operands(2, 64, 64, torch.bfloat16)
    for _ in range(4):
        product(a, b, scales)
        b.random_(-128, 128)
        scales.uniform_()
        assert relative(product(a, b, scales), stock(product, a, b, scales)) < 1e-2


def test_other_forms_are_stocks(own_f32, hook, stock):
    a, b, scales = operands(3, 64, 64, torch.float16)
    before = taken(hook)
    assert torch.equal(product(a, b, scales), stock(product, a, b, scales))
    assert taken(hook) == before
    a, b, scales = operands(3, 64, 64, torch.bfloat16)
    for wrong in ((a.t(), b, scales), (a, b.t(), scales), (a, b.short(), scales), (a, b, scales.float()), (a, b, scales[:3]), (a[0], b, scales), (a[:, :32], b, scales)):
        messages = []
        for run in (product, lambda *args: stock(product, *args)):
            try:
                messages.append(run(*wrong).shape)
            except (RuntimeError, IndexError) as error:
                messages.append(str(error).split("\n")[0])
        assert messages[0] == messages[1]


def test_a_row_with_nan_spoils_no_other(own_f32):
    a, b, scales = operands(6, 64, 64, torch.bfloat16)
    product(a, b, scales)
    a[2, 63] = float("nan")
    result = product(a, b, scales)
    assert result[2].isnan().all() and not result[[0, 1, 3, 4, 5]].isnan().any()


def test_without_gradients_and_in_inference_mode(own_f32, stock):
    a, b, scales = operands(2, 64, 64, torch.float32)
    with torch.inference_mode():
        same_face(product(a, b, scales), stock(product, a, b, scales))
    compiled_free = torch.export.export(Product(b, scales), (a,)).module()
    assert relative(compiled_free(a), stock(product, a, b, scales)) < 4e-6


class Product(torch.nn.Module):
    def __init__(self, b, scales):
        super().__init__()
        self.register_buffer("b", b)
        self.register_buffer("scales", scales)

    def forward(self, a):
        return product(a, self.b, self.scales)
