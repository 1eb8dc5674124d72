"""What TorchDynamo reads while it traces a call and does not look at again (seen in torch 2.11 to 2.13), so that its graph would go on answering with what
was there then. Found by changing what programs read (tests/capture/changed_cases.py):

- the variables of the environment;
- an attribute that a class got which was found in one of its bases;
- lists, sets and dicts inside a tuple, which is compared with itself;
- keys of dicts and attributes that were not there, where a function asks by an exception;
- attributes that an object got, where a function lists them or has a `__getattr__` of its own;
- hooks of modules that are none of the captured one's, and methods of what the call meets wherever it lies.

Where a guard of TorchDynamo's own says it, the graph gets one: it holds for the arguments of a call, too, and a proof takes it over. The rest is asked here.

Thread rule: every function runs under the interpreter lock.
"""

import abc
import ast
import copy
import dis
import functools
import inspect
import os
import re
import sys
import traceback
import types
import weakref

import torch

from ..problems import first_line, let_through
from . import capturable
from .environment import variables
from .facts import follow_expression
from .rebuilt import NotAsItIs

PLACE = re.compile(r"(.+\.__mro__)\[(\d+)\]")
MOST_KEYS = 256  # of one dict or object; of a larger one their number alone is compared
LISTING = {"vars", "__dict__", "dir"}
MUTABLE = (list, set, dict, bytearray)
NO_OPERATIONS = {"CACHE", "NOP", "EXTENDED_ARG", "PUSH_NULL", "PRECALL", "RESUME"}
OF_TORCH, OF_PYTHON = (os.path.join(os.path.dirname(one.__file__), "") for one in (torch, os))  # TorchDynamo knows torch's own functions
ASKED = "_ipexrun_asked"
EXCEPTIONS = {"AttributeError", "KeyError", "LookupError", "Exception", "BaseException"}
HOOKS = (*capturable.Hooks.KINDS, "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
NOT_FOLLOWED = "what it asks for by an exception cannot be looked at again"
watched = False


def watch():
    """From now on TorchDynamo's traces note which names and keys were not there: what raised in a call that went on. Nothing else says so afterwards."""
    global watched
    inside = sys.modules.get("torch._dynamo.symbolic_convert")
    kind = getattr(inside, "InstructionTranslatorBase", None)
    handle = getattr(kind, "exception_handler", None)
    if handle is None or hasattr(handle, ASKED):
        return

    @functools.wraps(handle)
    def exception_handler(self, problem, *more):
        try:
            note(self, problem)
        except Exception as other:  # a torch whose insides are others than expected
            let_through(other)
        return handle(self, problem, *more)

    setattr(exception_handler, ASKED, True)
    kind.exception_handler = exception_handler
    watched = True


def note(translator, problem):
    """What was asked (by the innermost of TorchDynamo's values, for those have sources) and for which name or key; on its way outwards it comes by once more."""
    is_key = "KeyError" in type(problem).__name__
    if hasattr(problem, ASKED) or not (is_key or "AttributeError" in type(problem).__name__):
        return
    setattr(problem, ASKED, True)
    source = name = None
    for frame, _ in traceback.walk_tb(problem.__traceback__):
        names = frame.f_locals
        for one in (names.get("self"), names.get("obj")):
            source = getattr(one, "source", None) or source
        name = names["name"] if isinstance(names.get("name"), str) else name
    if is_key:
        try:
            name = problem.args[0].as_python_constant()
        except Exception as other:  # it does not say, or it is none
            let_through(other)
            name = None
    vars(translator.output).setdefault(ASKED, []).append((is_key, source, name))


def has_itself(value, name):
    """Whether it or one of its classes has an attribute, no code of theirs being asked."""
    missing = object()
    if inspect.getattr_static(value, name, missing) is not missing:
        return True
    return isinstance(value, torch.nn.Module) and any(name in vars(value).get(kind, ()) for kind in ("_parameters", "_buffers", "_modules"))


def reads_environment(codes):
    """Whether one of the ways to a variable, to their names or to their number was followed."""
    ways = [*vars(type(os.environ)).values(), *vars(os.environ).values()]
    return not {one.__code__ for one in ways if isinstance(one, types.FunctionType)}.isdisjoint(codes)


def holds_mutable(value):
    return isinstance(value, tuple) and any(isinstance(one, MUTABLE) or holds_mutable(one) for one in value)


def is_of_call_or_torch(source):
    """An argument of the call, or something of torch's own."""
    return is_of_call(source) or getattr(root_of(source), "global_name", "").startswith("__import_torch")


def is_of_call(source):
    return getattr(root_of(source), "local_name", "module") not in ("module", "self")


def root_of(source):
    while hasattr(source, "base"):
        source = source.base
    return source


def keys_of(held):
    return frozenset(held) if len(held) <= MOST_KEYS else len(held)


def follow(expression, scope):
    return follow_expression(ast.parse(expression, mode="eval"), scope)


def lists(code):
    return not LISTING.isdisjoint(code.co_names)


def lists_itself(code):
    """Whether its first argument is all of which it lists attributes."""
    done = [one for one in dis.get_instructions(code) if one.opname not in NO_OPERATIONS]
    its = [one.opname.startswith("LOAD_FAST") and code.co_argcount > 0 and one.argval == code.co_varnames[0] for one in done]
    for i, one in enumerate(done):
        if one.argval == "__dict__" and not (i and its[i - 1]):
            return False
        if one.argval in ("vars", "dir") and not (any(its[i + 1:i + 2]) and done[i + 2].opname.startswith("CALL")):
            return False
    return True


def codes_of(kind):
    """Of its methods that are plain functions."""
    return {getattr(one, "__code__", None) for base in kind.__mro__ for one in list(vars(base).values())}


class Lists:
    """Of which modules functions list attributes: those of these `kinds`, whose methods they are, or `all`. Python's own list what they copy and show."""

    def __init__(self, listing, kinds):
        own = {kind: codes_of(kind) for kind in kinds if listing}
        its = {code for code in listing if lists_itself(code) and any(code in codes for codes in own.values())}
        self.kinds = {kind for kind, codes in own.items() if not listing.isdisjoint(codes)}
        self.all = any(not code.co_filename.startswith(OF_PYTHON) for code in listing - its)


def kinds_of(met):
    """Of objects, and classes among them; tensors have torch's."""
    kinds = {one if isinstance(one, type) else type(one) for one in met}
    return {kind for kind in kinds if not issubclass(kind, torch.Tensor)}


def made_of(kind):
    """The classes whose methods its calls may run, but for torch's that are no modules. TorchDynamo puts methods of its own into Module itself."""
    module = torch.nn.Module
    return [one for one in kind.__mro__ if one is not module and one.__module__ != "builtins" and (issubclass(one, module) or not is_of_torch(one.__module__))]


def is_of_torch(name):
    return name == "torch" or name.startswith("torch.")


class Guards:
    """More of them for the graph that TorchDynamo is handing over."""

    def __init__(self, context):
        from torch._dynamo.guards import GuardBuilder

        self.kinds = GuardBuilder
        self.add_one = context.guards_context.dynamo_guards.add

    def add(self, source, kind, **options):
        made = getattr(self.kinds, kind)
        self.add_one(source.make_guard(functools.partial(made, **options) if options else made))

    def lacks_attribute(self, source, name):
        from torch._dynamo.source import AttrSource

        if "attr" in inspect.signature(self.kinds.HASATTR).parameters:
            self.add(source, "HASATTR", attr=name)
        else:  # torch 2.11
            self.add(AttrSource(source, name), "HASATTR")

    def lacks_key(self, source, held, key):
        if isinstance(key, (str, int)) and hasattr(self.kinds, "DICT_NOT_CONTAINS"):
            if key not in held:  # else the call itself has taken it out before
                self.add(source, "DICT_NOT_CONTAINS", key=key)
        else:
            self.has_keys(source, held)

    def has_keys(self, source, held):
        plain = len(held) <= MOST_KEYS and all(type(key) is str for key in held)
        self.add(source, "DICT_KEYS_MATCH" if plain else "SEQUENCE_LENGTH")


class Unguarded:
    """Of one captured module: see() inside each call of its backend, holds() before its graphs answer."""

    def __init__(self):
        self.module = lambda: None  # weakly
        self.absent = {}  # (class, name): the attributes of the class
        self.environment = None
        self.tuples = []  # with copies
        self.keys = []  # functions that find an object, and the names of its attributes
        self.classes, self.methods, self.versions = (), (), bytearray()  # hook.unchanged()
        self.abstract, self.token = [], None  # (class, abstract class, whether it is one), and what changes with these

    def see(self):
        """What a proof about the call has to know: why there can be none, or "", the names of dicts whose keys count, whether it reads the environment."""
        try:
            from torch._dynamo.symbolic_convert import InstructionTranslator

            context = torch._guards.TracingContext.get()
            output = InstructionTranslator.current_tx().output
            scope = {"G": output.global_scope, "L": output.local_scope}
            if isinstance(scope["L"].get("module"), torch.nn.Module):
                self.module = weakref.ref(scope["L"]["module"])
            codes = list(context.traced_code or ())
            tuples, names_of_dicts = len(self.tuples), []
            programs = {code for code in codes if not code.co_filename.startswith(OF_TORCH)}
            listing = {code for code in programs if lists(code)}
            own = listing or any(code.co_name in ("__getattr__", "__getattribute__") for code in programs)
            names = {name for code in programs for name in code.co_names}
            guards, found = Guards(context), list(context.guards_context.dynamo_guards)
            if not names.isdisjoint(capturable.FRAMES):
                raise NotAsItIs(capturable.OF_FRAMES)
            if not watched and not names.isdisjoint(EXCEPTIONS):
                raise NotAsItIs(NOT_FOLLOWED)
            for is_key, source, name in vars(output).get(ASKED, ()):
                self.look_for_what_was_asked(is_key, source, name, scope, guards)
            met = [one for one in output.side_effects.id_to_variable.values() if one.source is not None]
            kinds = kinds_of(output.side_effects.keepalive)
            self.look_at_modules(met, Lists(listing, kinds), not names.isdisjoint(HOOKS), guards)
            self.look_at_classes(kinds, output.side_effects.keepalive, names)
            for guard in found:
                self.look_for_classes(guard.originating_source, scope)
                if not is_of_call_or_torch(guard.originating_source):
                    names_of_dicts += self.look_at_value(guard, scope, own)
                elif own and is_of_call(guard.originating_source) and guard.create_fn_name() == "TYPE_MATCH":
                    self.look_at_argument(guard.originating_source, scope, guards)
            reads = reads_environment(codes)
            if reads:
                self.environment = self.environment or dict(variables())
            return "lists inside of a tuple" if len(self.tuples) > tuples else "", names_of_dicts, reads
        except NotAsItIs:
            raise
        except Exception as problem:  # a torch whose insides are others than expected
            let_through(problem)
            raise NotAsItIs(f"what TorchDynamo read cannot be looked at: {first_line(problem)}") from None

    @staticmethod
    def look_for_what_was_asked(is_key, source, name, scope, guards):
        if source is None:
            return  # the call has made it
        try:
            value = follow(source.name, scope)
            if is_key and isinstance(value, dict):
                if value is not variables():
                    guards.lacks_key(source, value, name)
            elif not is_key and name is not None:
                if not has_itself(value, name):
                    guards.lacks_attribute(source, name)
            elif not callable(value):  # else a function, by which something was asked that the call has made
                raise NotAsItIs(NOT_FOLLOWED)
        except NotAsItIs:
            raise
        except Exception as problem:
            let_through(problem)
            raise NotAsItIs(NOT_FOLLOWED) from None

    def look_at_modules(self, met, lists, hooks, guards):
        """Those of the captured one are looked at by capturable.Hooks and by TorchDynamo, but for attributes that a function lists."""
        from torch._dynamo.source import AttrSource

        module = self.module()
        known = set(map(id, module.modules())) if module is not None else set()
        for variable in met:
            one = vars(variable).get("value")  # of some it is computed, which takes in what nobody has used
            if not isinstance(one, torch.nn.Module):
                continue
            for kind in HOOKS if hooks or id(one) not in known else ():
                guards.add(AttrSource(variable.source, kind), "SEQUENCE_LENGTH")
            if lists.all or type(one) in lists.kinds:
                if is_of_call(variable.source):
                    guards.has_keys(AttrSource(variable.source, "__dict__"), vars(one))
                else:
                    self.keys.append((weakref.ref(one), keys_of(vars(one))))

    def look_at_classes(self, kinds, met, names):
        """Their methods (`__call__`, for code that asks whether it can be called); and which of them count as an abstract class, where that is asked."""
        module = self.module()
        looked_at = {*self.classes, *(capturable.classes_of(module) if module is not None else ())}
        new = tuple({one for kind in kinds for one in made_of(kind)} - looked_at)
        if new:
            hook = sys.modules["_ipexrun_hook"]
            self.classes, self.methods = self.classes + new, self.methods + hook.snapshot(new)
            self.versions = bytearray(8 * len(self.classes))
        if not names.isdisjoint(("isinstance", "issubclass")):
            plain = {one for one in met if type(one) is abc.ABCMeta}
            self.abstract += [(kind, one, issubclass(kind, one)) for kind in kinds for one in plain]
            self.token = abc.get_cache_token()

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

    def look_at_value(self, guard, scope, own):
        """Names of dicts whose keys count from now on."""
        kind, name = guard.create_fn_name(), guard.originating_source.name
        if kind not in ("CONSTANT_MATCH", "EQUALS_MATCH") and not (kind == "TYPE_MATCH" and own):
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
        if not has_attributes(value):
            return []
        try:
            self.keys.append((weakref.ref(value), keys_of(vars(value))))
        except TypeError:
            return []
        return [f"{name}.__dict__"]

    @staticmethod
    def look_at_argument(source, scope, guards):
        from torch._dynamo.source import AttrSource

        try:
            value = follow(source.name, scope)
        except Exception as problem:
            let_through(problem)
            return
        if has_attributes(value):
            guards.has_keys(AttrSource(source, "__dict__"), vars(value))

    def holds(self):
        if not watched:
            watch()  # before the first trace of a training step
        try:
            return self.is_as_it_was()
        except Exception as problem:  # a dict that another thread changes meanwhile
            let_through(problem)
            return False

    def is_as_it_was(self):
        if self.environment is not None and self.environment != variables():
            return False
        if self.classes and not sys.modules["_ipexrun_hook"].unchanged(self.classes, self.methods, self.versions):
            return False
        for (_, name), held in self.absent.items():
            if name in held:
                return False
        for value, was in self.tuples:
            if value != was:
                return False
        for find, were in self.keys:
            held = getattr(find(), "__dict__", {})
            if len(held) != (were if isinstance(were, int) else len(were)) or not isinstance(were, int) and held.keys() != were:
                return False
        return self.token is None or self.token == abc.get_cache_token() or self.are_no_others()

    def are_no_others(self):
        """Some class of the process was registered with an abstract one."""
        token = abc.get_cache_token()
        if any(issubclass(kind, one) != was for kind, one, was in self.abstract):
            return False
        self.token = token
        return True


def has_attributes(value):
    """Whether it is an object of no special kind, of which TorchDynamo does not guard that it has no others. Of modules it does (look_at_modules()), and
    into tensors its compiler puts marks."""
    if isinstance(value, (dict, type, types.ModuleType, types.FunctionType, torch.Tensor)) or not isinstance(getattr(value, "__dict__", None), dict):
        return False
    return not (isinstance(value, torch.nn.Module) and type(value).__getattr__ is torch.nn.Module.__getattr__)
