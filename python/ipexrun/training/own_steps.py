"""Programs whose losses are compared to more digits than bf16 gives, as far as Python sees them: searches along lines.

Weights that change while no optimizer of torch.optim makes a step are changed by the program, or by a library that knows functions of numbers alone (SciPy's
minimize(), a conjugate gradient by hand). And an optimizer whose step() asks its closure for gradients more than once compares what it was told. Most such
judge a step by the loss behind it, which rounded gradients do not agree with: the search ends too early. A plain descent by hand looks the same and would bear
bf16; it goes on in float32. Decided for the process, as for torch.optim.LBFGS (docs/decisions/0040-gradients-as-results.md).

Thread rule: under the interpreter lock.
"""

import weakref

import torch

from . import steps

WEIGHTS, ELEMENTS = 3, 8  # that are looked at
LOOKS = 2  # in a row between which weights changed and no optimizer stepped: one may be a checkpoint that is loaded
SOON = 1.05  # times what was spent in a module until it is looked at again
STEPS = 8  # of an optimizer that is not torch's
MORE_THAN_ONCE = 2  # steps of these with more than one backward pass


def weights_of(module):
    found = [one for one in module.parameters() if one.requires_grad and one.dim() > 1 and type(one) is torch.nn.Parameter and one.numel()]
    return [weakref.ref(one) for one in found[:: 1 + len(found) // WEIGHTS]]


def sample(weights):
    """Some numbers of each, as text: NaN is itself. "" where there are none."""
    alive = [one for one in (known() for known in weights) if one is not None]
    return str([one.detach().as_strided((min(ELEMENTS, one.numel()),), (max(1, one.numel() // ELEMENTS),)).tolist() for one in alive]) if alive else ""


class Looks:
    """look() now and then at a module: whether its weights are changed by something else than optimizers; None where there is nothing to compare yet."""

    def __init__(self, module):
        self.weights = weights_of(module)
        self.steps, self.sample, self.changed = -1, "", 0

    def look(self):
        made, self.steps = self.steps, steps.made
        before, self.sample = self.sample, sample(self.weights)
        if made != steps.made:
            self.changed = 0
            return None if made < 0 else False
        if not before:
            return None
        self.changed = self.changed + 1 if self.sample != before else 0
        return self.changed >= LOOKS


def searches_lines():
    torch.classes.ipexrun.Training().searches_lines()


_looks = {}  # id of a module: (weak reference, Looks), while it is not known


def wait_s(module, spent_s):
    """Of a module in which so many seconds were spent: when to ask again, or None where all is known for now."""
    known, looks = _looks.pop(id(module), (None, None))
    if looks is None or known() is not module:
        looks = Looks(module)
    new = looks.look() is None
    if looks.changed >= LOOKS:
        searches_lines()
    elif looks.sample and (new or looks.changed):
        _looks[id(module)] = weakref.ref(module), looks
        return SOON * spent_s
    return None


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
