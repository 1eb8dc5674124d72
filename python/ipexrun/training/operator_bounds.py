"""How far bf16 may take a whole module in training: no further than operators take it that passed the accuracy rule one by one.

Batch norms of a network that has not learnt much magnify any rounding from layer to layer: there the bounds of a module (3e-2 of results, 0.15 of
gradients) are passed by the op tier's own products and convolutions, each within 8e-3, and refusing a form would not make the program's numbers any
nearer to float32. The module is computed once more, product by product and convolution by convolution in bf16 behind their checks, and a form may be
about as far from float32 as that (docs/decisions/0026-bounds-by-operators.md).

Thread rule: under the interpreter lock; what is forced is forced for calls of this thread.
"""

import contextlib
import dataclasses
import math
import sys

import torch

WORST = 2.0  # times as far, of the sample whose results are furthest away: one of a few samples is chance
RESULTS = 1.5  # of all results together
ALIKE = 1.25  # of gradients
COSINE_LOST = 0.1  # of gradients; and what is left of it must still say something:
COSINE_LEAST = 0.05  # gradients of millions of numbers that have nothing to do with each other have thousandths
STATE, STATE_MOST = 2.0, 1.0  # times theirs: statistics of single layers are few numbers; and at most their own size
SMALL = 1e-4  # of the size of all: a bias before a batch norm has a gradient of rounding errors alone
MOST = 2.0  # times its size that a single tensor may be counted as being away
CANDIDATE = "onednn_bf16_cast"  # fits products, convolutions and their gradients
NORMS = (torch.nn.functional.batch_norm, torch.nn.functional.instance_norm, torch.batch_norm)


def magnifies(graph):
    """Whether the graph has norms over a batch: elsewhere the bounds of a module stand."""
    return any(node.op == "call_function" and node.target in NORMS for node in graph.graph.nodes)


@contextlib.contextmanager
def rounded_operators():
    hook = sys.modules.get("_ipexrun_hook")
    if hook is None or not hook.force_here(CANDIDATE):
        yield
        return
    try:
        yield
    finally:
        hook.force_here("")


@dataclasses.dataclass
class Distance:
    """Of tensors taken as one vector; `mean` of tensors taken alone, each at most MOST, those left out that are next to nothing (SMALL)."""

    cosine: float
    error: float
    truth: float  # its norm
    other: float
    mean: float


def flat(tensor):
    """Its numbers in a row as float64, not to be written to: it may be the tensor itself. Complex ones as two numbers each."""
    tensor = tensor.detach().resolve_conj()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).flatten().double()


def distance(pairs):
    """Of all `pairs` (truth, other), in float64, one tensor at a time."""
    dot = true = other = apart = 0.0
    alone = []
    for one, two in pairs:
        one, two = flat(one), flat(two)
        squares = float(torch.dot(one, one))
        dot += float(torch.dot(one, two))
        true += squares
        other += float(torch.dot(two, two))
        off = float((one - two).square_().sum())
        apart += off
        alone.append((squares, off))
    least = 1e-300
    single = [min(math.sqrt(off / squares), MOST) for squares, off in alone if squares > SMALL * SMALL * true]
    cosine, error = dot / max(math.sqrt(true * other), least), math.sqrt(apart / max(true, least))
    return Distance(cosine, error, math.sqrt(true), math.sqrt(other), sum(single) / max(len(single), 1))


def numbers(results):
    return [one for one in results if isinstance(one, torch.Tensor) and (one.is_floating_point() or one.is_complex())]


def results_alike(error, stock, mine, beside):
    """Whether results that are `error` away (the worst sample counts) are about as near as `beside`."""
    trial = torch.classes.ipexrun.Trial()
    trial.check_beside([one.detach() for one in numbers(stock)], [one.detach() for one in numbers(beside)], True, [])
    if not all(bool(one.isfinite().all()) for results in (stock, mine, beside) for one in numbers(results)):
        return False
    if any(isinstance(one, torch.Tensor) and not one.is_floating_point() and not torch.equal(one, other) for one, other in zip(stock, mine)):
        return False
    found, bound = distance(list(zip(numbers(stock), numbers(mine)))), distance(list(zip(numbers(stock), numbers(beside))))
    if error > WORST * trial.error() or found.error > RESULTS * bound.error:
        return False
    return found.cosine >= max(bound.cosine - COSINE_LOST, COSINE_LEAST)


def state_bound(truth, beside):
    """Of a buffer that a step writes."""
    return min(STATE * distance([(truth, beside)]).error, STATE_MOST)


def gradients_alike(found, bound):
    """Whether gradients, `found` away, are about as near as those that are `bound` away."""
    return (
        found.error <= ALIKE * bound.error
        and found.mean <= ALIKE * bound.mean
        and found.cosine >= max(bound.cosine - COSINE_LOST, COSINE_LEAST)
        and found.other <= 2 * bound.other
        and bound.other <= 2 * found.other
    )
