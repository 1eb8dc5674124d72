"""A captured graph, or a call, in float64: what float32 results are held against where stock's own are no closer to the truth than ours are to them."""

import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ..problems import let_through
from ..quiet import no_progress_bars

SHARE_OF_FREE_MEMORY = 0.25


class Doubled(torch.fx.Interpreter):
    """float32 means float64 throughout, in tensors that are given and in what operators are told; complex numbers likewise. A given tensor that one operator
    reads is made wider for it, so that the weights of a model are not all there twice at once; one that several read, once, since they may write it."""

    def run_node(self, node):
        result = super().run_node(node)
        return doubled(result) if node.op in GIVEN and len(node.users) > 1 else result

    def fetch_args_kwargs_from_env(self, node):
        def read(one):
            return doubled(self.env[one]) if one.op in GIVEN else self.env[one]

        return torch.fx.node.map_arg(node.args, read), torch.fx.node.map_arg(node.kwargs, read)

    def call_function(self, target, args, kwargs):
        return super().call_function(target, torch.fx.node.map_aggregate(args, wider), torch.fx.node.map_aggregate(kwargs, wider))


GIVEN = ("placeholder", "get_attr")
WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def doubled(value):
    return value.to(WIDER[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in WIDER else value


def wider(argument):
    return WIDER.get(argument, argument) if isinstance(argument, torch.dtype) else argument


def free_bytes():
    """Of the machine, or of what this process's container may still take where that is less."""
    with open("/proc/meminfo", encoding="ascii") as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as most, open("/sys/fs/cgroup/memory.current", encoding="ascii") as taken:
            free = min(free, max(int(most.read()) - int(taken.read()), 0))
    except (OSError, ValueError) as problem:  # no such limit
        let_through(problem)
    return free


def results(module, values, interpreter=Doubled):
    """None where the graph does not run in float64, or would not fit."""
    made = [node.meta.get("val") for node in module.graph.nodes]
    held = [one for one in [*values, *module.parameters(), *module.buffers()] if isinstance(one, torch.Tensor)]
    largest = max((one.numel() for one in made if isinstance(one, torch.Tensor) and all(isinstance(size, int) for size in one.shape)), default=0)
    hook = sys.modules.get("_ipexrun_hook")
    try:
        if 8 * (sum(one.numel() for one in held) + 16 * largest) > SHARE_OF_FREE_MEMORY * free_bytes():
            return None
        if hook is not None:
            hook.set_enabled(False)
        try:
            with torch.no_grad(), no_progress_bars():
                return list(interpreter(module).run(*values))
        finally:
            if hook is not None:
                hook.set_enabled(True)
    except Exception as problem:  # operators that know no float64
        let_through(problem)
        return None


class WritesWhatIsGiven(Exception):
    """An operator that writes into a float32 tensor, which nothing made here is: its wider copy would be written instead."""


class CallInDouble(TorchDispatchMode):
    """float32 means float64 in all operators of this thread, likewise what makes a tensor."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            written = kwargs.get(argument.name) if argument.kwarg_only else args[i] if i < len(args) else kwargs.get(argument.name)
            if any(one is not doubled(one) for one in (written if isinstance(written, (list, tuple)) else [written])):
                raise WritesWhatIsGiven
        return tree_map(doubled, func(*tree_map(widest, args), **tree_map(widest, kwargs)))


def widest(argument):
    return wider(doubled(argument))


class Held:
    """Attributes of a module and of those inside, as they are: code that sees float64 for the first time may keep something for it (a table by dtype)."""

    def __init__(self, function):
        modules = function.modules() if isinstance(function, torch.nn.Module) else ()
        self.of = [(one, [(place, dict(place)) for place in (vars(one), one._parameters, one._buffers)]) for one in modules]

    def put_back(self):
        """Whether something was changed. Tensors of the call (of inference mode) go; what is otherwise may be another thread's change."""
        changed = False
        for _, places in self.of:
            for place, before in places:
                for name, value in list(place.items()):
                    if name in before and value is before[name]:
                        continue
                    changed = True
                    if not isinstance(value, torch.Tensor) or not value.is_inference():
                        continue
                    if name in before:
                        place[name] = before[name]
                    else:
                        del place[name]
        return changed


def of_call(function, args, kwargs):
    """What function(*args, **kwargs) gives in float64, by torch's own kernels; it only computes. None where an operator of it cannot, or something is kept."""
    hook = sys.modules.get("_ipexrun_hook")
    held, result, changed = None, None, True
    try:
        held = Held(function)
        if hook is not None:
            hook.set_enabled(False)
        try:
            # Under no_grad alone operators that are made of others would see float32 weights beside float64 images first.
            with torch.inference_mode(), CallInDouble():
                result = function(*args, **kwargs)
        finally:
            if hook is not None:
                hook.set_enabled(True)
    except Exception as problem:
        let_through(problem)
    finally:
        if held is not None:
            changed = held.put_back()
    return None if changed else result
