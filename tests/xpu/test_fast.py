"""The short way of the commonest elementwise operators. Risk covered: calls that only look plain (overlapping memory, other layouts, wrong sizes), and
streams whose queues are exchanged when events shall have times."""

import pytest
import torch

from beside import check

OPERATORS = [torch.add, torch.sub, torch.mul, torch.div]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_tensors_and_numbers(device, operator, dtype):
    x, y = torch.randn(3, 341), torch.rand(3, 341) + 0.5
    check(device, lambda a, b: operator(a, b), x, y, dtype=dtype)
    check(device, lambda a, b: operator(a.t(), b.t()), x, y, dtype=dtype)
    check(device, lambda a, b: operator(operator(a, 1.5), 3) * b, x, y, dtype=dtype)
    check(device, lambda a, b: operator(a, b[:1]), x, y, dtype=dtype)
    check(device, lambda a, b: operator(a.t(), b.view(341, 3)), x, y, dtype=dtype)


@pytest.mark.parametrize("name", ["exp", "neg", "sigmoid", "sqrt", "tanh"])
def test_of_one_tensor(device, name):
    check(device, lambda a: getattr(torch, name)(a.t()), torch.rand(5, 1025) + 0.1)
    check(device, lambda a: getattr(torch, name)(a[:, ::2]), torch.rand(5, 1025) + 0.1)
    check(device, torch.nn.functional.silu, torch.randn(1023))


def test_in_place(device):
    x, y = torch.randn(6, 7), torch.randn(6, 7)
    mine = x.xpu()
    mine.add_(y.xpu(), alpha=0.5).mul_(2).sub_(mine).div_(4.0)
    right = x.clone()
    right.add_(y, alpha=0.5).mul_(2).sub_(right).div_(4.0)
    assert torch.equal(mine.cpu(), right)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(3).xpu().add_(torch.ones(2, 3).xpu())
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(3, dtype=torch.int64).xpu().add_(1.5)
    row = torch.arange(9.0).xpu()
    with pytest.raises(RuntimeError, match="single memory location"):
        row[1:].add_(row[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1).xpu().expand(4).mul_(2.0)
    half = torch.ones(4, dtype=torch.float16).xpu()
    assert (half + torch.ones(4).xpu()).dtype == torch.float32 and (half + 1).dtype == torch.float16


def test_events_with_times_amid_work(device):
    stream = torch.xpu.Stream()
    x = torch.zeros(1 << 16).xpu()
    with torch.xpu.stream(stream):
        for _ in range(50):
            x.add_(1.0)
        start, end = torch.xpu.Event(enable_timing=True), torch.xpu.Event(enable_timing=True)
        start.record()
        for _ in range(50):
            x.add_(1.0)
        end.record()
    end.synchronize()
    assert start.elapsed_time(end) > 0 and bool((x == 100).all())
