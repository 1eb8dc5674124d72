"""Risk: a taken call returns other numbers, another dtype, shape or strides than stock, or disturbs what builds on its op."""

import copy

import pytest
import torch
import torch.nn.functional as F
from conftest import DTYPES, bound, needs_bf16, opinfo, opinfo_results, relative, report, same_face

OPS = opinfo("addmm", "mm", "bmm", "baddbmm", "matmul", "__rmatmul__", "addbmm", "nn.functional.linear", "nn.functional.bilinear")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_opinfo_samples_give_what_stock_gives(op, dtype, candidate, stock):
    for result, expected in opinfo_results(op, dtype, stock):
        assert relative(result, expected) <= bound(candidate, dtype)


LAYOUTS = {
    "contiguous": lambda m, k: torch.randn(m, k),
    "padded": lambda m, k: torch.randn(m, k + 24)[:, :k],
    "transposed": lambda m, k: torch.randn(k, m).t(),
    "every second": lambda m, k: torch.randn(m, 2 * k)[:, ::2],
}


@pytest.mark.parametrize("right", LAYOUTS)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("m", [1, 3, 33])
def test_layouts_of_both_operands(left, right, dtype, m, candidate, stock):
    x, w = LAYOUTS[left](m, 128).to(dtype), LAYOUTS[right](128, 288).to(dtype)
    bias = torch.randn(288).to(dtype)
    for call in (lambda: x @ w, lambda: torch.addmm(bias, x, w), lambda: F.linear(x, w.t(), bias)):
        expected, result = stock(call), call()
        same_face(result, expected)
        assert relative(result, expected) <= bound(candidate, dtype)


@needs_bf16
def test_a_taken_call_is_really_taken(hook, stock):
    x, w = torch.randn(64, 512), torch.randn(512, 512)
    hook.force("own_bf16")
    torch.mm(x, w)
    assert relative(torch.mm(x, w), stock(torch.mm, x, w)) > 1e-4  # bf16 inside shows


@pytest.mark.parametrize("dtype, own", [(torch.bfloat16, "own_bf16"), (torch.float16, "own_f32")], ids=str)
def test_products_of_16_bits_are_taken_on_every_cpu_and_as_near_to_truth_as_stocks(dtype, own, hook, stock):
    """Stock's are loops over elements where the CPU has no such products. Also risk: a sum that is rounded before the bias, infinities beyond float16."""
    torch.manual_seed(0)
    for m, k, n in ((1, 512, 300), (5, 777, 96), (64, 1024, 512), (200, 64, 33)):
        x, w, bias = torch.randn(m, k).to(dtype), (torch.randn(n, k) / 8).to(dtype), torch.randn(n).to(dtype)
        hook.force(own)
        before = report(hook)["taken"]
        result = F.linear(x, w, bias)
        assert report(hook)["taken"] == before + 1
        truth = F.linear(x.double(), w.double(), bias.double())
        # AVX512-FP16 adds some products up in float16.
        room = 1e-3 if dtype == torch.float16 and torch.ops.mkldnn._is_mkldnn_fp16_supported() else 1e-5
        assert relative(result, truth) <= 1.1 * relative(stock(F.linear, x, w, bias), truth) + room
    if dtype == torch.float16:
        x, w = torch.full((4, 256), 60000.0).half(), torch.eye(256).half()
        assert torch.equal(x @ w, x) and (x @ (2 * w)).isinf().all(), "sums are not cut off on their way"


@pytest.mark.parametrize("use_gelu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_product_with_an_activation_behind_it(dtype, use_gelu, candidate, stock):
    """What nn.TransformerEncoderLayer calls in eval mode."""
    torch.manual_seed(0)
    x, w, bias = torch.randn(40, 256).to(dtype), (torch.randn(256, 96) / 16).to(dtype), torch.randn(96).to(dtype)
    for scales in ({}, {"beta": 0.5, "alpha": 2}):
        call = lambda: torch._addmm_activation(bias, x, w, use_gelu=use_gelu, **scales)  # noqa: E731
        expected, result = stock(call), call()
        same_face(result, expected)
        assert relative(result, expected) <= bound(candidate, dtype)


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


def test_deterministic_onednn_leaves_everything_to_stock(candidate, stock):
    x, w = torch.randn(64, 256), torch.randn(256, 256)
    with torch.backends.mkldnn.flags(deterministic=True):
        for _ in range(4):
            assert torch.equal(torch.mm(x, w), stock(torch.mm, x, w))


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


def test_inference_tensors_outside_inference_mode(candidate, stock):
    with torch.inference_mode():
        a, w = torch.randn(4, 32, 256), torch.randn(256, 128).expand(4, 256, 128)
    with torch.no_grad():
        for _ in range(2):
            result = torch.bmm(a, w)
    assert result._is_view() == stock(torch.bmm, a, w)._is_view()
    result.add_(torch.nn.Parameter(torch.ones(128)))  # refused for a view that was made without grad mode
    assert result.requires_grad


def test_a_trace_holds_stocks_ops_and_no_packs(candidate, stock):
    net = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.Tanh(), torch.nn.ConvTranspose2d(8, 8, 2), torch.nn.Flatten(),
                              torch.nn.Linear(512, 96)).eval()
    x = torch.randn(2, 4, 9, 9)
    with torch.no_grad():
        for _ in range(3):
            net(x)
        graph, expected = torch.jit.trace(net, x), stock(torch.jit.trace, net, x)
        assert {node.kind() for node in graph.inlined_graph.nodes()} == {node.kind() for node in expected.inlined_graph.nodes()}
        assert relative(torch.jit.freeze(graph)(x), stock(net, x)) <= bound(candidate)


def test_what_is_added_to_a_bf16_product_meets_it_before_rounding(candidate, stock):
    w = torch.randn(256, 64).bfloat16()
    torch.addmm(torch.randn(64, 64).bfloat16(), torch.randn(64, 256).bfloat16(), w, alpha=-1)  # passes the check of the kind of call
    for _ in range(3):
        x = torch.randn(64, 256).bfloat16()
        added = (x.double() @ w.double() + 0.3 * torch.randn(64, 64).double()).bfloat16()
        truth = added.double() - x.double() @ w.double()
        result = torch.addmm(added, x, w, alpha=-1)
        assert relative(result, truth) <= 2 * relative(stock(torch.addmm, added, x, w, alpha=-1), truth) + 8e-3
