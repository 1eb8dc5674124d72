"""Fused optimizers in unedited programs on device xpu, under `ipexrun xpu`: SGD, Adam, AdamW and Adagrad of torch.optim take the form that `fused=True`
takes, one launch for all parameters, inside step(). optimizers.py says how, and what stays as it is; here is what the device does in its own way.
"""

import torch

from .training import optimizers


class Facts:
    """Which tensors the one launch takes."""

    def are_dense(self, tensors):
        return torch.ops.ipexrun_xpu.are_dense(tensors)

    def lie_alike(self, tensors, like):
        return torch.ops.ipexrun_xpu.lie_alike(tensors, like)


class DeviceStepper(optimizers.Stepper):
    UNFIT = "parameters that are not dense float32 or float64 of one device xpu that follows addresses in memory"
    make_facts = Facts
    make_trial = staticmethod(lambda: torch.classes.ipexrun_xpu.Race())

    def equal(self, stock, mine):
        """On the CPU, where comparing needs no kernels that would have to be built."""
        return optimizers.equal(*(one if one is None else one.detach().cpu() for one in (stock, mine)))

    def settle(self, params):
        if self.phase == "race":
            torch.xpu.synchronize(params[0].device)


def before(optimizer):
    optimizers.begins(optimizer, lambda kind: optimizers.TIMED and optimizers.plain_here(), lambda kind: DeviceStepper)


def after(optimizer):
    optimizers.ends(optimizer)


def step_ended():
    """after() of an optimizer at rest: nothing to do."""


def report_lines():
    """For report_text() of xpu.py."""
    return [
        f"xpu: {row['optimizer']} {row['choice']}" + (f" ({row['reason']})" if row["reason"] else "") + f": {row['fused']} of {row['steps']} steps fused"
        for row in optimizers.report()
    ]
