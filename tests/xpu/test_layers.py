"""Kernels of networks against float64 on the CPU, forward and backward. Risk covered: borders of windows, strides, groups, odd sizes, empty batches."""

import pytest
import torch
from beside import check

F = torch.nn.functional
SMALL = [torch.float16, torch.bfloat16]


def of(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


IMAGE = of(3, 4, 9, 11)
CONVOLUTIONS = {
    "padded": (lambda x, w, b: F.conv2d(x, w, b, padding=1), IMAGE, of(6, 4, 3, 3), of(6)),
    "strides and holes": (lambda x, w, b: F.conv2d(x, w, b, padding=(2, 1), stride=(2, 1), dilation=(2, 1)), IMAGE, of(6, 4, 3, 3), of(6)),
    "of one element": (lambda x, w: F.conv2d(x, w), IMAGE, of(5, 4, 1, 1)),
    "groups": (lambda x, w, b: F.conv2d(x, w, b, groups=2, padding=1), IMAGE, of(6, 2, 3, 3), of(6)),
    "a channel each": (lambda x, w: F.conv2d(x, w, groups=4, stride=2), IMAGE, of(8, 1, 3, 3)),
    "transposed": (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1), IMAGE, of(4, 6, 3, 3), of(6)),
    "transposed groups": (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, groups=2, dilation=2), IMAGE, of(4, 3, 3, 3), of(6)),
    "of lines": (lambda x, w, b: F.conv1d(x, w, b, stride=2), of(3, 4, 20), of(6, 4, 5), of(6)),
    "of volumes": (lambda x, w, b: F.conv3d(x, w, b, stride=2, padding=1), of(2, 4, 6, 7, 8), of(6, 4, 3, 3, 3), of(6)),
    "channels last": (lambda x, w: F.conv2d(x.contiguous(memory_format=torch.channels_last), w), IMAGE, of(6, 4, 3, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(device, name):
    check(device, *CONVOLUTIONS[name])


def test_convolution_of_other_types(device):
    for dtype in [*SMALL, torch.float64]:
        check(device, *CONVOLUTIONS["padded"], dtype=dtype)
    check(device, *CONVOLUTIONS["groups"], dtype=torch.float16)


def test_layout_of_images_stays():
    x, w = IMAGE.contiguous(memory_format=torch.channels_last), of(6, 4, 3, 3)
    assert F.conv2d(x.xpu(), w.xpu()).stride() == F.conv2d(x, w).stride()
    assert F.conv2d(x[:0].xpu(), w.xpu()).shape == F.conv2d(x[:0], w).shape


NORMS = {
    "images": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), IMAGE, of(4), of(4)),
    "vectors off zero": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), of(700, 5) + 3, of(5), of(5)),
    "many pieces": (lambda x, w: F.batch_norm(x, None, None, w, None, True), of(8, 5, 33, 31) + 3, of(5)),
    "evaluation": (lambda x, w, b: F.batch_norm(x, b.detach(), w.detach().abs() + 0.1, w, b, False), IMAGE, of(4), of(4)),
    "layer": (lambda x, w, b: F.layer_norm(x, (11,), w, b), IMAGE, of(11), of(11)),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms(device, name):
    check(device, *NORMS[name])


def test_norms_of_small_types(device):
    for dtype in SMALL:
        check(device, *NORMS["images"], dtype=dtype)
        check(device, *NORMS["layer"], dtype=dtype)


def test_running_statistics(device):
    here, there = torch.nn.BatchNorm2d(4), torch.nn.BatchNorm2d(4).xpu()
    for _ in range(3):
        here(IMAGE + 2), there(IMAGE.xpu() + 2)
    torch.testing.assert_close([there.running_mean.cpu(), there.running_var.cpu()], [here.running_mean, here.running_var])
    half = there(IMAGE.xpu().half())  # images of a small type beside float statistics, as under autocast
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.cpu().float(), here(IMAGE), rtol=1e-2, atol=1e-2)


POOLS = {
    "largest": lambda x: F.max_pool2d(x, 3, 2, 1),
    "largest, ceiling": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True, dilation=2),
    "largest, overlapping": lambda x: F.max_pool2d(x, 3, 1),
    "largest of lines": lambda x: F.max_pool1d(x[0], 3),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average, ceiling": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "average, divisor": lambda x: F.avg_pool2d(x, (2, 3), divisor_override=5),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (4, 3)),
    "adaptive, larger": lambda x: F.adaptive_avg_pool2d(x, (20, 5)),
    "channels last": lambda x: F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 2),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools(device, name):
    check(device, POOLS[name], IMAGE)


def test_largest_keeps_nan_and_places():
    x = IMAGE.clone()
    x[0, 0, 3, 3] = float("nan")
    mine, places = F.max_pool2d(x.xpu(), 2, return_indices=True)
    right, expected = F.max_pool2d(x, 2, return_indices=True)
    assert torch.equal(places.cpu(), expected) and torch.equal(mine.isnan().cpu(), right.isnan())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy(device, reduction):
    targets, weight = torch.tensor([1, 0, -100, 3, 2]), torch.rand(4)
    check(device, lambda x: F.cross_entropy(x, targets.to(x.device), reduction=reduction), of(5, 4))
    check(device, lambda x: F.cross_entropy(x, targets.to(x.device), weight.to(x), reduction=reduction), of(5, 4), dtype=torch.float64)
    image = torch.randint(4, (2, 3, 5))
    check(device, lambda x: F.cross_entropy(x, image.to(x.device), weight.to(x), reduction=reduction), of(2, 4, 3, 5))


def test_a_target_that_is_no_class():
    with pytest.raises(IndexError, match="index out of range on xpu"):
        F.cross_entropy(of(2, 3).xpu(), torch.tensor([1, 7]).xpu()).item()
    assert torch.ones(2).xpu().sum().item() == 2


REDUCTIONS = {
    "middle": lambda x: x.sum(1),
    "outer": lambda x: x.sum((0, 2)),
    "leading": lambda x: x.mean((0, 1)),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1) + torch.linalg.vector_norm(x),
    "largest": lambda x: x.amax(1) + x.amin((0, 1)),
    "extremes": lambda x: x.max() + x.min(),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(device, name):
    check(device, REDUCTIONS[name], of(3, 700, 5) + 0.5)


def test_long_sums_and_truth(device):
    check(device, lambda x: x.mean() + x.mean(0).sum(), of(3000, 33) + 1)
    x = of(40, 50)
    assert torch.equal((x.xpu() > 0).any(1).cpu(), (x > 0).any(1)) and torch.equal((x.xpu() > -2).all(0).cpu(), (x > -2).all(0))
    whole = torch.randint(-5, 9, (6, 700))
    assert torch.equal(whole.xpu().amax(1).cpu(), whole.amax(1)) and torch.equal(whole.xpu().sum(0).cpu(), whole.sum(0))
    assert torch.tensor([1.0, float("nan"), 2.0]).xpu().max().isnan().item()


def test_dropout(device):
    x = torch.ones(1000, 100).xpu().requires_grad_()
    torch.manual_seed(3)
    first, second = F.dropout(x, 0.3), F.dropout(x, 0.3)
    first.sum().backward()
    assert torch.equal(x.grad, first.detach()) and abs((first == 0).float().mean().item() - 0.3) < 0.01
    assert torch.allclose(first.max(), torch.tensor(1 / 0.7).xpu()) and not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(F.dropout(x, 0.3), first)
    # A seed's other draws are the CPU's, also after a dropout that used the same generator.
    torch.manual_seed(3)
    assert torch.equal(torch.randn(5, device="xpu").cpu(), (torch.manual_seed(3), torch.randn(5))[1])
    assert torch.equal(F.dropout(x, 0.5, training=False), x) and F.dropout(x[:0], 0.5).shape == (0, 100)
