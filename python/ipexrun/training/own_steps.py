"""Optimizers of the program's own that search along lines.

One whose step() asks its closure for gradients more than once compares what it was told: such judge a step by the loss behind it, which rounded gradients do not
agree with, and the search ends too early. Decided for the process, as for torch.optim.LBFGS (docs/decisions/0040-gradients-as-results.md). Weights that change
without any optimizer's step are seen one by one by the guard, which is told of each step (preload/select/training_guard.h).

Thread rule: under the interpreter lock.
"""

import torch

STEPS = 8  # of such an optimizer that are looked at
MORE_THAN_ONCE = 2  # of these with more than one backward pass


def searches_lines():
    torch.classes.ipexrun.Training().searches_lines()


class Pass(torch.autograd.Function):
    number = -1

    @staticmethod
    def forward(ctx, value):
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        Pass.number = torch._C._current_graph_task_id()
        return gradient


def passes():
    """Backward passes of the process so far, by the number that autograd gives one of ours."""
    with torch.inference_mode(False), torch.enable_grad():
        value = torch.zeros((), requires_grad=True, device="cpu")
        torch.autograd.grad(Pass.apply(value), value)
    return Pass.number


class ForeignSteps:
    """Of an optimizer of which torch.optim knows the base class alone."""

    def __init__(self):
        self.steps = self.more = self.passes = 0

    def begin(self):
        self.passes = passes()

    def end(self):
        """Whether all is known."""
        self.steps += 1
        self.more += passes() - self.passes > 2  # beside ours
        if self.more >= MORE_THAN_ONCE:
            searches_lines()
        return self.more >= MORE_THAN_ONCE or self.steps >= STEPS
