"""Risk: a taken product of bytes is off by one somewhere, reads a stale pack, or loses an error of stock's."""

import pytest
import torch
from conftest import report, same_face

product = torch._int_mm


@pytest.fixture
def own(hook):
    assert hook.force("own_f32")


def taken(hook):
    return next((op["taken"] for op in report(hook)["ops"] if op["op"] == "_int_mm"), 0)


def number(*sizes, dtype=torch.int8):
    return torch.randint(0, 256, sizes, dtype=torch.uint8) if dtype == torch.uint8 else torch.randint(-128, 128, sizes, dtype=dtype)


def weight(n, k, layout):
    """[k, n]: a weight used as w.t(), a matrix, or a part of one."""
    return {"t": lambda: number(n, k).t(), "c": lambda: number(k, n), "t part": lambda: number(n, k + 3)[:, :k].t(), "c part": lambda: number(k, n + 5)[:, :n]}[layout]()


@pytest.mark.parametrize("layout", ["t", "c", "t part", "c part"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("m", [1, 3, 16, 33, 130])
def test_products_equal_stocks(m, dtype, layout, own, hook, stock):
    before = taken(hook)
    for n, k in ((32, 32), (768, 768), (65, 129), (48, 2048)):
        a, b = number(m, k, dtype=dtype), weight(n, k, layout)
        for _ in range(3):
            mine = product(a, b)
        theirs = stock(product, a, b)
        same_face(mine, theirs)
        assert torch.equal(mine, theirs)
        assert torch.equal(mine.long(), a.long() @ b.long())
    assert taken(hook) > before or not torch.cpu._is_vnni_supported()  # nothing to gain without


def test_the_largest_sums(own):
    a, b = torch.full((2, 4096), -128, dtype=torch.int8), torch.full((64, 4096), -128, dtype=torch.int8)
    assert (product(a, b.t()) == 4096 * 128 * 128).all()


def test_a_changed_weight_counts_at_once(own, stock):
    a, w = number(2, 64), number(96, 64)
    for _ in range(4):
        product(a, w.t())
        w.random_(-128, 128)
        assert torch.equal(product(a, w.t()), stock(product, a, w.t()))


def test_other_forms_are_stocks(own, hook, stock):
    a, b = number(3, 64), number(64, 96)
    before = taken(hook)
    out = torch.empty(3, 96, dtype=torch.int32)
    assert torch.equal(product(a, b, out=out), stock(product, a, b))
    assert torch.equal(product(a[:0], b), stock(product, a[:0], b))
    strided = number(64, 3).t()
    assert torch.equal(product(strided, b), stock(product, strided, b))
    assert taken(hook) == before
    for wrong in ((a.float(), b), (a, b.int()), (a, b.to(torch.uint8)), (a[None], b), (a, b[:63]), (a[0], b)):
        messages = []
        for run in (product, lambda *args: stock(product, *args)):
            try:
                messages.append(run(*wrong).shape)
            except (RuntimeError, IndexError) as error:
                messages.append(str(error).split("\n")[0])
        assert messages[0] == messages[1]


def test_without_gradients_and_in_inference_mode(own, stock):
    a, w = number(4, 64), number(96, 64)
    with torch.inference_mode():
        same_face(product(a, w.t()), stock(product, a, w.t()))
