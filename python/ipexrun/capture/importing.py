"""What importing TorchDynamo costs a program that does without it. Some 800 files are read for it, in 0.25 s where their bytecode lies beside them and in
memory. Where it does not (an installer that compiles nothing, in an image that nobody may write to) each of them is compiled, and a disk may be slow: eight
seconds were seen. So a few of these files are read first, which says how long all of them are going to take.

Some of them have names that a program may give to files of its own, which lie before them on sys.path (a script called profile.py would run once more, inside
of one of its calls): TorchDynamo is left out then.

An import that a signal handler of the program's ends in the middle (ctrl-C, an alarm), or want of frames below the recursion limit, leaves modules half made: whoever
imports them next, the program's own torch.compile() say, fails for good. So it goes on in a thread of its own, where neither can happen.

Thread rule: under the interpreter lock."""

import _thread  # not of threading.enumerate(), in which the program would see it
import contextlib
import functools
import importlib.util
import os
import sys
import threading
import time
from importlib.machinery import SourceFileLoader

from ..problems import let_through
from . import python_speed

WHOLE = "torch._dynamo.convert_frame"
FOLDER = "TORCHINDUCTOR_CACHE_DIR"
LATER = (  # what its first trace imports, and that imports
    "torch._dynamo.repro.after_dynamo", "torch._dynamo.repro.after_aot", "torch._dynamo.backends.debugging", "torch.export._trace", "torch.fx.experimental.validator",
)
STACK_BYTES = 8 << 20  # of the thread: those of the program may be small
USUAL_S = 0.6  # of an import where Python is as fast as python_speed's reference, files at hand
SAMPLE = {
    "torch": ("_dynamo/resume_execution.py", "_dynamo/variables/constant.py", "_dynamo/codegen.py", "_inductor/runtime/hints.py"),
    "sympy": ("core/symbol.py", "printing/str.py", "polys/domains/domain.py", "strategies/util.py"),
    "mpmath": ("ctx_mp.py", "functions/zeta.py"),
}
TIMES = 105  # as many files as the sample has, and as many bytes, are read in all: 75 by the import, the others by the first trace
UNUSUAL = 4  # times the middle one
USUAL_READ_S = 0.35  # of these, where nothing is compiled


# What it imports, or its first trace or the end of the process, beyond what torch imports itself; where the others are installed.
OF_PYTHON = (
    "_decimal", "_elementtree", "_lsprof", "_statistics", "cProfile", "colorsys", "decimal", "fractions", "getpass", "hmac", "html", "profile", "pstats", "pyexpat",
    "secrets", "shlex", "statistics", "sysconfig", "termios", "xml",
)
OF_OTHERS = (
    "colorama", "filelock", "flint", "functorch", "gmpy", "gmpy2", "jinja2", "markupsafe", "mpmath", "networkx", "redis", "sympy", "tabulate", "torchdistx", "triton",
    "z3",
)


INSTALLED = {"site-packages", "dist-packages"}


class TakenForAnother(Exception):
    """A file of the program's has the name of a module that TorchDynamo imports."""


class Reader(SourceFileLoader):
    """Leaves no bytecode behind, which would say of the next process's sample what is not true of the other files."""

    def set_data(self, path, data, *, _mode=0o666):
        pass


def remaining_s():
    """Seconds that the import is going to take: none once somebody has imported it."""
    return 0.0 if WHOLE in sys.modules else _predicted_s()


def _predicted_s():
    slowness = python_speed.slowness()
    return slowness * USUAL_S + max(TIMES * _read_once_s() - slowness * USUAL_READ_S, 0.0)


@functools.cache
def _read_once_s():
    return read_s()


def read_s(clock=time.perf_counter):
    """Seconds that reading the sample takes, as an import reads it: bytecode where that is up to date, else the source, which is compiled. On the wall, for a
    disk's sake; a file that took many times as long as others waited for a core."""
    times = []
    for package, files in SAMPLE.items():
        for folder in folders_of(package):
            for file in files:
                name = f"{package}.{file[:-3].replace('/', '.')}"
                if name in sys.modules:
                    continue
                began = clock()
                try:
                    Reader(name, os.path.join(folder, file)).get_code(name)
                except (OSError, ImportError, SyntaxError, ValueError, EOFError) as problem:
                    let_through(problem)
                    continue  # another version, a program in one file, a damaged one: what can be read counts
                times.append(clock() - began)
    usual = sorted(times)[len(times) // 2] if times else 0.0
    return sum(min(one, UNUSUAL * usual) for one in times)


def folders_of(package):
    try:
        spec = sys.modules[package].__spec__ if package in sys.modules else importlib.util.find_spec(package)
        return spec.submodule_search_locations or () if spec is not None else ()
    except Exception as problem:  # a finder of the program's own
        let_through(problem)
        return ()


def place_of(name):
    """The file of a module, whether it is imported already or not; "": none, or part of Python's program. And whether it is a folder of modules."""
    try:
        spec = importlib.util.find_spec(name)
        known = spec is not None and spec.has_location
        return (os.path.abspath(spec.origin), spec.submodule_search_locations is not None) if known else ("", False)
    except Exception as problem:  # a finder of the program's own, a module without a specification
        let_through(problem)
        return "", False


def is_pythons(file):
    folders = file.split(os.sep)
    return INSTALLED.isdisjoint(folders) and (file.startswith(os.path.dirname(os.path.abspath(os.__file__)) + os.sep) or "lib-dynload" in folders)


def is_installed(file, whole):
    """A folder of modules that does not lie beside the program is somebody else's wherever it lies."""
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    beside = program is not None and os.path.dirname(os.path.dirname(file)) == os.path.dirname(os.path.abspath(program))
    return not INSTALLED.isdisjoint(file.split(os.sep)) or (whole and not beside)


@functools.lru_cache(maxsize=1)
def _shadow(path, imported):
    for name in (*OF_PYTHON, *OF_OTHERS):
        file, whole = place_of(name)
        if file and not (is_pythons(file) if name in OF_PYTHON else is_installed(file, whole)):
            return f"TorchDynamo would take {file} for another {name}"
    return ""


def shadow():
    """Why TorchDynamo cannot be imported without running, or being given, a file of the program's; ""."""
    return _shadow(tuple(map(str, sys.path)), tuple(name for name in (*OF_PYTHON, *OF_OTHERS) if name in sys.modules))


def import_all():
    importlib.import_module(WHOLE)
    for name in LATER:
        try:
            importlib.import_module(name)
        except ImportError:  # another version, or one that does without
            pass


def imports_here():
    """Whether this thread is in the middle of an import, for which another one might wait."""
    locks = [lock() for lock in list(getattr(importlib._bootstrap, "_module_locks", {}).values())]
    return any(getattr(lock, "owner", None) == _thread.get_ident() for lock in locks)


def apart(work):
    """work() in a thread of its own. What a signal handler raises meanwhile waits for its end, too: an import that two threads are in fails in one of them."""
    problems, ended, at_work = [], [], _thread.allocate_lock()

    def run():
        try:
            work()
        except BaseException as problem:
            problems.append(problem)
        finally:
            getattr(threading, "_active", {}).pop(_thread.get_ident(), None)  # where somebody asked for the current thread
            ended.append(True)
            at_work.release()

    at_work.acquire()
    usual = _thread.stack_size(STACK_BYTES)
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError:  # no more threads, or none while Python ends
        return work()
    finally:
        _thread.stack_size(usual)
    raised = None
    while not ended:  # and not by what acquire() gives: what other threads raise in this one (interrupt_main) comes right behind it
        try:
            at_work.acquire()
        except BaseException as problem:
            raised = problem
    if raised is not None:
        raise raised
    if problems:
        raise problems[0]


@contextlib.contextmanager
def no_traces_in_environment():
    """torch writes the folder of Inductor's files into the environment, which the program's children inherit."""
    held = os.environ.get(FOLDER)
    try:
        yield
    finally:
        folders = sys.modules.get("torch._inductor.runtime.cache_dir_utils")
        if held is None and folders is not None and os.environ.get(FOLDER) == os.path.abspath(folders.default_cache_dir()):
            os.environ.pop(FOLDER, None)


def import_now(clock=time.perf_counter):
    """Imports it; the seconds that took."""
    why = shadow()
    if why:
        raise TakenForAnother(why)
    if WHOLE in sys.modules:
        return 0.0
    began = clock()
    with no_traces_in_environment():
        if imports_here():
            import_all()
        else:
            apart(import_all)
    return clock() - began
