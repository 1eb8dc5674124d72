"""Kernels that take a CPU's vectors of 16. Risk covered: what is left over beside whole vectors, lines of images that lie partly outside."""

import pytest
import torch

F = torch.nn.functional
BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2}


def apart(mine, right):
    return ((mine.cpu().double() - right.double()).norm() / right.double().norm()).item()


@pytest.mark.parametrize("dtype", BOUND)
def test_rows_of_any_length(device, dtype):
    device.forget_fallbacks()
    for n in (5, 16, 100):
        z, w, g = (torch.randn(shape, generator=torch.Generator().manual_seed(n)).to(dtype) for shape in ((7, n), (n,), (7, n)))

        def results(z, w, g):
            z, w = z.clone().requires_grad_(), w.clone().requires_grad_()
            rows = [z.softmax(-1), z.log_softmax(-1), F.layer_norm(z, (n,), w, w), z.sum(-1), z.sum(0), z.amax(-1)]
            (rows[2] * g).sum().backward()
            softened = z.detach().clone().requires_grad_()
            (softened.softmax(-1) * g).sum().backward()
            return [row.detach() for row in rows] + [z.grad, w.grad, softened.grad]

        for k, (mine, right) in enumerate(zip(results(z.xpu(), w.xpu(), g.xpu()), results(z.double(), w.double(), g.double()))):
            assert apart(mine, right) < BOUND[dtype], (n, k)
    assert device.report()["fallbacks"] == []


def test_not_a_number_stays(device):
    z = torch.randn(2, 40)
    z[0, 7] = z[1, 39] = float("nan")
    assert z.xpu().amax(-1).isnan().all() and z.xpu().softmax(-1).isnan().all()
    assert torch.equal(z.xpu().amin(0).isnan().cpu(), z.amin(0).isnan())


def test_rows_that_attend_to_nothing(device):
    z = torch.randn(3, 20)
    z[1] = float("-inf")
    mine = torch._safe_softmax(z.xpu(), -1).cpu()
    torch.testing.assert_close(mine, torch._safe_softmax(z, -1))
    assert torch.equal(mine[1], torch.zeros(20))


@pytest.mark.parametrize("stride, padding, dilation", [(1, 1, 1), (2, 3, 1), (1, (0, 4), (1, 3)), ((3, 2), 2, 2)])
def test_convolutions(stride, padding, dilation):
    x, w = torch.randn(2, 3, 9, 21), torch.randn(4, 3, 3, 5)
    right = F.conv2d(x.double(), w.double(), None, stride, padding, dilation)
    assert apart(F.conv2d(x.xpu(), w.xpu(), None, stride, padding, dilation), right) < 1e-6


@pytest.mark.parametrize("size", [(9, 9), (67, 65)])  # an item a plane, and two
def test_batch_norm(size):
    x, w, b = torch.randn(2, 3, *size), torch.rand(3), torch.randn(3)
    mean, variance = torch.randn(3), torch.rand(3) + 0.5
    for training in (False, True):
        right = F.batch_norm(x.double(), mean.double(), variance.double(), w.double(), b.double(), training)
        assert apart(F.batch_norm(x.xpu(), mean.xpu(), variance.xpu(), w.xpu(), b.xpu(), training), right) < 1e-6


def test_erf_and_gelu():
    x = torch.cat([torch.linspace(-6, 6, 997), torch.tensor([float("inf"), float("-inf"), 0.0])])
    torch.testing.assert_close(torch.erf(x.xpu()).cpu(), torch.erf(x.double()).float(), rtol=1e-6, atol=1e-7)
    assert apart(F.gelu(x[:997].xpu()), F.gelu(x[:997].double())) < 1e-6
    assert torch.erf(torch.full((3,), float("nan")).xpu()).isnan().all()


def same(mine, right):
    """Equal bit by bit, but for what is not a number."""
    mine = mine.cpu()
    assert mine.dtype == right.dtype and mine.shape == right.shape
    if right.dtype.is_floating_point:
        assert torch.equal(mine.isnan(), right.isnan())
        mine, right = mine.nan_to_num(0.0, float("inf"), float("-inf")), right.nan_to_num(0.0, float("inf"), float("-inf"))
        assert torch.equal(mine.signbit(), right.signbit())
    assert torch.equal(mine, right)


def test_halves_of_every_kind():
    halves = torch.arange(-32768, 32768).to(torch.int16).view(torch.float16)
    same(halves.xpu().float(), halves.float())
    same(halves.xpu() * 0.5, halves * 0.5)
    bits = torch.arange(-(1 << 31), 1 << 31, 65521).to(torch.int32)
    between = (halves[:-1].float() + halves[1:].float()) / 2  # ties, to even
    singles = torch.cat([bits.view(torch.float32), between, torch.tensor([65504.0, 65519.9, 65520.0, -65520.0, 2.0**-24, 2.0**-25, -0.0])])
    for dtype in (torch.float16, torch.bfloat16):
        same(singles.xpu().to(dtype), singles.to(dtype))


KINDS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


def numbers(dtype, *shape):
    out = torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(len(shape))) - (0 if dtype in (torch.uint8, torch.bool) else 50)
    return (out % 3 == 0) if dtype == torch.bool else (out / 8 if dtype.is_floating_point else out).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.bool], ids=str)
def test_operands_of_other_sizes(device, dtype):
    device.forget_fallbacks()
    x, row, column = numbers(dtype, 5, 3, 70), numbers(dtype, 70), numbers(dtype, 5, 3, 1)
    middle, mask = numbers(dtype, 5, 1, 70), numbers(torch.bool, 3, 70)
    wide = numbers(dtype, 2, 3, 4, 5, 66)
    parts = [(x, row), (row, x), (x, column), (column, x), (x, middle), (x[:, :2, :65], row[:65]), (x[:, :, ::2], row[:35]), (row[:1], column),
             (wide, wide[:, :1, :, :1]), (wide[:, :, ::2, :, 1:], wide[:1, :, 1:2, :, :65]), (wide.transpose(0, 3), wide.transpose(0, 3)[:1, :, :1])]
    for a, b in parts:
        for op in (torch.add, torch.maximum, torch.lt) if dtype == torch.float32 else (torch.add,):
            same(op(a.xpu(), b.xpu()), op(a, b))
        into = numbers(dtype, *torch.broadcast_shapes(a.shape, b.shape), 2)[..., 0]  # every second element
        mine = into.xpu()
        same(torch.add(a.xpu(), b.xpu(), out=mine), torch.add(a, b, out=into))
    for a, b in ((x, row), (column, x), (x, column), (row, column)):
        same(torch.where(mask.xpu(), a.xpu(), b.xpu()), torch.where(mask, a, b))
        same(torch.where(mask[:, :1].xpu(), a.xpu(), b.xpu()), torch.where(mask[:, :1], a, b))
        if dtype == torch.float32:
            same(torch.addcmul(x.xpu(), a.xpu(), b.xpu()), torch.addcmul(x, a, b))
    same(x.xpu().masked_fill(mask.xpu(), 1), x.masked_fill(mask, 1))
    if dtype == torch.float16:
        for view in (lambda z: z[:, :, 1:], lambda z: z[:, :, :1].expand(5, 3, 70), lambda z: z.transpose(0, 2)):
            same(view(x.xpu()).abs(), view(x).abs())
    assert device.report()["fallbacks"] == []


@pytest.mark.parametrize("dtype", [*KINDS, torch.complex64, torch.complex128], ids=str)
def test_copies_between_layouts(dtype):
    for shape in ((16, 16), (17, 33), (48, 32), (70, 5), (2, 3, 40, 24), (3, 9, 8, 7, 10)):
        x = numbers(torch.float32, *shape).to(dtype)
        mine = x.xpu()
        for view in (lambda z: z.transpose(0, -1), lambda z: z.transpose(-1, -2), lambda z: z.movedim(0, -1), lambda z: z.movedim(-1, 0),
                     lambda z: z[1:, ..., :-1].transpose(0, -1), lambda z: z[..., ::2], lambda z: z[..., 1:], lambda z: z.unsqueeze(-1).expand(*shape, 40),
                     lambda z: z.unsqueeze(-2).expand(*shape[:-1], 4, shape[-1])):
            right = view(x)
            same_values = view(mine).contiguous().cpu()
            assert torch.equal(same_values, right.contiguous()), (shape, dtype)
            into = torch.zeros(right.shape[::-1], dtype=dtype).permute(*range(right.dim())[::-1])
            assert torch.equal(into.xpu().copy_(view(mine)).cpu(), right), (shape, dtype)
            if not dtype.is_complex:
                same(view(mine).to(torch.float16), right.to(torch.float16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8], ids=str)
def test_more_than_three_dimensions(dtype):
    """Large ones are several launches."""
    x = numbers(dtype, 3, 2, 48, 5, 80)
    for view in (lambda z: z.transpose(2, 3), lambda z: z.transpose(0, 3), lambda z: z[:, :, 1:, ::2, :65]):
        same(view(x.xpu()).contiguous(), view(x).contiguous())
        same(view(x.xpu()) + view(x.xpu()).contiguous(), view(x) + view(x).contiguous())
        same(view(x.xpu()) + view(x.xpu())[:, :1, :, :, :1].contiguous(), view(x) + view(x)[:, :1, :, :, :1])
        if dtype != torch.float16:
            same(view(x.xpu()).half(), view(x).half())


@pytest.mark.parametrize("width", [3, 17, 36, 130, 2500])
def test_rows_by_index(width):
    which = torch.tensor([[0, 4, -1], [2, 2, -5]])
    for dtype in (torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex128):
        table = numbers(torch.float32, 5, width).to(dtype)
        for rows in (table, table[:, 1:], torch.stack([table, table])[1]):
            assert torch.equal(rows.xpu()[which.xpu()].cpu(), rows[which])
        assert torch.equal(torch.stack([table, table * 1]).xpu()[:, which[0].xpu()].cpu(), torch.stack([table, table])[:, which[0]])
        fresh = numbers(torch.float32, 3, width).to(dtype)
        mine, right = table.xpu(), table.clone()
        mine[which[0].xpu()] = fresh.xpu()
        right[which[0]] = fresh
        assert torch.equal(mine.cpu(), right)
    with pytest.raises(IndexError):
        table.xpu()[torch.tensor([0, 5]).xpu()].cpu()
