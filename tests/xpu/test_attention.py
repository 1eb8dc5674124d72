"""Attention in one kernel beside float64 on the CPU (IPEXRUN_XPU_KERNELS=lanes: a CPU takes the products and the softmax otherwise, and so does training)."""

import os

import pytest
import torch

from beside import BOUNDS, error

F = torch.nn.functional
LANES = os.environ.get("IPEXRUN_XPU_KERNELS") == "lanes"
# batch, heads, heads of keys, queries, keys, width, width of values
SHAPES = [(2, 3, 3, 64, 64, 64, 64), (1, 2, 2, 17, 33, 8, 8), (1, 2, 1, 65, 31, 33, 20), (1, 1, 1, 100, 100, 128, 128), (1, 4, 2, 16, 1, 96, 64), (2, 1, 1, 70, 129, 32, 40)]


def compare(device, shape, dtype=torch.float32, mask=None, layout=lambda x: x, **others):
    batch, heads, of_keys, queries, keys, width, of_values = shape
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, h, n, w).to(dtype) for h, n, w in ((heads, queries, width), (of_keys, keys, width), (of_keys, keys, of_values)))
    grouped = heads != of_keys
    right = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), mask if mask is None or mask.dtype == torch.bool else mask.double(), enable_gqa=grouped, **others)
    device.forget_fallbacks()
    before = device.report()["launches"]
    there = [layout(x.xpu()) for x in (q, k, v)]
    made = device.report()["launches"]
    with torch.no_grad():
        mine = F.scaled_dot_product_attention(*there, mask if mask is None else mask.to(dtype if mask.is_floating_point() else torch.bool).xpu(), enable_gqa=grouped, **others)
    assert mine.dtype == dtype and mine.shape == right.shape and error(mine, right) < 2 * BOUNDS[dtype]
    assert device.report()["fallbacks"] == []
    if LANES and before >= 0:
        assert device.report()["launches"] - made == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(device, shape):
    compare(device, shape)
    compare(device, shape, is_causal=True)
    compare(device, shape, scale=0.3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_types_of_16_bits(device, dtype):
    compare(device, (2, 3, 3, 40, 50, 64, 64), dtype)
    compare(device, (1, 2, 2, 40, 40, 72, 72), dtype, is_causal=True)


@pytest.mark.parametrize("sizes", [(2, 3, 40, 50), (40, 50), (1, 1, 1, 50), (2, 1, 40, 1)])
def test_masks(device, sizes):
    torch.manual_seed(1)
    shape = (2, 3, 3, 40, 50, 32, 32)
    compare(device, shape, mask=torch.randn(sizes))
    chosen = torch.rand(sizes) < 0.7
    chosen[..., 0] = True
    compare(device, shape, mask=chosen)
    compare(device, shape, torch.float16, mask=chosen)
    none = chosen.clone()
    none[..., 0, :] = False  # a row without any key is 0
    compare(device, shape, mask=none)
    compare(device, shape, mask=torch.zeros(sizes).masked_fill(~none, float("-inf")))


def test_layouts(device):
    compare(device, (2, 3, 3, 40, 50, 32, 32), layout=lambda x: x.transpose(1, 2).contiguous().transpose(1, 2))
    x = torch.randn(2, 64, 3 * 4 * 16).xpu()
    q, k, v = (y.view(2, 64, 4, 16).transpose(1, 2) for y in x.chunk(3, -1))
    right = F.scaled_dot_product_attention(*(y.cpu().double() for y in (q, k, v)), is_causal=True)
    assert error(F.scaled_dot_product_attention(q, k, v, is_causal=True), right) < 1e-5


def test_gradients_take_the_other_way(device):
    q = torch.randn(1, 2, 20, 16, device="xpu", requires_grad=True)
    there = F.scaled_dot_product_attention(q, q, q)
    there.sum().backward()
    here = q.detach().cpu().double().requires_grad_()
    F.scaled_dot_product_attention(here, here, here).sum().backward()
    assert error(q.grad, here.grad) < 1e-5
