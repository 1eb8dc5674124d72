"""Risk: a taken activation, softmax, norm or recurrent layer returns other numbers, another dtype, shape or strides than stock, or disturbs what builds on it."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DTYPES, HAS_BF16, needs_bf16, opinfo, opinfo_results, relative, report, same_face

ACTIVATIONS = {
    "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "tanh": torch.tanh, "sigmoid": torch.sigmoid, "silu": F.silu,
}
ACTIVATION_OPS = opinfo("nn.functional.gelu", "tanh", "sigmoid", "nn.functional.silu")


@pytest.fixture
def own_f32(hook):
    assert hook.force("own_f32")


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32], ids=str)
@pytest.mark.parametrize("op", ACTIVATION_OPS, ids=lambda op: op.name)
def test_opinfo_samples_of_activations(op, dtype, own_f32, stock):
    for result, expected in opinfo_results(op, dtype, stock):
        assert relative(result, expected) <= (1e-2 if dtype == torch.bfloat16 else 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_in_every_layout(name, dtype, own_f32, stock):
    call = ACTIVATIONS[name]
    x = (4 * torch.randn(6, 8, 10, 12)).to(dtype)
    for view in (x, x.transpose(0, 2), x.to(memory_format=torch.channels_last), x[:, 1:3], x[..., ::2], x[0].expand(6, 8, 10, 12), x[:0],
                 x.flatten()[3:], x.sum()):
        expected, result = stock(call, view), call(view)
        same_face(result, expected)
        assert relative(result, expected) <= (1e-2 if dtype == torch.bfloat16 else 1e-6)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_at_the_edges(name, own_f32, stock):
    call = ACTIVATIONS[name]
    x = torch.tensor([0.0, -0.0, 1e-40, -1e-40, 1e-20, 88.0, -88.0, 200.0, -200.0, 3e38, -3e38, float("nan"), float("-inf")]).repeat(64)
    expected, result = stock(call, x), call(x)
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result.isinf(), expected.isinf())
    assert torch.allclose(result, expected, rtol=2e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_of_activations(name, own_f32, stock):
    x = torch.randn(64, 64, requires_grad=True)

    def gradient():
        return torch.autograd.grad(ACTIVATIONS[name](x).square().sum(), x)[0]

    assert relative(gradient(), stock(gradient)) <= 1e-6


def test_an_activation_is_really_taken(hook, own_f32):
    x = torch.randn(64, 64)
    before = report(hook)
    torch.tanh(x)
    torch.tanh(x.double())
    (op,) = [op for op in report(hook)["ops"] if op["op"] == "tanh"]
    seen = next((op for op in before["ops"] if op["op"] == "tanh"), {"taken": 0, "declined": {}})
    assert op["taken"] == seen["taken"] + 1
    assert op["declined"].get("dtype", 0) == seen["declined"].get("dtype", 0) + 1


NORM_OPS = opinfo("softmax", "nn.functional.layer_norm", "native_layer_norm")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", NORM_OPS, ids=lambda op: op.name)
def test_opinfo_samples_of_softmax_and_layer_norm(op, dtype, own_f32, stock):
    for mine, theirs in opinfo_results(op, dtype, stock):
        # A row of one element less its own mean is 0; stock leaves what rounding leaves.
        assert relative(mine, theirs) <= (1e-2 if dtype == torch.bfloat16 else 2e-6) or theirs.norm() < 2e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape, normalized", [((64, 64), 1), ((5, 7, 33), 1), ((5, 7, 33), 2), ((4096,), 1), ((2, 3, 4, 50), 3)], ids=str)
def test_layer_norm_in_many_forms(shape, normalized, dtype, own_f32, stock):
    sizes = shape[-normalized:]
    x = (3 * torch.randn(shape) + 100).to(dtype)
    parameters = [(None, None), (torch.randn(sizes).to(dtype), torch.randn(sizes).to(dtype)), (torch.randn(sizes).to(dtype), None)]
    if dtype == torch.bfloat16:
        parameters.append((torch.randn(sizes), torch.randn(sizes)))
    for weight, bias in parameters:
        for view in (x, torch.stack([x, x], dim=-1)[..., 0]):
            expected = stock(torch.native_layer_norm, view, sizes, weight, bias, 1e-5)
            for mine, theirs in zip(torch.native_layer_norm(view, sizes, weight, bias, 1e-5), expected):
                same_face(mine, theirs)
                # A mean of 100 costs float32 two digits, in stock as well.
                assert relative(mine, theirs) <= (2e-2 if dtype == torch.bfloat16 else 2e-4) or theirs.norm() < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_softmax_in_many_forms(dtype, own_f32, stock):
    for x in (torch.randn(64, 64), 50 * torch.randn(7, 333), torch.randn(3, 4, 5), torch.randn(40, 40).t(), torch.randn(4096), torch.randn(300, 1)):
        x = x.to(dtype)
        for dim in (-1, 0, x.dim() - 1):
            expected, result = stock(torch.softmax, x, dim), torch.softmax(x, dim)
            same_face(result, expected)
            assert relative(result, expected) <= (1e-2 if dtype == torch.bfloat16 else 2e-6)


def test_softmax_at_the_edges(own_f32, stock):
    infinity, nan = float("inf"), float("nan")
    rows = torch.tensor([[0.0, -infinity, 1.0], [-infinity] * 3, [infinity, 0.0, 1.0], [nan, 0.0, 1.0], [3e38, -3e38, 0.0], [-1e4, -1e4, -1e4]])
    expected, result = stock(torch.softmax, rows, -1), torch.softmax(rows, -1)
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.allclose(result, expected, rtol=2e-6, atol=1e-7, equal_nan=True)


def test_gradients_of_softmax_and_layer_norm(own_f32, stock):
    layer, x = torch.nn.LayerNorm(64), torch.randn(64, 64, requires_grad=True)

    def gradients():
        return torch.autograd.grad(torch.softmax(layer(x), -1).square().sum(), [x, *layer.parameters()])

    for result, expected in zip(gradients(), stock(gradients)):
        assert relative(result, expected) <= 2e-5


LSTMS = {
    "one layer": (dict(input_size=64, hidden_size=96), (20, 3, 64)),
    "two ways": (dict(input_size=40, hidden_size=64, num_layers=2, bidirectional=True), (12, 5, 40)),
    "batch first": (dict(input_size=64, hidden_size=64, batch_first=True), (3, 20, 64)),
    "no bias": (dict(input_size=64, hidden_size=64, bias=False), (20, 3, 64)),
    "projected": (dict(input_size=64, hidden_size=64, proj_size=32), (20, 3, 64)),
    "one step": (dict(input_size=512, hidden_size=512), (1, 1, 512)),
}


@pytest.mark.parametrize("name", LSTMS)
def test_lstms(name, hook, stock):
    hook.force("onednn_bf16_packed")
    keywords, shape = LSTMS[name]
    layer, x = torch.nn.LSTM(**keywords).eval(), torch.randn(shape)

    def all_outputs(x):
        with torch.no_grad():
            y, (h, c) = layer(x)
        return y, h, c

    for _ in range(3):
        for result, expected in zip(all_outputs(x), stock(all_outputs, x)):
            same_face(result, expected)
            assert relative(result, expected) <= 2e-2
    if HAS_BF16 and name not in {"no bias", "projected"}:
        assert relative(all_outputs(x)[0], stock(all_outputs, x)[0]) > 1e-4  # bf16 inside shows: it is taken
    for parameter in layer.parameters():
        parameter.data.mul_(1.5)  # moves no version
        for result, expected in zip(all_outputs(x), stock(all_outputs, x)):
            assert relative(result, expected) <= 3e-2


@needs_bf16
def test_an_lstm_is_really_taken_and_its_training_is_stocks(hook, stock):
    hook.force("onednn_bf16_packed")
    layer, x = torch.nn.LSTM(64, 128).eval(), torch.randn(20, 4, 64)
    with torch.no_grad():
        layer(x)
        assert relative(layer(x)[0], stock(layer, x)[0]) > 1e-4  # bf16 inside shows
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, [20, 15, 10, 5])
        assert relative(layer(packed)[0].data, stock(layer, packed)[0].data) <= 2e-2
    layer.train()

    def gradients():
        return torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters()))

    for result, expected in zip(gradients(), stock(gradients)):
        assert relative(result, expected) <= 1e-5


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_strides_of_activations_where_a_dimension_has_size_1(name, own_f32, stock):
    call = ACTIVATIONS[name]
    for x in (torch.randn(64, 128), torch.randn(64, 1, 128).transpose(1, 2), torch.randn(64, 128, 1, 1).to(memory_format=torch.channels_last),
              torch.empty_strided((1, 8192), (3, 1)).normal_(), torch.randn(2, 1, 40, 100).to(memory_format=torch.channels_last),
              torch.randn(2, 3, 1, 1300).to(memory_format=torch.channels_last), torch.randn(2, 3, 1, 1, 1300).transpose(1, 4),
              torch.randn(2, 1, 4, 10, 100).to(memory_format=torch.channels_last_3d), torch.randn(2, 4, 8, 128).transpose(1, 2)):
        expected, result = stock(call, x), call(x)
        same_face(result, expected)
        assert relative(result, expected) <= 1e-6


def test_strides_of_softmax_and_layer_norm_where_a_dimension_has_size_1(own_f32, stock):
    for x in (torch.empty_strided((1, 8192), (3, 1)).normal_(), torch.randn(64, 128, 1, 1).to(memory_format=torch.channels_last),
              torch.randn(64, 1, 128).transpose(1, 2).transpose(1, 2), torch.randn(2, 1, 40, 100).to(memory_format=torch.channels_last)):
        for call in (lambda t: torch.softmax(t, -1), lambda t: F.layer_norm(t, t.shape[-1:])):
            same_face(call(x), stock(call, x))


def test_layer_norm_refuses_what_stock_refuses(own_f32, stock):
    x = torch.randn(64, 2, 48)
    layer = torch.native_layer_norm
    for _ in range(2):  # the site is known and its candidate good
        layer(x, [2, 48], torch.ones(2, 48), torch.zeros(2, 48), 1e-5)
    for weight, bias in ((torch.ones(96), None), (torch.ones(48, 2), None), (None, torch.ones(96)), (torch.ones(48), None)):
        with pytest.raises(RuntimeError) as mine:
            layer(x, [2, 48], weight, bias, 1e-5)
        with pytest.raises(RuntimeError) as theirs:
            stock(layer, x, [2, 48], weight, bias, 1e-5)
        assert str(mine.value) == str(theirs.value)


@pytest.mark.parametrize("value", [123.456, 1234.567, 100000.3, -7e-4])
def test_norms_of_numbers_that_are_alike(value, own_f32, stock):
    """What float32 rounds of a mean is not magnified: blank images, padding."""
    x = torch.full((64, 768), value)
    image = torch.full((2, 32, 64, 64), value)
    with torch.no_grad():
        for function in (lambda: F.layer_norm(x, (768,)), lambda: F.group_norm(image, 4)):
            function()
            result, expected = function(), stock(function)
            assert (result - expected).abs().max() <= 1e-4


def test_an_lstm_that_counts_is_stocks(hook, stock):
    """Its cells are kept in bf16 from step to step, where 256 and less than one are 256."""
    torch.manual_seed(0)
    layer = torch.nn.LSTM(128, 128).eval()
    hook.force("onednn_bf16_packed")
    with torch.no_grad():
        layer.weight_ih_l0[:, 0] = 0
        layer.weight_ih_l0[:256, 0] = 8.0  # feature 0 opens the gates
        x = torch.randn(1, 4, 128).expand(400, 4, 128).contiguous()
        x[:, :, 0] = 0
        for _ in range(4):
            layer(x)
        x[:, :, 0] = 1
        assert torch.equal(layer(x)[1][1], stock(layer, x)[1][1])
