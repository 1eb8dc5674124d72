"""Risk: a batched product takes a matrix, a stride or what is added from the wrong place, or returns another face than stock's."""

import pytest
import torch
from conftest import bound, relative, same_face

CANDIDATES = ["own_bf16", "own_f32", "onednn_bf16_cast", "f32_cast"]
SIZES = [(12, 64, 32, 48), (24, 1, 64, 512), (24, 4, 64, 40), (500, 5, 6, 7), (4, 33, 70, 65), (8, 300, 45, 1)]
LAYOUTS = {
    "contiguous": lambda b, m, k: torch.randn(b, m, k),
    "padded": lambda b, m, k: torch.randn(b, m + 3, k + 5)[:, :m, :k],
    "transposed": lambda b, m, k: torch.randn(b, k, m).transpose(1, 2),
    "heads of tokens": lambda b, m, k: torch.randn(m, b, k).transpose(0, 1),
    "one for all": lambda b, m, k: torch.randn(m, k).expand(b, m, k),
    "every second": lambda b, m, k: torch.randn(b, m, 2 * k)[:, :, ::2],
}


@pytest.fixture(params=CANDIDATES)
def batched(request, hook):
    assert hook.force(request.param)
    return request.param


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_layouts_of_both_operands(left, right, dtype, batched, stock):
    for b, m, k, n in SIZES:
        x, w = LAYOUTS[left](b, m, k).to(dtype), LAYOUTS[right](b, k, n).to(dtype)
        expected, result = stock(torch.bmm, x, w), torch.bmm(x, w)
        same_face(result, expected)
        assert relative(result, expected) <= bound(batched, dtype), (b, m, k, n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_what_is_added_and_scaled(dtype, batched, stock):
    for b, m, k, n in SIZES:
        x, w = torch.randn(b, m, k).to(dtype), torch.randn(b, k, n).to(dtype)
        for added in (torch.randn(b, m, n), torch.randn(n), torch.randn(b, 1, n), torch.randn(m, 1), torch.randn(1),
                      torch.randn(b, n, m).transpose(1, 2)):
            added = added.to(dtype)
            for scales in ({}, {"beta": -0.5, "alpha": 0.125}, {"beta": 0}):
                expected, result = stock(torch.baddbmm, added, x, w, **scales), torch.baddbmm(added, x, w, **scales)
                same_face(result, expected)
                assert relative(result, expected) <= bound(batched, dtype), (b, m, k, n, added.shape, scales)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_out_and_in_place(dtype, batched, stock):
    for b, m, k, n in SIZES:
        x, w, start = torch.randn(b, m, k).to(dtype), torch.randn(b, k, n).to(dtype), torch.randn(b, m, n).to(dtype)
        for call in (lambda out: torch.bmm(x, w, out=out), lambda out: torch.baddbmm(start, x, w, beta=2, out=out),
                     lambda out: out.baddbmm_(x, w, alpha=0.5)):
            for made in (torch.clone, lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)):
                expected, mine = made(start), made(start)
                stock(call, expected)
                assert call(mine) is mine
                same_face(mine, expected)
                assert relative(mine, expected) <= bound(batched, dtype), (b, m, k, n)


def test_nan_of_what_beta_hides(batched, stock):
    x, w = torch.randn(12, 64, 32), torch.randn(12, 32, 48)
    nan = torch.full((12, 64, 48), float("nan"))
    assert relative(torch.baddbmm(nan, x, w, beta=0), stock(torch.bmm, x, w)) <= bound(batched)
    x[3, 5, 7] = float("inf")
    expected, result = stock(torch.bmm, x, w), torch.bmm(x, w)
    assert torch.equal(expected.isfinite(), result.isfinite())


def test_rounding_shows_where_it_is_asked_for(hook, stock):
    x, w = torch.randn(12, 64, 32), torch.randn(12, 32, 64)
    hook.force("own_bf16")
    torch.bmm(x, w)
    if torch.cpu._is_amx_tile_supported():  # else the candidate does not take such matrices
        assert relative(torch.bmm(x, w), stock(torch.bmm, x, w)) > 1e-4
    hook.force("own_f32")  # stock is faster there
    assert torch.equal(torch.bmm(x, w), stock(torch.bmm, x, w))
