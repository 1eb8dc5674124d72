"""What TorchDynamo reads while it traces a call and does not look at again (seen in torch 2.11 to 2.13), so that its graph would go on answering with what
was there then. Found by changing what programs read (tests/capture/changed_cases.py):

- the variables of the environment;
- an attribute that a class got which was found in one of its bases;
- lists, sets and dicts inside a tuple, which is compared with itself;
- keys of dicts that were not there, where a function asks by an exception;
- attributes that an object got, where a function lists them or has a `__getattr__` of its own.

Thread rule: every function runs under the interpreter lock.
"""

import ast
import copy
import dis
import os
import re
import types
import weakref

import torch

from ..problems import let_through
from .environment import variables
from .facts import follow_expression

PLACE = re.compile(r"(.+\.__mro__)\[(\d+)\]")
MOST_KEYS = 256  # of one dict or object; of a larger one their number alone is compared
EXCEPTIONS = {"KeyError", "LookupError", "Exception", "BaseException"}
LISTING = {"vars", "__dict__", "dir"}
MUTABLE = (list, set, dict, bytearray)
OF_TORCH = os.path.join(os.path.dirname(torch.__file__), "")  # whose own functions TorchDynamo knows


def reads_environment(codes):
    """Whether one of the ways to a variable, to their names or to their number was followed."""
    ways = [*vars(type(os.environ)).values(), *vars(os.environ).values()]
    return not {one.__code__ for one in ways if isinstance(one, types.FunctionType)}.isdisjoint(codes)


def holds_mutable(value):
    return isinstance(value, tuple) and any(isinstance(one, MUTABLE) or holds_mutable(one) for one in value)


def takes_item(instruction):
    return instruction.opname == "BINARY_SUBSCR" or instruction.argrepr == "[]"  # Python 3.14 has the latter


def asks_by_exception(code):
    """Whether it may ask for a key and catch what that raises."""
    return bool(EXCEPTIONS.intersection(code.co_names)) and any(map(takes_item, dis.get_instructions(code)))


def is_of_call_or_torch(source):
    """An argument of the call, or something of torch's own."""
    while hasattr(source, "base"):
        source = source.base
    return getattr(source, "local_name", "module") not in ("module", "self") or getattr(source, "global_name", "").startswith("__import_torch")


def keys_of(held):
    return frozenset(held) if len(held) <= MOST_KEYS else len(held)


def follow(expression, scope):
    return follow_expression(ast.parse(expression, mode="eval"), scope)


class Unguarded:
    """Of one captured module: see() inside each call of its backend, holds() before its graphs answer."""

    def __init__(self):
        self.absent = {}  # (class, name): the attributes of the class
        self.environment = None
        self.tuples = []  # with copies
        self.keys = []  # functions that find a dict, or an object, and the keys that it had

    def see(self):
        """What a proof about the call has to know: why there can be none, or "", the names of dicts whose keys count, whether it reads the environment."""
        try:
            from torch._dynamo.symbolic_convert import InstructionTranslator

            context = torch._guards.TracingContext.get()
            output = InstructionTranslator.current_tx().output
            scope = {"G": output.global_scope, "L": output.local_scope}
            codes = list(context.traced_code or ())
            tuples, names_of_dicts = len(self.tuples), []
            programs = [code for code in codes if not code.co_filename.startswith(OF_TORCH)]
            asks = any(map(asks_by_exception, programs))
            lists = any(LISTING.intersection(code.co_names) or code.co_name in ("__getattr__", "__getattribute__") for code in programs)
            for guard in list(context.guards_context.dynamo_guards):
                self.look_for_classes(guard.originating_source, scope)
                if not is_of_call_or_torch(guard.originating_source):
                    names_of_dicts += self.look_at_value(guard, scope, asks, lists)
            reads = reads_environment(codes)
            if reads:
                self.environment = self.environment or dict(variables())
            return "lists inside of a tuple" if len(self.tuples) > tuples else "", names_of_dicts, reads
        except Exception as problem:  # a torch whose insides are others than expected
            let_through(problem)
            return "", [], False

    def look_for_classes(self, source, scope):
        from torch._dynamo import source as kinds

        while source is not None:
            of_class = source.base if isinstance(source, kinds.DictGetItemSource) and isinstance(source.base, kinds.TypeDictSource) else None
            place = PLACE.fullmatch(of_class.base.name) if of_class is not None and isinstance(source.index, str) else None
            if place is not None:
                for kind in follow(place[1], scope)[:int(place[2])]:
                    if source.index not in vars(kind):
                        self.absent[kind, source.index] = vars(kind)
            source = getattr(source, "base", None)

    def look_at_value(self, guard, scope, asks, lists):
        """Names of dicts whose keys count from now on."""
        kind, name = guard.create_fn_name(), guard.originating_source.name
        if kind not in ("CONSTANT_MATCH", "EQUALS_MATCH") and not (kind == "TYPE_MATCH" and (asks or lists)):
            return []
        try:
            value = follow(name, scope)
        except Exception as problem:  # of the frame's stack, say
            let_through(problem)
            return []
        if kind != "TYPE_MATCH":
            if holds_mutable(value):
                self.tuples.append((value, copy.deepcopy(value)))
            return []
        if isinstance(value, dict):
            if not asks or value is variables():
                return []
            self.keys.append((lambda: value, keys_of(value)))
            return [name]
        if not lists or not isinstance(getattr(value, "__dict__", None), dict) or isinstance(value, (type, types.ModuleType, types.FunctionType)):
            return []
        if isinstance(value, torch.nn.Module) and type(value).__getattr__ is torch.nn.Module.__getattr__:
            return []  # TorchDynamo guards its attributes
        try:
            self.keys.append((weakref.ref(value), keys_of(vars(value))))
        except TypeError:
            return []
        return [f"{name}.__dict__"]

    def holds(self):
        try:
            return self.is_as_it_was()
        except Exception as problem:  # a dict that another thread changes meanwhile
            let_through(problem)
            return False

    def is_as_it_was(self):
        if self.environment is not None and self.environment != variables():
            return False
        for (_, name), held in self.absent.items():
            if name in held:
                return False
        for value, was in self.tuples:
            if value != was:
                return False
        for find, were in self.keys:
            one = find()
            held = one if isinstance(one, dict) else getattr(one, "__dict__", {})
            if len(held) != (were if isinstance(were, int) else len(were)) or not isinstance(were, int) and held.keys() != were:
                return False
        return True
