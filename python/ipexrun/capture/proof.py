"""What TorchDynamo found out about one call of a module that it captured as a single graph: that the Python in it only computes, and what that Python
depends on (facts.py). A trace of such a call, which sees operators and nothing else, then leaves nothing out (express.py): in this process while all it
depends on is as it was, in a later one where it is found as it was described (known_proof()).

Thread rule: every function runs under the interpreter lock.
"""

import _imp
import builtins
import dis
import glob
import hashlib
import importlib
import json
import os
import stat
import sys
import types

import torch

from .. import remembered
from ..problems import let_through
from . import capturable, environment
from .facts import Finder, Unproved, looks

VERSION = 5
OF_TORCH, OF_PYTHON, OURS = (os.path.join(os.path.dirname(path), "") for path in (torch.__file__, os.__file__, os.path.dirname(__file__)))
MOST_CALLS = 64  # descriptions of calls that are kept for later processes
MOST_FILES = 64  # proofs, of which the oldest go
MOST_BYTES = 16 << 20  # of one, whose facts are 2000 at most


def is_whole(code):
    """Of the graph that TorchDynamo is handing over: whether it followed the Python of the call from its first frame, which runs `code`, to the end. Else a
    part is left that nobody looked at: a function that TorchDynamo is not to follow leaves no other trace where its result is returned."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    output = InstructionTranslator.current_tx().output
    # Some are called behind the graph if the program wishes so, without an end of it.
    logs = torch._dynamo.config.reorderable_logging_functions
    return output.root_tx.f_code is code and not output.compile_subgraph_reason.graph_break and not logs


def name_read(code, attribute):
    """Whether it does more than set the attribute of this name: asks for it, or has its name as a text."""
    if holds_text(code.co_consts, attribute):
        return True
    return attribute in code.co_names and any(one.argval == attribute and not one.opname.startswith("STORE") for one in dis.get_instructions(code))


def holds_text(constants, text):
    return any(one == text or isinstance(one, (tuple, frozenset)) and holds_text(one, text) for one in constants)


class Seen:
    """What TorchDynamo knows of a graph when it hands it over. `whole`: see is_whole()."""

    def __init__(self, code, unguarded):
        from torch._dynamo.symbolic_convert import InstructionTranslator

        context = torch._guards.TracingContext.get()
        output = InstructionTranslator.current_tx().output
        self.whole = is_whole(code)
        self.guards = list(context.guards_context.dynamo_guards)  # torch empties the set afterwards
        self.scope = output.global_scope
        self.codes = list(context.traced_code or ())
        asks = any(name_read(one, "requires_grad") for one in self.codes)
        unproved, self.names_of_dicts, self.reads_environment = unguarded
        self.unproved = unproved or ("it asks what wants gradients" if asks else "")  # which traced_graph.State does not look at
        self.changes = changes(output.side_effects)


def seen(code, unguarded):
    """`unguarded`: what unguarded.Unguarded.see() gave. None: a torch whose insides are others than expected."""
    try:
        return Seen(code, unguarded)
    except Exception as problem:
        let_through(problem)
        return None


def changes(effects):
    """Whether the call changes objects that were there before it. An attribute that is given the value it has is none."""
    from torch._dynamo.variables.base import AttributeMutationExisting, AttributeMutationNew, ValueMutationNew

    def is_changed(one):
        if not effects.is_modified(one):
            return False
        return not isinstance(one.mutation_type, AttributeMutationExisting) or not keeps_its_values(one, effects.store_attr_mutations.get(one, {}))

    # The stack of modes counts as changed where a context was entered and left.
    old = [one for one in effects.id_to_variable.values() if not isinstance(one.mutation_type, (AttributeMutationNew, ValueMutationNew))
           and type(one).__name__ != "TorchFunctionModeStackVariable"]
    return bool(effects.tensor_hooks) or any(map(is_changed, old))


def keeps_its_values(variable, mutations):
    held = getattr(getattr(variable, "value", None), "__dict__", None)
    if not isinstance(held, dict) or not mutations:
        return False
    for name, now in mutations.items():
        if name not in held or not now.is_python_constant():
            return False
        if held[name] is not now.as_python_constant():  # an equal number that is another object would show in State.holds()
            return False
    return True


class Proof:
    """Facts about one module, and the calls of it that they are enough for. `codes`: what was followed, in the process that did. `environment`: values of the
    variables that its traces read, None where the calls read none."""

    def __init__(self, facts, files, calls=(), codes=(), environment=None):
        self.facts = facts
        self.codes = dict.fromkeys(codes)
        self.same = tuple((fact.read, fact.key, fact.value) for fact in facts if fact.way != "size" and not fact.lasts)
        self.all_same = importlib.import_module("_ipexrun_hook").all_same
        self.sizes = [fact for fact in facts if fact.way == "size"]
        self.files = files
        self.calls = dict.fromkeys(calls)  # digests, in order
        self.environment = environment

    def holds(self):
        try:
            return self.all_same(self.same) and all(fact.holds() for fact in self.sizes) and not (self.environment and self.environment_changed())
        except Exception as problem:  # a list that has become shorter, say
            let_through(problem)
            return False

    def environment_changed(self):
        return any(environment.value_of(name) != value for name, value in self.environment.items())

    def read(self, names):
        """What a trace read of the environment while all facts held: so do all calls that these are enough for."""
        self.environment = {**{name: environment.value_of(name) for name in names}, **self.environment}

    def covers(self, call):
        return call in self.calls

    def join(self, other):
        """What was found out later, of other calls."""
        known = {(id(fact.base), fact.way, fact.key) for fact in self.facts}
        facts = [*self.facts, *(fact for fact in other.facts if (id(fact.base), fact.way, fact.key) not in known)]
        known = [one.environment for one in (other, self) if one.environment is not None]
        read = {name: value for held in known for name, value in held.items()} if known else None
        self.__init__(facts, {**self.files, **other.files}, [*self.calls, *other.calls], [*self.codes, *other.codes], read)

    def add(self, call):
        self.calls.pop(call, None)
        self.calls[call] = None
        while len(self.calls) > MOST_CALLS:
            del self.calls[next(iter(self.calls))]

    def save(self, module, path):
        """For later processes, if they can tell that each function which was followed is the same. A file that cannot be written is none."""
        functions = functions_of(module, self.facts)
        described = {id(one) for function in functions.values() for one in codes_inside(function.__code__)}
        if any(id(code) not in described and not is_known_otherwise(code) for code in self.codes):
            return
        text = {"version": VERSION, "made by": made_by(), "module": looks_of_module(module), "files": self.files,
                "functions": digest_of_functions(functions), "facts": [fact.text() for fact in self.facts], "calls": list(self.calls),
                "environment": {os.fsdecode(name): environment.described(value) for name, value in self.environment.items()} if self.environment is not None else None}
        write_whole(path, json.dumps(text))
        put_out_the_oldest(os.path.dirname(path))


def path_of(name):
    """The file of proofs about modules of this name (remembered.OfModule); "" where nothing is kept."""
    folder = remembered.folder()
    return os.path.join(folder, f"proof-{name}") if folder and name else ""


def write_whole(path, text):
    """Under another name first, so that nobody reads half of it."""
    if not path:
        return
    other = f"{path}.{os.getpid()}"
    try:
        descriptor = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            os.replace(other, path)
        except OSError:
            os.unlink(other)
            raise
    except OSError as problem:
        let_through(problem)


def put_out_the_oldest(folder):
    try:
        files = sorted(glob.glob(os.path.join(glob.escape(folder), "proof-*")), key=os.path.getmtime)
        for one in files[:-MOST_FILES]:
            os.unlink(one)
    except OSError as problem:  # another process has
        let_through(problem)


def made(module, state, graphs):
    """The proof of calls that were captured as one graph each; raises Unproved."""
    finder = None
    codes = {}
    for one in graphs:
        if one is None:
            raise Unproved("TorchDynamo does not say what it found")
        if not one.whole:
            raise Unproved("TorchDynamo did not follow all of it")
        if one.changes:
            raise Unproved("the call changes something")
        if one.unproved:
            raise Unproved(one.unproved)
        finder = finder or Finder(one.scope, module, state)
        for name in one.names_of_dicts:
            if not finder.is_watched(finder.value(name)) and not finder.is_watched(finder.value(name.removesuffix(".__dict__"))):
                finder.add("size", name, "")
        for guard in one.guards:
            finder.guard(guard)
        codes.update(dict.fromkeys(one.codes))
    if finder is None:
        raise Unproved("no graph")
    if any(fact.value == "requires_grad" for fact in finder.facts.values() if isinstance(fact.value, str)):
        raise Unproved("it asks what wants gradients")
    return Proof(list(finder.facts.values()), files_of(codes), codes=codes, environment={} if any(one.reads_environment for one in graphs) else None)


def made_by():
    return [torch.__version__, sys.version, sys.flags.optimize]


def functions_of(module, facts):
    """All functions of the classes whose methods the calls may run, by the class's module and name and the function's; and those that the facts hold, by
    the module and name of their own."""
    found = {}
    kinds = set(capturable.classes_of(module))
    for value in [*(one for fact in facts for one in (fact.base, fact.value)), *objects_inside(module)]:
        kinds.update(value.__mro__ if isinstance(value, type) else type(value).__mro__)
        if isinstance(value, types.FunctionType):
            found[value.__module__, value.__qualname__, id(value)] = value
    for kind in kinds:
        if kind.__module__ != "builtins" and kind is not torch.nn.Module:
            for name, value in list(vars(kind).items()):
                for i, one in enumerate(plain_functions(value)):
                    found[kind.__module__, kind.__qualname__, f"{name} {i}"] = one
    return found


def objects_inside(module):
    """Plain objects that modules hold, and what these hold."""
    found, depth = [value for one in module.modules() for value in vars(one).values()], 3
    every, seen = [], set()
    while found and depth:
        new = [one for one in found if id(one) not in seen and isinstance(getattr(one, "__dict__", None), dict)
               and not isinstance(one, (type, types.ModuleType, types.FunctionType, torch.Tensor, torch.nn.Module))]
        seen.update(map(id, new))
        every += new
        found, depth = [value for one in new for value in vars(one).values()], depth - 1
    return every


def plain_functions(value):
    """Those behind an attribute of a class."""
    if isinstance(value, property):
        value = [value.fget, value.fset, value.fdel]
    else:
        value = [getattr(value, "__func__", getattr(value, "func", value))]
    return [one for one in value if isinstance(one, types.FunctionType)]


def is_known_otherwise(code):
    """Whether it is torch's, ours, Python's own, or made of what is written in a class: the same in a later process without being described."""
    name = code.co_filename
    return name.startswith((OF_TORCH, OURS, "<frozen ")) or name.startswith(OF_PYTHON) and "-packages" not in name or is_of_dataclass(code)


def codes_inside(code):
    yield code
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from codes_inside(one)


def digest_of_functions(functions):
    return remembered.digest(sorted(repr([*key[:2], "" if isinstance(key[2], int) else key[2], looks(one)]) for key, one in functions.items()))


def files_of(codes):
    """Where the Python lies, each file with its size and the time of its last change."""
    found = {}
    for code in codes:
        name = code.co_filename
        if name in found or is_of_dataclass(code):
            continue
        try:
            found[name] = about_file(name)
        except OSError:
            found[name] = None  # typed in, or made by the program: no later process knows it
    return found


def is_of_dataclass(code):
    """Made by dataclasses of what is written in a class."""
    return code.co_qualname.startswith("__create_fn__.<locals>.")


def about_file(name):
    """By which a later process knows that code of this file is the same; raises OSError where there is no such file."""
    if name.startswith("<frozen ") and _imp.is_frozen(name[len("<frozen "):-1]):  # inside of the interpreter
        return sys.version
    about = os.stat(name)
    return [about.st_size, about.st_mtime_ns]


def looks_of_module(module):
    """A digest of all that its attributes show but the numbers in its tensors."""
    parts = []
    known = {}

    def part(value, depth):
        if isinstance(value, torch.nn.Module):
            return "module"
        if id(value) in known:
            return known[id(value)]
        if isinstance(value, (dict, list, tuple, set)) and depth:
            inside = [(repr(key), part(one, depth - 1)) for key, one in value.items()] if isinstance(value, dict) else \
                sorted(map(repr, value)) if isinstance(value, set) else [part(one, depth - 1) for one in value]
            return type(value).__name__, inside
        if isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, (torch.Tensor, type, types.FunctionType, types.ModuleType)) and depth:
            known[id(value)] = f"object {len(known)}"
            return looks(value), part(vars(value), depth - 1)
        return looks(value)

    for name, one in module.named_modules():
        parts.append((name, type(one).__module__, type(one).__qualname__))
        parts += [(key, part(value, 3)) for key, value in vars(one).items() if "_hooks" not in key and key not in ("_modules",)]
    return hashlib.sha256(repr(parts).encode(errors="replace")).hexdigest()


def text_of(path):
    """Of a file as save() makes it. A pipe would keep the call waiting for ever, and a device has no end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
            raise OSError("not a proof")
        return file.read()


def known_proof(module, state, path):
    """What an earlier process proved, if everything is as it was described there; else None."""
    try:
        text = json.loads(text_of(path))
        if (text["version"], text["made by"]) != (VERSION, made_by()) or not text["calls"] or text["module"] != looks_of_module(module):
            return None
        if any(about_file(name) != about for name, about in text["files"].items()):
            return None
        read = text["environment"] and {os.fsencode(name): digest for name, digest in text["environment"].items()}
        if any(environment.described(environment.value_of(name)) != digest for name, digest in (read or {}).items()):
            return None
        finder = Finder(Globals(), module, state)
        for way, expression, key, described in text["facts"]:
            finder.add(way, expression, key)
            fact = finder.facts[id(finder.value(expression)), way, key]
            if fact.described() != described:
                return None
        facts = list(finder.facts.values())
        if digest_of_functions(functions_of(module, facts)) != text["functions"]:
            return None
        return Proof(facts, text["files"], text["calls"], environment=read and {name: environment.value_of(name) for name in read})
    except Exception as problem:  # no file, or a damaged one
        let_through(problem)
        return None


class Globals(dict):
    """G where TorchDynamo has not been."""

    def __missing__(self, name):
        if name.startswith("__builtins_dict__"):
            return vars(builtins)
        raise KeyError(name)
