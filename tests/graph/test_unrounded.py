"""Graphs of modules that the program calls under autocast: computed without it, and rounded where autocast rounds their results.

Risk covered: results further from float64 than autocast's own, other types, strides or aliases; what the program rounds itself; a graph of types that
is changed where it must not be.
"""

import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from ipexrun.graphs import backend, graph_notes, unrounded
from torch import nn

DTYPES = [torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    graph_notes.graphs.clear()
    torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.down(F.gelu(self.up(x))) + x)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ConvTranspose2d(16, 8, 2, 2)
        self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        y = self.norm(self.one(x)).relu()
        return self.two(y), y, F.adaptive_avg_pool2d(y, 1)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.of, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = self.of(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        by_hand = torch.softmax(q @ k.transpose(-1, -2) / 4, -1, dtype=torch.float32).to(q.dtype) @ v
        mask = torch.zeros(x.shape[1], x.shape[1]).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -1e4).to(q.dtype)
        fused = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out((by_hand + fused).transpose(1, 2).reshape(x.shape))


class InParts(nn.Module):
    """Where autocast is off, and where the module begins it itself."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)

    def forward(self, x):
        y = self.one(x)
        with torch.autocast("cpu", enabled=False):
            z = self.two(y.to(self.two.weight.dtype))
        return self.three(torch.tanh(z)), z, y.float().mean(-1)


class Constants(Block):
    """What a graph holds itself: numbers that became tensors, tables that are made while it is traced."""

    def forward(self, x):
        y = super().forward(x)
        scores = (y @ y.transpose(-1, -2)).masked_fill(torch.tensor([[True] + [False] * (x.shape[-2] - 1)]), torch.tensor(-1e4, dtype=y.dtype))
        return torch.softmax(scores, -1) @ y * torch.tensor([0.5] * 64)


class Einsum(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(64, 4, 16)), nn.Parameter(torch.randn(4, 16))

    def forward(self, x):
        y = torch.einsum("bsd,dhe->bshe", x, self.w) + self.b
        return y, torch.baddbmm(x, x, torch.ones(x.shape[0], 64, 64).to(x.dtype)), (y > 0).sum()


class Heads(nn.Module):
    """nn.MultiheadAttention multiplies rows that do not lie one behind the other: under autocast a product for each batch, all by one matrix."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)


MODULES = {
    "heads": (Heads, (2, 12, 64)),
    "block": (Block, (4, 10, 64)), "images": (Images, (2, 3, 17, 13)), "attends": (Attends, (2, 12, 64)), "constants": (Constants, (2, 9, 64)), "in parts": (InParts, (8, 64)), "einsum": (Einsum, (2, 5, 64)),
    "lstm": (lambda: nn.LSTM(64, 32, batch_first=True), (2, 6, 64)),
}


def leaves(results):
    return [one for one in torch.utils._pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]


def compiled(module, made, **more):
    return torch.compile(module, backend=functools.partial(backend.backend, made=made, timed=False), **more)


def error(value, truth):
    return float((value.double() - truth.double()).norm() / truth.double().norm().clamp_min(1e-30))


@pytest.mark.parametrize("last", [False, True], ids=["", "channels last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_results_are_as_near_to_float64_as_autocasts(name, dtype, last):
    make, shape = MODULES[name]
    module, x, made = make().eval(), torch.randn(shape), []
    if name == "lstm" and dtype == torch.float16:
        pytest.skip("oneDNN has none")
    if last:
        if len(shape) != 4:
            pytest.skip("no images")
        module, x = module.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    fast = compiled(module, made)
    with torch.no_grad():
        truth = leaves(copy.deepcopy(module).double()(x.double()))
        with torch.autocast("cpu", dtype):
            stock = leaves(module(x))
            for _ in range(4):
                mine = leaves(fast(x))
    if name != "lstm":
        assert any(graph.source is not graph.module for graph in made), name
    for one, other, exact in zip(mine, stock, truth, strict=True):
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        if not one.is_floating_point():
            assert abs(int(one) - int(other)) <= 2  # numbers above zero, of which some are near it
        else:
            assert error(one, exact) <= 1.5 * error(other, exact) + 1e-3


def test_what_the_program_rounds_stays_rounded():
    class Rounds(Block):
        def forward(self, x):
            return super().forward(x), (x - x.bfloat16().float()).abs().max(), (x.half() * 3).float(), x.to(torch.bfloat16).sum(-1), torch.arange(255, 263).to(torch.bfloat16).float(), x.double().bfloat16().double()

    module, x, made = Rounds().eval(), torch.randn(8, 64), []
    fast = compiled(module, made)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(4):
            mine, stock = fast(x), module(x)
    assert made[0].rounds and made[0].choice is not None, made[0].note
    assert torch.equal(mine[1], stock[1]) and torch.allclose(mine[2], stock[2], rtol=1e-3, atol=0) and mine[3].dtype == torch.bfloat16
    assert torch.equal(mine[4], stock[4]) and torch.equal(mine[5], stock[5])


def test_products_of_what_is_rounded_by_hand():
    """The program multiplies 16 bits itself: as autocast would."""

    class ByHand(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(64, 64))

        def forward(self, x):
            return x.to(torch.bfloat16) @ self.w.to(torch.bfloat16)

    module, x, made = ByHand().eval(), torch.randn(8, 64), []
    fast = compiled(module, made)
    with torch.no_grad():
        for _ in range(4):
            mine, stock = fast(x), module(x)
    assert mine.dtype == stock.dtype == torch.bfloat16 and error(mine, stock) < 1e-2


@pytest.mark.parametrize("kind", ["weights", "a result that is an input", "a choice", "bits"])
def test_left_as_autocast_made_it(kind):
    class Left(Block):
        def forward(self, x):
            y = super().forward(x)
            if kind == "a result that is an input":
                return y, x.view(-1)
            if kind == "a choice":
                return torch.gather(y, 1, y.topk(3).indices)
            return y.to(torch.bfloat16).view(torch.int16) if kind == "bits" else y

    module, x, made = Left().eval(), torch.randn(8, 64), []
    if kind == "weights":
        module.down.bfloat16()
    if kind == "a result that is an input":
        x = x.bfloat16()
    fast = compiled(module, made)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(4):
            mine, stock = leaves(fast(x)), leaves(module(x))
    assert not any(graph.rounds for graph in made)
    for one, other in zip(mine, stock, strict=True):
        assert one.dtype == other.dtype and error(one, other) < 2e-2


def test_graphs_that_are_given_16_bits():
    """A module that TorchDynamo splits, or one behind another."""
    first, second, made = Block().eval(), Block().eval(), []
    fast = compiled(second, made)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        given = first.down(F.gelu(first.up(torch.randn(4, 64))))
        assert given.dtype == torch.bfloat16
        for _ in range(4):
            mine, stock = fast(given), second(given)
    assert made[0].rounds and mine.dtype == stock.dtype and error(mine, stock) < 1e-2


def test_writes_into_what_the_program_gives():
    class Fills(Block):
        def forward(self, x, out):
            y = self.down(F.gelu(self.up(x)))
            out += y
            return out.float() * 2

    module, x, made = Fills().eval(), torch.randn(8, 64), []
    fast = compiled(module, made)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(5):
            mine, stock = torch.ones(2, 8, 64, dtype=torch.bfloat16)
            results = fast(x, mine), module(x, stock)
            assert error(mine, stock) < 1e-2 and error(*results) < 1e-2 and mine.dtype == torch.bfloat16


def test_sizes_that_change_and_writes():
    class Writes(Block):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(64))
            self.register_buffer("last", torch.zeros(64, dtype=torch.bfloat16))

        def forward(self, x):
            y = super().forward(x)
            self.seen += y.sum((0, 1))
            return y[:, -1]

    module, made = Writes().eval(), []
    other = copy.deepcopy(module)
    fast = compiled(module, made, dynamic=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for rows in (3, 5, 2, 9, 5, 3):
            x = torch.randn(rows, rows + 1, 64)
            mine, stock = fast(x), other(x)
            assert mine.dtype == stock.dtype and mine.shape == stock.shape and error(mine, stock) < 1.5e-2
    assert error(module.seen, other.seen) < 2e-2


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_what_the_program_wants_in_float32_is_not_rounded_where_dtype_says_so(dtype):
    module, x, made = InParts().eval(), torch.randn(8, 64), []
    fast = torch.compile(module, backend=functools.partial(backend.backend, made=made, timed=False, options={"dtype": dtype}))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(4):
            mine, stock = fast(x), module(x)
    assert not any(graph.rounds for graph in made)
    assert all(one.dtype == other.dtype and error(one, other) < 2e-2 for one, other in zip(mine, stock))
    if dtype == "float32":
        assert not any(graph.choice for graph in made), "stock's, or float32"


def test_with_and_without_autocast_are_two_graphs():
    module, x, made = Block().eval(), torch.randn(8, 64), []
    fast = compiled(module, made)
    with torch.no_grad():
        for on in (True, False, True, False):
            with torch.autocast("cpu", torch.bfloat16, enabled=on):
                assert fast(x).dtype == module(x).dtype and error(fast(x), module(x)) < 1.5e-2


def test_nothing_is_unrounded_without_16_bits():
    graph = torch.fx.symbolic_trace(Block())
    assert not unrounded.rounds_operands(graph)


@pytest.mark.parametrize("dynamic", [False, True])
def test_one_matrix_for_all_batches_is_a_linear_layer(dynamic):
    module, made = Heads().eval(), []
    fast = compiled(module, made, dynamic=dynamic)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for batch, length in ((2, 12), (3, 7), (1, 5)) if dynamic else ((2, 12),):
            x = torch.randn(batch, length, 64)
            for result, stock in zip(fast(x), module(x)):
                assert result.dtype == stock.dtype and error(result, stock) < 2e-2
    assert all("2 linear layers" in fused for one in made for fused in one.fused.values()), [one.fused for one in made]
