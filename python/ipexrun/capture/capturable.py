"""Which modules may be captured, and whether one still has the hooks, classes and methods that it had when it was traced. Nothing here changes a module."""

import collections
import os
import re
import sys
import types
import weakref

import torch

UNGUARDED = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2]) < (2, 13)


def is_taken_as_it_is(module):
    """Why a module is no target: somebody has captured, wrapped or replaced it already."""
    if isinstance(module, (torch.jit.ScriptModule, torch.fx.GraphModule)):
        return "scripted, traced or exported already"
    name = type(module).__module__
    if name.startswith("torch._dynamo") or hasattr(module, "_torchdynamo_orig_callable"):
        return "compiled already"
    if name.startswith(("torch.ao.nn", "torch.nn.quantized", "torch.nn.intrinsic", "torch.nn.qat")):
        return "quantized"
    if name.startswith(("torch.nn.parallel", "torch.distributed", "torch.nn.utils.parametriz")):
        return "wrapped by torch for other work"
    return ""


def calls_in_its_own_way(module):
    """Whether the call that is seen is one that a `__call__` of its class makes (`super().__call__(x)`): what would be captured goes through it once more."""
    kind, plain = type(module), torch.nn.Module
    return any(getattr(kind, name, None) is not getattr(plain, name, None) for name in ("__call__", "_wrapped_call_impl", "_call_impl"))


FRAMES = {"_getframe", "currentframe", "_getframemodulename", "f_back"}
OF_FRAMES = "it looks at the frames that run, which are others in a compiled call"
OF_TORCH = os.path.join(os.path.dirname(torch.__file__), "")


def looks_at_frames(code):
    return not FRAMES.isdisjoint(code.co_names) and not code.co_filename.startswith(OF_TORCH)


def forwards_of(module):
    """The functions that are forwards of it and of the modules inside."""
    forwards = {getattr(type(one), "forward", None) for one in module.modules()}
    return [one for one in forwards if isinstance(one, types.FunctionType)]


def is_not_plain(module):
    """Why its tensors are none that graphs may read: exact CPU tensors with strides only, and none that are swapped when the module is converted or loads a
    state: torch swaps no tensors that somebody holds weakly, as TorchDynamo's guards do."""
    if torch.__future__.get_swap_module_params_on_conversion():
        return "its parameters are to be swapped (torch.__future__.set_swap_module_params_on_conversion)"
    for tensor in [*module.parameters(), *module.buffers()]:
        if isinstance(tensor, (torch.nn.parameter.UninitializedParameter, torch.nn.parameter.UninitializedBuffer)):
            return "not initialized yet"
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return "tensors that are subclasses, not on the CPU or not strided"
    return ""


def global_hooks():
    state = torch.nn.modules.module
    names = [name for name in vars(state) if name.startswith("_global_") and name.endswith("_hooks")]
    return any(getattr(state, name) for name in names)


def classes_of(module):
    """Classes whose methods its calls may run: of the modules inside and of the plain objects that these hold, with their bases.
    Module itself is none of them: TorchDynamo puts methods of its own into it."""
    kinds = {type(one) for one in module.modules()}
    held = {type(value) for one in module.modules() for value in vars(one).values() if not isinstance(value, (torch.Tensor, type))}
    every = {base for kind in kinds | held for base in kind.__mro__}
    return tuple(base for base in every if base is not torch.nn.Module and base.__module__ != "builtins")


def attributes_of_dicts(module):
    """The attributes of what modules hold that is a dict of its own kind (configurations of diffusers)."""
    held = [value for one in module.modules() for value in vars(one).values() if isinstance(value, dict)]
    own = [vars(value) for value in held if type(value) not in (dict, collections.OrderedDict) and isinstance(getattr(value, "__dict__", None), dict)]
    return tuple(one for one in own if not any(isinstance(value, torch.nn.Module) for value in one.values()))


class Hooks:
    """The hooks and methods that a module and those inside it have when it is traced. TorchDynamo traces them but does not look for others later
    (torch._dynamo.config.skip_nnmodule_hook_guards; a method is not guarded where it is found by way of a class), so every call asks here.
    Before torch 2.13 it does not look for new classes either, nor (seen in 2.11) for attributes of dicts of their own kind that have other values."""

    KINDS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

    def __init__(self, module):
        self.traced = self.of(module)
        self.dicts = [(hooks, list(hooks)) for one in module.modules() for hooks in self.kinds(one) if hooks]
        self.made = torch.utils.hooks.RemovableHandle.next_id
        self.classes = [(weakref.ref(one), type(one)) for one in module.modules()] if UNGUARDED else []
        self.hook = sys.modules["_ipexrun_hook"]
        self.with_methods = classes_of(module) + (attributes_of_dicts(module) if UNGUARDED else ())
        self.methods = self.hook.snapshot(self.with_methods)
        self.versions = bytearray(8 * len(self.with_methods))  # hook.unchanged()
        mine = weakref.ref(self)
        self.alive = weakref.ref(module, lambda _: mine() is not None and mine().let_go())

    @classmethod
    def kinds(cls, module):
        return [getattr(module, kind) for kind in cls.KINDS]

    def of(self, module):
        return [key for one in module.modules() for hooks in self.kinds(one) for key in hooks]

    def let_go(self):
        """The module is gone: nothing keeps its classes for it."""
        self.with_methods = self.methods = ()
        self.versions = bytearray()
        self.dicts = self.classes = []

    def are_these(self, module):
        if not self.hook.unchanged(self.with_methods, self.methods, self.versions):
            return False
        if any(list(hooks) != keys for hooks, keys in self.dicts) or any(type(one()) is not kind for one, kind in self.classes):
            return False
        made = torch.utils.hooks.RemovableHandle.next_id  # grows with every hook of the process
        if made != self.made:
            if global_hooks() or self.of(module) != self.traced:
                return False
            self.made = made
        return True
