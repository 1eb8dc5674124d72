"""Embedding, indexing, gather and scatter, cat and arange against float64 on the CPU. Risk covered: negative, repeated and missing indices; views."""

import pytest
import torch
from beside import check
from test_layers import of

F = torch.nn.functional
I = torch.tensor([0, 4, 2, 2, 1, -1])
ROWS = I.clamp(min=0)
PAIRS = torch.tensor([[0, 0, 1], [2, 1, 0]])
X = of(5, 7, 33)


def written(x, y):
    x = x * 1
    x[:, torch.tensor([1, 0], device=x.device)] = y
    x[torch.tensor([0, 2], device=x.device), :, torch.tensor([1, 3], device=x.device)] = 0.5
    return x


CALLS = {
    "rows": (lambda x, i: x.index_select(0, i), X, ROWS),
    "columns": (lambda x, i: x.index_select(2, i), X, ROWS),
    "one index": (lambda x, i: x[i] + x[-1], X, I),
    "behind": (lambda x, i: x[:, i], X, I),
    "two": (lambda x, i: x[:, i, i], X, I),
    "two apart": (lambda x, i: x[i.clamp(max=3), :, i], X, I),
    "of a view": (lambda x, i: x.transpose(0, 1)[i.view(2, 3), 1:], X, I),
    "embedding": (lambda w, i: F.embedding(i.view(2, 3), w, padding_idx=0), of(10, 33), ROWS),
    "gather": (lambda x, i: x.gather(2, i.view(1, 6, 1)), X, ROWS),
    "scatter a value": (lambda x, i: x.scatter(1, i, 2.5), of(3, 5), PAIRS),
    "scatter add": (lambda x, y, i: x.scatter_add(1, i, y), of(3, 5), of(2, 3), PAIRS),
    "scatter add to a view": (lambda x, y, i: x.t().scatter_add(0, i, y), of(3, 5), of(2, 3), PAIRS),
    "index add": (lambda x, y, i: x.index_add(1, i, y, alpha=2), of(3, 5, 4), of(3, 6, 4), ROWS),
    "put": (written, of(3, 5, 4), of(3, 2, 4)),
    "put and add": (lambda x, y, i: x.index_put((i, i + 1), y, accumulate=True), of(3, 5, 4), of(3, 4), torch.tensor([0, 0, 2])),
    "cat": (lambda x, y: torch.cat([x, y, x[:, :, ::2]], 2), of(2, 3, 4), of(2, 3, 1)),
    "stack": (lambda x, y: torch.stack([x, y], 1), of(2, 3, 4), of(2, 3, 4)),
    "triangles": (lambda x: x.tril(-1) + x.mT.triu(1), of(2, 5, 5)),
}


@pytest.mark.parametrize("name", CALLS)
def test_float32(device, name):
    check(device, *CALLS[name])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_types(device, dtype):
    for name in ("rows", "embedding", "scatter add", "put and add", "cat"):
        check(device, *CALLS[name], dtype=dtype)


def test_scatter_and_masks():
    x, y = of(3, 5), of(2, 3)
    index = torch.tensor([[0, 3, 1], [2, 1, 0]])
    assert torch.equal(x.xpu().scatter(1, index.xpu(), y.xpu()).cpu(), x.scatter(1, index, y))
    there, here = x.xpu(), x.clone()
    there[there > 0], here[here > 0] = 7.0, 7.0
    assert torch.equal(there.cpu(), here) and torch.equal(there[there < 7].cpu(), here[here < 7])
    assert there[torch.tensor([], dtype=torch.long, device="xpu")].shape == (0, 5)


def test_arange():
    for given in ((10,), (2, 9), (0, 1, 0.1), (5, -5, -2), (3, 3)):
        assert torch.equal(torch.arange(*given, device="xpu").cpu(), torch.arange(*given))
    assert torch.equal(torch.arange(5, device="xpu", dtype=torch.float16).cpu(), torch.arange(5, dtype=torch.float16))


def test_an_index_that_points_outside_is_told_and_writes_nothing():
    for call in (lambda i: F.embedding(i, of(10, 3).xpu()), lambda i: of(4, 4).xpu().gather(0, i.view(1, 1)), lambda i: of(4).xpu()[i]):
        with pytest.raises(IndexError, match="index out of range on xpu"):
            call(torch.tensor([100]).xpu()).cpu()
    x = torch.ones(4).xpu()
    x[torch.tensor([9]).xpu()] = 5.0
    with pytest.raises(IndexError):
        torch.xpu.synchronize()
    assert x.tolist() == [1, 1, 1, 1]


COUNTED_FROM_THE_END = {
    "embedding": lambda x, i: F.embedding(i, x),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[None]),
    "scatter": lambda x, i: x.scatter(0, i[None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[None], torch.ones(1, 1, device=i.device)),
    "index_add": lambda x, i: x.index_add(0, i, x[:1]),
}


@pytest.mark.parametrize("name", COUNTED_FROM_THE_END)
def test_indices_below_0_are_for_brackets_alone(name):
    """They read, or wrote, the last row where torch raises."""
    with pytest.raises(IndexError, match="index out of range on xpu"):
        COUNTED_FROM_THE_END[name](of(10, 4).xpu(), torch.tensor([-1]).xpu()).cpu()
    x = of(10, 4)
    assert torch.equal(x.xpu()[torch.tensor([-1, -10]).xpu()].cpu(), x[[-1, -10]])
