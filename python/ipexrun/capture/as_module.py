"""Whether what TorchDynamo captured of a call gives what the module itself gives. It need not: code may ask torch.compiler.is_compiling() and go another way
(nn.TransformerEncoder then leaves rows of padding as they are, which it otherwise fills with zeros). Of a call whose graph is all that happens the module
itself is asked once as well, and answers; the program's own code runs once all the same, since the graph runs none of it.

Thread rule: every function runs under the interpreter lock.
"""

import torch

from ..problems import let_through
from .structures import Taken

OTHER_FORM = "under torch.compile it gives something of another form"
SMALL, LARGE = 1e-12, 1e12  # the largest of values whose squares float32 can add up
FURTHEST, FURTHEST_ROW = 0.1, 0.5  # far from what rounding to bf16 does to results and to one row of them, and near where other values were computed


def only_computes(graph_is_whole):
    """Inside the call of a backend: whether the call changes no object and draws none of Python's random numbers."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    from . import proof

    output = InstructionTranslator.current_tx().output
    try:
        return graph_is_whole and not output.random_calls and not proof.changes(output.side_effects)
    except Exception as problem:  # a torch whose insides are others than expected
        let_through(problem)
        return False


def is_near(truth, mine):
    """By relative RMS error, of all and of each row (which counts as large as rows are in the mean); values that are not finite stand at the same places."""
    if truth.shape != mine.shape or truth.dtype != mine.dtype:
        return False
    if truth.numel() == 0 or not (truth.is_floating_point() or truth.is_complex()):
        return True  # whole numbers may be places of the largest, which rounding changes
    if truth.dtype in (torch.float32, torch.float64) and SMALL < float(truth.detach().abs().max()) < LARGE:  # no NaN either
        return _by_rows(truth, mine)
    wide = torch.complex128 if truth.is_complex() else torch.float64
    truth, mine = truth.detach().to(wide), mine.detach().to(wide)
    finite = truth.isfinite()
    if not torch.equal(finite, mine.isfinite()):
        return False
    truth, mine = torch.where(finite, truth, 0), torch.where(finite, mine, 0)
    largest = truth.abs().max().clamp(min=1e-300)  # whose square may be none
    return _by_rows(truth / largest, mine / largest)


def _by_rows(truth, mine):
    """is_near() of finite values whose squares are numbers: in their own type, since results may be many megabytes."""
    truth, mine = (one.detach().reshape(-1, one.shape[-1] if one.dim() else 1) for one in (truth, mine))
    size, away = truth.norm(dim=1).double(), (truth - mine).norm(dim=1).double()
    rows = size.clamp(min=size.square().mean().sqrt())
    return bool(away.norm() <= FURTHEST * size.norm()) and bool((away <= FURTHEST_ROW * rows).all())


def kinds_of(value):
    """Of an object, and of those in it where it is a list, a tuple or a dict."""
    kind = type(value)
    if kind is list or kind is tuple:
        return kind, *map(kinds_of, value)
    return (kind, *map(kinds_of, value.values())) if kind is dict else kind


def differs(truth, mine):
    """Why the results of a call are not the same, or ""."""
    try:
        if kinds_of(truth) != kinds_of(mine):
            return OTHER_FORM
        truth, mine = Taken(truth), Taken(mine)
        if truth.form != mine.form:
            return OTHER_FORM
        return "" if all(map(is_near, truth.tensors, mine.tensors)) else "under torch.compile it computes something else"
    except Exception as problem:  # of kinds that nobody can compare
        let_through(problem)
        return ""
