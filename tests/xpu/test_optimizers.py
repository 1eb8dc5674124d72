"""Fused optimizers on xpu beside torch's plain ones in float64 on the CPU. Risk covered: lists that are cut in eights, first steps, scaled gradients."""

import os

import pytest
import torch

O = torch.optim
OPTIMIZERS = {
    "AdamW": lambda p, f: O.AdamW(p, lr=1e-2, fused=f),
    "Adam, all settings": lambda p, f: O.Adam(p, lr=1e-2, weight_decay=0.1, amsgrad=True, maximize=True, fused=f),
    "Adam, rate in a tensor": lambda p, f: O.Adam(p, lr=torch.tensor(1e-2, dtype=torch.float64), fused=f),
    "SGD": lambda p, f: O.SGD(p, lr=1e-2, fused=f),
    "SGD, Nesterov": lambda p, f: O.SGD(p, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.1, fused=f),
    "SGD, dampened": lambda p, f: O.SGD(p, lr=1e-2, momentum=0.9, dampening=0.3, fused=f),
    "Adagrad": lambda p, f: O.Adagrad(p, lr=1e-2, lr_decay=0.1, fused=f),
}
SHAPES = [(5, 5), (5,), (), (0, 3), (700, 3), (1,), (7, 2, 3), (33,), (64, 64), (3,)]


def steps(make, device, dtype, fused, many=4):
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape).to(device, dtype)) for shape in SHAPES]
    optimizer = make(parameters, fused)
    for i in range(many):
        for k, one in enumerate(parameters):
            one.grad = torch.randn(one.shape, generator=torch.Generator().manual_seed(100 * i + k)).to(device, dtype)
        optimizer.step()
    return torch.cat([one.detach().cpu().double().flatten() for one in parameters])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_steps(device, name, dtype):
    right = steps(OPTIMIZERS[name], "cpu", torch.float64, False)
    device.forget_fallbacks()
    before = device.report()["launches"]
    mine = steps(OPTIMIZERS[name], "xpu", dtype, True)
    assert device.report()["fallbacks"] == []
    assert (mine - right).norm() / right.norm() < (1e-12 if dtype == torch.float64 else 1e-6)
    # One launch a step for ten parameters, one for the counters of steps, and what makes the state.
    assert device.report()["launches"] - before <= 4 * 2 + 6 * len(SHAPES)


@pytest.mark.parametrize("name", [*OPTIMIZERS, "AdamW, no decay"])
def test_what_is_not_finite_stays_as_in_stock(device, name):
    """Infinite parameters and gradients, NaN; in vectors and in what is left of them."""
    inf, nan = float("inf"), float("nan")
    make = OPTIMIZERS.get(name, lambda p, f: O.AdamW(p, lr=1e-2, weight_decay=0, fused=f))
    found = []
    for place, fused in (("cpu", False), ("xpu", True)):
        one = torch.nn.Parameter((torch.arange(21) % 5 - 2.0).index_put((torch.tensor([1, 2, 17, 18]),), torch.tensor([inf, -inf, inf, -inf])).to(place))
        optimizer = make([one], fused)
        for step in range(4):
            gradient = torch.ones(21)
            if step == 1:
                gradient[3::16], gradient[4], gradient[20] = -inf, nan, inf
            one.grad = gradient.to(place)
            optimizer.step()
        state = optimizer.state[one]
        found.append([one.detach().cpu(), *[state[key].cpu() for key in sorted(state) if torch.is_tensor(state[key])]])
    for stock, mine in zip(*found, strict=True):
        torch.testing.assert_close(mine, stock, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_lists_that_are_written_are_seen_by_autograd(device):
    one = torch.nn.Parameter(torch.tensor([2.0], device="xpu"))
    square = (one * one).sum()
    with torch.no_grad():
        torch._foreach_add_([one], 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.backward()


def test_scaled_gradients():
    parameter = torch.nn.Parameter(torch.ones(4).xpu())
    optimizer, scaler = torch.optim.AdamW([parameter], lr=0.1, fused=True), torch.amp.GradScaler("xpu", init_scale=1024.0)
    scaler.scale((parameter * 2).sum()).backward()
    scaler.step(optimizer)
    assert torch.equal(parameter.grad.cpu(), torch.full((4,), 2.0)) and (parameter < 1).all().item()
    scaler.update()
    kept = parameter.detach().clone()
    optimizer.zero_grad()
    scaler.scale((parameter * float("inf")).sum()).backward()
    scaler.step(optimizer)
    assert torch.equal(parameter, kept)


def test_devices_that_follow_no_addresses(child):
    """Plain OpenCL buffers: eight parameters are arguments of a launch."""
    done = child(f"""import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_optimizers as t, torch, ipexrun
from ipexrun import xpu
xpu.install()
for name in ("AdamW", "SGD, Nesterov", "Adagrad"):
    right, mine = (t.steps(t.OPTIMIZERS[name], *how, fused) for how, fused in ((("cpu", torch.float64), False), (("xpu", torch.float32), True)))
    assert (mine - right).norm() / right.norm() < 1e-6, name
assert not [row for row in xpu.report()["fallbacks"] if "fused" in row["name"]]
""", IPEXRUN_XPU_MEMORY="buffers")
    assert done.returncode == 0, done.stderr
