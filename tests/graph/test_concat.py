"""Linear layers of one x as one product, and views without the dispatcher, beside stock.

Risk covered: columns of a buffer that reach the program or an operator that cannot read them, a weight that changed alone, packs that lie
apart because another graph or the op tier made them, threads that pack at once, and a view that stock would have refused.
"""

import resource
import threading

import pytest
import torch
import torch.nn.functional as F
from test_programs import Captured, linear
from torch import nn

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


class Attention(nn.Module):
    def __init__(self, size, heads, bias=(True, True, True), kv_heads=None, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(1)
        self.heads, self.kv_heads, self.depth = heads, kv_heads or heads, size // heads
        self.q = nn.Linear(size, size, bias=bias[0], dtype=dtype)
        self.k = nn.Linear(size, self.kv_heads * self.depth, bias=bias[1], dtype=dtype)
        self.v = nn.Linear(size, self.kv_heads * self.depth, bias=bias[2], dtype=dtype)
        self.out = nn.Linear(size, size, dtype=dtype)
        self.eval()

    def split(self, x, layer, heads):
        return layer(x).view(*x.shape[:-1], heads, self.depth).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(x, self.q, self.heads), self.split(x, self.k, self.kv_heads), self.split(x, self.v, self.kv_heads)
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.heads != self.kv_heads)
        return self.out(y.transpose(1, 2).reshape(x.shape))


@BOTH
@pytest.mark.parametrize("bias", [(True, True, True), (False, False, False), (True, False, True)])
def test_query_key_and_value_are_one_product(dtype, bias):
    attention = Attention(64, 4, bias, dtype=dtype)
    for shape in ((2, 19, 64), (1, 1, 64), (3, 5, 64)):
        captured = Captured(lambda x: attention(x), torch.randn(shape, dtype=dtype))
        assert "3 linear layers joined" in captured.fused()
        assert "3 linear layers joined" in captured.fused(False)


def test_fewer_heads_of_keys_and_columns_that_fill_no_panel():
    captured = Captured(lambda x, a=Attention(128, 4, kv_heads=2): a(x), torch.randn(2, 19, 128))
    assert "3 linear layers joined" in captured.fused()
    captured = Captured(lambda x, a=Attention(120, 4, kv_heads=2): a(x), torch.randn(2, 19, 120))
    assert "joined" not in captured.fused()
    captured = Captured(lambda x, a=Attention(192, 4, kv_heads=1): a(x), torch.randn(2, 19, 192))
    assert "2 linear layers joined" in captured.fused()  # 192 columns, then 48; another 48 would begin in a panel


def test_biases_that_are_made_of_weights_are_there_before_the_product():
    class Halves(Attention):
        def split(self, x, layer, heads):
            return F.linear(x, layer.weight, layer.bias * 0.5).view(*x.shape[:-1], heads, self.depth).transpose(1, 2)

    Captured(lambda x, a=Halves(64, 4): a(x), torch.randn(2, 19, 64))


def test_columns_reach_nobody_who_wants_a_matrix():
    a = Attention(64, 4)

    def results(x):
        k = a.split(x, a.k, 4)
        return F.scaled_dot_product_attention(a.split(x, a.q, 4), k, a.split(x, a.v, 4)), k

    def across_rows(x):
        return a.q(x).view(-1, 32) @ a.k(x).view(32, -1) + a.v(x).sum()

    for function in (results, across_rows, lambda x: (a.q(x), a.k(x)), lambda x: a.q(x) * a.k(x) + a.v(x).exp()):
        captured = Captured(function, torch.randn(2, 19, 64))
        assert "3 linear layers joined" not in captured.fused()


def test_one_weight_that_changes_is_seen():
    attention = Attention(64, 4)
    x = torch.randn(2, 19, 64)
    captured = Captured(lambda x: attention(x), x)
    with torch.no_grad():
        for layer in (attention.k, attention.v, attention.q):
            layer.weight.data.mul_(-1.5)
            captured(x)
            layer.weight.copy_(torch.randn_like(layer.weight) / 8)
            captured(x)
            layer.bias.data.add_(1)
            captured(x)
        attention.k.weight = nn.Parameter(torch.randn(64, 64) / 8)
        captured(x)


def test_packs_that_others_made_or_share():
    a = Attention(64, 4)
    x = torch.randn(2, 19, 64)

    def turned(x):
        v, q, k = a.split(x, a.v, 4), a.split(x, a.q, 4), a.split(x, a.k, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)

    def alone(x):
        return F.relu(a.k(x))

    captured = [Captured(function, x) for function in (alone, lambda x: a(x), turned, alone)]
    for _ in range(8):
        for one in captured:
            one(x)


def test_threads_that_pack_and_run_at_once():
    attention = Attention(64, 4)
    x = torch.randn(2, 19, 64)
    captured = Captured(lambda x: attention(x), x)
    with torch.no_grad():
        want = captured.stock[0]
        values = None

        def keep(*arguments):
            nonlocal values
            values = arguments[1]
            return mine(*arguments)

        graph = captured.graphs[0]
        mine, graph.mine = graph.mine, keep
        captured.function(x)
        graph.mine = mine
        wrong = []

        def work():
            for _ in range(50):
                got = graph.mine(True, list(values))[0]
                if ((got - want).norm() / want.norm()).item() > 2e-2:
                    wrong.append(1)

        for _ in range(3):
            attention.k.weight.data.mul_(1)  # same bytes
            threads = [threading.Thread(target=work) for _ in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
    assert not wrong


def test_calls_hold_no_more_memory_than_the_first():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    layers = [Attention(1024, 8) for _ in range(4)]
    x = torch.randn(1, 8, 1024)

    def model(x):
        for layer in layers:
            x = layer(x) + x
        return x

    captured = Captured(model, x)
    for _ in range(20):  # until every step has found its way, for which some make packs
        captured(x)
    before = resident()
    for _ in range(20):
        captured(x)
    assert resident() - before < 8 << 20


def test_views_of_every_kind():
    x = torch.randn(4, 6, 8)

    def function(x, big):
        y = x.exp()
        return (
            y.view(4, -1), y.view(24, 8).t(), y.transpose(0, -1), y.permute(2, 0, 1), y.unsqueeze(-1), y.unsqueeze(1)[:, 0], y[1:3, ::2], y[-1],
            y[:, -2:, 1:100], y.expand(3, 4, 6, 8), y[:, :1].expand(-1, 6, -1), y.select(1, -3), y[5:], y.t() if y.dim() < 3 else y[0].t(),
            y.transpose(1, 2).reshape(4, 48), big[::3][1:].unsqueeze(0).expand(2, -1, -1).transpose(1, 2), y.view(4, 2, 3, 8).permute(0, 2, 1, 3)[..., 3],
        )  # fmt: skip

    Captured(function, x, torch.randn(10, 3))
    Captured(lambda x: (x.view(-1), x[2:], x.t(), x.sum().view(1, 1), x.sum().expand(3)), torch.randn(5, 4))
    Captured(lambda x: (x.view(0, 8), x[:0], x.unsqueeze(0), x.expand(2, 0, 4)), torch.randn(0, 4))


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_and_products_of_sizes_that_change(dynamic):
    attention = Attention(64, 4)
    captured = Captured(lambda x: attention(x)[:, 1:] + x[:, :-1], torch.randn(2, 19, 64), dynamic=dynamic)
    for shape in ((3, 7, 64), (2, 2, 64), (5, 40, 64)):
        captured(torch.randn(shape))
    assert "3 linear layers joined" in captured.fused()
