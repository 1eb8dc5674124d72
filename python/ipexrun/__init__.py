"""Python side of ipexrun. Programs need none of it: `ipexrun python app.py` works on unedited programs.

Under the launcher these functions act on the plugin inside this process. Elsewhere they change nothing: is_active() is False,
set_enabled() and force() return False, isa() is None, report() says why. `import ipexrun` makes torch.compile(model, backend="ipex") known, and the
device "xpu" where OpenCL has a GPU (xpu.py).
"""

import json as _json
import sys as _sys

__version__ = "0.1.0"
__all__ = ["force", "is_active", "isa", "report", "set_enabled"]


def _hook():
    return _sys.modules.get("_ipexrun_hook")


def is_active():
    """True when this process has a plugin that may replace kernels in the calling thread right now."""
    hook = _hook()
    return hook is not None and hook.optimizing() and hook.enabled()


def set_enabled(on):
    """Switch replaced kernels on or off for the calling thread; stock kernels run while off. False when there is no plugin here."""
    hook = _hook()
    if hook is None:
        return False
    hook.set_enabled(bool(on))
    return True


def force(candidate):
    """Use the named candidate wherever it supports the call, without measuring; "" ends it. False when nothing has that name."""
    if not isinstance(candidate, str):
        raise TypeError(f"force() takes the name of a candidate, and not {type(candidate).__name__}")
    hook = _hook()
    return False if hook is None else hook.force(candidate)


def isa():
    """Instruction levels as a dict: of the "cpu", of the "binary" (what the kernels were built for) and of the "process" (what they use: caps of
    the environment and permission for AMX count). Names as in ATEN_CPU_CAPABILITY. None when there is no plugin here."""
    return report().get("isa")


def report():
    """What the plugin did in this process so far, as a dict; report()["reason"] says why when there is nothing to tell. Its lists "graphs", "modules" and
    "optimizers" are always there, empty where there is nothing of the kind."""
    hook = _hook()
    if hook is None:
        return _with_graphs({"active": False, "reason": "not started by ipexrun, or torch was not imported"})
    out = {"active": is_active(), "enabled": hook.enabled(), "module_calls_timed": hook.installed()}
    out.update(_json.loads(hook.report() or "{}"))
    return _with_graphs(out)


def _count_left_out(out, name, notes):
    if notes.left_out:
        out[f"{name}_left_out"] = notes.left_out


def _with_graphs(out):
    for name in ("graphs", "modules", "optimizers"):
        out.setdefault(name, [])
    graphs = _sys.modules.get(__name__ + ".graphs.graph_notes")
    if graphs is not None:
        out["graphs"] = list(graphs.graphs) + out["graphs"]
        _count_left_out(out, "graphs", graphs.graphs)
    modules = _sys.modules.get(__name__ + ".capture.module_notes")
    if modules is not None:
        out["modules"] = modules.report()
        _count_left_out(out, "modules", modules.modules)
    xpu = _sys.modules.get(__name__ + ".xpu")
    if xpu is not None:
        devices = xpu.report()
        if devices:
            out["xpu"] = devices
    optimizers = _sys.modules.get(__name__ + ".training.optimizers")
    if optimizers is not None:
        out["optimizers"] = optimizers.report()
        memory = _sys.modules[__name__ + ".training.kept_memory"].report()
        if memory is not None:
            out["memory"] = memory
    if "memory" not in out:
        state = _fresh_pages()
        if state:
            out["memory"] = {"state": state}
    return out


def _fresh_pages():
    """What is known of memory that a program without training steps takes again; "" where nobody looks."""
    if "_ipexrun_hook" not in _sys.modules:
        return ""
    try:
        return _sys.modules["torch"].classes.ipexrun.Training().fresh_pages()
    except (AttributeError, KeyError, RuntimeError):  # a plugin that optimizes nothing has no such class
        return ""


def _backend(module, example_inputs, **options):
    from .graphs import backend

    return backend.backend(module, example_inputs, **options)


from . import registration as _registration  # noqa: E402

_registration.register("ipex", _backend)

if not globals().get("_loaded_by_hook"):  # the program itself imports us: torch.xpu may have devices (docs/xpu.md)
    from . import xpu as _xpu  # noqa: E402

    if _xpu.is_possible():
        _registration.when_imported("torch", lambda module: _xpu.attach())
