"""Risk: a taken convolution returns other numbers, another dtype, shape or strides than stock, or disturbs what builds on it."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DTYPES, HAS_BF16, bound, needs_bf16, opinfo, opinfo_results, relative, report, same_face

OPS = opinfo("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d", "nn.functional.conv_transpose1d",
             "nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d")


@pytest.fixture(params=["onednn_bf16_packed", "onednn_f32_packed", "own_bf16"])
def candidate(request, hook):
    assert hook.force(request.param)
    return request.param


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_opinfo_samples_give_what_stock_gives(op, dtype, candidate, stock):
    for result, expected in opinfo_results(op, dtype, stock):
        assert relative(result, expected) <= bound(candidate, dtype)


@pytest.fixture
def own_f32(hook):
    assert hook.force("own_f32")
    return "own_f32"


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
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["3x3", "strided", "1d", "transposed"])
def test_convolutions_of_16_bits_are_widened_where_the_cpu_has_no_such_products(name, dtype, hook, stock):
    if HAS_BF16:
        pytest.skip("oneDNN has them")
    case = {**CONVOLUTIONS, **TRANSPOSED}[name]
    shape, channels, kernel, _ = case
    rows = (shape[1], channels) if name in TRANSPOSED else (channels, shape[1])
    torch.manual_seed(0)
    x, w, bias = torch.randn(shape).to(dtype), torch.randn(*rows, *[kernel] * (len(shape) - 2)).to(dtype), torch.randn(channels).to(dtype)
    hook.force("onednn_f32_packed")
    before = report(hook)["taken"]
    with torch.no_grad():
        expected, result = stock(convolve, case, x, w, bias), convolve(case, x, w, bias)
        truth = convolve(case, x.double(), w.double(), bias.double())
    assert report(hook)["taken"] == before + 1
    same_face(result, expected)
    assert relative(result, truth) <= 1.1 * relative(expected, truth)


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


@needs_bf16
def test_a_taken_convolution_is_really_taken(hook, stock):
    x, w = torch.randn(2, 32, 14, 14), torch.randn(32, 32, 3, 3)
    hook.force("onednn_bf16_packed")
    for _ in range(2):
        result = F.conv2d(x, w)
    assert relative(result, stock(F.conv2d, x, w)) > 1e-4  # bf16 inside shows


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


@pytest.mark.parametrize("dims", [2, 3])
def test_windows_that_meet_padding_alone(dims, candidate, stock):
    x, w, b = torch.randn(1, 17, *[5] * (dims - 1), 1), torch.randn(1, 17, *[3] * (dims - 1), 1), torch.randn(1)
    padding = [0] * (dims - 1) + [1]
    arguments = [1] * (dims - 1) + [2], padding, [1] * dims, False, [0] * dims, 1
    for _ in range(20):  # oneDNN's packed convolution reads beyond its memory, and not at each call
        assert torch.equal(torch.convolution(x, w, b, *arguments), stock(torch.convolution, x, w, b, *arguments))


def test_one_channel_of_a_sequence_in_any_strides(candidate, stock):
    w, b = torch.randn(5, 1, 2), torch.randn(5)
    x = torch.randn(2, 1, 7)
    for view in (x, x.as_strided(x.shape, (7, 1, 1)), x):
        same_face(torch.conv1d(view, w, b), stock(torch.conv1d, view, w, b))


DEPTHWISE = {
    # name: (input shape, kernel, keywords)
    "3x3": ((2, 40, 12, 15), 3, {"padding": 1}),
    "5x5 strided": ((1, 33, 21, 20), 5, {"stride": 2, "padding": 2}),
    "dilated": ((2, 64, 20, 20), 3, {"dilation": (2, 3), "padding": (1, 0)}),
    "no square": ((1, 48, 9, 31), (1, 7), {"padding": (0, 3)}),
    "1d": ((3, 40, 90), 4, {"padding": 3}),
    "3d": ((2, 24, 6, 7, 8), 3, {"padding": (1, 0, 1), "stride": (1, 2, 1)}),
    "one channel": ((2, 1, 30, 30), 3, {"padding": 1}),
    "same": ((2, 32, 11, 11), (4, 3), {"padding": "same"}),
}


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "weight channels last", "sliced", "channels sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_convolutions_by_our_kernel(name, dtype, layout, own_f32, hook, stock):
    shape, kernel, keywords = DEPTHWISE[name]
    dims, channels = len(shape) - 2, shape[1]
    sizes = kernel if isinstance(kernel, tuple) else (kernel,) * dims
    x, w, bias = torch.randn(shape).to(dtype), torch.randn(channels, 1, *sizes).to(dtype), torch.randn(2 * channels).to(dtype)[::2]
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dims)
    if "last" in layout:
        if last is None:
            pytest.skip("no channels last for one dimension")
        w = w.to(memory_format=last)
        x = x.to(memory_format=last) if layout == "channels last" else x
    elif layout == "sliced":
        x = torch.cat([x, x], dim=-1)[..., : shape[-1]]
    elif layout == "channels sliced":
        x = torch.cat([x, x], dim=1).movedim(1, -1).contiguous().movedim(-1, 1)[:, 1 : channels + 1]
    convolution = getattr(F, f"conv{dims}d")
    with torch.no_grad():
        for added in (None, bias):
            call = lambda: convolution(x, w, added, groups=channels, **keywords)  # noqa: E731
            expected, before = stock(call), report(hook)["taken"]
            result = call()
            without_onednn = dims == 3 and dtype == torch.bfloat16 and not HAS_BF16  # another kernel of stock's, whose results lie otherwise
            if channels > 1 and (dims, layout) != (1, "channels sliced") and not without_onednn:  # stock's strides there are not what its operands ask for
                assert report(hook)["taken"] == before + 1
            same_face(result, expected)
            assert relative(result, expected) <= bound(own_f32, dtype)


POINTWISE = {
    # name: (input shape, out channels)
    "wide": ((2, 96, 9, 11), 160),
    "narrow": ((1, 33, 20, 20), 7),
    "one pixel": ((3, 512, 1, 1), 64),
    "one channel": ((2, 1, 30, 30), 48),
    "1d": ((2, 64, 50), 96),
    "3d": ((1, 32, 4, 5, 6), 40),
}


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "weight channels last", "sliced", "channels sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", POINTWISE)
def test_windows_of_one_pixel_by_our_product(name, dtype, layout, hook, stock):
    torch.manual_seed(0)  # a call whose few samples happen to be small is not accurate enough
    shape, outputs = POINTWISE[name]
    dims = len(shape) - 2
    x, w, bias = torch.randn(shape).to(dtype), torch.randn(outputs, shape[1], *[1] * dims).to(dtype), torch.randn(2 * outputs).to(dtype)[::2]
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dims)
    if "last" in layout:
        if last is None:
            pytest.skip("no channels last for one dimension")
        w = w.to(memory_format=last)
        x = x.to(memory_format=last) if layout == "channels last" else x
    elif layout == "sliced":
        x = torch.cat([x, x], dim=-1)[..., : shape[-1]]
    elif layout == "channels sliced":
        x = torch.cat([x, x], dim=1)[:, : shape[1]]
    convolution = getattr(F, f"conv{dims}d")
    hook.force("own_bf16")
    before = report(hook)["taken"]
    with torch.no_grad():
        for added in (None, bias):
            expected, result = stock(convolution, x, w, added), convolution(x, w, added)
            same_face(result, expected)
            assert relative(result, expected) <= bound("own_bf16", dtype)
    told_apart = shape[1] > 1 and shape[-1] > 1
    if HAS_BF16 and told_apart and not (dims == 3 and "last" in layout):  # stock's strides there are not always what its operands ask for
        assert report(hook)["taken"] == before + 2


DENSE = {
    # name: (input shape, out channels, kernel, keywords)
    "3x3": ((2, 64, 14, 14), 96, 3, {"padding": 1}),
    "3x3 narrow": ((3, 33, 7, 7), 40, 3, {"padding": 1}),
    "strided": ((2, 48, 15, 18), 64, 3, {"padding": 1, "stride": 2}),
    "stem": ((1, 3, 40, 40), 64, 7, {"padding": 3, "stride": 2}),
    "patches": ((1, 3, 32, 32), 48, 8, {"stride": 8}),
    "one pixel strided": ((2, 40, 12, 12), 64, 1, {"stride": 2}),
    "one pixel in groups": ((2, 40, 9, 9), 64, 1, {"groups": 2}),
    "dilated": ((1, 64, 20, 20), 32, 3, {"dilation": (2, 3), "padding": (2, 3)}),
    "grouped": ((2, 128, 10, 10), 128, 3, {"groups": 32, "padding": 1}),
    "two outputs a channel": ((2, 40, 10, 10), 80, 3, {"groups": 40, "padding": 1}),
    "1d": ((2, 40, 60), 48, 3, {"padding": 1}),
    "1d of one channel": ((2, 1, 300), 64, 10, {"stride": 5}),
    "3d": ((1, 16, 5, 8, 9), 24, 3, {"padding": 1}),
}


@pytest.mark.skipif(not torch.cpu._is_amx_tile_supported(), reason="our dense convolutions need AMX")
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "weight channels last", "sliced", "channels sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", DENSE)
def test_dense_convolutions_by_our_kernel(name, dtype, layout, hook, stock):
    torch.manual_seed(0)
    shape, outputs, kernel, keywords = DENSE[name]
    dims = len(shape) - 2
    rows = (outputs, shape[1] // keywords.get("groups", 1))
    x, w, bias = torch.randn(shape).to(dtype), torch.randn(*rows, *[kernel] * dims).to(dtype), torch.randn(2 * outputs).to(dtype)[::2]
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dims)
    if "last" in layout:
        if last is None:
            pytest.skip("no channels last for one dimension")
        w = w.to(memory_format=last)
        x = x.to(memory_format=last) if layout == "channels last" else x
    elif layout == "sliced":
        x = torch.cat([x, x], dim=-1)[..., : shape[-1]]
    elif layout == "channels sliced":
        x = torch.cat([x, x], dim=1).movedim(1, -1).contiguous().movedim(-1, 1)[:, shape[1] :]
    convolution = getattr(F, f"conv{dims}d")
    hook.force("own_bf16")
    before = report(hook)["taken"]
    with torch.no_grad():
        for added in (None, bias):
            expected, result = stock(convolution, x, w, added, **keywords), convolution(x, w, added, **keywords)
            same_face(result, expected)
            assert relative(result, expected) <= bound("own_bf16", dtype)
    if dims == 2 or "last" not in layout and layout != "channels sliced":  # stock's strides there are not always what its operands ask for
        assert report(hook)["taken"] == before + 2


def test_our_dense_convolutions_on_two_threads(hook, stock):
    x, w = torch.randn(2, 64, 20, 20), torch.randn(96, 64, 3, 3)
    hook.force("own_bf16")
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2):
            torch.set_num_threads(count)
            with torch.no_grad():
                results.append(F.conv2d(x, w, padding=1))
        assert torch.equal(*results)
        assert relative(results[0], stock(F.conv2d, x, w, padding=1)) <= bound("own_bf16")
    finally:
        torch.set_num_threads(threads)


def test_transposed_and_depthwise_windows_are_not_our_dense_kernels(hook, stock):
    hook.force("own_bf16")
    x = torch.randn(2, 32, 12, 12)
    before = report(hook)["taken"]
    for call in (lambda: F.conv2d(x, torch.ones(32, 1, 3, 3), groups=32), lambda: F.conv_transpose2d(x, torch.ones(32, 16, 3, 3))):
        assert torch.equal(call(), stock(call))
    assert report(hook)["taken"] == before


def test_other_convolutions_are_not_our_kernels(own_f32, hook, stock):
    x = torch.randn(2, 32, 12, 12)
    before = report(hook)["taken"]
    for w, groups in ((torch.randn(64, 32, 3, 3), 1), (torch.randn(64, 1, 3, 3), 32), (torch.randn(32, 2, 3, 3), 16)):
        assert torch.equal(F.conv2d(x, w, groups=groups), stock(F.conv2d, x, w, groups=groups))
    assert report(hook)["taken"] == before


def test_gradients_of_a_depthwise_convolution(own_f32, stock):
    layer, x = torch.nn.Conv2d(32, 32, 3, padding=1, groups=32), torch.randn(2, 32, 12, 12, requires_grad=True)

    def gradients():
        return torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])

    for result, expected in zip(gradients(), stock(gradients)):
        assert relative(result, expected) <= bound(own_f32)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_depthwise_weight_that_changes(threads, own_f32, stock):
    x, w = torch.randn(2, 96, 30, 30), torch.randn(96, 1, 5, 5)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for change in (lambda: None, lambda: w.mul_(2), lambda: w.data.add_(1), lambda: w.numpy().fill(0.5)):
            with torch.no_grad():
                change()
                for _ in range(2):
                    assert relative(F.conv2d(x, w, groups=96), stock(F.conv2d, x, w, groups=96)) <= bound(own_f32)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("channels, groups, transposed", [(1, 1, False), (3, 1, False), (3, 1, True), (17, 1, False), (6, 2, False), (16, 1, False)])
@pytest.mark.parametrize("one", [float("nan"), float("inf")])
def test_nan_and_infinity_reach_the_windows_they_are_in(one, channels, groups, transposed, candidate, stock):
    """Also risk: what oneDNN multiplies with zero behind an odd number of channels. The call was checked before, with finite numbers."""
    torch.manual_seed(0)
    w = torch.randn(*((channels, 16 // groups) if transposed else (16, channels // groups)), 3, 3)
    x = torch.randn(2, channels, 12, 12)
    call = lambda: torch.convolution(x, w, None, [1, 1], [1, 1], [1, 1], transposed, [0, 0], groups)  # noqa: E731
    with torch.no_grad():
        for _ in range(3):
            call()
        x[0, 0, 3, 4] = one
        x[1, channels // groups - 1, 11, 0] = one
        result, expected = call(), stock(call)
        assert torch.equal(result.isnan(), expected.isnan()) and torch.equal(result.isinf(), expected.isinf())
        numbers = expected.isfinite()
        assert relative(result[numbers], expected[numbers]) <= bound(candidate)
