"""Risk: a taken topk returns another element, another place of an equal one or another order than stock."""

import pytest
import torch
from conftest import DTYPES, opinfo, opinfo_results, refused_as_by_stock, relative, report, same_face


@pytest.fixture
def own_f32(hook):
    assert hook.force("own_f32")


def taken(hook):
    return next((op["taken"] for op in report(hook)["ops"] if op["op"] == "topk"), 0)


def same(x, stock, *args, **kwargs):
    for mine, theirs in zip(torch.topk(x, *args, **kwargs), stock(torch.topk, x, *args, **kwargs), strict=True):
        same_face(mine, theirs)
        assert torch.equal(mine.nan_to_num(7e7), theirs.nan_to_num(7e7)) and torch.equal(mine.isnan(), theirs.isnan())


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64], ids=str)
def test_opinfo_samples_of_topk(dtype, own_f32, stock):
    for mine, theirs in opinfo_results(opinfo("topk")[0], dtype, stock):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape, k", [((32000,), 50), ((1, 32000), 1), ((7, 1000), 5), ((2, 3, 300), 75), ((4, 256), 64), ((4, 255), 3), ((3, 8400), 300), ((2, 500), 500)], ids=str)
def test_topk_of_many_shapes(shape, k, largest, own_f32, stock):
    x = torch.randperm(torch.Size(shape).numel()).reshape(shape) / 7 - 300  # no equal elements
    for view in (x, torch.stack([x, x], -1)[..., 0], x.mul(-1)):
        same(view, stock, k, largest=largest)
        same(view, stock, k, dim=view.dim() - 1, largest=largest)
        same(view, stock, 2, dim=0, largest=largest) if view.dim() > 1 and len(view) > 2 else None
        values, places = torch.topk(view, k, largest=largest, sorted=False)
        assert torch.equal(view.gather(-1, places), values)


@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_equal_elements_is_stocks(largest, own_f32, stock):
    for x in (torch.randn(2000).mul(4).round(), torch.zeros(3, 1000), torch.tensor([0.0, -0.0]).repeat(500), torch.randn(50, 1000).bfloat16().float(), torch.full((700,), float("nan")),
              torch.cat([torch.full((900,), -float("inf")), torch.randn(9)])):
        for k in (1, 2, 10, 100):
            same(x, stock, k, largest=largest)


@pytest.mark.parametrize("largest", [True, False])
def test_topk_with_nan_and_infinity(largest, own_f32, stock):
    x = torch.randperm(5000) / 3 - 800
    for values in ([float("nan")], [float("inf"), -float("inf")], [float("nan"), float("inf")], [float("nan")] * 2, [-float("inf")] * 40):
        x[100 : 100 + 50 * len(values) : 50] = torch.tensor(values)
        same(x, stock, 7, largest=largest)
        same(x, stock, 1250, largest=largest)


def test_gradients_through_topk(own_f32, stock):
    x = torch.randperm(4000).reshape(4, 1000).div(7).requires_grad_()

    def gradient():
        return torch.autograd.grad(x.topk(9).values.square().sum(), x)[0]

    assert relative(gradient(), stock(gradient)) == 0


def test_what_topk_refuses_stock_refuses(own_f32, stock):
    x = torch.randn(1000)
    for call in (lambda: x.topk(1001), lambda: x.topk(-1), lambda: x.topk(3, dim=1)):
        refused_as_by_stock(call, stock, IndexError)


def test_topk_is_really_taken(hook, own_f32):
    x, before = torch.randperm(4000) / 7, taken(hook)
    x.topk(10)
    assert taken(hook) == before + 1
    torch.zeros(4000).topk(10)  # stock answered
    assert taken(hook) == before + 1
