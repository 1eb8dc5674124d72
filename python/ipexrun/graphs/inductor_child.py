"""Compiles parts of captured graphs (preload/plugin/graph/part_text.h) with torch's Inductor, in a process of its own beside the program that wants them.

    python inductor_child.py FOLDER OWNER THREADS NICE NAME...
    python inductor_child.py --try SHARED_OBJECT PART

FOLDER/NAME.part becomes FOLDER/NAME.so, a shared object of AOTInductor, or FOLDER/NAME.no with a line that says why not. What was compiled is run once in a
third process before anybody gets it: there are compilers (with a libstdc++ of their own inside) whose shared objects end the process that opens them. One
process compiles a part, others wait for it. Ends, with its compilers, when process OWNER has ended. Run by inductor.py; imports nothing of this package.
torch is that of the folder TORCH_AT.
"""

import contextlib
import fcntl
import glob
import hashlib
import importlib.machinery
import importlib.util
import json
import operator
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

LOOK_S = 0.5  # at the owner
TRIAL_S = 600  # for a run of what was compiled: torch's import, mostly
TORCH_AT, HELD = "IPEXRUN_TORCH_AT", "held"
# What compilers say where the machine is to blame, not what they compile.
NO_ROOM = ("no space left", "quota exceeded", "allocate memory", "memory exhausted", "out of memory", "killed")
ITS_OWN_FAULT = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP}  # not SIGKILL: memory may have run out


def forget_our_folder():
    """Modules of ours are nobody's else."""
    sys.path[:] = [one for one in sys.path if one != os.path.dirname(os.path.abspath(__file__))]


def torch_of_the_program():
    """The one that the program has, wherever that lies. Beside it may lie modules with names of Python's own, which come last as they do in the program."""
    folder = os.environ.get(TORCH_AT)
    if folder and "torch" not in sys.modules:
        spec = importlib.machinery.PathFinder.find_spec("torch", [folder])
        if spec is None:
            raise OSError(f"no torch in {folder} any more")
        sys.path.append(folder)  # for what torch needs
        sys.modules["torch"] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules["torch"])
        except Exception as problem:  # no fault of any part
            del sys.modules["torch"]
            raise OSError(f"torch cannot be imported: {problem}") from problem
    import torch

    return torch


def main(folder, owner, threads, nice, *names):
    forget_our_folder()
    # Where the program ignores SIGCHLD a process that crashed is taken for one that did well, and what it blocks would be blocked in compilers.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    with contextlib.suppress(OSError):
        os.nice(int(nice))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where memory runs out the kernel ends us or our compilers, not the program
    with contextlib.suppress(OSError):
        os.setpgrp()  # our compilers are our group; a session of its own would be as important to the scheduler as the program
    threading.Thread(target=end_with, args=(int(owner),), daemon=True).start()
    scratch, held = scratch_in(folder)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["TMPDIR"] = scratch
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    os.environ["OMP_NUM_THREADS"] = threads  # Inductor asks for it when it decides what runs on several
    try:
        for name in names:
            with contextlib.suppress(OSError, MemoryError, subprocess.TimeoutExpired):
                compile_once(folder, name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        held.close()


def scratch_in(folder):
    """A folder inside, and the file whose lock says that its process lives. Those of processes that were killed go."""
    for left in glob.glob(os.path.join(glob.escape(folder), "compiling-*")):
        with contextlib.suppress(OSError), open(os.path.join(left, HELD), "a") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    made = tempfile.mkdtemp(prefix=".new-", dir=folder)
    held = open(os.path.join(made, HELD), "a")
    fcntl.flock(held, fcntl.LOCK_EX)
    scratch = os.path.join(folder, os.path.basename(made).replace(".new-", "compiling-", 1))  # not before it is locked
    os.rename(made, scratch)
    return scratch, held


def started_at(process):
    """When the process was started, in ticks; "" where it is gone, or has ended and nobody asked how."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def end_with(owner):
    started = started_at(owner)
    while started and started_at(owner) == started:
        time.sleep(LOOK_S)
    os.killpg(0, signal.SIGKILL)  # what was written is whole: files appear by rename


def compile_once(folder, name):
    path = os.path.join(folder, name)
    with open(path + ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if not os.path.exists(path + ".so") and not os.path.exists(path + ".no"):
                make(path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path + ".lock")


def make(path):
    try:
        with open(path + ".part") as text:
            made = compiled(json.load(text))
        tried(made, path + ".part")
        with open(made, "rb") as code, open(made + ".copy", "wb") as copy:
            copy.write(sealed(code.read()))
        os.replace(made + ".copy", path + ".so")
    except (OSError, MemoryError, subprocess.TimeoutExpired):
        raise  # a full disk, say: another process may have more luck
    except Exception as problem:  # Inductor raises whatever it meets
        if any(words in str(problem).lower() for words in NO_ROOM):
            raise OSError(line_of(problem)) from problem
        write_whole(path + ".no", line_of(problem))


def sealed(code):
    """With its digest behind it, where the loader does not look: a shared object that is not whole ends the process that opens it."""
    return code + hashlib.sha256(code).digest()


def is_whole(path):
    with open(path, "rb") as file:
        code = file.read()
    return len(code) > 32 and sealed(code[:-32]) == code


def line_of(problem):
    """The line that says most: a compiler's first error is far behind the first line."""
    lines = str(problem).splitlines() or [""]
    return next((line.strip() for line in lines if "error: " in line), lines[0])[:300] or type(problem).__name__


def tried(made, part):
    """Raises RuntimeError where a process that runs the shared object fails, or dies of it; OSError where somebody else ended that process."""
    trial = subprocess.run([sys.executable, os.path.abspath(__file__), "--try", made, part], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True, errors="replace", timeout=TRIAL_S)
    if -trial.returncode in ITS_OWN_FAULT:
        raise RuntimeError(f"what was compiled ends the process that runs it: {signal.Signals(-trial.returncode).name}")
    if trial.returncode < 0:
        raise OSError(f"signal {-trial.returncode} ended the trial")
    if trial.returncode > 0:
        raise RuntimeError(f"what was compiled does not run: {(trial.stderr.splitlines() or [''])[-1]}")


def run_once(made, part):
    forget_our_folder()
    import resource  # the program's folder may have one of its own

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it may well crash
    torch = torch_of_the_program()
    with open(part) as text:
        part = json.load(text)
    results = torch._C._aoti.AOTIModelContainerRunnerCpu(made, 1).run(inputs_of(part, torch))
    if len(results) != len(part["values"]):
        raise RuntimeError(f"{len(results)} results instead of {len(part['values'])}")


def write_whole(path, text):
    with open(path + ".new", "w") as file:
        file.write(text + "\n")
    os.replace(path + ".new", path)


def compiled(part):
    """The path of its shared object."""
    torch = torch_of_the_program()
    import torch._inductor

    graph, inputs = graph_of(part, torch)
    options = {"cpp.dynamic_threads": True, "aot_inductor.use_runtime_constant_folding": False, "aot_inductor.package": False}
    with torch.no_grad():
        made = torch._inductor.aot_compile(graph, tuple(inputs), options=options)
    if not isinstance(made, str) or not made.endswith(".so"):
        raise RuntimeError(f"AOTInductor gave {made!r} instead of a shared object")
    return made


def graph_of(part, torch):
    """A GraphModule, and tensors as it wants them."""
    graph = torch.fx.Graph()
    dtypes, inputs = dtypes_by_number(torch), inputs_of(part, torch)
    values = [graph.placeholder(f"input_{i}") for i in range(len(inputs))]
    for node in part["nodes"]:
        if "item" in node:
            made = graph.call_function(operator.getitem, (values[node["list"]], node["item"]))
        else:
            namespace, _, name = node["op"].partition("::")
            packet = getattr(getattr(torch.ops, namespace), name)
            overload = getattr(packet, node["overload"] or "default")
            made = call(graph, overload, [argument_of(one, values) for one in node["arguments"]], dtypes, torch)
        numbers = node["values"]
        outputs = [made] if len(numbers) == 1 else [graph.call_function(operator.getitem, (made, k)) for k in range(len(numbers))]
        for number, output in zip(numbers, outputs):
            if number != len(values):
                raise ValueError(f"value {number} where {len(values)} comes next")
            values.append(output)
    graph.output(tuple(values[number] for number in part["values"]))
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(torch.nn.Module(), graph), inputs


def inputs_of(part, torch):
    dtypes = dtypes_by_number(torch)
    return [torch.empty_strided(look["sizes"], look["strides"], dtype=dtypes[look["dtype"]]).zero_() for look in part["inputs"]]


def dtypes_by_number(torch):
    names = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16"
    return [getattr(torch, name) for name in names.split()]


def argument_of(text, values):
    if text is None:
        return None
    ((kind, what),) = text.items()
    if kind == "value":
        return values[what]
    if kind == "list":
        return [argument_of(one, values) for one in what]
    return complex(*what) if kind == "complex" else what


def call(graph, overload, arguments, dtypes, torch):
    """Numbers become what the operator's schema says they are."""
    formats = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
    positional, named = [], {}
    for about, argument in zip(overload._schema.arguments, arguments):
        kind = str(about.real_type if hasattr(about, "real_type") else about.type)
        if isinstance(argument, int) and not isinstance(argument, bool):
            if "ScalarType" in kind:
                argument = dtypes[argument]
            elif "MemoryFormat" in kind:
                argument = formats[argument]
            elif "Layout" in kind:
                argument = torch.strided
        elif isinstance(argument, str) and "Device" in kind:
            argument = torch.device(argument)
        if about.kwarg_only:
            if argument is not None or not about.has_default_value():
                named[about.name] = argument
        else:
            positional.append(argument)
    return graph.call_function(overload, tuple(positional), named)


def leave(*arguments):
    """Leaves a process behind that is nobody's child, and says its number."""
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)  # or whoever reads the number would wait for the end of it all
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), *arguments])
    print(child, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--leave":
        leave(*sys.argv[2:])
    elif sys.argv[1] == "--try":
        run_once(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
