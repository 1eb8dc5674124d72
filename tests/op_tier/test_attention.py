"""Risk: a taken attention returns other numbers, another dtype, shape or strides than stock, reads a mask or a view wrongly, or breaks the backward pass."""

import math

import pytest
import torch
import torch.nn.functional as F
from conftest import DTYPES, opinfo, opinfo_results, relative, report, same_face

attention = F.scaled_dot_product_attention
leaf = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
INFINITY = float("inf")
LOWEST = torch.finfo(torch.float32).min


def bound(dtype):
    return {torch.bfloat16: 1e-2, torch.float16: 1e-3}.get(dtype, 2e-6)


@pytest.fixture
def own_f32(hook):
    assert hook.force("own_f32")


def taken(hook):
    return next((op["taken"] for op in report(hook)["ops"] if op["op"] == leaf.__name__.split(".")[0]), 0)


def declined(hook, why):
    return next((op["declined"].get(why, 0) for op in report(hook)["ops"] if op["op"] == leaf.__name__.split(".")[0]), 0)


def of_torch(dtype):
    """Where torch has a kernel of its own for these 16 bits, its answer may be the one that is taken."""
    return dtype == torch.float16 and torch.ops.mkldnn._is_mkldnn_fp16_supported()


def operands(rows, keys, depth, dtype=torch.float32, batch=2, heads=4, kv_heads=None):
    """Views of [batch, rows, heads, depth], as a linear layer leaves them."""
    return [torch.randn(batch, n, h, depth).to(dtype).transpose(1, 2) for n, h in ((rows, heads), (keys, kv_heads or heads), (keys, kv_heads or heads))]


def compare(stock, call, dtype=torch.float32):
    expected, result = stock(call), call()
    for i, (mine, theirs) in enumerate(zip(result, expected) if isinstance(expected, tuple) else [(result, expected)]):
        same_face(mine, theirs)
        assert torch.equal(mine.isnan(), theirs.isnan())
        mine, theirs = mine.nan_to_num(), theirs.nan_to_num()
        if i == 0:
            assert relative(mine, theirs) <= bound(dtype)
        else:  # the logsumexp; stock rounds scores to bfloat16 where there is one row of them
            assert torch.allclose(mine, theirs, rtol=bound(dtype), atol=bound(dtype) * 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", opinfo("nn.functional.scaled_dot_product_attention"), ids=lambda op: op.name)
def test_opinfo_samples(op, dtype, own_f32, stock):
    for mine, theirs in opinfo_results(op, dtype, stock):
        assert relative(mine, theirs) <= bound(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows, keys, depth", [(1, 40, 64), (1, 1, 8), (5, 7, 16), (16, 16, 64), (77, 77, 40), (128, 128, 64), (197, 197, 64),
                                               (64, 77, 80), (60, 600, 96), (3, 700, 128), (9, 33, 1), (50, 20, 33)])
def test_sizes(rows, keys, depth, causal, dtype, own_f32, hook, stock):
    q, k, v = operands(rows, keys, depth, dtype)
    before = taken(hook)
    compare(stock, lambda: leaf(q, k, v, 0.0, causal), dtype)
    # A row of one bf16 number near zero may be further off than stock's by luck, and then stock answers.
    assert taken(hook) == before + 1 or (depth == 1 and dtype != torch.float32) or of_torch(dtype)
    compare(stock, lambda: leaf(q, k, v, 0.0, causal, scale=0.3), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_views_of_q_k_and_v(dtype, own_f32, hook, stock):
    rows, heads, depth = 24, 3, 16
    fused = torch.randn(2, rows, 3, heads, depth).to(dtype)
    views = {
        "one linear layer for all": [fused[:, :, i].transpose(1, 2) for i in range(3)],
        "heads outside": [torch.randn(2, heads, rows, depth).to(dtype) for _ in range(3)],
        "one head for all": [torch.randn(2, 1, rows, depth).to(dtype).expand(2, heads, rows, depth) for _ in range(3)],
        "one batch for all": [torch.randn(1, heads, rows, depth).to(dtype).expand(2, heads, rows, depth) for _ in range(3)],
        "rows outside": [torch.randn(rows, 2, heads, depth).to(dtype).permute(1, 2, 0, 3) for _ in range(3)],
        "heads outside of all": [torch.randn(heads, 2, rows, depth).to(dtype).transpose(0, 1) for _ in range(3)],
        "three layouts": [torch.randn(2, rows, heads, depth).to(dtype).transpose(1, 2), *(torch.randn(2, heads, rows, depth).to(dtype) for _ in range(2))],
        "a part of the depth": [torch.randn(2, heads, rows, 2 * depth).to(dtype)[..., 3 : 3 + depth] for _ in range(3)],
        "one key for all": [torch.randn(2, heads, rows, depth).to(dtype), *(torch.randn(2, heads, 1, depth).to(dtype).expand(2, heads, rows, depth) for _ in range(2))],
        "every second": [torch.randn(2, heads, 2 * rows, depth).to(dtype)[:, :, ::2] for _ in range(3)],
    }
    for name, (q, k, v) in views.items():
        before = taken(hook)
        compare(stock, lambda: leaf(q, k, v), dtype)
        assert taken(hook) == before + 1 or of_torch(dtype), name


def test_a_depth_that_is_not_dense_is_stocks(own_f32, hook, stock):
    q, k, v = (torch.randn(2, 3, 16, 24).transpose(2, 3) for _ in range(3))
    before = declined(hook, "layout")
    compare(stock, lambda: attention(q, k, v))
    leaf(q, k, v)
    assert declined(hook, "layout") == before + 1


def masks(rows, keys, dtype):
    hidden = torch.rand(2, 1, 1, keys) < 0.3
    hidden[..., 0] = False
    return {
        "rows x keys": torch.randn(rows, keys),
        "keys": torch.randn(1, keys),
        "rows": torch.randn(rows, 1),
        "one number": torch.randn(1, 1),
        "whole": torch.randn(2, 4, rows, keys),
        "padding, -inf": torch.zeros(2, 1, 1, keys).masked_fill(hidden, -INFINITY),
        "padding, lowest, expanded": torch.zeros(2, 1, 1, keys).masked_fill(hidden, torch.finfo(dtype).min).expand(2, 1, rows, keys),
        "heads": torch.randn(4, rows, keys).unsqueeze(0),
        "a part": torch.randn(2, 1, rows, keys + 9)[..., 5 : 5 + keys],
        "bool": torch.rand(2, 1, rows, keys) < 0.7,
        "causal": torch.full((rows, keys), -INFINITY).triu(1),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [1, 37])
def test_masks(rows, dtype, own_f32, hook, stock):
    q, k, v = operands(rows, 45, 32, dtype)
    for name, mask in masks(rows, 45, dtype).items():
        for own_dtype in (torch.float32, dtype):
            cast = mask if mask.dtype == torch.bool else mask.to(own_dtype)
            before = taken(hook)
            compare(stock, lambda: attention(q, k, v, attn_mask=cast), dtype)
            assert taken(hook) == before + 1 or of_torch(dtype), name


def test_a_mask_whose_keys_are_not_neighbours_is_stocks(own_f32, hook, stock):
    q, k, v = operands(16, 24, 32)
    mask = torch.randn(24, 16).t()
    before = declined(hook, "layout")
    compare(stock, lambda: attention(q, k, v, attn_mask=mask))
    assert declined(hook, "layout") == before + 1


@pytest.mark.parametrize("rows", [1, 12])
def test_rows_that_see_nothing(rows, own_f32, stock):
    q, k, v = operands(rows, 600, 32)
    for value in (-INFINITY, LOWEST, -1e4):
        mask = torch.zeros(2, 1, rows, 600)
        mask[1, 0, rows // 2] = value
        compare(stock, lambda: leaf(q, k, v, attn_mask=mask), torch.float32 if value < -1e4 else torch.float16)  # float32 has steps of 1e-3 there
    mask[1, 0, rows // 2] = -INFINITY
    result, logsumexp = leaf(q, k, v, attn_mask=mask)
    assert result[1, :, rows // 2].abs().max() == 0 and logsumexp[1, :, rows // 2].abs().max() == 0


def test_nan_and_infinity(own_f32, stock):
    q, k, v = operands(40, 50, 32)
    compare(stock, lambda: leaf(q, k, v))  # the site is known and its candidate good
    for which, value in ((0, float("nan")), (1, float("nan")), (2, float("nan")), (0, INFINITY), (2, INFINITY)):
        changed = [q.clone(), k.clone(), v.clone()]
        changed[which][1, 2, 7, 5] = value
        compare(stock, lambda: leaf(*changed))
    k[1, 2, 7, 5] = -INFINITY  # some scores become inf: whether the logsumexp is inf or NaN then depends on the number of keys in stock
    compare(stock, lambda: leaf(q, k, v)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 20])
def test_heads_of_keys_that_are_shared(rows, dtype, own_f32, hook, stock):
    q, k, v = operands(rows, 33, 64, dtype, heads=6, kv_heads=2)
    before = taken(hook)
    compare(stock, lambda: attention(q, k, v, enable_gqa=True), dtype)
    assert taken(hook) == before + 1
    repeated = attention(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1))
    assert relative(attention(q, k, v, enable_gqa=True), repeated) <= bound(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_gradients(kv_heads, causal, dtype, own_f32, hook, stock):
    q, k, v = (x.detach().requires_grad_() for x in operands(40, 40, 32, dtype, kv_heads=kv_heads))
    other = torch.randn(2, 4, 40, 32).to(dtype)

    def gradients():
        result = attention(q, k, v, is_causal=causal, enable_gqa=kv_heads != 4)
        return torch.autograd.grad((result * other).sum(), [q, k, v])

    before = taken(hook)
    for result, expected in zip(gradients(), stock(gradients)):
        same_face(result, expected)
        assert relative(result, expected) <= (2e-2 if dtype == torch.bfloat16 else 1e-5)
    assert taken(hook) == before + 1


def test_gradients_with_a_mask(own_f32, stock):
    q, k, v = (x.detach().requires_grad_() for x in operands(40, 40, 32))
    mask = torch.zeros(2, 1, 40, 40)
    mask[..., 30:] = -INFINITY
    mask[1, 0, 5] = -INFINITY

    def gradients():
        return torch.autograd.grad(attention(q, k, v, attn_mask=mask).square().sum(), [q, k, v])

    for result, expected in zip(gradients(), stock(gradients)):
        assert relative(result, expected) <= 1e-5


def test_a_multi_head_attention_module(own_f32, stock):
    layer, x = torch.nn.MultiheadAttention(64, 4, batch_first=True), torch.randn(3, 20, 64)
    for mode in (layer.train(), layer.eval()):
        expected, result = stock(mode, x, x, x, need_weights=False)[0], mode(x, x, x, need_weights=False)[0]
        same_face(result, expected)
        assert relative(result, expected) <= 5e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_threads(dtype, own_f32, stock):
    q, k, v = operands(100, 300, 64, dtype)
    threads = torch.get_num_threads()
    try:
        results = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            results.append(attention(q, k, v, is_causal=True))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_dropout_and_other_depths_of_v_are_stocks(own_f32, hook, stock):
    q, k, v = operands(16, 16, 32)
    before = taken(hook)
    torch.manual_seed(1)
    result = attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(1)
    assert relative(result, stock(attention, q, k, v, dropout_p=0.5)) <= 2e-6  # its softmax is taken
    compare(stock, lambda: attention(q, k, v[..., :8]))
    assert taken(hook) == before


def test_what_stock_refuses_is_refused(own_f32, stock):
    q, k, v = operands(16, 16, 32)
    for _ in range(2):
        leaf(q, k, v)
    for arguments, keywords in (((q, k, v, 0.1), {}), ((q, k, v), {"attn_mask": torch.randn(3, 16, 16)}),
                                ((q, k, v), {"attn_mask": torch.randn(16, 17)}), ((q, k, v[..., :8]), {}), ((q[0], k[0], v[0]), {})):
        with pytest.raises(RuntimeError) as mine:
            leaf(*arguments, **keywords)
        with pytest.raises(RuntimeError) as theirs:
            stock(leaf, *arguments, **keywords)
        assert str(mine.value) == str(theirs.value)


@pytest.mark.parametrize("sizes", [(2, 0, 7), (2, 5, 0), (0, 5, 7)], ids=str)
def test_nothing(sizes, own_f32, stock):
    batch, rows, keys = sizes
    q, k, v = torch.randn(batch, 3, rows, 8), torch.randn(batch, 3, keys, 8), torch.randn(batch, 3, keys, 8)
    compare(stock, lambda: attention(q, k, v))


def test_functorch_and_inference_mode(own_f32, stock):
    q, k, v = operands(16, 16, 32)

    def all_of_them():
        one = torch.func.vmap(attention)(q, k, v)
        two = torch.func.grad(lambda x: attention(x, k, v).square().sum())(q)
        with torch.inference_mode():
            three = attention(q, k, v)
        return one, two, three

    for result, expected in zip(all_of_them(), stock(all_of_them)):
        same_face(result, expected)
        assert relative(result, expected) <= 1e-5


def test_fake_tensors_compute_nothing(own_f32):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert attention(*(torch.randn(2, 3, 16, 8) for _ in range(3))).shape == (2, 3, 16, 8)


def test_the_default_scale(own_f32):
    q, k, v = operands(16, 16, 32)
    assert torch.equal(attention(q, k, v), attention(q, k, v, scale=1 / math.sqrt(32)))
    assert relative(attention(q, k, v, scale=0.0), v.mean(2, keepdim=True).expand_as(v)) <= 2e-6


def test_a_scale_of_zero_is_stocks(own_f32, stock):
    q, k, v = torch.randn(1, 2, 7, 64), torch.randn(1, 2, 8, 64), torch.randn(1, 2, 8, 64)
    F.scaled_dot_product_attention(q, k, v)
    q[0, 0, 3, 5] = float("nan")
    attend = F.scaled_dot_product_attention
    assert torch.allclose(attend(q, k, v, scale=0.0), stock(attend, q, k, v, scale=0.0), rtol=0, atol=0, equal_nan=True)


@pytest.fixture
def rounds(hook):
    """float32 with products in bfloat16."""
    if not torch.cpu._is_amx_tile_supported():
        pytest.skip("AMX does that")
    assert hook.force("own_bf16")


def near(stock, call):
    """Within what one op in bfloat16 may be wrong by, and it shows that it was in bfloat16."""
    expected, result = stock(call), call()
    for mine, theirs in zip(result, expected):
        same_face(mine, theirs)
        assert torch.equal(mine.isfinite(), theirs.isfinite())
    assert 1e-5 < relative(result[0], expected[0]) <= 6e-3
    assert torch.allclose(result[1], expected[1], rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows, keys, depth", [(8, 40, 64), (17, 33, 24), (77, 77, 40), (128, 128, 64), (197, 197, 64), (60, 600, 256), (9, 700, 8)])
def test_products_in_bfloat16(rows, keys, depth, causal, rounds, hook, stock):
    q, k, v = operands(rows, keys, depth)
    before = taken(hook)
    near(stock, lambda: leaf(q, k, v, 0.0, causal))
    assert taken(hook) == before + 1
    q, k, v = (x.contiguous() for x in operands(rows, keys, depth, heads=6, kv_heads=2))
    near(stock, lambda: leaf(q, k, v, 0.0, causal, scale=0.3 / math.sqrt(depth)))


def test_products_in_bfloat16_under_masks(rounds, hook, stock):
    q, k, v = operands(37, 45, 32)
    for name, mask in masks(37, 45, torch.float32).items():
        added = torch.zeros(mask.shape).masked_fill(~mask, -INFINITY) if mask.dtype == torch.bool else mask
        before = taken(hook)
        if added.dim() == 2 or added.shape[0] == 2 or added.shape[1] == 4:
            near(stock, lambda: leaf(q, k, v, attn_mask=added))
            assert taken(hook) == before + 1 or of_torch(dtype), name


def test_products_in_bfloat16_of_any_scores(rounds, hook, stock):
    q, k, v = operands(100, 300, 64)
    near(stock, lambda: leaf(q, k, v))  # the site is known and its candidate good
    for large in (1e-3, 1.3, 2.0, 8.0, 60.0):
        before = taken(hook)
        near(stock, lambda: leaf(q * large, k, v))
        assert taken(hook) == before + 1
    compare(stock, lambda: leaf(q * 3e3, k, v)[0])  # in float32
    q[1, 2, 7, 5] = float("nan")
    expected, result = stock(leaf, q, k, v), leaf(q, k, v)
    assert torch.equal(expected[0].isnan(), result[0].isnan()) and torch.equal(expected[1].isnan(), result[1].isnan())
    assert relative(result[0].nan_to_num(), expected[0].nan_to_num()) <= 6e-3


def test_where_gradients_are_wanted_products_stay_in_float32(rounds, hook, stock):
    q, k, v = (x.detach().requires_grad_() for x in operands(40, 40, 32))
    assert torch.equal(attention(q, k, v), stock(attention, q, k, v))
    with torch.no_grad():
        assert relative(attention(q, k, v), stock(attention, q, k, v)) > 1e-5
