"""What TorchDynamo's guards take for equal in arguments and attributes, though a program can tell it apart: 0.0 and -0.0, keys 1, 1.0 and True of a dict, and
which of several lists, dicts and objects are the same one (it looks at each by itself, but for tensors). And what they cannot be asked about: a nested tensor
has no strides, and the question where it is compared with a plain one's ends the process (seen in torch 2.11 to 2.13); a tensor whose class answers for
operators answers for questions, too.

A module's graphs are for calls that are like the first one that was captured in these things; others are the module's. Most calls have none of them, which
is what is looked for first. Parameters that become one are not looked for, nor what objects hold (docs/capture.md).

Nothing of the program's runs: only exact lists, tuples and dicts are looked into. Thread rule: under the interpreter lock.
"""

import math
import types

import torch

from . import unguarded
from .call_kinds import DEPTH, TENSORS, has_own_code

PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, type(None), bool, int, str, bytes, complex, torch.Size, torch.dtype, torch.device, torch.layout,
                   torch.memory_format))
NOT_STATE = (torch.Tensor, torch.nn.Module, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, str, bytes, int, float,
             complex, tuple, frozenset, type(None), torch.dtype, torch.device, torch.Size)
NOTHING = frozenset()
NESTED, OWN_CODE = "a nested tensor", "a tensor with code of its own"


def is_state(value):
    """Whether it may change without becoming another object, so that it matters which one it is."""
    return not isinstance(value, NOT_STATE)


class Alike:
    """Of one module: what its first captured call was like."""

    def __init__(self):
        self.attributes = ()  # names of the module's own that matter, but for torch's
        self.globals = {}, ()  # of its forward, and the names among them
        self.first = NOTHING

    def begin(self, module, args, kwargs):
        unguarded.watch()  # TorchDynamo is there by now
        theirs = vars(torch.nn.Module())
        self.attributes = tuple(name for name, value in vars(module).items() if name not in theirs and is_state(value))
        forward = getattr(type(module), "forward", None)
        if isinstance(forward, types.FunctionType):
            known = forward.__globals__
            self.globals = known, tuple(name for name in forward.__code__.co_names if name in known and is_state(known[name]))
        self.first = self.described(module, args, kwargs)

    def holds(self, module, args, kwargs):
        """Whether this call is like it."""
        return self.described(module, args, kwargs) == self.first

    def described(self, module, args, kwargs):
        """Hashable; NOTHING where there are none of these things."""
        odd = [(str(i), value) for i, value in enumerate(args) if type(value) not in PLAIN or (type(value) in TENSORS and value.is_nested)]
        if kwargs:
            odd += [(name, value) for name, value in kwargs.items() if type(value) not in PLAIN or (type(value) in TENSORS and value.is_nested)]
        if not odd and len(self.attributes) < 2:
            return NOTHING
        found, places, own = set(), {}, vars(module)
        for name in self.attributes:
            one_of(own.get(name), f"self.{name}", found, places)
        if odd:
            known, names = self.globals
            for name in names:
                one_of(known.get(name), f"global {name}", found, places)
            for place, value in odd:
                look(value, place, found, places, 0)
        return frozenset(found)


def one_of(value, place, found, places):
    """Whether it is one that was met before."""
    first = places.setdefault(id(value), place)
    if first is not place:
        found.add((place, first))
    return first is not place


def look(value, place, found, places, depth):
    kind = type(value)
    if kind is float:
        if value == 0.0 and math.copysign(1.0, value) < 0:
            found.add((place, "-0.0"))
        return
    if kind in TENSORS:
        if value.is_nested:
            found.add((place, NESTED))
    elif issubclass(kind, torch.Tensor) and has_own_code(kind):
        found.add((place, OWN_CODE))
    if kind is not tuple:
        if not is_state(value) or one_of(value, place, found, places):
            return
    if depth == DEPTH:
        return
    if kind is dict:
        others = {type(key).__name__ for key in value} - {"str"}
        if others:
            found.add(("keys", *sorted(others)))
    if kind in (dict, list, tuple):
        for i, one in enumerate(value.values() if kind is dict else value):
            look(one, f"{place}.{i}", found, places, depth + 1)
