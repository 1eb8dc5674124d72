"""Risk: a taken call returns other numbers, another dtype, shape or strides than stock, or disturbs what builds on its op."""

import copy

import pytest
import torch
import torch.nn.functional as F
from conftest import bound, relative, report
from torch.testing._internal.common_methods_invocations import op_db

NAMES = {"addmm", "mm", "bmm", "baddbmm", "matmul", "__rmatmul__", "addbmm", "nn.functional.linear", "nn.functional.bilinear",
         "nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d", "nn.functional.conv_transpose1d",
         "nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d"}
OPS = {op.name: op for op in op_db if op.name in NAMES and not op.variant_test_name}


def same_face(result, expected):
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert result.stride() == expected.stride()
    assert result.requires_grad == expected.requires_grad
    assert result.is_inference() == expected.is_inference()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", sorted(OPS))
def test_opinfo_samples_give_what_stock_gives(name, dtype, candidate, stock):
    op = OPS[name]
    if dtype not in op.dtypes:
        pytest.skip("stock does not support it")
    for requires_grad in (False, True):
        for sample in op.sample_inputs("cpu", dtype, requires_grad=requires_grad):
            expected = stock(op, sample.input, *sample.args, **sample.kwargs)
            result = op(sample.input, *sample.args, **sample.kwargs)
            same_face(result, expected)
            assert relative(result, expected) <= bound(candidate, dtype)


LAYOUTS = {
    "contiguous": lambda m, k: torch.randn(m, k),
    "padded": lambda m, k: torch.randn(m, k + 24)[:, :k],
    "transposed": lambda m, k: torch.randn(k, m).t(),
    "every second": lambda m, k: torch.randn(m, 2 * k)[:, ::2],
}


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("m", [1, 3, 33])
def test_layouts_of_both_operands(left, right, dtype, m, candidate, stock):
    x, w = LAYOUTS[left](m, 128).to(dtype), LAYOUTS[right](128, 288).to(dtype)
    bias = torch.randn(288).to(dtype)
    for call in (lambda: x @ w, lambda: torch.addmm(bias, x, w), lambda: F.linear(x, w.t(), bias)):
        expected, result = stock(call), call()
        same_face(result, expected)
        assert relative(result, expected) <= bound(candidate, dtype)


def test_a_taken_call_is_really_taken(hook, stock):
    x, w = torch.randn(64, 512), torch.randn(512, 512)
    hook.force("own_bf16")
    torch.mm(x, w)
    assert relative(torch.mm(x, w), stock(torch.mm, x, w)) > 1e-4  # bf16 inside shows


def test_expanded_and_real_batches(candidate, stock):
    x = torch.randn(4, 16, 256)
    for w in (torch.randn(256, 128).expand(4, 256, 128), torch.randn(128, 256).t().expand(4, 256, 128), torch.randn(4, 256, 128),
              torch.randn(4, 128, 256).transpose(1, 2)):
        expected, result = stock(torch.bmm, x, w), torch.bmm(x, w)
        same_face(result, expected)
        assert relative(result, expected) <= bound(candidate)


def test_beta_alpha_and_other_biases(candidate, stock):
    x, w = torch.randn(32, 256), torch.randn(256, 256)
    nan = torch.full((256,), float("nan"))
    for bias, kwargs in ((torch.randn(256), {"beta": 0.5}), (torch.randn(256), {"alpha": 2}), (torch.randn(32, 256), {}),
                         (torch.randn(1), {}), (nan, {"beta": 0}), (torch.randn(32, 1), {"beta": -1, "alpha": 0.5}),
                         (torch.randn(256, 32).t(), {"alpha": -3})):
        expected, result = stock(torch.addmm, bias, x, w, **kwargs), torch.addmm(bias, x, w, **kwargs)
        same_face(result, expected)
        assert relative(result, expected) <= bound(candidate)
    assert torch.equal(torch.addmm(nan[:1], x, w, beta=0, alpha=0), stock(torch.addmm, nan[:1], x, w, beta=0, alpha=0))


def writing_calls(dtype):
    """Name, a function that writes into its first argument, that argument's start."""
    x, w, start = torch.randn(32, 256).to(dtype), torch.randn(256, 128).to(dtype), torch.randn(32, 128).to(dtype)
    a, b, starts = torch.randn(4, 32, 256).to(dtype), torch.randn(4, 256, 128).to(dtype), torch.randn(4, 32, 128).to(dtype)
    return [
        ("mm", lambda out: torch.mm(x, w, out=out), start),
        ("addmm", lambda out: torch.addmm(start[0], x, w, out=out), start),
        ("addmm scaled", lambda out: torch.addmm(start, x, w, beta=0.5, alpha=2, out=out), start),
        ("addmm_", lambda out: out.addmm_(x, w), start),
        ("addmm_ scaled", lambda out: out.addmm_(x, w, beta=-1.5, alpha=0.25), start),
        ("addmm_ beta 0", lambda out: out.addmm_(x, w, beta=0), torch.full_like(start, float("nan"))),
        ("bmm", lambda out: torch.bmm(a, b, out=out), starts),
        ("bmm one matrix", lambda out: torch.bmm(a, w.expand(4, 256, 128), out=out), starts),
        ("baddbmm", lambda out: torch.baddbmm(starts, a, b, beta=0.5, out=out), starts),
        ("baddbmm_", lambda out: out.baddbmm_(a, b, alpha=0.125), starts),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_out_and_in_place_overloads(dtype, candidate, stock):
    for name, call, start in writing_calls(dtype):
        for made in (torch.clone, lambda t: t.clone().transpose(-1, -2).contiguous().transpose(-1, -2)):
            expected, mine = made(start), made(start)
            version, place = mine._version, mine.data_ptr()
            stock(call, expected)
            returned = call(mine)
            assert returned is mine and mine.data_ptr() == place, name
            assert mine._version > version, name
            same_face(mine, expected)
            assert relative(mine, expected) <= bound(candidate, dtype), name


def test_out_that_overlaps_or_does_not_fit_is_stocks(candidate, stock):
    x, w = torch.randn(64, 64), torch.randn(64, 64)
    with pytest.raises(RuntimeError):
        torch.mm(x, w, out=torch.empty(64, 64, dtype=torch.float64).to(torch.int32))
    with pytest.raises(RuntimeError):
        torch.addmm(w, x, w, out=torch.zeros(64).expand(64, 64))
    resized = torch.empty(0)
    assert torch.equal(torch.mm(x, w, out=resized), stock(torch.mm, x, w))


CONVOLUTIONS = {
    # name: (input shape, out channels, kernel, keywords)
    "1x1": ((2, 64, 14, 14), 128, 1, {}),
    "3x3": ((2, 32, 15, 17), 48, 3, {"padding": 1}),
    "strided": ((1, 3, 33, 33), 64, 7, {"stride": 2, "padding": 3}),
    "dilated": ((2, 16, 20, 20), 32, 3, {"dilation": (2, 3), "padding": (1, 0)}),
    "grouped": ((2, 32, 12, 12), 64, 3, {"groups": 4}),
    "depthwise": ((2, 64, 12, 12), 64, 3, {"groups": 64, "padding": 1}),
    "one pixel": ((1, 512, 1, 1), 64, 1, {}),
    "wide batch": ((17, 16, 9, 9), 24, 3, {}),
    "1d": ((3, 40, 50), 24, 5, {"padding": 2, "stride": 3}),
    "3d": ((2, 8, 6, 7, 8), 16, 3, {"padding": (1, 0, 1), "stride": (1, 2, 1)}),
    "same": ((2, 16, 11, 11), 16, (4, 3), {"padding": "same"}),
}
TRANSPOSED = {
    "transposed": ((2, 32, 9, 9), 48, 3, {"stride": 2, "padding": 1, "output_padding": 1}),
    "transposed grouped": ((2, 32, 8, 8), 64, 4, {"stride": 2, "groups": 4, "dilation": 2}),
    "transposed 1d": ((2, 32, 21), 16, 6, {"stride": 3}),
    "transposed 3d": ((1, 16, 5, 6, 7), 8, 3, {"padding": 1, "stride": (1, 2, 1)}),
}


def convolve(case, x, w, bias):
    shape, _, _, keywords = case
    kind = "conv_transpose" if case in TRANSPOSED.values() else "conv"
    return getattr(F, f"{kind}{len(shape) - 2}d")(x, w, bias, **keywords)


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "weight channels last", "sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", [*CONVOLUTIONS, *TRANSPOSED])
def test_convolutions(name, dtype, layout, candidate, stock):
    case = {**CONVOLUTIONS, **TRANSPOSED}[name]
    shape, channels, kernel, keywords = case
    dims = len(shape) - 2
    sizes = kernel if isinstance(kernel, tuple) else (kernel,) * dims
    groups = keywords.get("groups", 1)
    rows = (shape[1], channels // groups) if name in TRANSPOSED else (channels, shape[1] // groups)
    x, w, bias = torch.randn(shape).to(dtype), torch.randn(*rows, *sizes).to(dtype), torch.randn(channels).to(dtype)
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dims)
    if layout == "sliced":
        x = torch.cat([x, x], dim=-1)[..., : shape[-1]]
    elif layout != "contiguous":
        if last is None:
            pytest.skip("no channels last for one dimension")
        w = w.to(memory_format=last)
        x = x.to(memory_format=last) if layout == "channels last" else x
    with torch.no_grad():
        for added in (None, bias):
            expected, result = stock(convolve, case, x, w, added), convolve(case, x, w, added)
            same_face(result, expected)
            assert relative(result, expected) <= bound(candidate, dtype)


def test_gradients_of_convolutions(candidate, stock):
    for layer, shape in ((torch.nn.Conv2d(16, 32, 3, padding=1), (2, 16, 12, 12)), (torch.nn.ConvTranspose2d(16, 32, 3), (2, 16, 12, 12)),
                         (torch.nn.Conv1d(16, 32, 3), (2, 16, 30))):
        x = torch.randn(shape, requires_grad=True)

        def gradients():
            return torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])

        for result, expected in zip(gradients(), stock(gradients)):
            assert relative(result, expected) <= bound(candidate)


def outcome(call):
    try:
        return call().shape
    except RuntimeError as error:
        return str(error)


def test_convolutions_that_stock_refuses_are_refused(candidate, stock):
    x, w = torch.randn(2, 16, 8, 8), torch.randn(32, 16, 3, 3)
    for call in (lambda: F.conv2d(x, w[:, :15]), lambda: F.conv2d(x, w, padding=-1), lambda: F.conv2d(x, w, stride=0),
                 lambda: F.conv2d(x, w, torch.randn(31)), lambda: F.conv2d(x, w, dilation=9), lambda: F.conv2d(x, w, groups=3),
                 lambda: F.conv2d(x, w.double()), lambda: F.conv_transpose2d(x, w), lambda: F.conv2d(x, w.to("meta")),
                 lambda: F.conv2d(x[:0], w), lambda: F.conv2d(x, w[:0]), lambda: F.conv_transpose2d(x, w, output_padding=3)):
        assert outcome(call) == stock(outcome, call)


def test_convolution_under_functorch_and_compile(candidate, stock):
    layer, x = torch.nn.Conv2d(16, 32, 3), torch.randn(4, 16, 12, 12)
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager")

    def all_of_them():
        weight = layer.weight.detach()
        one = torch.func.vmap(lambda image: F.conv2d(image[None], weight))(x)
        two = torch.func.grad(lambda kernel: F.conv2d(x, kernel).sum())(weight)
        three = torch.func.jvp(lambda image: F.conv2d(image, weight), (x,), (torch.ones_like(x),))
        return [one, two, *three, compiled(x)]

    for result, expected in zip(all_of_them(), stock(all_of_them)):
        assert relative(result, expected) <= bound(candidate)


def test_a_taken_convolution_is_really_taken(hook, stock):
    x, w = torch.randn(2, 32, 14, 14), torch.randn(32, 32, 3, 3)
    hook.force("onednn_bf16_packed")
    for _ in range(2):
        result = F.conv2d(x, w)
    assert relative(result, stock(F.conv2d, x, w)) > 1e-4  # bf16 inside shows


def test_empty_and_mismatched_inputs_behave_as_stock(candidate):
    assert torch.mm(torch.randn(0, 256), torch.randn(256, 256)).shape == (0, 256)
    assert torch.mm(torch.randn(64, 0), torch.randn(0, 256)).abs().sum() == 0
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.mm(torch.randn(64, 255), torch.randn(256, 256))
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.mm(torch.randn(64, 256), torch.randn(256, 256).bfloat16())


def test_nan_and_infinity_stay_where_they_are(candidate, stock):
    x, w = torch.randn(64, 256), torch.randn(256, 256)
    x[3, 5], x[4, 6] = float("nan"), float("inf")
    expected, result = stock(torch.mm, x, w), torch.mm(x, w)
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result.isinf(), expected.isinf())


def test_gradients_of_linear(candidate, stock):
    layer = torch.nn.Linear(256, 256)
    x = torch.randn(32, 256, requires_grad=True)

    def gradients():
        return torch.autograd.grad(layer(x).square().sum(), [x, layer.weight, layer.bias])

    for result, expected in zip(gradients(), stock(gradients)):
        assert relative(result, expected) <= bound(candidate)


def test_gradcheck_in_double(candidate):
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 5), (4, 5), (4,))]
    assert torch.autograd.gradcheck(F.linear, inputs)
    assert torch.autograd.gradgradcheck(F.linear, inputs)


def test_functorch_and_forward_mode(candidate, stock):
    w, x = torch.randn(128, 256), torch.randn(8, 32, 256)

    def all_of_them():
        one = torch.func.vmap(lambda row: F.linear(row, w))(x)
        two = torch.func.grad(lambda weight: F.linear(x[0], weight).sum())(w)
        three = torch.func.jvp(lambda row: F.linear(row, w), (x[0],), (torch.ones_like(x[0]),))
        return [one, two, *three]

    for result, expected in zip(all_of_them(), stock(all_of_them)):
        assert relative(result, expected) <= bound(candidate)


def test_fake_and_meta_tensors_compute_nothing(candidate):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        assert F.linear(torch.randn(64, 256), torch.randn(128, 256)).shape == (64, 128)
    assert torch.nn.Linear(256, 128, device="meta")(torch.randn(64, 256, device="meta")).shape == (64, 128)


def test_inference_mode(candidate, stock):
    with torch.inference_mode():
        layer, x = torch.nn.Linear(256, 256), torch.randn(32, 256)
        expected, result = stock(layer, x), layer(x)
    same_face(result, expected)
    assert relative(result, expected) <= bound(candidate)


def test_the_users_autocast(candidate, stock):
    layer, x = torch.nn.Linear(256, 256), torch.randn(32, 256)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, result = stock(layer, x), layer(x)
    same_face(result, expected)
    assert result.dtype == torch.bfloat16
    assert relative(result, expected) <= bound(candidate)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile(backend, candidate, stock):
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    x = torch.randn(32, 256)
    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend)
    assert relative(compiled(x), stock(model, x)) <= bound(candidate)


def test_subclasses_and_dispatch_modes(candidate, stock):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mine(torch.Tensor):
        pass

    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Count.seen += 1
            return func(*args, **(kwargs or {}))

    x, w = torch.randn(32, 256), torch.randn(256, 256)
    assert type(torch.mm(x.as_subclass(Mine), w)) is Mine
    with Count():
        result = torch.mm(x, w)
    assert Count.seen == 1
    assert relative(result, stock(torch.mm, x, w)) <= bound(candidate)


def test_conjugate_and_negative_views(candidate, stock):
    z = torch.randn(64, 128, dtype=torch.complex64)
    assert torch.equal(torch.mm(z.conj(), z.t()), stock(torch.mm, z.conj(), z.t()))
    negative = z.conj().imag
    expected = stock(torch.mm, negative, negative.t())
    assert relative(torch.mm(negative, negative.t()), expected) <= bound(candidate)


def test_deterministic_mode_leaves_everything_to_stock(candidate, stock):
    x, w = torch.randn(64, 256), torch.randn(256, 256)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(torch.mm(x, w), stock(torch.mm, x, w))
    finally:
        torch.use_deterministic_algorithms(False)


def test_onednn_switched_off_leaves_everything_to_stock(candidate, stock):
    x, w = torch.randn(64, 256), torch.randn(256, 256)
    a, b = torch.randn(4, 64, 256), torch.randn(4, 256, 64)
    with torch.backends.mkldnn.flags(enabled=False):
        for _ in range(4):
            assert torch.equal(torch.mm(x, w), stock(torch.mm, x, w))
            assert torch.equal(torch.bmm(a, b), stock(torch.bmm, a, b))


def test_state_and_identity_of_modules_stay(candidate):
    layer, x = torch.nn.Linear(256, 256), torch.randn(32, 256)
    before = {name: (value.clone(), value.data_ptr(), value.stride()) for name, value in layer.state_dict().items()}
    layer(x)
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name][0])
        assert (value.data_ptr(), value.stride()) == before[name][1:]
    twin = copy.deepcopy(layer)
    assert relative(twin(x), layer(x)) == 0


def test_an_unknown_candidate_is_refused(hook):
    assert not hook.force("no_such_candidate")


ACTIVATIONS = {
    "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "tanh": torch.tanh, "sigmoid": torch.sigmoid, "silu": F.silu,
}
ACTIVATION_OPS = [op for op in op_db if op.name in {"nn.functional.gelu", "tanh", "sigmoid", "nn.functional.silu"} and not op.variant_test_name]


@pytest.fixture
def own_f32(hook):
    assert hook.force("own_f32")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32], ids=str)
@pytest.mark.parametrize("op", ACTIVATION_OPS, ids=lambda op: op.name)
def test_opinfo_samples_of_activations(op, dtype, own_f32, stock):
    if dtype not in op.dtypes:
        pytest.skip("stock does not support it")
    for requires_grad in (False, True) if dtype.is_floating_point else (False,):
        for sample in op.sample_inputs("cpu", dtype, requires_grad=requires_grad):
            expected = stock(op, sample.input, *sample.args, **sample.kwargs)
            result = op(sample.input, *sample.args, **sample.kwargs)
            same_face(result, expected)
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
    if name not in {"no bias", "projected"}:
        assert relative(all_outputs(x)[0], stock(all_outputs, x)[0]) > 1e-4  # bf16 inside shows: it is taken
    for parameter in layer.parameters():
        parameter.data.mul_(1.5)  # moves no version
        for result, expected in zip(all_outputs(x), stock(all_outputs, x)):
            assert relative(result, expected) <= 3e-2


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


# A site is checked once and then serves calls that differ in what its key does not hold: each test warms one up with a harmless call.


def test_an_added_row_of_a_batched_product(candidate, stock):
    a, b, row = torch.randn(4, 32, 64), torch.randn(4, 64, 48), 10 * torch.randn(48)
    for added in (torch.zeros(48), torch.zeros(48), row):
        expected, result = stock(torch.baddbmm, added, a, b), torch.baddbmm(added, a, b)
        same_face(result, expected)
        assert relative(result, expected) <= bound(candidate)


def test_an_alpha_of_zero_hides_the_operands(candidate, stock):
    x, w, added = torch.randn(32, 256), torch.randn(256, 128), torch.randn(32, 128)
    for _ in range(2):
        torch.addmm(added, x, w, alpha=2)
    x[0, 0], x[1, 1] = float("inf"), float("nan")
    assert torch.equal(torch.addmm(added, x, w, alpha=0), stock(torch.addmm, added, x, w, alpha=0))


def test_a_convolution_bias_in_any_layout(candidate, stock):
    x, w = torch.randn(2, 32, 14, 14), torch.randn(32, 32, 3, 3)
    for bias in (torch.randn(32), torch.randn(64)[::2], torch.randn(1).expand(32), torch.randn(40)[3:35], torch.randn(32, 5)[:, 2]):
        for _ in range(2):
            assert relative(F.conv2d(x, w, bias), stock(F.conv2d, x, w, bias)) <= bound(candidate)


def test_one_weight_in_convolutions_of_several_kinds(hook, stock):
    hook.force("onednn_f32_packed")
    x, wide, w = torch.randn(2, 32, 14, 14), torch.randn(2, 128, 14, 14), torch.randn(32, 32, 3, 3)
    calls = [lambda: F.conv2d(x, w), lambda: F.conv2d(wide, w, groups=4), lambda: F.conv_transpose2d(x, w), lambda: F.conv2d(x, w, stride=2)]
    for _ in range(2):
        for call in calls:
            expected, before = stock(call), report(hook)["taken"]
            assert relative(call(), expected) <= bound("onednn_f32_packed")
            assert report(hook)["taken"] == before + 1


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
