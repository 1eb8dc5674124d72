"""How far a run is from what the hardware allows, by the project's rule: the floating point operations of the run's model calls
(torch.utils.flop_counter.FlopCounterMode) divided by the rate of a 3072^3 matrix product of the same dtype, measured in the same run.

    limit.measure(call, dtype) -> dict(flops=..., flops_per_second=..., limit_seconds=...)
"""

import time

import torch
from torch.utils.flop_counter import FlopCounterMode


def gemm_rate(dtype, size=3072, repeats=5, clock=time.perf_counter):
    """FLOP/s of a size^3 matrix product in `dtype` with the threads torch has now: the best of `repeats`."""
    left, right = (torch.randn(size, size).to(dtype) for _ in range(2))
    left @ right
    best = float("inf")
    for _ in range(repeats):
        start = clock()
        left @ right
        best = min(best, clock() - start)
    return 2 * size**3 / best


def native(dtype):
    """`dtype`, or float32 in place of a bf16 that stock torch has no kernels for on this CPU: such a product takes minutes, and nobody computes in it."""
    emulated = dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.float32 if emulated else dtype


def flops_of(call):
    """Floating point operations of one call, as FlopCounterMode counts them (matrix products, convolutions, attention)."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    return counter.get_total_flops()


def measure(call, dtype):
    flops, rate = flops_of(call), gemm_rate(dtype)
    return {"flops": flops, "flops_per_second": rate, "limit_seconds": flops / rate}
