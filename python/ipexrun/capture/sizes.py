"""What changes from call to call of a module before it is traced: sizes of tensors, also of those in objects that it is given, such as a cache of keys and
values. TorchDynamo takes sizes for constants until a later trace finds others; told which ones change, its first trace serves all of them. And an object of
which nothing but sizes and whole numbers change from call to call is none whose trace would be in vain.

Objects are looked at by their attributes; nothing of the program's runs, and nothing of it is kept alive.

Thread rule: under the interpreter lock; what another thread adds meanwhile is one call more or less.
"""

import contextlib
import re
import types

import torch

MOST = 4096  # things in the arguments of one call; others are not looked at
LOOKED_AT, KINDS = 8, 8  # calls of a kind, and kinds of calls
ALIKE = 4  # calls in a row that were alike
CHANGING = 3  # sizes of one dimension, after which it is one that changes
PLAIN = (bool, str, bytes, float, complex, type(None), torch.dtype, torch.device)
WHOLE = (type, torch.nn.Module, types.FunctionType, types.ModuleType)
NAMES = (str, int, bool)
SIMPLE = re.compile(r"[\w.\[\]']+")
MARKS = ("_dynamo_weak_dynamic_indices", "_has_dynamo_dim_marking")


def things(args, kwargs):
    """({name: what it is}, {name: tensor}, {name: whole number}), named as TorchDynamo does in a frame of dynamo_calls.py; None where there are too many.
    Whole numbers and sizes are none of what things are."""
    kinds, tensors, numbers, inside, todo = {}, {}, {}, set(), [("L['args']", args), ("L['kwargs']", kwargs)]
    while todo:
        path, one = todo.pop()
        if len(kinds) > MOST:
            return None
        kind = type(one)
        if kind is torch.Tensor:
            kinds[path] = (one.dtype, one.dim(), one.layout)
            if one.layout is torch.strided and not one.is_nested:  # whose sizes are no plain numbers
                tensors[path] = one
        elif issubclass(kind, PLAIN):
            kinds[path] = (kind, one)
        elif issubclass(kind, dict):
            names = [key if type(key) in NAMES else (i, type(key)) for i, key in enumerate(dict.keys(one))]  # other keys may live as long as their object
            kinds[path] = (kind, tuple(names))
            todo += [(f"{path}[{name!r}]", value) for name, value in zip(names, dict.values(one))]
        elif issubclass(kind, (list, tuple)):
            kinds[path] = (kind, len(one) if kind in (list, tuple) else None)
            todo += [(f"{path}[{i}]", value) for i, value in enumerate((tuple if issubclass(kind, tuple) else list).__iter__(one))]
        elif issubclass(kind, WHOLE):
            kinds[path] = (kind, id(one))
        else:
            kinds[path] = kind
            if kind is int:
                numbers[path] = one
            elif not issubclass(kind, (int, torch.Tensor)) and id(one) not in inside:
                inside.add(id(one))
                with contextlib.suppress(AttributeError):
                    todo += [(f"{path}.{name}", value) for name, value in object.__getattribute__(one, "__dict__").items()]
    return kinds, tensors, numbers


@contextlib.contextmanager
def changing_numbers(names):
    """TorchDynamo takes numbers of these names for what changes, where torch can be told (2.8 and later)."""
    config = getattr(torch.compiler, "config", None)
    names = [name for name in names if SIMPLE.fullmatch(name)]
    if not names or not hasattr(config, "dynamic_sources"):
        yield
        return
    before = config.dynamic_sources
    config.dynamic_sources = ",".join(filter(None, (before, *names)))
    try:
        yield
    finally:
        config.dynamic_sources = before


class Sizes:
    def __init__(self):
        self.of = {}  # kind of call: [calls that were looked at, kinds of things in the last one, calls in a row that were alike]
        self.sizes = {}  # name: a set of sizes for each dimension
        self.numbers = {}  # name: a set of values
        self.tells = False  # the last trace was told of something that changes

    def see(self, call, args, kwargs):
        """`call`: of which kind it is (call_kinds.signature_of_call)."""
        if call not in self.of and len(self.of) >= KINDS:
            return
        seen = self.of.setdefault(call, [0, None, 0])
        if seen[0] >= LOOKED_AT:
            return
        seen[0] += 1
        found = things(args, kwargs)
        if found is None:
            seen[0] = LOOKED_AT
            return
        kinds, tensors, numbers = found
        seen[2] = seen[2] + 1 if kinds == seen[1] else 0
        seen[1] = kinds
        for path, tensor in tensors.items():
            of = self.sizes.setdefault(path, [])
            of += [set() for _ in range(tensor.dim() - len(of))]
            for sizes, size in zip(of, tensor.shape):
                if len(sizes) < CHANGING:
                    sizes.add(size)
        for path, number in numbers.items():
            values = self.numbers.setdefault(path, set())
            if len(values) < CHANGING:
                values.add(number)

    def are_known(self, call):
        """Whether calls of this kind were looked at as often as they are going to be, or nothing else changes in them."""
        seen = self.of.get(call)
        return seen is None or seen[0] >= LOOKED_AT or seen[2] >= ALIKE

    def alone_change(self, call):
        """Whether calls of this kind were given the same things but for sizes and whole numbers."""
        seen = self.of.get(call)
        return seen is not None and seen[2] >= ALIKE

    def change(self):
        """Whether something is known to."""
        return any(len(one) >= CHANGING for of in self.sizes.values() for one in of) or any(len(one) >= CHANGING for one in self.numbers.values())

    @contextlib.contextmanager
    def told(self, args, kwargs):
        """TorchDynamo knows inside, of this call's tensors and numbers, which ones change. 0 and 1 it takes for constants whatever it is told."""
        found, marked = things(args, kwargs) if self.sizes or self.numbers else None, []
        _, tensors, numbers = found or ({}, {}, {})
        try:
            for path, tensor in tensors.items():
                changing = [i for i, sizes in enumerate(self.sizes.get(path, ())) if len(sizes) >= CHANGING and i < tensor.dim() and tensor.shape[i] > 1]
                if changing and not any(name.startswith("_dynamo") for name in vars(tensor)):
                    marked.append(tensor)
                    torch._dynamo.maybe_mark_dynamic(tensor, changing)
            names = [path for path, number in numbers.items() if number > 1 and len(self.numbers.get(path, ())) >= CHANGING]
            self.tells = bool(marked or names)
            with changing_numbers(names):
                yield
        finally:
            for tensor in marked:
                for name in MARKS:
                    vars(tensor).pop(name, None)
