"""Loads the stand-in plugin and reads what the hook told it."""

import ctypes
import os
from collections import namedtuple
from pathlib import Path

BUILD = Path(os.environ.get("IPEXRUN_BUILD_DIR", Path(__file__).resolve().parents[3] / "build" / "dev"))
LIB = BUILD / "lib" / "ipexrun"
LIBRARY = BUILD / "tests" / "libipexrun_fake_plugin.so"
TRAINING, EXPLORING, FAILED = 1, 2, 4

Call = namedtuple("Call", "name batch flags ns")


def load():
    # PyDLL keeps the GIL during the call, as the import of an extension does around its dlopen.
    return ctypes.PyDLL(str(LIBRARY))


def start(plugin, bench=1):
    plugin.fake_start(str(LIB).encode(), bench)


def calls(plugin):
    buffer = ctypes.create_string_buffer(1 << 20)
    plugin.fake_calls.restype = ctypes.c_size_t
    size = plugin.fake_calls(buffer, len(buffer))
    assert size < len(buffer)
    lines = buffer.value.decode().splitlines()
    return [Call(name, int(batch), int(flags), int(ns)) for name, batch, flags, ns in (line.rsplit(" ", 3) for line in lines)]
