"""Which calls of a captured module its graphs fit. A call that none fits is answered by the module behind TorchDynamo's guards, which cost it 0.05 to 0.3 ms
for nothing; a module that loops over a length has a graph for each length, and one over a tree for each shape of a tree.

- Calls whose arguments are of exactly the sizes and kinds that no graph fitted eight times are left to the module, but for one in 64 of them.
- After 64 calls in a row without a graph all are left to it for 64 calls, then 128 and so on up to 4096, with eight that are looked at between them.
- `coverage` is the share of calls that graphs answer: by it a further trace is worth its price or not.

Thread rule: under the interpreter lock; what another thread notes meanwhile is one call more or less.
"""

import torch

from .call_kinds import CONTAINERS, NAMES, TENSORS, TOO_MANY, TooMany, sizes_of, stops

TIMES, PROBE = 8, 64
ROW, LOOKS, LONGEST = 64, 8, 4096
MOST = 1024  # kinds of calls that are kept apart
LONG = 64  # letters of a text that is not kept


def exactly(value, met, depth=0):
    """Hashable: equal for what guards on sizes, kinds and plain numbers cannot tell apart."""
    kind = type(value)
    if kind in TENSORS:
        return (value.dtype, "nested") if value.is_nested else (value.dtype, *value.shape)
    if kind in CONTAINERS:
        place = stops(value, len(value), met, depth) if value else 0
        if place:
            return kind, place
        if kind is dict:
            return (kind, *((key if type(key) in NAMES else type(key), exactly(one, met, depth + 1)) for key, one in value.items()))
        return (kind, *(exactly(one, met, depth + 1) for one in value))
    if kind in NAMES:
        return kind, value if kind is not str or len(value) < LONG else hash(value)
    return (kind, sizes_of(value, kind)) if issubclass(kind, torch.Tensor) else kind


def exactly_of(args, kwargs):
    met = {0: 0}
    try:
        return exactly(args, met), exactly(kwargs, met)
    except TooMany:
        return TOO_MANY


class Fits:
    def __init__(self):
        self.missing = {}  # calls that no graph fitted, by exactly(): how often in a row
        self.calls = self.hits = 0  # since the last trace
        self.row = 0  # calls without a graph
        self.rest, self.resting = ROW, 0

    def leaves_out(self, args, kwargs):
        """Whether the module answers this call without a look at its graphs."""
        if not self.missing:
            return False
        key = exactly_of(args, kwargs)
        times = self.missing.get(key, 0)
        if times < TIMES:
            return False
        self.missing[key] = times + 1
        left = (times + 1) % PROBE != 0
        self.calls += left
        return left

    def rests(self):
        """How many calls from this one on are left to the module; 0: none."""
        if self.row < ROW:
            return 0
        calls, self.rest, self.row = self.rest, min(2 * self.rest, LONGEST), ROW - LOOKS
        self.calls += calls
        return calls

    def note(self, args, kwargs, hit):
        """A call that was looked at had its graphs or not."""
        self.calls += 1
        if hit:
            self.hits += 1
            self.row, self.rest = 0, ROW
            if self.missing:
                self.missing.pop(exactly_of(args, kwargs), None)
            return
        self.row += 1
        key = exactly_of(args, kwargs)
        if key not in self.missing and len(self.missing) >= MOST:
            self.missing.clear()
        self.missing[key] = self.missing.get(key, 0) + 1

    def coverage(self):
        """The share of calls since the last trace that graphs answered; 1 before there was one."""
        return self.hits / self.calls if self.calls else 1.0
