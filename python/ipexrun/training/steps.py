"""One step of a training loop as captured_steps.py sees it: a module's call, the tensors that it gave with a history, and the moment it came in.

Thread rule: under the interpreter lock.
"""

import dataclasses
import sys
import time

import torch


def in_process_group():
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def recorded(value, depth=0):
    """Tensors with a history in what a module returned."""
    if isinstance(value, torch.Tensor):
        return [value] if value.grad_fn is not None else []
    if depth > 4:
        return []
    if isinstance(value, dict):
        inside = list(value.values())
    elif isinstance(value, (list, tuple)):
        inside = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    else:
        return []
    return [tensor for one in inside for tensor in recorded(one, depth + 1)]


def rounds_to_bf16():
    """The program's own autocast, of the kind that the forms of a captured step know."""
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16


def is_plain_moment():
    """Whether nobody looks at the way a call is recorded: checkpoints and offloading (saved tensors' hooks), forward mode AD, a backward pass around it
    (recomputing), autocast of the program's own but to bfloat16, compiled autograd; and no other rank has to decide alike."""
    try:
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            return False
        if torch._C._current_graph_task_id() != -1 or torch.autograd.forward_ad._current_level >= 0:
            return False
        if torch.is_inference_mode_enabled() or (torch._C._is_any_autocast_enabled() and not rounds_to_bf16()):
            return False
    except AttributeError:
        return False
    if in_process_group():
        return False
    autograd = sys.modules.get("torch._dynamo.compiled_autograd")
    return autograd is None or not autograd.compiled_autograd_enabled


class Stopwatch:
    """Nanoseconds on the wall, less what the op tier spent meanwhile on measuring and checking candidates beside its answers: a step's time is then
    that of a step to come, and counts although operators were still being measured in it."""

    def __init__(self):
        hook = sys.modules.get("_ipexrun_hook")
        self.spent_ns = hook.exploration_ns if hook is not None else lambda: 0
        self.beside_ns = self.spent_ns()
        self.began_ns = time.perf_counter_ns()

    def explored_ns(self):
        return self.spent_ns() - self.beside_ns

    def ns(self):
        return max(time.perf_counter_ns() - self.began_ns - self.explored_ns(), 1)


class Step:
    """One call and its backward pass."""

    def __init__(self, key, kind, forward_ns, explored_ns):
        self.key, self.kind, self.forward_ns = key, kind, forward_ns
        self.explored_ns = explored_ns  # already taken off
        self.alone = True  # no other call came before its backward pass did
        self.ended = False
