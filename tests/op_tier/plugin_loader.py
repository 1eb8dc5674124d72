"""Starts the plugin in this process as the shim would, so that these tests need no LD_PRELOAD."""

import ctypes
import glob
import os

import torch

BUILD_DIR = os.environ["IPEXRUN_BUILD_DIR"]


class Start(ctypes.Structure):
    """preload/plugin_abi.h"""

    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("torch_version", ctypes.c_uint64),
        ("lib_dir", ctypes.c_char_p),
        ("reason", ctypes.c_char_p),
        ("reason_bytes", ctypes.c_uint32),
    ]


def plugin_path():
    major, minor = torch.__version__.split(".")[:2]
    found = glob.glob(f"{BUILD_DIR}/lib/ipexrun/plugins/libipexrun_plugin_torch{major}_{minor}.so")
    assert found, f"no plugin for torch {major}.{minor} under {BUILD_DIR}"
    return found[0]


def start(torch_version=None, abi=1):
    """Result and reason of ipexrun_plugin_start; asking again is allowed and changes nothing."""
    library = ctypes.PyDLL(plugin_path(), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    if torch_version is None:
        core = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        core.aoti_torch_abi_version.restype = ctypes.c_uint64
        torch_version = core.aoti_torch_abi_version()
    reason = ctypes.create_string_buffer(256)
    request = Start(abi, ctypes.sizeof(Start), torch_version, f"{BUILD_DIR}/lib/ipexrun".encode(),
                    ctypes.cast(reason, ctypes.c_char_p), len(reason))
    result = library.ipexrun_plugin_start(ctypes.byref(request))
    return result, reason.value.decode()
