"""One step of a training loop as capture_training.py sees it: a module's call, the tensors that it gave with a history, and the moment it came in.

Thread rule: under the interpreter lock.
"""

import dataclasses
import sys

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


def is_plain_moment():
    """Whether nobody looks at the way a call is recorded: checkpoints and offloading (saved tensors' hooks), forward mode AD, a backward pass around it
    (recomputing), autocast of the program's own, compiled autograd; and no other rank has to decide alike."""
    try:
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            return False
        if torch._C._current_graph_task_id() != -1 or torch.autograd.forward_ad._current_level >= 0:
            return False
        if torch._C._is_any_autocast_enabled() or torch.is_inference_mode_enabled():
            return False
    except AttributeError:
        return False
    if in_process_group():
        return False
    autograd = sys.modules.get("torch._dynamo.compiled_autograd")
    return autograd is None or not autograd.compiled_autograd_enabled


class Step:
    """One call and its backward pass."""

    def __init__(self, key, kind, forward_ns, explorations):
        self.key, self.kind, self.forward_ns, self.explorations = key, kind, forward_ns, explorations
        self.alone = True  # no other call came before its backward pass did
        self.ended = False
