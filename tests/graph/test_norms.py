"""Norms, rotary embeddings, repeated heads and what stays bf16 between them, beside stock.

Risk covered: a norm whose sum or statistics somebody else reads, one that only looks like a norm, rows that are not dense, tables of which
the halves differ, and bf16 where the program reads float32.
"""

import pytest
import torch
import torch.nn.functional as F
from test_programs import Captured, linear
from torch import nn

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


class WrittenOut(nn.Module):
    """As transformers has it."""

    def __init__(self, size, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size, dtype=dtype) + 0.5)

    def forward(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


@BOTH
@pytest.mark.parametrize("shape", [(7, 48), (2, 5, 48), (1, 1, 48), (0, 48)])
def test_every_form_of_a_norm(dtype, shape):
    plus_one = nn.Parameter(torch.randn(48, dtype=dtype))
    forms = (
        nn.LayerNorm(48, dtype=dtype),
        nn.LayerNorm(48, dtype=dtype, bias=False),
        nn.LayerNorm(48, elementwise_affine=False),
        nn.RMSNorm(48, dtype=dtype),
        nn.RMSNorm(48, elementwise_affine=False),
        WrittenOut(48, dtype),
        lambda x: (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6) * (1 + plus_one.float())).type_as(x),
    )
    x = torch.randn(shape, dtype=dtype) * 3 + 1
    for norm in forms:
        captured = Captured(lambda x, norm=norm: norm(x), x)
        assert captured.fused() == captured.fused(False) and captured.fused().split(", ")[0] == "1 norms", norm


def test_what_is_no_norm():
    x, weight = torch.randn(7, 48), torch.rand(48)
    scale = lambda x: torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)  # noqa: E731
    for function in (
        lambda x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True).abs() + 1e-6),
        lambda x: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6),
        lambda x: x.flip(0) * scale(x),
        lambda x: torch.native_layer_norm(x, [48], weight, None, 1e-5)[:2],  # the mean is read
        lambda x: F.layer_norm(x.double(), [48]),
        lambda x: F.layer_norm(x.view(7, 6, 8), [6, 8]),
    ):
        assert "norms" not in Captured(function, x).fused()


def test_what_else_reads_a_part_of_a_norm_is_served():
    x, weight = torch.randn(7, 48), torch.rand(48)

    def function(x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        unit = x * scale
        return unit * weight, unit, scale, F.layer_norm(unit, [48])

    assert "2 norms" in Captured(function, x).fused()


@BOTH
def test_rows_that_are_not_dense(dtype):
    norms = nn.ModuleList([nn.LayerNorm(48, dtype=dtype), WrittenOut(48, dtype)])
    x = torch.randn(5, 96, dtype=dtype)
    for norm in norms:
        Captured(lambda x, norm=norm: norm(x[:, ::2]), x)
        Captured(lambda x, norm=norm: norm(x.t()[:48].t()), x)
        Captured(lambda x, norm=norm: (norm(x[:, 48:]), norm(x[:, :48].expand(3, 5, 48))), x)


def test_numbers_that_are_not_finite_stay_in_their_rows():
    x = torch.randn(7, 48)
    x[2, 3], x[5, 1], x[6, 2] = float("nan"), float("inf"), float("-inf")
    layer = linear(48, 48)
    Captured(lambda x: (F.layer_norm(x, [48]), WrittenOut(48, torch.float32)(x), layer(F.layer_norm(x, [48]))), x)


@pytest.mark.parametrize("norm", [nn.LayerNorm(80), WrittenOut(80, torch.float32)])
def test_a_norm_that_only_products_read_is_written_as_bf16(norm):
    second, third = linear(80, 80), linear(80, 16)

    def only(x):
        y = norm(x)
        return third(y), second(y.view(2, 7, 80))

    x = torch.randn(14, 80)
    captured = Captured(only, x)
    assert "1 results kept in bf16" in captured.fused() and "kept" not in captured.fused(False)
    for function in (  # in float32 for others, too
        lambda x: (y := norm(x), third(y)),
        lambda x: second(y := norm(x)) + y,
        lambda x: (third(y := norm(x)), y.exp()),
        lambda x: (third(y := norm(x)), y.view(-1)[3:9]),
    ):
        assert "1 results kept in bf16" in Captured(function, x).fused()
    assert "kept" not in Captured(lambda x: norm(x).exp() + second(x), x).fused()


@pytest.mark.parametrize("dynamic", [False, True])
def test_norms_of_sizes_that_change(dynamic):
    block = nn.Sequential(nn.LayerNorm(48), linear(48, 96), nn.GELU(), linear(96, 48), WrittenOut(48, torch.float32)).eval()
    captured = Captured(lambda x: block(x) + x, torch.randn(2, 9, 48), dynamic=dynamic)
    for shape in ((3, 4, 48), (5, 2, 48), (2, 31, 48)):
        captured(torch.randn(shape))
    assert "2 norms" in captured.fused()


def test_a_float_of_a_module_that_torch_makes_an_input():
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.eps = 1e-5
            self.weight = nn.Parameter(torch.rand(48))

        def forward(self, x):
            return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))

    norm = Norm()
    captured = Captured(lambda x: norm(x), torch.randn(2, 9, 48), dynamic=True)
    assert captured.fused() == "1 norms"
    captured(torch.randn(3, 4, 48))


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def tables(positions, depth):
    angles = positions[:, None].float() * torch.rand(depth // 2)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos()[None, None], angles.sin()[None, None]


@BOTH
def test_rotary_embedding_that_is_written_out(dtype):
    def function(q, k, positions):
        angles = positions[:, None].float() * q.new_ones(16).float()
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(dtype).unsqueeze(0).unsqueeze(1), angles.sin().to(dtype).unsqueeze(0).unsqueeze(1)
        return (q * cos) + (rotate_half(q) * sin), (rotate_half(k) * sin) + (cos * k)

    x = torch.randn(2, 9, 6, 32, dtype=dtype)
    for q, k in ((x.transpose(1, 2), x.transpose(1, 2)[:, :2]), (x, x[:, ::2])):
        positions = torch.arange(q.shape[2])
        assert "2 rotary embeddings" in Captured(function, q, k, positions).fused()


def test_tables_whose_halves_may_differ_are_left_alone():
    cos, sin = tables(torch.arange(9), 32)
    x = torch.randn(2, 6, 9, 32)

    def of_inputs(x, cos, sin):
        return x * cos + rotate_half(x) * sin

    def other_halves(x, cos, sin):
        cos, sin = torch.cat((cos[..., :16], sin[..., :16]), -1), torch.cat((sin[..., :16], sin[..., :16]), -1)
        return x * cos + rotate_half(x) * sin

    def other_turn(x, cos, sin):
        sin = torch.cat((sin[..., :16], sin[..., :16]), -1)
        return x * sin + torch.cat((x[..., 16:], -x[..., :16]), -1) * sin

    for function in (of_inputs, other_halves, other_turn):
        assert "rotary" not in Captured(function, x, cos, sin).fused()


@BOTH
def test_heads_that_are_repeated(dtype):
    def repeat(x, times):
        batch, heads, rows, depth = x.shape
        return x[:, :, None].expand(batch, heads, times, rows, depth).reshape(batch, heads * times, rows, depth)

    def function(q, k, v):
        return F.scaled_dot_product_attention(q, repeat(k, 3), repeat(v, 3), is_causal=True)

    q, k, v = torch.randn(2, 6, 37, 32, dtype=dtype), torch.randn(2, 2, 37, 32, dtype=dtype), torch.randn(2, 2, 37, 32, dtype=dtype)
    assert "1 attentions" in Captured(function, q, k, v).fused()
    Captured(lambda q, k, v: (function(q, k, v), repeat(k, 3)), q, k, v)
    Captured(lambda q, k, v: F.scaled_dot_product_attention(q, repeat(k, 3), v.repeat(1, 3, 1, 1)), q, k, v)


def test_bf16_from_product_to_attention_to_product():
    torch.manual_seed(0)
    query, key, value, out = (linear(64, 64) for _ in range(4))

    def heads(x):
        return x.view(2, 19, 4, 16).transpose(1, 2)

    def attend(x):
        y = F.scaled_dot_product_attention(heads(query(x)), heads(key(x)), heads(value(x)))
        return out(y.transpose(1, 2).reshape(2, 19, 64))

    x = torch.randn(2, 19, 64)
    captured = Captured(attend, x)
    assert "4 results kept in bf16" in captured.fused() and "kept" not in captured.fused(False)

    def with_cache(x):
        k = heads(key(x))
        y = F.scaled_dot_product_attention(heads(query(x)), k, heads(value(x)))
        return out(y.transpose(1, 2).reshape(2, 19, 64)), k

    assert "kept" not in Captured(with_cache, x).fused()  # the program gets float32
    Captured(lambda x: F.scaled_dot_product_attention(heads(query(x)), heads(key(x)), heads(value(x))), x)


@BOTH
def test_a_causal_model_with_rotary_embedding_and_gates(dtype):
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128
    )
    model = LlamaModel(config).eval().to(dtype)
    ids = torch.randint(0, 100, (2, 11))
    captured = Captured(lambda ids: model(ids, use_cache=False).last_hidden_state, ids)
    for words in ("14 linear layers", "2 attentions", "5 norms", "4 rotary embeddings"):
        assert words in captured.fused()
    captured(torch.randint(0, 100, (2, 11)))


def test_what_is_computed_twice_stays_apart_where_the_program_gets_both():
    def function(x):
        return x.exp(), x.exp(), (x.exp() + 1), (x.exp() + 1).view(-1), x.cos().sum(), x.cos().sum(0)

    captured = Captured(function, torch.randn(3, 4))
    for results in (captured.exact, captured.bf16):
        assert len({result.untyped_storage().data_ptr() for result in results}) == len(results)


@BOTH
def test_a_sum_before_a_norm_goes_into_it(dtype):
    norms = [nn.LayerNorm(48, dtype=dtype), WrittenOut(48, dtype)]
    x, y = torch.randn(2, 7, 48, dtype=dtype), torch.randn(2, 7, 48, dtype=dtype)
    for norm in norms:
        for function in (
            lambda x, y: norm(x.exp() + y),
            lambda x, y: (norm(z := x + y), z.exp(), z),
            lambda x, y: (norm(z := x.exp() + y), z),
            lambda x, y: norm(norm(z := x + y) + z),
        ):
            assert "sums in norms" in Captured(function, x, y).fused()
        for function in (
            lambda x, y: norm(torch.add(x, y, alpha=2)),
            lambda x, y: norm(x + y[:, :1]),
            lambda x, y: norm(x + 1),
            lambda x, y: norm((z := x + y) * z.exp().sum()) * z,
            lambda x, y: norm(x + y.transpose(0, 1).contiguous().transpose(0, 1)),
        ):
            assert "sums in norms" not in Captured(function, x, y).fused()


def test_a_norm_that_products_and_others_read_is_written_as_both():
    norm, up, down, other = nn.LayerNorm(80), linear(80, 96), linear(96, 80), linear(80, 80)

    def post_norm(x):
        x = norm(x + other(x))
        return norm(x + down(F.gelu(up(x))))

    captured = Captured(post_norm, torch.randn(2, 7, 80))
    assert "2 results kept in bf16" in captured.fused() and "kept" not in captured.fused(False)

    def leaves(x):
        x = norm(x)
        return x, up(x), other(x.view(14, 80)).exp() + x.view(14, 80).exp()

    Captured(leaves, torch.randn(2, 7, 80))


def test_copies_that_change_nothing():
    layer = linear(48, 48)
    x = torch.randn(7, 48)

    def function(x):
        y = x.clone()
        z = F.relu(layer(y.clone()).clone())
        return y, z.clone(), z, x.t().clone().sum(0), x.t().contiguous().view(-1)

    captured = Captured(function, x)
    for results in (captured.exact, captured.bf16):
        assert len({result.untyped_storage().data_ptr() for result in (*results, x)}) == len(results) + 1
