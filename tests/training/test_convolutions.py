"""Convolutions of captured steps in bf16 as single operations of autograd (python/ipexrun/training/step_norms.py, preload/plugin/convolutions.h) beside
torch's autocast, and gradients of convolutions as products of matrices (preload/plugin/adapters/convolution_grad_call.cpp).

Risk covered: results or gradients further from float64 than torch's, gradients that lie otherwise, a second backward pass, weights that were written
between forward and backward.
"""

import json
import os
import sys

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")
LAST = torch.channels_last
# images, channels in and out, height, width, kernel, stride, padding, dilation
CASES = [(2, 8, 16, 9, 7, 1, 1, 0, 1), (3, 33, 17, 8, 8, 1, 1, 0, 1), (2, 64, 32, 14, 14, 3, 1, 1, 1), (2, 16, 48, 11, 13, 3, 2, 1, 1), (2, 32, 64, 9, 8, 1, 2, 0, 1),
         (1, 3, 16, 20, 18, 7, 2, 3, 1), (1, 12, 20, 9, 9, 3, 1, 2, 2), (2, 8, 8, 5, 5, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1, 1, 0, 1)]
needs_bf16 = pytest.mark.skipif("avx512_bf16" not in open("/proc/cpuinfo").read() and "amx_bf16" not in open("/proc/cpuinfo").read(),
                                reason="bf16 products in hardware")


def by_torch(x, w, stride, padding, dilation, bias=None):
    with torch.autocast("cpu", torch.bfloat16, enabled=x.dtype is not torch.float64):
        return F.conv2d(x, w, bias, stride, padding, dilation)


def by_us(x, w, stride, padding, dilation, bias=None):
    from ipexrun.training import step_norms

    with torch.autocast("cpu", torch.bfloat16):
        result = step_norms.convolution(x, w, bias, stride, (padding, padding), dilation, 1)
    assert "Convolved" in result.grad_fn.name()
    return result


def taken(hook):
    return sum(one["taken"] for one in json.loads(hook.report())["sites"] if one["site"].startswith("convolution_backward2d|bf16"))


def error(value, truth):
    return float((value.double() - truth).norm() / truth.norm().clamp_min(1e-30))


@needs_bf16
@pytest.mark.parametrize("image", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("last", [False, True], ids=["weight planar", "weight channels last"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_a_convolution(plugin, case, bias, last, image):
    torch.manual_seed(0)
    n, channels, out, height, width, kernel, *sizes = case
    x = torch.randn(n, channels, height, width).to(image).contiguous(memory_format=LAST)
    w = torch.randn(out, channels, kernel, kernel) / kernel
    w = w.contiguous(memory_format=LAST) if last else w
    given = (x, w, *[torch.randn(out)] * bias)
    found, gradient = [], None
    for form, dtype in ((by_torch, torch.float64), (by_torch, None), (by_us, None)):
        leaves = [(one.to(dtype) if dtype else one.clone(memory_format=torch.preserve_format)).requires_grad_() for one in given]
        result = form(*leaves[:2], *sizes, *leaves[2:])
        gradient = torch.randn(result.shape).bfloat16() if gradient is None else gradient
        result.backward(gradient.to(result.dtype).contiguous(memory_format=LAST))
        found.append([result.detach(), *[one.grad for one in leaves]])
    for exact, theirs, ours, leaf in zip(*found, (None, *given), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and (leaf is None or ours.dtype == leaf.dtype)
        assert error(ours, exact) <= 2 * error(theirs, exact) + 8e-3
    assert found[2][0].is_contiguous(memory_format=LAST)
    assert found[2][2].stride() == w.stride() or w.numel() == 1


@needs_bf16
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("last", [False, True], ids=["weight planar", "weight channels last"])
@pytest.mark.parametrize("case", [*CASES, (2, 4, 24, 7, 9, 3, (2, 1), (0, 1), (1, 2)), (2, 6, 8, 8, 7, 1, (1, 3), 0, 1)], ids=str)
def test_gradients_in_bf16_as_products(hook, case, last, bias):
    torch.manual_seed(0)
    F.linear(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)).sum().backward()  # from here on steps are training
    assert hook.force("onednn_bf16_packed")
    n, channels, out, height, width, kernel, *sizes = case
    x = torch.randn(n, channels, height, width).bfloat16().contiguous(memory_format=LAST)
    w = (torch.randn(out, channels, kernel, kernel) / kernel).bfloat16()
    w = w.contiguous(memory_format=LAST) if last else w
    b = [torch.randn(out).bfloat16()] * bias

    def gradients(dtype=None):
        leaves = [(one.to(dtype) if dtype else one.clone(memory_format=torch.preserve_format)).requires_grad_() for one in (x, w, *b)]
        result = F.conv2d(*leaves, *([] if bias else [None]), *sizes)
        given = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).bfloat16().contiguous(memory_format=LAST)
        return torch.autograd.grad(result, leaves, given.to(result.dtype))

    before = taken(hook)
    gradients()
    mine = gradients()  # the first call of a kind is checked and answered by stock
    declined = case in CASES[-2:]  # windows in padding alone, one channel
    assert (taken(hook) > before) != declined
    hook.set_enabled(False)
    stock, exact = gradients(), gradients(torch.float64)
    hook.set_enabled(True)
    for truth, theirs, ours in zip(exact, stock, mine, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.stride() == theirs.stride()
        assert error(ours, truth) <= 2 * error(theirs, truth) + 8e-3


@needs_bf16
@pytest.mark.parametrize("frozen", ["image", "weight"])
def test_only_what_is_asked_for(plugin, frozen):
    x, w = torch.randn(2, 4, 5, 5).bfloat16().contiguous(memory_format=LAST), torch.randn(6, 4, 1, 1)
    (w if frozen == "image" else x).requires_grad_()
    by_us(x, w, 1, 0, 1).float().sum().backward()
    assert (x.grad is None) == (frozen == "image") and (w.grad is None) == (frozen == "weight")


@needs_bf16
@pytest.mark.parametrize("kernel", [1, 3])
def test_a_second_backward_pass_is_torchs(plugin, kernel):
    torch.manual_seed(0)
    x, w = torch.randn(2, 4, 5, 5).contiguous(memory_format=LAST), torch.randn(6, 4, kernel, kernel)
    found = []
    for form in (by_torch, by_us):
        leaves = [one.clone(memory_format=torch.preserve_format).requires_grad_() for one in (x, w)]
        first = torch.autograd.grad(form(*leaves, 1, 0, 1).float().pow(3).sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(one.pow(2).sum() for one in first), leaves))
    for stock, mine in zip(*found):
        assert error(mine, stock.double()) < 3e-2


@needs_bf16
def test_a_graph_that_is_kept_gives_the_same_again(plugin):
    x, w = torch.randn(2, 4, 5, 5).bfloat16().contiguous(memory_format=LAST), torch.randn(6, 4, 3, 3, requires_grad=True)
    loss = by_us(x, w, 1, 1, 1).float().pow(2).sum()
    first, = torch.autograd.grad(loss, w, retain_graph=True)
    second, = torch.autograd.grad(loss, w)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, w)


@needs_bf16
def test_a_weight_that_was_written_raises_as_torchs(plugin):
    x, w = torch.randn(2, 4, 5, 5).bfloat16().contiguous(memory_format=LAST).requires_grad_(), torch.randn(6, 4, 3, 3, requires_grad=True)
    loss = by_us(x, w, 1, 1, 1).float().pow(2).sum()
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_what_does_not_fit_is_not_touched(plugin):
    training = torch.classes.ipexrun.Training()
    last, w, plain = torch.randn(2, 4, 6, 6).contiguous(memory_format=LAST), torch.randn(8, 4, 3, 3), [1, 1, 0, 0, 1, 1]
    for x, weight, sizes, groups in ((torch.randn(2, 4, 6, 6), w, plain, 1), (last.double(), w.double(), plain, 1), (last, w.bfloat16(), plain, 1),
                                     (last, torch.randn(8, 2, 3, 3), plain, 2), (last, w, plain[:4], 1), (last, w, [0, 1, 0, 0, 1, 1], 1),
                                     (last, w, [1, 1, 0, 0, 4, 4], 1), (last, torch.randn(8, 5, 3, 3), plain, 1), (last[:0], w, plain, 1)):
        assert training.convolution(x, weight, None, sizes, groups) is None
    for bias in (torch.randn(7), torch.randn(8).double(), torch.randn(8, 1)):
        assert training.convolution(last, w, bias, plain, 1) is None


@pytest.mark.parametrize("written, replaced", [(lambda x, w, b: torch.conv2d(x, w), 1), (lambda x, w, b: F.conv2d(x, w, stride=2, padding=1), 1),
                                               (lambda x, w, b: torch.conv2d(x, w, b), 1), (lambda x, w, b: F.conv2d(x, w, None, 1, "same"), 1),
                                               (lambda x, w, b: F.conv2d(x, w, None, (2, 1), (1, 0), (1, 2)), 1)])
def test_convolutions_of_graphs(plugin, written, replaced):
    from ipexrun.training import step_norms

    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    values = [torch.randn(2, 4, 9, 9).contiguous(memory_format=LAST), torch.randn(6, 4, 3, 3), torch.randn(6)]
    torch.compile(written, backend=backend)(*values)
    (graph,) = graphs
    made = step_norms.fused(graph)
    assert sum(node.target is step_norms.convolution for node in (made or graph).graph.nodes) == replaced
    inputs = [one for node in graph.graph.nodes if node.op == "placeholder" for one in values if one.shape == node.meta["example_value"].shape]
    for rounded in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
            stock, mine = graph.forward(*inputs)[0], (made or graph).forward(*inputs)[0]
        assert stock.dtype == mine.dtype and error(mine, stock.double()) < (8e-3 if rounded else 1e-6)


def dirty():
    """Memory that is given out next holds what was there."""
    kept = [torch.full((size,), float("nan")) for size in (36864, 36864, 18432, 18432)]
    del kept


def of_a_pixel(convolve, dtype):
    """Largest error of the gradient of 3 x 3 weights by images of one pixel, of which only the middle is not 0."""
    torch.manual_seed(0)
    worst = 0.0
    weight = torch.randn(64, 64, 3, 3, requires_grad=True)
    for _ in range(20):
        x, gradient = torch.randn(32, 64, 1, 1).to(dtype), torch.randn(32, 64, 1, 1)
        result = convolve(x, weight)
        dirty()
        (found,) = torch.autograd.grad(result, weight, gradient.to(result.dtype))
        truth = torch.zeros(64, 64, 3, 3, dtype=torch.float64)
        truth[:, :, 1, 1] = gradient[:, :, 0, 0].double().T @ x[:, :, 0, 0].double()
        apart = error(found, truth)
        worst = apart if not apart <= worst else worst
    return worst


@needs_bf16
def test_windows_longer_than_the_image(plugin):
    """oneDNN's bf16 gradient of such weights leaves memory unwritten."""
    from ipexrun.training import step_norms

    def captured(x, weight):
        with torch.autocast("cpu", torch.bfloat16):
            result = step_norms.convolution(x, weight, None, 2, 1, 1, 1)
        assert result.dtype is torch.bfloat16
        return result

    assert of_a_pixel(captured, torch.bfloat16) < 2e-2
    for candidate in ("onednn_bf16_cast", "onednn_bf16_last", "onednn_bf16_packed"):
        plugin.force(candidate)
        try:
            assert of_a_pixel(lambda x, weight: F.conv2d(x, weight, None, 2, 1), torch.float32) < 2e-2, candidate
        finally:
            plugin.force("")


@needs_bf16
@pytest.mark.parametrize("channels", [3, 8, 20])
def test_every_second_pixel_of_few_channels(plugin, channels):
    """oneDNN's gradient of such weights writes past its memory where images lie channels last: float32 as stock has it."""
    from ipexrun.training import step_norms

    torch.manual_seed(0)
    x = torch.randn(3, channels, 9, 14)
    weight = torch.randn(24, channels, 1, 1, requires_grad=True)
    gradient = torch.randn(3, 24, 5, 7).bfloat16().float()

    def of(form, x):
        return torch.autograd.grad(form(x), weight, gradient.to(form(x).dtype))[0]

    def captured(x):
        with torch.autocast("cpu", torch.bfloat16):
            return step_norms.convolution(x, weight, None, (2, 2), 0, 1, 1)

    for image in (x, x.contiguous(memory_format=LAST)):
        stocks = of(lambda x: F.conv2d(x, weight, None, 2), image)
        for candidate in ("onednn_bf16_cast", "onednn_bf16_last"):
            plugin.force(candidate)
            try:
                assert torch.equal(of(lambda x: F.conv2d(x, weight, None, 2), image), stocks), candidate
            finally:
                plugin.force("")
    assert captured(x).dtype is torch.bfloat16 and "Convolved" not in captured(x).grad_fn.name()
    for image in (x, x.contiguous(memory_format=LAST)):
        assert error(of(captured, image), of(lambda x: F.conv2d(x, weight, None, 2), x).double()) < 1e-6
    assert step_norms.convolution(x.contiguous(memory_format=LAST), weight, None, 2, 0, 1, 1).is_contiguous()


@needs_bf16
def test_autocast_to_float16_stays(plugin):
    from ipexrun.training import step_norms

    with torch.autocast("cpu", torch.float16):
        assert step_norms.convolution(torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3, requires_grad=True), None, 1, 1, 1, 1).dtype is torch.float16


@needs_bf16
@pytest.mark.parametrize("last", [False, True])
def test_several_gradients_at_once(plugin, last):
    torch.manual_seed(0)
    x, w = torch.randn(2, 8, 9, 9).contiguous(memory_format=LAST), torch.randn(16, 8, 3, 3)
    w = (w.contiguous(memory_format=LAST) if last else w).requires_grad_()
    vectors = torch.randn(3, 2, 16, 9, 9)
    found = [torch.autograd.grad(form(x, w, 1, 1, 1), w, vectors.bfloat16(), is_grads_batched=True)[0] for form in (by_torch, by_us)]
    assert found[1].dtype is torch.float32 and error(found[1], found[0].double()) < 1e-2
