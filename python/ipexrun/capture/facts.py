"""What a call depends on outside of its module, found in the guards of TorchDynamo: facts to be asked for in each call, and described for a later process.

TorchDynamo guards what it reads. What lies in the module's attributes traced_graph.State watches; everything else, such as globals, closures and methods of
other classes, becomes a Fact: where it is held, under which name, and a description that means the same in another process. What is none of the kinds
below, or cannot be described, is no proof (Unproved). What else may come between, such as an attribute that hides one of a class, is a fact, too
(docs/decisions/0041-what-changes-under-a-capture.md).

Source of the method: the guards of torch._dynamo (torch 2.11 to 2.13), whose names are expressions of Python over G (globals) and L (the arguments).
Thread rule: every function runs under the interpreter lock.
"""

import ast
import functools
import re
import sys
import types

import torch

from .. import remembered
from ..problems import let_through
from . import environment
from .structures import Unknown, plain

MOST_FACTS = 2000
MISSING = object()
LASTING = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.CellType, tuple, str, int, float, bool, type(None))
PLAIN = (str, bytes, int, float, bool, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
# Guards about the state of the thread and of torch, which every call is asked for by others (hook, tracing.py).
OF_THE_PROCESS = {"SHAPE_ENV", "DETERMINISTIC_ALGORITHMS", "GRAD_MODE", "DEFAULT_DEVICE", "GLOBAL_STATE", "TORCH_FUNCTION_STATE",
                  "AUTOGRAD_SAVED_TENSORS_HOOKS", "FSDP_TRAINING_STATE", "FUNCTORCH_STACK_MATCH", "DUAL_LEVEL", "EMPTY_NN_MODULE_HOOKS_DICT"}
# About a value that is found by following the guard's expression: it is the same one, so whatever was asked about it holds.
OF_VALUES = {"TYPE_MATCH", "ID_MATCH", "CONSTANT_MATCH", "EQUALS_MATCH", "MODULE_MATCH", "FUNCTION_MATCH", "CLASS_MATCH", "CLOSURE_MATCH", "BUILTIN_MATCH",
             "NONE_MATCH", "NOT_NONE_MATCH", "BOOL_MATCH", "NN_MODULE", "TENSOR_MATCH"}
# About what is inside of a value.
OF_CONTENTS = {"SEQUENCE_LENGTH", "DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK"}
OF_KEYS = {"DICT_CONTAINS", "DICT_NOT_CONTAINS", "SET_CONTAINS", "SET_NOT_CONTAINS"}
OF_ATTRIBUTES = {"HASATTR", "NOT_PRESENT_IN_GENERIC_DICT"}


GLOBAL = re.compile(r"\bG\['\w+'\]")


class Unproved(Exception):
    """Why there is no proof."""


def digest_of_code(code):
    constants = [digest_of_code(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts if not isinstance(one, frozenset)]
    sets = [sorted(map(repr, one)) for one in code.co_consts if isinstance(one, frozenset)]
    return remembered.digest(code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants, sets)


def looks(value, depth=2):
    """A description by which another process knows its like: text, lists and numbers only."""
    try:
        return ["plain", repr(plain(value))]
    except Unknown:
        pass
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind is types.FunctionType:
        defaults = [looks(value.__defaults__, 1), looks(value.__kwdefaults__, 1)] if depth else []
        return ["function", value.__module__, value.__qualname__, digest_of_code(value.__code__), *defaults]
    if kind is types.MethodType:
        return ["method", looks(value.__func__, depth), type(value.__self__).__qualname__]
    if kind is types.ModuleType:
        return ["module", value.__name__]
    if isinstance(value, type):
        return ["class", value.__module__, value.__qualname__]
    if kind is types.CodeType:
        return ["code", digest_of_code(value)]
    if isinstance(value, torch.Tensor):
        return ["tensor", name, str(value.dtype), list(value.shape), value.requires_grad]
    if isinstance(value, tuple):
        return [name, len(value), *[looks(one, depth) for one in value]]
    if isinstance(value, list):
        return [name, len(value), *[looks(one, depth - 1) for one in value if depth]]
    if isinstance(value, (dict, types.MappingProxyType, set, frozenset)):
        return [name, remembered.digest(sorted(map(str, value)))]
    if isinstance(getattr(value, "__qualname__", None), str):  # of C
        return [name, str(getattr(value, "__module__", "")), value.__qualname__]
    if isinstance(value, (staticmethod, classmethod)):
        return [name, looks(value.__func__, depth)]
    return [name, sorted(vars(value)) if isinstance(getattr(value, "__dict__", None), dict) else ""]


def is_own(base, key):
    """Whether an object of no special kind has it itself."""
    return not isinstance(base, LASTING) and key in getattr(base, "__dict__", {})


class Fact:
    """Something outside the module's attributes: what `base` has under `key`, in one of these ways."""

    def __init__(self, way, expression, key, base):
        self.way, self.expression, self.key, self.base = way, expression, key, base
        self.read = self.reader()
        self.lasts = isinstance(base, types.CodeType)  # it never changes, and makes some of what it has anew each time
        self.value = self.read(key)
        if not self.holds():
            raise Unproved(f"{expression} gives another {key} each time")

    def reader(self):
        """A function of the key, in C where that is possible: calls ask all of them."""
        base = self.base
        if self.way == "size":
            return lambda _: tuple(base) if isinstance(base, dict) else frozenset(base) if isinstance(base, (set, frozenset)) else len(base)
        if self.way == "value":
            return lambda place: list(base.values())[place]
        if self.way == "has":
            return functools.partial(hasattr, base)
        if self.way == "type":
            return lambda _: type(base)
        if self.way == "own" or self.way == "attribute" and is_own(base, self.key):
            return lambda key: getattr(base, "__dict__", {}).get(key, MISSING)  # which may be another dict in the next call
        held = vars(base) if self.way == "class" else base if self.way == "item" else getattr(base, "__dict__", None)
        if isinstance(held, (dict, types.MappingProxyType)) and held.get(self.key) is not None and not (self.way != "class" and isinstance(base, type)):
            return held.get
        if isinstance(held, dict) and self.way == "item" or self.way == "class":  # of a class what it has itself, without its bases
            return lambda key: held.get(key, MISSING)
        if self.way == "item":
            return base.__getitem__
        return functools.partial(getattr, base) if hasattr(base, self.key) else lambda key: getattr(base, key, MISSING)

    def holds(self):
        if self.lasts:
            return True
        now = self.read(self.key)
        return now == self.value if self.way == "size" else now is self.value

    def described(self):
        """A digest: what a program keeps in its globals is nobody's business."""
        return remembered.digest("missing" if self.value is MISSING else looks(self.value))

    def text(self):
        return [self.way, self.expression, self.key, self.described()]


def follow_expression(node, names):
    """The value of an expression of attributes, items and types, such as guards are named by: nothing else is run."""
    if isinstance(node, ast.Expression):
        return follow_expression(node.body, names)
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(follow_expression(node.value, names), node.attr)
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else follow_expression(node.slice, names)
        return follow_expression(node.value, names)[key]
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict.keys" and len(node.args) == 1:
        return dict.keys(follow_expression(node.args[0], names))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict.__getitem__" and len(node.args) == 2:
        key = node.args[1].value if isinstance(node.args[1], ast.Constant) else follow_expression(node.args[1], names)
        return dict.__getitem__(follow_expression(node.args[0], names), key)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__getattribute__" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
        return object.__getattribute__(follow_expression(node.args[0], names), node.args[1].value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        values = [one.value if isinstance(one, ast.Constant) else follow_expression(one, names) for one in node.args]
        if node.func.id == "type" and len(values) == 1:
            return type(values[0])
        if node.func.id in ("dict", "list") and len(values) == 1:
            return {"dict": dict, "list": list}[node.func.id](values[0])
        if node.func.id == "getattr" and len(values) == 2:
            return getattr(*values)
        if node.func.id == "__import__" and len(values) == 1:
            return sys.modules[values[0]]
    raise Unproved("it is found in a way that is not known")


def holds_module(value):
    """Whether it is or holds a module or a tensor."""
    held = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple, set)) else ()
    if not isinstance(value, (type, types.ModuleType, types.FunctionType)) and isinstance(getattr(value, "__dict__", None), dict):
        held = [*held, *vars(value).values()]
    return any(isinstance(one, (torch.nn.Module, torch.Tensor)) for one in [value, *held])


def is_data(value, depth=3):
    """Whether it is a dict, list or set of nothing but plain values: it may be kept alive, for it keeps nothing else alive."""
    if not isinstance(value, (dict, list, tuple, set, frozenset)):
        return isinstance(value, PLAIN)
    held = [*(value.values() if isinstance(value, dict) else value), *getattr(value, "__dict__", {}).values()]
    return depth > 0 and all(is_data(one, depth - 1) for one in held)


class Finder:
    """Turns guards into facts."""

    def __init__(self, scope, module, state):
        self.scope = {"G": scope, "L": {"module": module}}
        self.state = state
        self.watched = state.seen | {id(vars(one)) for one in module.modules()}
        self.facts = {}
        self.values = {}  # of expressions

    def value(self, expression):
        if expression not in self.values:
            try:
                self.values[expression] = follow_expression(ast.parse(expression, mode="eval"), self.scope)
            except Unproved as why:
                raise Unproved(f"{expression}: {why}") from None
            except Exception as problem:
                let_through(problem)
                raise Unproved(f"{expression} cannot be asked for: {problem}") from None
        return self.values[expression]

    def add(self, way, expression, key):
        expression = GLOBAL.sub(self.lasting_name, expression)
        base = self.value(expression)
        if (id(base), way, key) in self.facts:
            return
        if expression.startswith("L[") and not isinstance(base, LASTING) and not is_data(base):
            raise Unproved(f"{expression} is an object of the module's own")
        if len(self.facts) >= MOST_FACTS:
            raise Unproved("it depends on too much")
        try:
            fact = Fact(way, expression, key, base)
        except (AttributeError, KeyError, IndexError, TypeError) as problem:
            raise Unproved(f"{expression} has no {key} to be asked for: {problem}") from None
        if holds_module(fact.value):
            raise Unproved(f"{expression} holds a module under {key}")  # which would never die
        self.facts[id(base), way, key] = fact

    def lasting_name(self, found):
        """TorchDynamo's names for modules are of its own making, some of them addresses."""
        value = self.value(found.group())
        return f"__import__({value.__name__!r})" if isinstance(value, types.ModuleType) else found.group()

    def guard(self, guard):
        kind = guard.create_fn_name()
        if kind in OF_THE_PROCESS:
            return
        source = guard.originating_source
        if self.is_argument(source):
            return  # express.py compares every call's arguments as a whole
        if self.is_mode(source):
            return  # calls are captured and answered under no other than those of the CPU as the default device (entry.py), which change nothing
        options = getattr(guard.create_fn, "keywords", {})
        attribute = options.get("attr")
        if kind == "HASATTR" and attribute is None:  # torch 2.11 names what is asked for by a source of its own
            from torch._dynamo import source as kinds

            source = source.base if isinstance(source, kinds.NNModuleSource) else source
            if isinstance(source, kinds.CodeSource):
                return  # a function has code
            source, attribute = source.base, source.member
        self.follow(source)
        if kind in OF_VALUES:
            return self.inside(source, kind)
        if kind in OF_CONTENTS | OF_KEYS and self.value(source.name) is environment.variables():
            return
        if kind in OF_CONTENTS:
            if not isinstance(self.value(source.name), (tuple, str)) and not self.is_watched(self.value(source.name)):
                self.add("size", source.name, "")
            return
        if kind == "DUPLICATE_INPUT":
            other = options.get("source_b")
            if not self.is_argument(other):
                return self.follow(other)
        if kind in OF_KEYS:
            if isinstance(options.get("key"), str) and "DICT" in kind and not self.is_watched(self.value(source.name)):
                self.item(source, options["key"])
            elif not self.is_watched(self.value(source.name)):
                self.add("size", source.name, "")
            return
        if kind in OF_ATTRIBUTES and isinstance(attribute, str):
            value = self.value(source.name)
            if self.is_watched(value):  # by State, which looks at what it holds, but not at its classes
                for i in range(len(type(value).__mro__) if kind == "HASATTR" else 0):
                    self.add("class", f"type({source.name}).__mro__[{i}]", attribute)
            else:
                self.add("has" if kind == "HASATTR" else "own", source.name, attribute)
            return
        raise Unproved(f"a guard of kind {kind} on {source.name}")

    def inside(self, source, kind):
        """What the same object may have inside: a function other code, a set other members."""
        value = self.value(source.name)
        if isinstance(value, types.FunctionType):
            self.add("attribute", source.name, "__code__")
        elif isinstance(value, set) and not self.is_watched(value):
            self.add("size", source.name, "")
        elif isinstance(value, (bytearray, list)) and kind != "TYPE_MATCH" and not self.is_watched(value):  # compared as a whole, bytes by torch 2.15
            raise Unproved(f"{source.name} may have other members")

    @staticmethod
    def is_argument(source):
        while hasattr(source, "base"):
            source = source.base
        return getattr(source, "local_name", "module") != "module"

    @staticmethod
    def is_mode(source):
        while hasattr(source, "base"):
            source = source.base
        return type(source).__name__ == "TorchFunctionModeStackSource"

    def is_watched(self, value):
        """Whether traced_graph.State compares what it holds in each call; of a tensor it compares no attributes."""
        return not isinstance(value, torch.Tensor) and (id(value) in self.watched or id(getattr(value, "__dict__", None)) in self.watched)

    def item(self, source, key):
        """Of a dictionary; TorchDynamo copies those of classes."""
        from torch._dynamo import source as kinds

        if isinstance(source, kinds.TypeDictSource):
            self.of_class(source.base.name, key)
        else:
            self.add("item", source.name, key)

    def follow(self, source):
        """Every link from a global or the module to what is guarded."""
        from torch._dynamo import source as kinds

        if isinstance(source, kinds.ImportSource):
            return
        if isinstance(source, (kinds.GlobalSource, kinds.LocalSource)):
            if isinstance(source, kinds.GlobalSource) and not isinstance(self.value(source.name), types.ModuleType):
                if source.global_name.startswith("__builtins_dict__"):
                    return
                self.add("item", "G", source.global_name)
            return
        base = getattr(source, "base", None)
        if base is None:
            raise Unproved(f"{type(source).__name__} {source.name}")
        self.follow(base)
        if isinstance(source, getattr(kinds, "SkipGuardSource", ())):
            return  # the same thing
        if isinstance(source, kinds.CellContentsSource):
            self.add("attribute", base.name, "cell_contents")
        elif isinstance(source, (kinds.CodeSource, kinds.ClosureSource)):
            self.add("attribute", base.name, "__code__" if isinstance(source, kinds.CodeSource) else "__closure__")
        elif isinstance(source, kinds.DefaultsSource):
            self.add("attribute", base.name, "__kwdefaults__" if source.is_kw else "__defaults__")
            if source.is_kw:
                self.add("item", f"{base.name}.__kwdefaults__", source.idx_key)
        elif isinstance(source, (kinds.AttrSource, kinds.GenericAttrSource)):
            self.attribute(base, source.member)
        elif isinstance(source, (kinds.DictGetItemSource, getattr(kinds, "DictSubclassGetItemSource", kinds.DictGetItemSource))):
            if isinstance(source.index, kinds.ConstDictKeySource):
                self.follow(source.index)
                return self.add("value", base.name, source.index.index)
            if self.value(base.name) is environment.variables():
                return  # whose variables are noted while the trace is made
            if not isinstance(source.index, (str, int)):
                raise Unproved(f"{source.name}: a key that is neither text nor a number")
            if not self.is_watched(self.value(base.name)):
                self.item(base, source.index)
        elif isinstance(source, kinds.GetItemSource):
            value = self.value(base.name)
            if not isinstance(value, tuple) and not self.is_watched(value):
                if not isinstance(value, list) or not isinstance(source.index, int):
                    raise Unproved(f"{source.name}: an item of a {type(value).__name__}")
                self.add("item", base.name, source.index)
        elif isinstance(source, kinds.ConstDictKeySource):
            self.add("size", base.name, "")
        elif isinstance(source, kinds.TypeSource):
            self.kind(base)
        elif not isinstance(source, (kinds.TypeMROSource, kinds.TypeDictSource, kinds.NNModuleSource)):
            raise Unproved(f"{type(source).__name__} {source.name}")

    def kind(self, source):
        """Its class may be changed: State looks at those of modules and at what it knows."""
        value = self.value(source.name)
        if not isinstance(value, LASTING) and not self.is_watched(value):
            self.add("type", source.name, "")

    def of_class(self, expression, member):
        """What a class has, found there because none has it that is asked before: a class may get it later."""
        place = re.fullmatch(r"(.+\.__mro__)\[(\d+)\]", expression)
        if place:
            self.add("attribute", place[1].removesuffix(".__mro__"), "__mro__")
        for i in range(int(place[2]) if place else 0):
            self.add("class", f"{place[1]}[{i}]", member)
        self.add("class", expression, member)

    def attribute(self, base, member):
        value = self.value(base.name)
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict) and member in held:
            if not self.is_watched(value) and held[member] is not environment.variables():
                self.add("attribute", base.name, member)
        elif isinstance(value, torch.nn.Module) and any(member in vars(value)[kind] for kind in ("_parameters", "_buffers", "_modules")):
            return
        elif isinstance(value, LASTING):
            self.add("attribute", base.name, member)
        else:
            self.attribute_of_class(base, value, member)

    def attribute_of_class(self, base, value, member):
        """What no object of the module's own has itself is found in its class; the object may get it later."""
        found = [i for i, kind in enumerate(type(value).__mro__) if member in vars(kind)]
        if not found:
            raise Unproved(f"{base.name}.{member} is found by code of its own")
        self.of_class(f"type({base.name}).__mro__[{found[0]}]", member)
        self.kind(base)
        if self.is_watched(value):
            return  # State looks at what it holds
        held = vars(type(value).__mro__[found[0]])[member]
        slot = isinstance(held, (types.MemberDescriptorType, types.GetSetDescriptorType))
        self.add("attribute" if slot else "own", base.name, member)
