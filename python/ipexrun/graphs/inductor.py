"""Parts of captured graphs that torch's Inductor compiles (docs/inductor.md): who compiles them, and where what was compiled lies.

A process of its own compiles (inductor_child.py), beside the program, at the lowest priority; what it makes stays beside the decisions for later processes.
Nothing here waits for it. Nothing raises but what Python raises without memory.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import subprocess
import sys

import torch

from .. import remembered
from . import inductor_child

VERSION = 3  # of what a name stands for; 2: it was run once before anybody got it; 3: its digest lies behind it
NICE = 13  # a twentieth of a core that the program keeps busy, in which all its threads may wait for the slowest
MINE = ("IPEXRUN_", "OMP_", "KMP_", "GOMP_", "MKL_", "TORCH_", "TORCHINDUCTOR_", "DNNL_", "MALLOC_", "PYTHON")  # not for the compiling process
READY, REFUSED, PENDING = "ready", "refused", "pending"


def mode():
    """auto, kept, off or now: IPEXRUN_INDUCTOR."""
    word = os.environ.get("IPEXRUN_INDUCTOR", "auto")
    return word if word in ("kept", "off", "now") else "auto"


def folder():
    """Where shared objects are kept; "" where nothing is."""
    decisions = remembered.folder()
    return os.path.join(decisions, "inductor") if decisions else ""


@functools.cache
def why_not():
    """Why no part may be used; "" if they may."""
    if mode() == "off":
        return "--inductor off"
    if os.environ.get("TORCH_COMPILE_DISABLE") == "1":
        return "TORCH_COMPILE_DISABLE=1"
    if os.environ.get("ATEN_CPU_CAPABILITY") or os.environ.get("IPEXRUN_MAX_ISA"):
        return "instructions are capped"
    if not folder():
        return "there is no folder of decisions"
    return ""


@functools.cache
def why_not_compiled():
    """Why nothing may be compiled; "" if it may."""
    if mode() == "kept":
        return "nothing is compiled (--inductor kept)"
    compiler = os.environ.get("CXX", "g++").split()[:1]
    if not compiler or shutil.which(compiler[0]) is None:
        return f"there is no {compiler[0] if compiler else 'g++'}"
    if not os.path.basename(sys.executable or "").startswith("python") or not os.access(sys.executable, os.X_OK):
        return "there is no Python to start"
    return ""


@functools.cache
def machine():
    """A digest of the instructions that compiled code may use here: folders are shared between machines."""
    try:
        with open("/proc/cpuinfo") as text:
            lines = [line for line in text.read().split("\n\n")[0].splitlines() if line.startswith(("flags", "Features", "model name", "CPU part"))]
    except OSError:
        lines = []
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def name_of(text):
    """Of a part: the same text is the same code for this torch, machine and number of threads."""
    about = (VERSION, torch.__version__, machine(), torch.get_num_threads(), text)
    return hashlib.sha256(repr(about).encode()).hexdigest()[:32]


def state(name):
    """READY, REFUSED, or PENDING."""
    path = path_of(name)
    if os.path.exists(path):
        return READY
    return REFUSED if os.path.exists(path.removesuffix(".so") + ".no") else PENDING


def path_of(name):
    return os.path.join(folder(), name + ".so")


def whole_path_of(name):
    """Raises OSError for a file that is damaged, which goes: it is compiled again in its time."""
    path = path_of(name)
    if not inductor_child.is_whole(path):
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise OSError(f"{path} was damaged")
    return path


def refusal(name):
    try:
        with open(path_of(name).removesuffix(".so") + ".no") as text:
            return text.readline().strip()
    except OSError:
        return ""


def environment():
    """Of the compiling process: none of our variables, and no library of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(MINE) and name != "LD_PRELOAD"}
    kept[inductor_child.TORCH_AT] = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
    if os.environ.get("PYTHONPATH"):
        kept["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return kept


def start(texts):
    """A process compiles these parts, one after the other: {name: text}. Gives ("", the process), or (why not, None)."""
    try:
        os.makedirs(folder(), mode=0o700, exist_ok=True)
        for name, text in texts.items():
            path = os.path.join(folder(), f"{name}.part")
            with open(f"{path}.{os.getpid()}", "w") as file:
                file.write(text)
            os.replace(f"{path}.{os.getpid()}", path)
        child = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inductor_child.py")
        arguments = [folder(), str(os.getpid()), str(torch.get_num_threads()), str(0 if mode() == "now" else NICE), *texts]
        # It leaves a process of its own behind: the program has no child that it did not start.
        leaves = subprocess.Popen(
            [sys.executable, "-I", "-S", child, "--leave", *arguments],
            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder(), close_fds=True,
        )
        number = leaves.communicate()[0].strip()
        if not number.isdigit():
            return "the compiling process did not start", None
        return "", Process(int(number))
    except (OSError, subprocess.SubprocessError) as problem:
        return (str(problem).splitlines() or [type(problem).__name__])[0], None


class Process:
    """Nobody's child; another one may get its number."""

    def __init__(self, number):
        self.number = number
        self.started = inductor_child.started_at(number)

    def is_alive(self):
        return self.started != "" and inductor_child.started_at(self.number) == self.started

