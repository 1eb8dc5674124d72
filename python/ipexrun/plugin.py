"""The plugin inside this process: started by the launcher's shim, or by us for torch.compile(backend="ipex") alone."""

import ctypes
import os
import sys

ABI = 1  # preload/plugin_abi.h
GRAPHS_ONLY = 1


class Start(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("torch_version", ctypes.c_uint64),
        ("lib_dir", ctypes.c_char_p),
        ("reason", ctypes.c_char_p),
        ("reason_bytes", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    ]


reason = ""  # why there is no plugin
_ready = None


def say(text):
    sys.stderr.write(f"ipexrun: {text}\n")


def has_classes():
    import torch

    try:
        torch.classes.ipexrun.Graph
    except RuntimeError:
        return False
    return True


def lib_dir():
    """lib/ipexrun of the build or the installation that this package belongs to."""
    here = os.path.dirname(os.path.abspath(__file__))
    prefix = os.path.normpath(os.path.join(here, *[os.pardir] * 4))  # of lib/python3.x/site-packages/ipexrun: not always Python's (pip --user, Debian)
    folders = [os.path.join(here, os.pardir, os.pardir)]  # lib/ipexrun/python/ipexrun
    folders += [os.path.join(where, lib, "ipexrun") for where in (prefix, sys.prefix) for lib in ("lib", "lib64")]
    return next((os.path.normpath(folder) for folder in folders if os.path.isdir(os.path.join(folder, "plugins"))), None)


def library(name):
    """(path, torch's version for plugins, "") of lib<name>_torch<major>_<minor>.so, or (None, version, why there is none)."""
    import torch

    if os.environ.get("IPEXRUN_DISABLE") == "1":
        return None, 0, "IPEXRUN_DISABLE=1"
    folder = lib_dir()
    if folder is None:
        return None, 0, "the plugin's folder was not found beside this package"
    core = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
    try:
        core.aoti_torch_abi_version.restype = ctypes.c_uint64
        version = core.aoti_torch_abi_version()
    except AttributeError:
        return None, 0, f"torch {torch.__version__} does not say its version to plugins"
    file = f"lib{name}_torch{version >> 56}_{version >> 48 & 0xff}.so"
    folders = [os.path.join(folder, "plugins"), os.environ.get("IPEXRUN_PLUGIN_DIR", "")]
    path = next((p for p in (os.path.join(f, file) for f in folders if os.path.isabs(f)) if os.path.isfile(p)), None)
    if path is None:
        return None, version, f"no {file} for torch {torch.__version__} (`ipexrun doctor --build` makes plugins)"
    for one in (path, os.path.dirname(path)):  # as the shim does
        if os.stat(one).st_mode & 0o002:
            return None, version, f"{one} can be written by every user"
        if os.stat(one).st_uid not in (0, os.geteuid()):
            return None, version, f"{one} belongs to another user"
    return path, version, ""


def start():
    """The reason why there is no plugin; "" when it is active."""
    path, version, problem = library("ipexrun_plugin")
    if path is None:
        return problem
    words = ctypes.create_string_buffer(256)
    request = Start(ABI, ctypes.sizeof(Start), version, lib_dir().encode(), ctypes.cast(words, ctypes.c_char_p), len(words), GRAPHS_ONLY)
    opened = ctypes.PyDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    result = opened.ipexrun_plugin_start(ctypes.byref(request))
    return "" if result == 0 else words.value.decode() or f"the plugin answered {result}"


def ready():
    """True when graphs can be compiled; otherwise torch's own form of them runs, and one line says why."""
    global _ready, reason
    if _ready is None:
        hook = sys.modules.get("_ipexrun_hook")
        if hook is not None and not hook.optimizing():
            reason = "the launcher asked for stock kernels"
        elif not has_classes():
            reason = start()
            if reason:
                say(f"backend ipex: graphs run as captured: {reason}")
        _ready = not reason
    return _ready
