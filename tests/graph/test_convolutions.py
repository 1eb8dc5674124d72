"""Convolutions in graphs beside stock: batch norms folded into them, what follows in the same pass, images held channels last.

Risk covered: a norm folded from other numbers than those of the call, a residual added on the wrong side of an activation, a value that
somebody else reads in another dtype or order than stock's, strides that differ from stock's.
"""

import os

import pytest
import torch
import torch.nn.functional as F
from test_programs import Captured
from test_torchscript import run
from torch import nn

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def lively(norm):
    """With statistics and weights as if it had been trained."""
    with torch.no_grad():
        norm.running_mean.normal_(0, 0.3)
        norm.running_var.uniform_(0.5, 2)
        if norm.affine:
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(0, 0.3)
    return norm


def convolution(inputs=16, outputs=32, kernel=3, dims=2, seed=0, **options):
    torch.manual_seed(seed)
    return CONVOLUTIONS[dims](inputs, outputs, kernel, **options).eval()


def folded(inputs=16, outputs=32, kernel=3, dims=2, affine=True, seed=0, **options):
    return nn.Sequential(convolution(inputs, outputs, kernel, dims, seed, **options), lively(NORMS[dims](outputs, affine=affine))).eval()


def images(*sizes, seed=1):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"padding": 1},
        {"kernel": 1},
        {"kernel": 1, "stride": 2},
        {"stride": 2, "padding": (1, 0)},
        {"dilation": 2, "padding": 2},
        {"groups": 4},
        {"outputs": 16, "groups": 16, "padding": 1},
        {"kernel": (1, 5), "padding": "same"},
        {"inputs": 3, "kernel": 7, "stride": 2, "padding": 3},
    ],
    ids=str,
)
def test_a_norm_goes_into_the_convolution(options, bias, affine):
    block = folded(bias=bias, affine=affine, **options)
    captured = Captured(lambda x: F.relu(block(x)), images(2, options.get("inputs", 16), 13, 14))
    for bf16 in (True, False):
        assert captured.fused(bf16).startswith("1 convolutions, 1 batch norms in them, 1 activations in them")


@pytest.mark.parametrize("pads", [(0, 1, 0, 1), (1, 1, 1, 1), (2, 0, 1, 2), (0, 0, 0, 0)])
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"groups": 16, "outputs": 16}, {"padding": 1}, {"kernel": 1}], ids=str)
def test_zeros_around_an_image(pads, options):
    block = folded(**options)
    captured = Captured(lambda x: F.relu(block(F.pad(x, pads))), images(2, 16, 9, 10))
    assert captured.fused(False).startswith("1 convolutions, 1 batch norms in them, 1 paddings in them")


def test_what_is_around_an_image_stays_where_others_want_it():
    block = folded()
    x = images(2, 16, 9, 10)
    for function in (
        lambda x: (y := F.pad(x, (1, 1)), block(y)),
        lambda x: block(F.pad(x, (1, 1), value=1.0)),
        lambda x: block(F.pad(x, (1, 1, 1, 1), mode="reflect")),
        lambda x: block(F.pad(x, (-1, 1))),
        lambda x: block(F.pad(x, (0, 0, 0, 0, 2, 0))[:, 2:]),
    ):
        assert "paddings" not in Captured(function, x).fused()


@pytest.mark.parametrize("dims", [1, 3])
def test_one_and_three_dimensions(dims):
    block = folded(dims=dims, padding=1)
    captured = Captured(lambda x: F.silu(block(x)) , images(2, 16, *(9, 8, 7)[:dims]))
    assert captured.fused().startswith("1 convolutions, 1 batch norms in them, 1 activations in them")


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [(2, 16, 9, 9), (2, 16, 1, 1), (1, 16, 3, 1)])
def test_strides_are_those_of_stock(format, size):
    block = folded(padding=1)
    depthwise = folded(32, 32, padding=1, groups=32)
    x = images(*size).to(memory_format=format)
    Captured(lambda x: F.relu(block(x)), x)
    Captured(lambda x: (y := F.relu(block(x)), depthwise(y)), x)
    Captured(lambda x: depthwise(F.relu(block(x))).mean((-1, -2), keepdim=True), x)
    block.to(memory_format=torch.channels_last)
    Captured(lambda x: F.relu(block(x)) + 1, x)


@pytest.mark.parametrize(
    "activation",
    [F.relu, F.relu6, F.hardtanh, F.silu, F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.hardswish, lambda x: x.clamp(min=0)],
)
@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("groups", [1, 16])
def test_activations(activation, kernel, groups):
    block = folded(outputs=16, kernel=kernel, groups=groups)
    Captured(lambda x: activation(block(x)), images(2, 16, 11, 10))


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_residual_on_either_side_of_an_activation(kernel):
    block = folded(outputs=16, kernel=kernel, padding=kernel // 2)
    x = images(2, 16, 11, 10)
    for function in (
        lambda x: F.relu(block(x) + x),
        lambda x: F.relu(x + block(x)),
        lambda x: F.relu(block(x)) + x,
        lambda x: x + F.silu(block(x)),
        lambda x: F.gelu(block(x) + x),
        lambda x: F.relu6(x + block(x)),
    ):
        fused = Captured(function, x).fused()
        assert "1 activations in them, 1 sums in them" in fused, fused


def test_what_is_not_the_same_is_not_added_in_it():
    block = folded(outputs=16, padding=1)
    x = images(2, 16, 11, 10)
    for function in (
        lambda x: torch.add(block(x), x, alpha=2),
        lambda x: block(x) + x[:, :, :1, :1],
        lambda x: block(x) + x.double(),
        lambda x: block(x) + 1,
        lambda x: (y := block(x)) + y,
        lambda x: block(x) * x,
    ):
        assert "sums" not in Captured(function, x).fused()


def test_both_sides_of_a_sum_are_convolutions():
    main, shortcut = folded(outputs=16, padding=1), folded(outputs=16, kernel=1, seed=2)
    captured = Captured(lambda x: F.relu(main(x) + shortcut(x)), images(2, 16, 11, 10))
    assert captured.fused().startswith("2 convolutions, 2 batch norms in them, 1 activations in them, 1 sums in them")


def test_values_that_somebody_else_reads_stay():
    block, second = folded(padding=1), folded(32, 32, padding=1, seed=2)
    convolution, norm = block

    def between(x):
        y = convolution(x)
        return norm(y), y

    def after(x):
        y = block(x)
        return F.relu(y), y.sum(), y.flatten(1)

    def chain(x):
        y = F.relu(block(x))
        z = F.relu(second(y) + y)
        return z, y.view(2, -1), z[:, :3], y

    x = images(2, 16, 11, 10)
    assert "batch norms" not in Captured(between, x).fused()
    assert "activations" not in Captured(after, x).fused()
    Captured(chain, x)


@pytest.mark.parametrize(("kernel", "groups"), [(1, 1), (3, 32)])
def test_a_sum_over_what_is_read_later_or_never_again(kernel, groups):
    """A sum may be written where its second part lies: only if that is read by nobody later, not even through a view."""
    first = folded(outputs=32, kernel=kernel, padding=kernel // 2)
    inner, last, other = (folded(32, 32, kernel, groups=groups, padding=kernel // 2, seed=seed) for seed in (2, 3, 4))

    def never(x):
        y = F.relu(first(x))
        return F.relu(last(inner(y)) + y) * 1.0

    def later(x):
        y = F.relu(first(x))
        z = F.relu(last(inner(y)) + y)
        return other(z) + y, z

    def as_result(x):
        y = F.relu(first(x))
        return F.relu(last(inner(y)) + y), y

    def through_view(x):
        y = F.relu(first(x))
        rows = y.flatten(2)
        z = other(F.relu(last(inner(y)) + y))
        return z + rows.sum(2)[:, :, None, None]

    def twice(x):
        y = F.relu(first(x))
        z = F.relu(last(inner(y)) + y)
        return last(inner(z)) + z

    def itself(x):
        y = F.relu(first(x))
        return F.relu(last(y) + y)

    def both(x):
        y, z = first(x), other(first(x))
        return (last(y) + z) - (inner(z) + y)

    for function in (never, later, as_result, through_view, twice, itself, both):
        captured = Captured(function, images(2, 16, 11, 10))
        captured(images(2, 16, 11, 10, seed=5))
        captured(images(3, 16, 4, 7, seed=6))


def test_norms_that_stay():
    block, norm = folded(padding=1), lively(nn.BatchNorm2d(16)).eval()
    second = folded(32, 32, seed=2)
    captured = Captured(lambda x: second(F.relu(block(F.relu(norm(x))))), images(2, 16, 11, 10))
    assert "2 batch norms in them" in captured.fused()
    own_statistics = nn.Sequential(convolution(), nn.BatchNorm2d(32, track_running_stats=False)).eval()
    assert "batch norms" not in Captured(lambda x: own_statistics(x), images(2, 16, 11, 10)).fused()


def test_what_changes_is_seen_by_the_next_call():
    block = folded(padding=1, bias=True)
    convolution, norm = block
    x = images(2, 16, 11, 10)
    captured = Captured(lambda x: F.relu(block(x)), x)
    with torch.no_grad():
        for tensor in (convolution.weight, convolution.bias, norm.weight, norm.bias, norm.running_mean, norm.running_var):
            tensor.mul_(1.5)
            captured(x)
            tensor.data.add_(0.1)
            captured(x)
            tensor.numpy()[1] += 1
            captured(x)
    norm.weight = nn.Parameter(torch.rand(32))
    norm.running_mean = torch.randn(32)
    captured(x)


def test_one_weight_with_two_norms():
    first, other = folded(outputs=16, padding=1), lively(nn.BatchNorm2d(16)).eval()
    captured = Captured(lambda x: other(first[0](F.relu(first(x)))), images(2, 16, 11, 10))
    assert "2 batch norms in them" in captured.fused()
    captured(images(2, 16, 11, 10, seed=5))


def test_one_weight_with_and_without_a_stride():
    weight = nn.Parameter(torch.randn(48, 16, 1, 1))
    captured = Captured(lambda x: (F.conv2d(x, weight), F.conv2d(x, weight, stride=2), F.relu6(F.conv2d(x, weight))), images(2, 16, 9, 8))
    captured(images(2, 16, 9, 8, seed=3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_model_of_that_dtype(dtype):
    block = nn.Sequential(folded(padding=1), nn.ReLU(), folded(32, 32, kernel=1, seed=2), nn.MaxPool2d(2)).eval().to(dtype)
    captured = Captured(lambda x: block(x), images(2, 16, 12, 10).to(dtype))
    assert ("2 batch norms" in captured.fused(False)) == (dtype is torch.bfloat16)


def test_sizes_that_change_from_call_to_call():
    block = nn.Sequential(folded(padding=1), nn.ReLU(), folded(32, 32, kernel=1, seed=2), nn.MaxPool2d(2), folded(32, 16, seed=3)).eval()
    captured = Captured(lambda x: block(x).mean((-1, -2)), images(2, 16, 20, 22), dynamic=True)
    for sizes in ((3, 16, 20, 22), (5, 16, 17, 30), (2, 16, 40, 9)):
        captured(images(*sizes))
    assert len(captured.graphs) <= 2


def test_an_image_read_by_several_convolutions():
    branches = [folded(kernel=k, padding=k // 2, seed=k) for k in (1, 3, 5)]
    last = folded(96, 16, kernel=1)
    Captured(lambda x: last(torch.cat([F.relu(branch(x)) for branch in branches], 1)), images(2, 16, 11, 10))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
        lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1),
        lambda x: x.mean((2, 3)),
        lambda x: x.amax((2, 3), keepdim=True),
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.pad(x, (0, 1, 0, 1)),
        lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)),
        lambda x: x.flatten(2).transpose(1, 2),
    ],
)
def test_what_follows_between_two_convolutions_or_at_the_end(pool):
    block, after = folded(padding=1), folded(32, 16, kernel=1, seed=2)
    x = images(2, 16, 12, 14)
    Captured(lambda x: pool(F.relu(block(x))), x)

    def between(x):
        y = pool(F.relu(block(x)))
        return after(y) if y.dim() == 4 else y * 2

    Captured(between, x)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.max_pool2d(x, (3, 2), (1, 2), dilation=2),
        lambda x: F.max_pool2d(x, 2, ceil_mode=True),
        lambda x: F.avg_pool2d(x, 3, 2, 1),
        lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
        lambda x: F.avg_pool2d(x, (2, 3), ceil_mode=True, divisor_override=5),
        lambda x: x.mean((2, 3)),
        lambda x: x.mean((-1, -2), keepdim=True),
    ],
)
@pytest.mark.parametrize("size", [(2, 16, 11, 10), (1, 16, 12, 13)])
def test_pools_of_what_a_convolution_gives(pool, size):
    block = folded(outputs=70, padding=1)
    captured = Captured(lambda x: pool(F.relu(block(x))), images(*size))
    assert "1 pools" in captured.fused(), captured.fused()


def test_dropout_in_eval_mode_is_not_in_the_way():
    block, dropout = folded(outputs=16, padding=1), nn.Dropout(0.3).eval()
    captured = Captured(lambda x: F.relu(dropout(block(x)) + x), images(2, 16, 11, 10))
    assert "1 activations in them, 1 sums in them" in captured.fused()


def test_numbers_that_are_not_finite_stay_where_they_are():
    block = folded(outputs=16, kernel=1)
    x = images(2, 16, 5, 6)
    x[0, 3, 2, 2], x[1, 1, 0, 0] = float("nan"), float("inf")
    Captured(lambda x: F.relu(block(x)) + x, x)


def test_nothing_at_all():
    block = folded(padding=1)
    Captured(lambda x: F.relu(block(x)), images(0, 16, 5, 6))


def test_a_small_resnet():
    from transformers import ResNetConfig, ResNetModel

    torch.manual_seed(0)
    for layer_type, norms in (("basic", 11), ("bottleneck", 15)):
        config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64], depths=[2, 1, 1], layer_type=layer_type)
        model = ResNetModel(config).eval()
        [lively(module) for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
        captured = Captured(lambda x: tuple(model(x).values()), images(2, 3, 64, 64))
        assert captured.fused().startswith(f"{norms} convolutions, {norms} batch norms in them, "), captured.fused()


def test_a_small_mobilenet():
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    torch.manual_seed(0)
    model = MobileNetV2ForImageClassification(MobileNetV2Config(depth_multiplier=0.25, num_labels=10)).eval()
    captured = Captured(lambda x: model(x).logits, images(2, 3, 64, 64))
    assert captured.fused().startswith("1 linear layers, 52 convolutions, 52 batch norms in them, 52 paddings in them, 35 activations in them"), captured.fused()


@pytest.mark.skipif(not os.path.exists(f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun"), reason="needs the launcher")
def test_torchscript():
    run("""
        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
                self.second = nn.Sequential(nn.Conv2d(32, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32))
            def forward(self, x):
                y = self.first(x)
                return torch.relu(self.second(y) + y).mean((2, 3)), y

        network = Network().eval()
        network.first[1].running_mean.normal_()
        x = torch.randn(2, 3, 64, 64)
        scripted = torch.jit.trace(network, x)
        assert check(scripted, network, x) > 0
        fused = [graph["fused"] for graph in graphs() if graph["taken"]]
        assert any("2 convolutions, 2 batch norms in them" in text for text in fused), graphs()
    """)
