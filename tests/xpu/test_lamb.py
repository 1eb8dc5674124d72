"""Lamb on xpu and on the CPU beside its equations in float64."""

import math

import pytest
import torch

from ipexrun.lamb import Lamb

SHAPES = [(5, 5), (1,), (), (0, 3), (4096,), (4097,), (3000, 5), (33,)]


def grads_of(i):
    return [torch.randn(shape, generator=torch.Generator().manual_seed(100 * i + k)) for k, shape in enumerate(SHAPES)]


def by_hand(start, lr, decay, beta1=0.9, beta2=0.999, eps=1e-6):
    values = [one.double() for one in start]
    m, v = ([torch.zeros_like(one) for one in values] for _ in "mv")
    for i in range(1, 5):
        for k, grad in enumerate(grads_of(i)):
            m[k] = beta1 * m[k] + (1 - beta1) * grad.double()
            v[k] = beta2 * v[k] + (1 - beta2) * grad.double() ** 2
            move = m[k] / (1 - beta1**i) / (v[k].sqrt() / math.sqrt(1 - beta2**i) + eps) + decay * values[k]
            a, b = values[k].norm(), move.norm()
            values[k] = values[k] - lr * (a / b if a > 0 and b > 0 else 1) * move
    return values


@pytest.mark.parametrize("where", ["xpu", "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps(device, where, dtype):
    torch.manual_seed(0)
    start = [torch.randn(shape) for shape in SHAPES]
    start[0].zero_()  # a norm of 0
    right = by_hand(start, 0.01, 0.1)
    parameters = [torch.nn.Parameter(one.to(where, dtype)) for one in start]
    optimizer = Lamb([{"params": parameters[:3]}, {"params": parameters[3:]}], lr=0.01, weight_decay=0.1)
    device.forget_fallbacks()
    for i in range(1, 5):
        for one, grad in zip(parameters, grads_of(i)):
            one.grad = grad.to(where, dtype)
        before = device.report()["launches"]
        optimizer.step()
        if i > 1 and where == "xpu" and device.report()["launches"]:
            assert device.report()["launches"] - before == 4
    assert device.report()["fallbacks"] == []
    for mine, other in zip(parameters, right):
        assert torch.allclose(mine.detach().cpu().double(), other, rtol=1e-5 if dtype == torch.float32 else 1e-11, atol=1e-6 if dtype == torch.float32 else 1e-12)


def test_arguments_and_files(device):
    for wrong in ({"lr": -1}, {"betas": (1.0, 0.9)}, {"eps": -1e-3}, {"weight_decay": -0.1}):
        with pytest.raises(ValueError):
            Lamb([torch.nn.Parameter(torch.ones(2))], **wrong)
    one, other = (torch.nn.Parameter(torch.ones(3).xpu()) for _ in range(2))
    first, second = Lamb([one], lr=0.1), Lamb([other], lr=0.1)
    one.grad = torch.full((3,), 2.0).xpu()
    first.step()
    other.data.copy_(one.data)
    other.grad = one.grad.clone()
    second.load_state_dict(first.state_dict())
    first.step()
    second.step()
    assert torch.equal(one, other) and (one < 1).all().item()
    assert first.step(lambda: torch.tensor(3.0)).item() == 3
