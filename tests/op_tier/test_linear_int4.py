"""Risk: a taken product with weights of 4 bits reads a nibble, a scale or a zero that belongs elsewhere, or loses an error of stock's."""

import pytest
import torch
from conftest import relative, report, same_face

product = torch.ops.aten._weight_int4pack_mm_for_cpu
pack = torch.ops.aten._convert_weight_to_int4pack_for_cpu


@pytest.fixture
def own_f32(hook):
    assert hook.force("own_f32")


def counts(hook):
    return next(({"taken": op["taken"], **op["declined"]} for op in report(hook)["ops"] if op["op"] == "_weight_int4pack_mm_for_cpu"), {"taken": 0})


def taken(hook):
    return counts(hook)["taken"]


def operands(m, n, k, group, dtype=torch.bfloat16):
    q = torch.randint(0, 16, (n, k), dtype=torch.int32)
    pairs = torch.stack([torch.rand(k // group, n).div(50), torch.randn(k // group, n).div(50)], -1).to(dtype)
    return q, (torch.randn(m, k).to(dtype), pack(q, 2), group, pairs)


def truth(q, a, _, group, pairs):
    scale, zero = (pairs[..., i].double().repeat_interleave(group, 0).t() for i in (0, 1))
    return a.double() @ ((q.double() - 8) * scale + zero).t()


@pytest.mark.parametrize("group", [32, 64, 128, 256])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 9, 13, 70])
def test_products_equal_stocks(m, group, own_f32, hook, stock):
    for n, k in ((64, 256), (768, 768), (192, 2048)):
        q, arguments = operands(m, n, k, group)
        mine, theirs, exact = product(*arguments), stock(product, *arguments), truth(q, *arguments)
        same_face(mine, theirs)
        assert relative(mine, exact) <= 2 * relative(theirs, exact) + 4e-3
    assert sum(counts(hook).values()) > 0  # taken where bf16 products are native, else declined or left to stock


def test_changed_weights_scales_and_zeros_count_at_once(own_f32, stock):
    _, arguments = operands(2, 64, 256, 64)
    for _ in range(4):
        product(*arguments)
        arguments[1].copy_(pack(torch.randint(0, 16, (64, 256), dtype=torch.int32), 2))
        arguments[3].normal_()
        assert relative(product(*arguments), stock(product, *arguments)) < 1e-2


def test_other_forms_are_stocks(own_f32, hook, stock):
    before = taken(hook)
    for n, dtype in ((80, torch.bfloat16), (64, torch.float32), (64, torch.float16)):
        _, arguments = operands(3, n, 256, 64, dtype)
        assert torch.equal(product(*arguments), stock(product, *arguments))
    assert taken(hook) == before
    _, (a, w, group, pairs) = operands(3, 64, 256, 64)
    wrong = [(a.t(), w, group, pairs), (a, w, 48, pairs), (a, w, 128, pairs), (a, w.int(), group, pairs), (a, w, group, pairs.float()), (a[0], w, group, pairs), (a[:, :128], w, group, pairs)]
    for arguments in wrong:
        messages = []
        for run in (product, lambda *args: stock(product, *args)):
            try:
                messages.append(run(*arguments).shape)
            except (RuntimeError, IndexError) as error:
                messages.append(str(error).split("\n")[0])
        assert messages[0] == messages[1]


def test_infinity_spoils_no_other_row(own_f32, stock):
    _, arguments = operands(3, 64, 256, 64)
    product(*arguments)
    arguments[0][1, 7] = float("inf")
    mine, theirs = product(*arguments), stock(product, *arguments)
    assert mine[[0, 2]].isfinite().all()
    assert torch.equal(mine[1].isnan(), theirs[1].isnan()) and torch.equal(mine[1].isinf(), theirs[1].isinf())
