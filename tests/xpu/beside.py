"""A function of tensors on xpu beside float64 on the CPU: forward and backward, by relative RMS error (the accuracy rule)."""

import torch

BOUNDS = {torch.float32: 3e-6, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}


def error(mine, right):
    mine, right = mine.detach().cpu().double(), right.detach().double()
    assert mine.shape == right.shape
    return ((mine - right).norm() / right.norm().clamp(min=1e-30)).item() if right.numel() else 0.0


def check(device, call, *inputs, dtype=torch.float32, allowed=()):
    """`call` takes and returns tensors; what is not in `allowed` may not fall back."""
    typed = [x.detach().to(dtype) if x.is_floating_point() else x for x in inputs]
    here = [x.double().requires_grad_() if x.is_floating_point() else x for x in (x.clone() for x in typed)]
    there = [x.xpu().requires_grad_() if x.is_floating_point() else x.xpu() for x in (x.clone() for x in typed)]
    device.forget_fallbacks()
    right, mine = call(*here), call(*there)
    assert mine.dtype == dtype and mine.is_xpu
    if right.requires_grad:
        weight = torch.randn(right.shape, dtype=torch.float64)
        (right * weight).sum().backward()
        mine.backward(weight.to(dtype).xpu())
    fell_back = [row["name"] for row in device.report()["fallbacks"] if row["name"] not in allowed]
    assert fell_back == []
    assert error(mine, right) < BOUNDS[dtype]
    for one, other in zip(there, here):
        if other.is_floating_point() and other.grad is not None:
            assert error(one.grad, other.grad) < BOUNDS[dtype]
