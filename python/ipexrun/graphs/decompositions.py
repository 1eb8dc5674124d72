"""What torch's tracing would write out in small operators, though the operator itself has a kernel: kept whole in graphs that we capture. And what it would
leave out, though a program can tell."""

import contextlib
import threading

import torch

_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
_lock = threading.RLock()
_names = None


def _resizes():
    """Overloads of interpolate's operators."""
    global _names
    if _names is None:
        listed = [name[len("aten::") :] for name in torch._C._dispatch_get_all_op_names() if name.startswith(("aten::upsample_", "aten::_upsample_"))]
        pairs = [name.partition(".") for name in listed]
        _names = [getattr(getattr(torch.ops.aten, name), overload or "default") for name, _, overload in pairs if "backward" not in name and not overload.endswith("out")]
    return _names


@contextlib.contextmanager
def resizes_whole():
    """While it lasts, tracing leaves F.interpolate one operator instead of indexing and arithmetic (which took 6 times as long in a
    Segformer). The Python forms that torch registered for them are put aside; who traces in another thread meanwhile gets the same operator."""
    with _lock:
        aside = []
        try:
            for op in _resizes():
                for key in _KEYS:
                    if key in op.py_kernels:
                        aside.append((op, key, op.py_kernels.pop(key)))
                op._dispatch_cache.clear()
            yield
        finally:
            for op, key, kernel in aside:
                op.py_kernels.setdefault(key, kernel)
                op._dispatch_cache.clear()


def draws_kept(values):
    """While it lasts, tracing keeps operators that draw random numbers which nobody reads (a dropout whose result is not used): the numbers that the program
    draws next depend on them. AOTAutograd leaves them out, unless this is asked for; in this thread alone. Not of training graphs (`values`: what goes in):
    a backward half would draw once more what the forward half has drawn."""
    from torch._inductor import config

    training = torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in values)
    return config.patch(fallback_random=True) if hasattr(config, "fallback_random") and not training else contextlib.nullcontext()
