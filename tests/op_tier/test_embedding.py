"""Risk: taken embedding bags have another sum, mean, largest row or bookkeeping for the backward pass than stock, or read through an index that stock refuses."""

import pytest
import torch
import torch.nn.functional as F
from conftest import DTYPES, opinfo, opinfo_results, relative, report, same_face

MODES = ["sum", "mean", "max"]
OPS = [torch._embedding_bag_forward_only, torch._embedding_bag]
DOMAIN = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True)
def own_f32(hook):
    assert hook.force("own_f32")


def taken(hook, op="_embedding_bag_forward_only"):
    return next((found["taken"] for found in report(hook)["ops"] if found["op"] == op), 0)


def same(mine, theirs):
    """Bit by bit, but for what a NaN is made of."""
    for one, other in zip(mine, theirs, strict=True):
        same_face(one, other)
        if one.is_floating_point():
            assert torch.equal(one.isnan(), other.isnan())
            one, other = one.nan_to_num(7e7).signbit() * 2 + one.nan_to_num(7e7), other.nan_to_num(7e7).signbit() * 2 + other.nan_to_num(7e7)
        assert torch.equal(one, other)


def both(call, stock):
    mine, theirs = call(), stock(call)
    same(mine, theirs)
    return mine


def calls(rows, width, sizes, dtype, integers=torch.int64, seed=0):
    """(name, function of an op): every mode with and without a padding, weights, an end among the offsets."""
    made = torch.Generator().manual_seed(seed)
    w = torch.randn(rows, width, generator=made).to(dtype)
    ends = torch.tensor(sizes).cumsum(0)
    indices = torch.randint(rows, (int(ends[-1]),), generator=made).to(integers)
    weights = torch.randn(indices.numel(), generator=made).to(dtype)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), ends]).to(integers)
    for mode in range(3):
        for padding in (-1, rows // 2):
            for has_end in (False, True):
                given = (w, indices, offsets if has_end else offsets[:-1], False, mode, False)
                yield f"{MODES[mode]} {padding} {has_end}", lambda op, given=given, has_end=has_end, padding=padding: op(*given, None, has_end, padding)
                if mode == 0:
                    yield f"weights {padding} {has_end}", lambda op, given=given, has_end=has_end, padding=padding: op(*given, weights, has_end, padding)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_opinfo_samples_of_embedding_bag(dtype, stock):
    for mine, theirs in opinfo_results(opinfo("nn.functional.embedding_bag")[0], dtype, stock):
        assert relative(mine, theirs) <= (1e-2 if dtype.itemsize == 2 else 1e-6)  # max_norm changes the table at each call


@pytest.mark.parametrize("op", OPS, ids=["inference", "training"])
@pytest.mark.parametrize("integers", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("dtype", DOMAIN, ids=str)
@pytest.mark.parametrize("width", [1, 7, 16, 64, 65, 128, 200, 768])
def test_bags_have_the_bits_of_stock(width, dtype, integers, op, stock):
    for sizes in ([20] * 8, [1] * 70, [0, 3, 0, 90, 1, 0], [300], [2000, 1]):
        for _, call in calls(50, width, sizes, dtype, integers, seed=width):
            both(lambda call=call: call(op), stock)


def test_most_of_these_are_really_taken(hook):
    for name, call in calls(50, 64, [5] * 40, torch.float32):
        before = taken(hook)
        call(torch._embedding_bag_forward_only)
        assert taken(hook) == before + ("weights 25" not in name), name


@pytest.mark.parametrize("mode", MODES)
def test_the_forms_of_the_public_function(mode, hook, stock):
    w, before = torch.randn(100, 32), taken(hook)
    indices, offsets = torch.randint(100, (600,)), torch.arange(0, 600, 10)
    for call in (lambda: F.embedding_bag(indices, w, offsets, mode=mode), lambda: F.embedding_bag(indices.view(60, 10), w, mode=mode),
                 lambda: F.embedding_bag(indices.view(60, 10).int(), w, mode=mode, padding_idx=-3), lambda: torch.nn.EmbeddingBag.from_pretrained(w, mode=mode)(indices, offsets)):
        both(lambda call=call: [call()], stock)
    assert taken(hook) == before + 4


def test_nan_and_infinity_in_tables_and_weights(stock):
    for dtype in DOMAIN:
        w = torch.randn(64, 40).to(dtype)
        w[::7, ::3], w[::5, 1::4], w[3], w[1, ::2] = float("nan"), float("inf"), -float("inf"), -0.0
        indices, offsets = torch.cat([torch.arange(64), torch.randint(64, (300,))]), torch.arange(0, 364, 13)
        weights = torch.randn(364).to(dtype)
        weights[::11], weights[1::17] = float("nan"), 0
        for mode in range(3):
            both(lambda mode=mode: torch._embedding_bag_forward_only(w, indices, offsets, False, mode), stock)
        both(lambda: torch._embedding_bag_forward_only(w, indices, offsets, False, 0, False, weights), stock)


def test_other_layouts_are_right(hook, stock):
    indices, offsets = torch.randint(40, (400,)), torch.arange(0, 400, 8)
    wide = torch.randn(40, 100)
    for w in (wide[:, :64], wide[:, 3:70], wide[::1], wide.t().contiguous().t(), wide[:, ::2], torch.randn(64).expand(40, 64), torch.randn(40, 1), torch.randn(1, 40).t()):
        for mode in range(3):
            both(lambda w=w, mode=mode: torch._embedding_bag_forward_only(w, indices, offsets, False, mode), stock)
    for i, o in ((torch.stack([indices, indices], 1)[:, 0], offsets), (indices, torch.stack([offsets, offsets], 1)[:, 1]), (indices.int(), offsets), (indices, offsets.int())):
        both(lambda i=i, o=o: torch._embedding_bag_forward_only(wide, i, o, False, 1), stock)
    weights = torch.randn(800)[::2]
    both(lambda: torch._embedding_bag_forward_only(wide, indices, offsets, False, 0, False, weights), stock)
    before = taken(hook)
    torch._embedding_bag_forward_only(wide[:, :64], indices, offsets, False, 0)
    assert taken(hook) == before + 1


def ended(call):
    """What a call returns or says. Stock refuses some empty and falling offsets with two threads and takes them with one."""
    try:
        return call()
    except RuntimeError as problem:
        return str(problem)


def test_nothing_to_add_up_is_as_in_stock(stock):
    w, none = torch.randn(40, 64), torch.empty(0, dtype=torch.int64)
    for given in ((w, none, none), (w, none, torch.zeros(5, dtype=torch.int64)), (w[:, :0], torch.zeros(50, dtype=torch.int64), torch.arange(50))):
        for mode in range(3):
            call = lambda given=given, mode=mode: torch._embedding_bag_forward_only(*given, False, mode)  # noqa: E731
            mine, theirs = ended(call), ended(lambda call=call: stock(call))
            if isinstance(theirs, str):
                assert mine == theirs
            else:
                same(mine, theirs)


def raises_as_stock(call, stock):
    with pytest.raises((RuntimeError, ValueError, IndexError)) as theirs:
        stock(call)
    with pytest.raises(type(theirs.value)) as mine:
        call()
    assert str(mine.value) == str(theirs.value)


@pytest.mark.parametrize("mode", range(3))
def test_what_stock_refuses(mode, stock):
    w, offsets = torch.randn(40, 64), torch.arange(0, 400, 8)
    for padding in (-1, 5):
        for bad in (-1, 40, 2**33, -(2**62)):
            for place in (0, 200, 399):
                indices = torch.randint(40, (400,))
                indices[place] = bad
                raises_as_stock(lambda indices=indices, padding=padding: torch._embedding_bag_forward_only(w, indices, offsets, False, mode, False, None, False, padding), stock)
    indices = torch.randint(40, (400,))
    for o in (offsets + 1, offsets + 9):
        raises_as_stock(lambda o=o: torch._embedding_bag_forward_only(w, indices, o, False, mode), stock)
    both(lambda: torch._embedding_bag_forward_only(w, indices, torch.tensor([0, 30, 390]), False, mode, False, None, True), stock)
    for falling in (torch.tensor([0, 300, 100]), torch.tensor([0, 390, 380, 5])):  # where stock leaves some memory as it was
        call = lambda falling=falling: torch._embedding_bag_forward_only(w, indices, falling, False, mode)  # noqa: E731
        mine, theirs = ended(call), ended(lambda call=call: stock(call))
        if isinstance(theirs, str):
            assert mine == theirs
        else:
            for one, other in zip(mine, theirs, strict=True):
                same_face(one, other)
    raises_as_stock(lambda: F.embedding_bag(indices, w.long(), offsets), stock)
    raises_as_stock(lambda: torch._embedding_bag_forward_only(w, indices, offsets, False, 1, False, torch.randn(400)), stock)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sparse", [False, True])
def test_gradients(mode, sparse, hook, stock):
    if mode == "max" and sparse:
        pytest.skip("stock does not support it")
    indices, offsets = torch.randint(60, (500,)), torch.tensor([0, 7, 7, 80, 81, 300, 490])
    for padding in (None, 3):
        for weighted in ([False, True] if mode == "sum" else [False]):
            w = torch.randn(60, 48, requires_grad=True)
            weights = torch.randn(500, requires_grad=True) if weighted else None

            def gradients():
                out = F.embedding_bag(indices, w, offsets, mode=mode, sparse=sparse, per_sample_weights=weights, padding_idx=padding)
                return [out, *(g.to_dense() if g.is_sparse else g for g in torch.autograd.grad(out.square().sum(), [w, *([weights] if weighted else [])]))]

            before = taken(hook, "_embedding_bag")
            both(gradients, stock)
            assert taken(hook, "_embedding_bag") == before + (not (weighted and padding))


def test_threads_do_not_change_a_bit(stock):
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append([tensor for _, call in calls(500, 96, [11] * 300, torch.float32) for tensor in both(lambda call=call: call(torch._embedding_bag_forward_only), stock)])
        same(*results)
    finally:
        torch.set_num_threads(before)


def test_functorch_fake_tensors_and_inference_mode(stock):
    from torch._subclasses.fake_tensor import FakeTensorMode

    w, indices, offsets = torch.randn(60, 48), torch.randint(60, (500,)), torch.arange(0, 500, 10)
    with FakeTensorMode():
        assert F.embedding_bag(torch.zeros(500, dtype=torch.int64), torch.empty(60, 48), torch.zeros(50, dtype=torch.int64)).shape == (50, 48)
    both(lambda: [torch.func.grad(lambda w: F.embedding_bag(indices, w, offsets).square().sum())(w)], stock)
    with torch.inference_mode():
        both(lambda: [F.embedding_bag(indices, w, offsets)], stock)
