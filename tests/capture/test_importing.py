"""What importing TorchDynamo is predicted to take: nothing where the program has it, more where its files have no bytecode or lie on a slow disk; and which
files of the program's it would take for modules of others.

Risk covered: a program's file is run in one of its calls, because it has the name of a module that TorchDynamo imports.
"""

import ctypes
import importlib.util
import itertools
import os
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")

from ipexrun.capture import importing, python_speed  # noqa: E402

FILES = sum(map(len, importing.SAMPLE.values()))


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch):
    monkeypatch.setattr(python_speed, "slowness", lambda: 2.0)
    importing._read_once_s.cache_clear()
    for name in [name for name in sys.modules if name == importing.WHOLE or name.startswith(("torch._dynamo.", "torch._inductor.", "sympy.", "mpmath."))]:
        monkeypatch.delitem(sys.modules, name)
    yield
    importing._read_once_s.cache_clear()


def test_the_files_of_the_sample_are_there():
    for package, files in importing.SAMPLE.items():
        (folder,) = importlib.util.find_spec(package).submodule_search_locations
        missing = [file for file in files if not os.path.exists(os.path.join(folder, file))]
        assert missing == []


def test_each_file_of_the_sample_is_read_and_nothing_is_imported():
    before, ticks = set(sys.modules), itertools.count()
    assert importing.read_s(lambda: float(next(ticks))) == FILES
    assert set(sys.modules) - before == set()


def test_no_bytecode_is_left_behind(monkeypatch, tmp_path):
    (tmp_path / "one.py").write_text("x = 1\n")
    (tmp_path / "two.py").write_text("x = 1\n")
    (tmp_path / "three.py").write_bytes(b"\0")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(importing, "folders_of", lambda package: [str(tmp_path)])
    monkeypatch.setattr(importing, "SAMPLE", {"a": ("one.py", "two.py", "three.py")})
    ticks = itertools.count()
    assert importing.read_s(lambda: float(next(ticks))) == 2
    assert sorted(os.listdir(tmp_path)) == ["one.py", "three.py", "two.py"]


def test_a_finder_that_raises_says_nothing(monkeypatch):
    def raises(name, path=None, target=None):
        raise RuntimeError("a finder of the program's own")

    finder = type("Finder", (), {"find_spec": staticmethod(raises)})
    monkeypatch.setattr(sys, "meta_path", [finder])
    monkeypatch.setattr(importing, "SAMPLE", {"no_such_package": ("a.py",)})
    assert importing.read_s() == 0


def test_files_that_are_not_there_and_packages_that_are_loaded_do_not_count(monkeypatch):
    monkeypatch.setattr(importing, "SAMPLE", {"torch": ("_dynamo/no_such_file.py", "_dynamo/codegen.py"), "no_such_package": ("a.py",)})
    ticks = itertools.count()
    assert importing.read_s(lambda: float(next(ticks))) == 1
    monkeypatch.setitem(sys.modules, "torch._dynamo.codegen", object())
    assert importing.read_s(lambda: float(next(ticks))) == 0


def test_a_file_that_waited_for_a_core_counts_as_little_as_others():
    times = iter([0.1, 0.2, 5.0, 0.1] + [0.1] * FILES)
    now = 0.0

    def clock():
        nonlocal now, ends
        ends = not ends
        now += 0.0 if ends else next(times)
        return now

    ends = False
    assert importing.read_s(clock) == pytest.approx(0.1 * (FILES - 2) + 0.2 + importing.UNUSUAL * 0.1)


@pytest.mark.parametrize("read_s, seconds", [(0.0, 1.2), (0.7 / importing.TIMES, 1.2), (7.0 / importing.TIMES, 7.5)])
def test_what_reading_takes_longer_than_usual_is_added(monkeypatch, read_s, seconds):
    monkeypatch.setattr(importing, "read_s", lambda: read_s)
    assert importing.remaining_s() == pytest.approx(seconds)


def test_what_the_program_has_imported_costs_nothing(monkeypatch):
    monkeypatch.setattr(importing, "read_s", lambda: pytest.fail("nothing is to be read"))
    monkeypatch.setitem(sys.modules, importing.WHOLE, object())
    assert importing.remaining_s() == 0 and importing.import_now(clock=lambda: pytest.fail("nothing is to be timed")) == 0


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """Of the program: first in sys.path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "program.py"))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("shlex", "html", "networkx", "sympy")]:
        monkeypatch.delitem(sys.modules, name)
    importing._shadow.cache_clear()
    yield tmp_path
    importing._shadow.cache_clear()


@pytest.mark.parametrize("file", ["shlex.py", "html/__init__.py", "networkx.py", "sympy/__init__.py", "redis.py"])
def test_a_file_of_the_program_that_it_would_take_for_another_leaves_it_out(folder, file):
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text("raise SystemExit")
    assert str(folder / file) in importing.shadow()
    with pytest.raises(importing.TakenForAnother):
        importing.import_now()


@pytest.mark.parametrize("file", ["test.py", "utils.py", "shlex/notes.txt", "site-packages/networkx.py", "lib/sympy/__init__.py"])
def test_other_files_do_not(folder, file, monkeypatch):
    (folder / file).parent.mkdir(exist_ok=True, parents=True)
    (folder / file).write_text("raise SystemExit")
    monkeypatch.setattr(sys, "path", [str(folder / "site-packages"), str(folder / "lib"), *sys.path])
    assert importing.shadow() == ""


def test_what_the_program_has_imported_of_its_own_is_seen(folder, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[1:])
    mine = importlib.util.spec_from_file_location("shlex", folder / "shlex.py")
    monkeypatch.setitem(sys.modules, "shlex", importlib.util.module_from_spec(mine))
    assert str(folder / "shlex.py") in importing.shadow()
    monkeypatch.setitem(sys.modules, "shlex", object())
    importing._shadow.cache_clear()
    assert importing.shadow() == "", "nobody can say"


PROGRAM = """
import sys
import torch
before = {name.partition(".")[0] for name in sys.modules}
from torch import nn
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
with torch.no_grad():
    for _ in range(12):
        model(torch.randn(8, 64))
after = {name.partition(".")[0] for name in sys.modules} - before
import ipexrun
from ipexrun.capture import importing
print("traced" if "torch._dynamo.convert_frame" in sys.modules else ipexrun.report()["modules"][0]["state"])
print(sorted(name for name in after & sys.stdlib_module_names if name not in importing.OF_PYTHON and name not in sys.builtin_module_names))
"""


@pytest.mark.parametrize("shadows", [False, True])
def test_a_program_beside_which_such_files_lie(tmp_path, shadows):
    """Also risk: another version of torch imports more than is looked for."""
    for name in ("statistics", "resource", "profile", "shlex"):
        if shadows or name == "resource":
            (tmp_path / f"{name}.py").write_text("print('mine')\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0"}
    command = [f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun", sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    said, more = done.stdout.splitlines()
    assert more == "[]", done.stderr
    assert f"would take {tmp_path}" in said if shadows else said == "traced"


STRUCK = """
import signal
import sys
import torch
from torch import nn

class Alarm(Exception):
    pass

def ring(*_):
    raise Alarm

def down(frames):
    return down(frames - 1) if frames else model(x)

torch.set_grad_enabled(False)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
x = torch.randn(8, 64)
if sys.argv[1] == "frames":
    for _ in range(4):
        down(sys.getrecursionlimit() - 210)
else:
    # As soon as the import has come so far.
    class Watch:
        def find_spec(self, name, path=None, target=None):
            if name == sys.argv[1]:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    import threading
    sys.meta_path.insert(0, Watch())
    signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(4):
            model(x)
    except Alarm:
        print("rung")
compiled = torch.compile(nn.Sequential(nn.Linear(64, 8)), backend="eager")
print(tuple(compiled(x).shape))
"""


@pytest.mark.parametrize("where", ["torch._inductor.utils", "sympy.core.basic", "frames"])
def test_what_strikes_the_import_leaves_no_half_of_it(tmp_path, where):
    (tmp_path / "program.py").write_text(STRUCK)
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0"}
    command = [f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun", sys.executable, str(tmp_path / "program.py"), where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.stdout.split("\n")[:-1] == ["rung"] * (where != "frames") + ["(8, 8)"], done.stderr


def test_what_fails_apart_fails_here():
    def fail():
        raise ImportError("a file is missing")

    with pytest.raises(ImportError, match="a file is missing"):
        importing.apart(fail)
    seen = []
    importing.apart(lambda: seen.append(threading.current_thread()))
    assert seen[0] is not threading.current_thread() and seen[0] not in threading.enumerate()


def test_what_another_thread_raises_here_ends_no_wait_for_ever():
    """_thread.interrupt_main() and PyThreadState_SetAsyncExc (time limits of programs) wake nobody: they come right behind what the thread waits for."""

    def work():
        time.sleep(0.1)  # the other one waits by then
        raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
        raise_in(ctypes.c_ulong(waiting), ctypes.py_object(TimeoutError))

    waiting, outcome = None, []

    def wait():
        nonlocal waiting
        waiting = threading.get_ident()
        try:
            importing.apart(work)
            for _ in range(100):
                pass
        except TimeoutError:
            outcome.append("raised")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(30)
    assert outcome == ["raised"]


def test_the_environment_stays_as_it_was(tmp_path):
    """torch names the folder of Inductor's files in it, which the program's children would inherit."""
    program = (
        "import os, torch\n"
        "before = dict(os.environ)\n"
        "model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).eval()\n"
        "with torch.no_grad():\n"
        "    for _ in range(12): model(torch.randn(8, 64))\n"
        "import sys; print('torch._dynamo' in sys.modules, dict(os.environ) == before)\n"
    )
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0"}
    done = subprocess.run([f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun", sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=environment)
    assert done.stdout == "True True\n", done.stderr
