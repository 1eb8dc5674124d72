"""What goes into a call and what comes out of it: nested tuples, lists and dicts of tensors and plain values, taken apart and put together."""

import collections
import dataclasses
import enum

import torch

from .call_kinds import DEPTH

PLAIN = frozenset((bool, int, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout))
TENSORS = (torch.Tensor, torch.nn.Parameter)


class Unknown(Exception):
    """Why something cannot be described."""


def plain(value):
    """A key that is equal for equal values only: 1, 1.0 and True differ, and so do the two zeros."""
    kind = type(value)
    if kind in PLAIN:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is torch.Size:
        return kind, tuple(value)
    if isinstance(value, enum.Enum):
        return kind, value.name, repr(value.value)
    raise Unknown(f"a {kind.__name__}")


def describe(value, tensors, depth=0):
    """An exact description of an argument; its tensors are appended to `tensors`."""
    if depth > DEPTH:
        raise Unknown("what is nested too deep, or holds itself")
    kind = type(value)
    if kind in TENSORS:
        if not value.is_cpu or value.layout is not torch.strided or value.dtype.is_complex or value.is_nested:
            raise Unknown("a tensor that is complex, nested, not on the CPU or not strided")
        tensors.append(value)
        held = vars(value)
        own = tuple((name, plain(one)) for name, one in held.items() if not name.startswith("_dynamo_")) if held else ()  # marks of torch's compiler are none
        return kind, value.dtype, value.shape, value.stride(), value.requires_grad, value.is_inference(), own
    if kind is tuple or kind is list:
        return (kind, *[describe(one, tensors, depth + 1) for one in value])
    if kind is dict:
        return (kind, *[(plain(key), describe(one, tensors, depth + 1)) for key, one in value.items()])
    return plain(value)


def is_record(value):
    """As the results of transformers: a dataclass that is an ordered dict of what is not None."""
    return isinstance(value, collections.OrderedDict) and dataclasses.is_dataclass(value)


class Taken:
    """A result: its tensors, a description of all else, and how to make another one like it."""

    def __init__(self, value):
        self.tensors = []
        self.containers = []  # tuples left out
        self.depth = 0
        self.form, self.build = self.take(value)
        if not self.tensors:
            raise Unknown("nothing that is a tensor")

    def like(self, tensors):
        return self.build(iter(tensors))

    def take(self, value):
        kind = type(value)
        if kind is torch.Tensor:
            self.tensors.append(value)
            return torch.Tensor, next
        if kind is tuple or kind is list:
            forms, builds = self.take_all(value)
            return (kind, *forms), lambda tensors: kind([build(tensors) for build in builds])
        if kind is dict or kind is collections.OrderedDict or is_record(value):
            keys = list(value)
            forms, builds = self.take_all(value.values())
            self.containers.append(value)
            if kind is dict or kind is collections.OrderedDict:
                make = kind
            else:
                self.check_record(value)
                make = lambda pairs: kind(**dict(pairs))  # noqa: E731
            return (kind, tuple(map(plain, keys)), *forms), lambda tensors: make([(key, build(tensors)) for key, build in zip(keys, builds)])
        if isinstance(value, tuple) and hasattr(kind, "_fields") and kind.__new__.__module__ == f"namedtuple_{kind.__name__}":
            forms, builds = self.take_all(value)
            return (kind, *forms), lambda tensors: kind(*[build(tensors) for build in builds])
        return plain(value), lambda tensors: value

    def take_all(self, values):
        if type(values) is list:
            self.containers.append(values)
        if self.depth >= DEPTH:
            raise Unknown("what is nested too deep, or holds itself")
        self.depth += 1
        taken = [self.take(one) for one in values]
        self.depth -= 1
        return [form for form, _ in taken], [build for _, build in taken]

    @staticmethod
    def check_record(value):
        """It is what its class makes of its fields."""
        again = type(value)(**value)
        names = [field.name for field in dataclasses.fields(value)]
        if list(again) != list(value) or set(vars(again)) != set(vars(value)):
            raise Unknown(f"a {type(value).__name__} with something of its own")
        if any(getattr(again, name) is not getattr(value, name) for name in names):
            raise Unknown(f"a {type(value).__name__} with something of its own")


class Containers:
    """Lists and dicts among the arguments of a call, and what they held before it."""

    def __init__(self, arguments):
        self.held = []
        self.look_into(arguments)

    def look_into(self, value):
        if isinstance(value, (list, dict)):
            if any(one is value for one, _ in self.held):
                return  # it holds itself
            self.held.append((value, self.inside(value)))
        if isinstance(value, (list, tuple, dict)):
            for one in value.values() if isinstance(value, dict) else value:
                self.look_into(one)

    @staticmethod
    def inside(value):
        return [*value, *value.values()] if isinstance(value, dict) else list(value)

    def identities(self):
        return {id(value) for value, _ in self.held}

    def are_changed(self):
        for value, before in self.held:
            now = self.inside(value)
            if len(now) != len(before) or any(one is not other for one, other in zip(now, before)):
                return True
        return False
