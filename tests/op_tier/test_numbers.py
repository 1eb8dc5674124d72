"""Risk: a taken call returns other numbers, another dtype, shape or strides than stock, or disturbs what builds on its op."""

import copy

import pytest
import torch
import torch.nn.functional as F
from conftest import bound, relative
from torch.testing._internal.common_methods_invocations import op_db

OPS = {op.name: op for op in op_db if op.name in {"addmm", "mm", "bmm", "matmul", "nn.functional.linear", "__rmatmul__"} and not op.variant_test_name}


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


def test_beta_alpha_and_other_biases_are_stocks(candidate, stock):
    x, w = torch.randn(32, 256), torch.randn(256, 256)
    for bias, kwargs in ((torch.randn(256), {"beta": 0.5}), (torch.randn(256), {"alpha": 2}), (torch.randn(32, 256), {}),
                         (torch.randn(1), {}), (torch.randn(256), {"beta": 0})):
        assert torch.equal(torch.addmm(bias, x, w, **kwargs), stock(torch.addmm, bias, x, w, **kwargs))


def test_out_and_in_place_overloads_are_stocks(candidate, stock):
    x, w, out = torch.randn(32, 256), torch.randn(256, 256), torch.empty(32, 256)
    assert torch.equal(torch.mm(x, w, out=out), stock(torch.mm, x, w))
    start = torch.randn(32, 256)
    assert torch.equal(start.clone().addmm_(x, w), stock(lambda: start.clone().addmm_(x, w)))


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
