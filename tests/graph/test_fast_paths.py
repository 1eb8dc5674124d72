"""nn.TransformerEncoder's fast path, one operator to TorchDynamo, in graphs of ours.

Risk covered: another order of norms, another activation, a mask that means something else, rows in which it leaves nothing, types under autocast.
"""

import functools

import pytest
import torch
from ipexrun.graphs import backend, graph_notes
from torch import nn

WIDTH, HEADS, BATCH, LENGTH = 32, 4, 3, 10


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    graph_notes.graphs.clear()
    torch.manual_seed(0)


def encoder(layers=2, **options):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True, **options)
    model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()
    for one in model.parameters():  # norms and biases that do something
        one.data.add_(0.1 * torch.randn_like(one))
    return model


def compiled(module, made, dtype="float32", **more):
    return torch.compile(module, backend=functools.partial(backend.backend, made=made, timed=False, options={"dtype": dtype}), **more)


def error(value, truth):
    return float((value.double() - truth.double()).norm() / truth.double().norm())


def padding(*lengths):
    return torch.arange(LENGTH)[None] >= torch.tensor(lengths)[:, None]


MASKS = {  # where is_causal is not said, torch looks at the mask's numbers
    "none": {},
    "padding": {"src_key_padding_mask": padding(10, 4, 1)},
    "pairs": {"is_causal": False, "mask": torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(1)) < 0.3},
    "both": {"is_causal": False, "mask": torch.ones(LENGTH, LENGTH).triu(2).bool(), "src_key_padding_mask": padding(10, 7, 5)},
    "as numbers": {"is_causal": False, "mask": torch.zeros(LENGTH, LENGTH).masked_fill(torch.ones(LENGTH, LENGTH).triu(2).bool(), -torch.inf)},
}


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_it_computes_what_the_operator_computes(norm_first, activation, masks):
    model, x, made = encoder(norm_first=norm_first, activation=activation), torch.randn(BATCH, LENGTH, WIDTH), []
    fast = compiled(model, made)
    with torch.no_grad():
        stock = model(x, **MASKS[masks])
        for _ in range(3):
            assert error(fast(x, **MASKS[masks]), stock) < 1e-6
    assert made
    assert sum(note["nodes"] for note in graph_notes.graphs) > 40, "written out"


def test_rows_in_which_the_mask_leaves_nothing():
    model, x = encoder(), torch.randn(BATCH, LENGTH, WIDTH)
    masks = {"src_key_padding_mask": padding(10, 4, 0)}
    with torch.no_grad():
        stock, fast = model(x, **masks), compiled(model, [])(x, **masks)
    assert torch.equal(stock.isnan(), fast.isnan())
    torch.testing.assert_close(fast, stock, equal_nan=True)


def test_its_products_are_linear_layers_and_its_attention_one_step():
    model, x, made = encoder(), torch.randn(BATCH, LENGTH, WIDTH), []
    with torch.no_grad():
        fast = compiled(model, made)
        for _ in range(3):
            fast(x)
    assert made[0].fused[False] == "8 linear layers, 2 activations in them, 4 sums in them, 2 attentions, 4 norms"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm_first", [False, True])
def test_types_and_errors_under_autocast_are_those_of_autocast(norm_first, dtype):
    model, x, made = encoder(norm_first=norm_first), torch.randn(BATCH, LENGTH, WIDTH), []
    with torch.no_grad():
        truth = model.double()(x.double()).float()
        model.float()
        with torch.autocast("cpu", dtype):
            stock, fast = model(x), compiled(model, made, dtype="auto")(x)
    assert fast.dtype == stock.dtype and fast.stride() == stock.stride()
    assert error(fast, truth) < 1.5 * error(stock, truth) + 1e-6
    assert made


@pytest.mark.parametrize("padded", [False, True])
def test_other_lengths_and_batches(padded):
    model, made = encoder(), []
    fast = compiled(model, made, dynamic=True)
    with torch.no_grad():
        for batch, length in ((3, 10), (2, 7), (5, 16), (1, 1)):
            x, masks = torch.randn(batch, length, WIDTH), {}
            if padded:
                masks = {"src_key_padding_mask": torch.arange(length)[None] > torch.arange(batch)[:, None]}
            assert error(fast(x, **masks), model(x, **masks)) < 1e-6
    assert 1 <= len(made) <= 3 and all("8 linear layers" in one.fused[False] for one in made)


class Without(nn.Module):
    """Switches autocast off for the encoder."""

    def __init__(self):
        super().__init__()
        self.encoder = encoder()

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.encoder(x)


@pytest.mark.parametrize("around", [False, True])
def test_autocast_that_the_program_ends_inside(around):
    model, x = Without().eval(), torch.randn(BATCH, LENGTH, WIDTH)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=around):
        stock, fast = model(x), compiled(model, [], dtype="auto")(x)
    assert fast.dtype == stock.dtype and error(fast, stock) < 1e-5


def test_one_sentence_without_a_batch_and_training_are_stocks():
    model = encoder()
    with torch.no_grad():
        x = torch.randn(LENGTH, WIDTH)
        assert error(compiled(model, [])(x), model(x)) < 1e-6
    x = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    gradient = torch.autograd.grad(compiled(model, [])(x).square().sum(), x)[0]
    assert error(gradient, torch.autograd.grad(model(x).square().sum(), x)[0]) < 1e-5
