"""Risk: a taken operator on images (pooling, interpolation, norm of channels) returns other numbers, places, shape or strides than stock, or disturbs gradients."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DTYPES, all_opinfo, opinfo, opinfo_results, refused_as_by_stock, relative, report, same_face

POOL_OPS = opinfo("nn.functional.max_pool1d", "nn.functional.max_pool2d", "nn.functional.avg_pool1d", "nn.functional.avg_pool2d", "nn.functional.adaptive_avg_pool2d")
DOMAIN = [torch.float32, torch.bfloat16]


@pytest.fixture
def own_f32(hook):
    assert hook.force("own_f32")


def close(result, expected, dtype=torch.float32):
    same_face(result, expected)
    if not dtype.is_floating_point:
        assert torch.equal(result, expected)
    assert torch.equal(result.isnan(), expected.isnan())
    numbers = expected.isfinite()
    assert torch.equal(result[~numbers & ~expected.isnan()], expected[~numbers & ~expected.isnan()])
    assert relative(result[numbers], expected[numbers]) <= (1e-2 if dtype == torch.bfloat16 else 1e-6)


def taken(hook, name):
    return next((op["taken"] for op in report(hook)["ops"] if op["op"] == name), 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", POOL_OPS, ids=lambda op: op.name)
def test_opinfo_samples_of_pooling(op, dtype, own_f32, stock):
    for result, expected in opinfo_results(op, dtype, stock):
        if expected.dtype == torch.int64 or "max_pool" in op.name:
            assert torch.equal(result, expected)
        else:
            assert relative(result, expected) <= (1e-2 if dtype == torch.bfloat16 else 1e-6)


WINDOWS = [dict(kernel_size=3, stride=2, padding=1), dict(kernel_size=2), dict(kernel_size=(3, 5), stride=(1, 3), padding=(1, 2)), dict(kernel_size=2, stride=3, ceil_mode=True),
           dict(kernel_size=5, stride=1, padding=2), dict(kernel_size=3, stride=2, padding=1, ceil_mode=True)]
IMAGES = [(2, 4, 32, 31), (1, 2, 37, 64), (2, 7, 100), (1, 1, 8, 130), (60, 1, 3, 3), (2, 10, 9, 1)]


def layouts(shape, dtype, steps):
    x = (torch.randn(shape) * steps).round().to(dtype) / steps  # many equal elements
    yield x
    yield torch.stack([x, x], -1)[..., 0]
    if x.dim() == 4:
        yield x.to(memory_format=torch.channels_last)
        yield x[:, :, 1:]


@pytest.mark.parametrize("dtype", DOMAIN, ids=str)
@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_largest_elements_and_their_places(shape, dtype, own_f32, stock):
    for window in [*WINDOWS, dict(kernel_size=3, dilation=2, padding=1), dict(kernel_size=2, dilation=(3, 1), stride=2)]:
        for x in layouts(shape, dtype, 4):
            try:
                expected = stock(F.max_pool2d, x, return_indices=True, **window)
            except RuntimeError as problem:  # the window does not fit: the same words from both
                with pytest.raises(RuntimeError, match="Given input size"):
                    F.max_pool2d(x, return_indices=True, **window)
                assert "Given input size" in str(problem)
                continue
            for mine, theirs in zip(F.max_pool2d(x, return_indices=True, **window), expected):
                same_face(mine, theirs)
                assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", DOMAIN, ids=str)
@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_means_have_the_bits_of_stock(shape, dtype, own_f32, stock):
    for window in WINDOWS:
        for more in ({}, {"count_include_pad": False}, {"divisor_override": 7}):
            for x in layouts(shape, dtype, 1000):
                try:
                    expected = stock(F.avg_pool2d, x, **window, **more)
                except RuntimeError:
                    with pytest.raises(RuntimeError):
                        F.avg_pool2d(x, **window, **more)
                    continue
                result = F.avg_pool2d(x, **window, **more)
                same_face(result, expected)
                assert torch.equal(result, expected)


@pytest.mark.parametrize("dtype", DOMAIN, ids=str)
@pytest.mark.parametrize("shape", IMAGES, ids=str)
def test_adaptive_means(shape, dtype, own_f32, stock):
    for size in (1, 2, (7, 7), (3, 5), (40, 33), (None, 2)):
        for x in layouts(shape, dtype, 1000):
            close(F.adaptive_avg_pool2d(x, size), stock(F.adaptive_avg_pool2d, x, size), dtype)


def test_pooling_of_nan_and_infinity(own_f32, stock):
    x = torch.randn(2, 4, 24, 40)
    x[0, 0, ::5, ::7] = float("nan")
    x[0, 1, 3, ::3] = float("inf")
    x[1, 2] = -float("inf")
    x[1, 3, 5:9, 5:9] = -float("inf")
    x[1, 3, 6, 6] = float("nan")
    for mine, theirs in zip(F.max_pool2d(x, 3, 2, 1, return_indices=True), stock(F.max_pool2d, x, 3, 2, 1, return_indices=True)):
        assert torch.equal(mine.nan_to_num(7e7), theirs.nan_to_num(7e7)) and torch.equal(mine.isnan(), theirs.isnan())
    for call in (lambda x: F.avg_pool2d(x, 3, 2, 1), lambda x: F.adaptive_avg_pool2d(x, (5, 7))):
        close(call(x), stock(call, x))


def test_gradients_through_pooling(own_f32, stock):
    x = torch.randn(2, 8, 32, 32, requires_grad=True)
    for call in (lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.avg_pool2d(x, 3, 2, 1), lambda x: F.adaptive_avg_pool2d(x, 7)):

        def gradient():
            return torch.autograd.grad(call(x).square().sum(), x)[0]

        assert relative(gradient(), stock(gradient)) <= 1e-6


def test_what_pooling_refuses_stock_refuses(own_f32, stock):
    x = torch.randn(1, 8, 16, 16)
    F.max_pool2d(x, 2), F.avg_pool2d(x, 2)
    for call in (lambda: F.max_pool2d(x, 3, padding=2), lambda: F.max_pool2d(x, 0), lambda: F.max_pool2d(x, 2, stride=0), lambda: F.max_pool2d(x, 2, dilation=0),
                 lambda: F.max_pool2d(x, 40), lambda: F.avg_pool2d(x, 3, padding=2), lambda: F.avg_pool2d(x, 2, divisor_override=0), lambda: F.avg_pool2d(x, (2, 2, 2)),
                 lambda: F.max_pool2d(x[0, 0], 2), lambda: F.adaptive_avg_pool2d(x, (-1, 2)), lambda: F.avg_pool2d(x[:, :0], 2)):
        refused_as_by_stock(call, stock, TypeError)


def test_pooling_is_really_taken(hook, own_f32):
    calls = {"max_pool2d_with_indices": lambda x: F.max_pool2d(x, 2), "avg_pool2d": lambda x: F.avg_pool2d(x, 2), "_adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3)}
    for name, call in calls.items():
        before = taken(hook, name)
        call(torch.randn(1, 8, 32, 32))
        call(torch.randn(1, 8, 32, 32).to(memory_format=torch.channels_last))
        assert taken(hook, name) == before + 1


RESIZE_OPS = opinfo("nn.functional.upsample_nearest", "nn.functional.upsample_bilinear") + [op for op in all_opinfo("nn.functional.interpolate") if op.variant_test_name in {"nearest", "nearest-exact", "bilinear", "bicubic"}]
RESIZES = {
    "nearest": dict(mode="nearest"), "exact": dict(mode="nearest-exact"), "bilinear": dict(mode="bilinear"), "bilinear corners": dict(mode="bilinear", align_corners=True),
    "bicubic": dict(mode="bicubic"), "bicubic corners": dict(mode="bicubic", align_corners=True),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", RESIZE_OPS, ids=lambda op: f"{op.name}-{op.variant_test_name}")
def test_opinfo_samples_of_resizing(op, dtype, own_f32, stock):
    for result, expected in opinfo_results(op, dtype, stock):
        assert relative(result, expected) <= (1e-2 if dtype == torch.bfloat16 else 2e-6)


@pytest.mark.parametrize("dtype", DOMAIN, ids=str)
@pytest.mark.parametrize("name", RESIZES)
def test_resizing_to_many_sizes(name, dtype, own_f32, stock):
    for shape in ((2, 3, 16, 20), (1, 1, 5, 70), (1, 40, 7, 2), (3, 2, 33, 17)):
        for to in (dict(size=(32, 40)), dict(size=(33, 7)), dict(size=(1, 1)), dict(size=shape[2:]), dict(scale_factor=2), dict(scale_factor=(1.7, 3.1)), dict(scale_factor=0.6),
                   dict(scale_factor=2.3, recompute_scale_factor=True)):
            for x in layouts(shape, dtype, 1000):
                result, expected = F.interpolate(x, **to, **RESIZES[name]), stock(F.interpolate, x, **to, **RESIZES[name])
                if "nearest" in RESIZES[name]["mode"]:
                    same_face(result, expected)
                    assert torch.equal(result, expected)
                else:
                    same_face(result, expected)
                    assert relative(result, expected) <= (1e-2 if dtype == torch.bfloat16 else 2e-6)


@pytest.mark.parametrize("name", RESIZES)
def test_resizing_of_nan_and_infinity(name, own_f32, stock):
    x = torch.randn(1, 4, 24, 40)
    x[0, 0, ::5, ::7] = float("nan")
    x[0, 1, 3, ::3] = float("inf")
    x[0, 2, 20:, 30:] = -float("inf")
    for size in ((48, 80), (24, 40), (24, 80), (50, 33)):
        result, expected = F.interpolate(x, size=size, **RESIZES[name]), stock(F.interpolate, x, size=size, **RESIZES[name])
        assert torch.equal(result.isnan(), expected.isnan()) and torch.equal(result.isinf(), expected.isinf())
        assert torch.allclose(result, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", ["bilinear", "bilinear corners", "bicubic", "bicubic corners"])
def test_pixels_that_are_met_when_a_place_is_whole(name, hook, own_f32, stock):
    """An output that lies on a pixel meets its neighbour with a weight of 0 or of next to nothing: an infinity there shows which. The call was
    checked before, with finite numbers."""
    for size, to in ((14, 42), (6, 74), (9, 27), (40, 24), (33, 99), (5, 15)):
        for one in (float("inf"), float("nan")):
            x = torch.randn(1, 1, size, size)
            F.interpolate(x, size=(to, to), **RESIZES[name])
            for at in range(size):
                x = torch.randn(1, 1, size, size)
                x[0, 0, at, size - 1 - at] = one
                before = report(hook)["taken"]
                result, expected = F.interpolate(x, size=(to, to), **RESIZES[name]), stock(F.interpolate, x, size=(to, to), **RESIZES[name])
                assert report(hook)["taken"] == before + 1
                assert torch.equal(result.isnan(), expected.isnan()) and torch.equal(result.isinf(), expected.isinf()), (size, to, at)


@pytest.mark.parametrize("name", RESIZES)
def test_gradients_through_resizing(name, own_f32, stock):
    x = torch.randn(2, 4, 16, 16, requires_grad=True)

    def gradient():
        return torch.autograd.grad(F.interpolate(x, scale_factor=2, **RESIZES[name]).square().sum(), x)[0]

    assert relative(gradient(), stock(gradient)) <= 2e-6


def test_resizing_is_really_taken(hook, own_f32):
    names = {"nearest": "upsample_nearest2d", "exact": "_upsample_nearest_exact2d", "bilinear": "upsample_bilinear2d", "bicubic": "upsample_bicubic2d"}
    for name, op in names.items():
        before = taken(hook, op)
        F.interpolate(torch.randn(1, 8, 16, 16), scale_factor=2, **RESIZES[name])
        F.interpolate(torch.randn(1, 8, 16, 16).to(memory_format=torch.channels_last), scale_factor=2, **RESIZES[name])
        assert taken(hook, op) == before + 1


NORM_OPS = opinfo("nn.functional.batch_norm", "nn.functional.group_norm", "native_batch_norm", "nn.functional.instance_norm")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", NORM_OPS, ids=lambda op: op.name)
def test_opinfo_samples_of_norms_of_channels(op, dtype, own_f32, stock):
    for mine, theirs in opinfo_results(op, dtype, stock):
        # A group of one element less its own mean is 0; stock leaves what rounding leaves.
        assert relative(mine, theirs) <= (1e-2 if dtype == torch.bfloat16 else 2e-5) or theirs.norm() < 2e-3


def parameter_sets(channels, dtype):
    def some(kind):
        return torch.rand(channels).add(0.5).to(kind)

    yield [None, None], [some(dtype), some(dtype)]
    yield [some(dtype), some(dtype)], [some(dtype), some(dtype)]
    yield [some(dtype), None], [some(dtype), some(dtype)]
    if dtype == torch.bfloat16:
        yield [some(torch.float32), some(torch.float32)], [some(torch.float32), some(torch.float32)]


@pytest.mark.parametrize("dtype", DOMAIN, ids=str)
@pytest.mark.parametrize("shape", [(2, 32, 16, 9), (64, 48), (3, 12, 100), (1, 16, 4, 5, 6), (2, 64, 1, 1), (4, 8, 8, 1)], ids=str)
def test_norms_of_channels_in_many_forms(shape, dtype, own_f32, stock):
    channels = shape[1]
    pixels = torch.Size(shape[2:]).numel()
    for (weight, bias), (mean, variance) in parameter_sets(channels, dtype):
        x = (3 * torch.randn(shape) + 5).to(dtype)
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
        for view in [x, torch.stack([x, x], -1)[..., 0], *([x.to(memory_format=last)] if last else [])]:
            calls = [lambda: torch.native_batch_norm(view, weight, bias, mean, variance, False, 0.1, 1e-5)]
            calls += [lambda groups=groups: torch.native_group_norm(view, weight, bias, shape[0], channels, pixels, groups, 1e-5) for groups in (1, 4) if pixels > 1 and not view.stride(-1) == 2]  # which stock refuses
            for call in calls:
                for mine, theirs in zip(call(), stock(call)):
                    same_face(mine, theirs)
                    assert relative(mine, theirs) <= (2e-2 if dtype == torch.bfloat16 else 2e-5)


def test_norms_of_channels_with_nan_and_infinity(own_f32, stock):
    x = torch.randn(2, 8, 16, 16)
    x[0, 0, 3, 4], x[0, 5, 1, 1], x[1, 7, 0, 0] = float("nan"), float("inf"), -float("inf")
    norms = [torch.nn.GroupNorm(4, 8), torch.nn.BatchNorm2d(8).eval(), torch.nn.InstanceNorm2d(8).eval()]
    norms[1].running_var[2], norms[1].running_mean[3] = 0, float("inf")
    for norm in norms:
        result, expected = norm(x), stock(norm, x)
        assert torch.equal(result.isnan(), expected.isnan()) and torch.equal(result.isinf(), expected.isinf())
        assert torch.allclose(result, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    for mine, theirs in zip(torch.native_group_norm(x, None, None, 2, 8, 256, 4, 1e-5), stock(torch.native_group_norm, x, None, None, 2, 8, 256, 4, 1e-5)):
        assert torch.equal(mine.isnan(), theirs.isnan())


def test_a_large_mean_costs_group_norm_no_digits(own_f32, stock):
    x = 1000 + torch.randn(2, 8, 100, 100)
    truth = F.group_norm(x.double(), 2)
    assert relative(F.group_norm(x, 2), truth) <= 2 * relative(stock(F.group_norm, x, 2), truth) + 1e-6


def test_gradients_of_norms_of_channels(own_f32, stock):
    for norm in (torch.nn.GroupNorm(4, 8), torch.nn.BatchNorm2d(8).eval(), torch.nn.BatchNorm2d(8)):
        x = torch.randn(2, 8, 16, 16, requires_grad=True)

        def gradients():
            return torch.autograd.grad(norm(x).square().sum(), [x, *norm.parameters()])

        for result, expected in zip(gradients(), stock(gradients)):
            assert relative(result, expected) <= 2e-5 or expected.norm() < 1e-2


def test_training_batch_norm_moves_its_moments_as_stock_does(own_f32, stock):
    mine, theirs = torch.nn.BatchNorm2d(8), torch.nn.BatchNorm2d(8)
    x = torch.randn(4, 8, 16, 16)
    assert torch.equal(mine(x), stock(theirs, x))
    assert torch.equal(mine.running_mean, theirs.running_mean) and torch.equal(mine.running_var, theirs.running_var)


def test_what_norms_of_channels_refuse_stock_refuses(own_f32, stock):
    x = torch.randn(2, 8, 16, 16)
    F.group_norm(x, 2), F.batch_norm(x, torch.zeros(8), torch.ones(8))
    for call in (lambda: torch.native_group_norm(x, torch.ones(4), None, 2, 8, 256, 2, 1e-5), lambda: torch.native_group_norm(x, None, None, 2, 8, 256, 3, 1e-5),
                 lambda: F.batch_norm(x, torch.zeros(4), torch.ones(8)), lambda: F.batch_norm(x, torch.zeros(8), torch.ones(8), weight=torch.ones(9)),
                 lambda: F.batch_norm(x, None, None)):
        refused_as_by_stock(call, stock, ValueError)


def test_norms_of_channels_are_really_taken(hook, own_f32):
    x = torch.randn(2, 8, 16, 16)
    for op, norm in (("native_group_norm", torch.nn.GroupNorm(4, 8)), ("native_batch_norm", torch.nn.BatchNorm2d(8).eval())):
        before = taken(hook, op)
        norm(x)
        torch.nn.BatchNorm2d(8).train()(x)
        assert taken(hook, op) == before + 1


def test_a_window_as_wide_as_a_large_image_takes_no_memory(own_f32, hook, stock):
    x = torch.randn(1, 1, 1024, 1024)
    before = taken(hook, "avg_pool2d")
    assert torch.equal(F.avg_pool2d(x, 1024), stock(F.avg_pool2d, x, 1024))
    assert taken(hook, "avg_pool2d") == before
