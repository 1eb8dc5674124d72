"""Parts of captured graphs that Inductor compiles beside the program (docs/inductor.md): who waits, who decides, what is kept, and what may go wrong.

Risk covered: a program that waits for a compiler, a result that changes while forms change, a form that is not faster or not right and answers, files of another
machine or torch that are taken for ours, a compiler that outlives the program, a program that loses its own children's ends, a first run that is not remembered.
"""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
IPEXRUN = f"{BUILD}/bin/ipexrun"
sys.path.insert(0, f"{BUILD}/lib/ipexrun/python")
os.environ.setdefault("IPEXRUN_CACHE", "off")

import torch  # noqa: E402
from ipexrun import plugin
from ipexrun.graphs import inductor, inductor_child, parts  # noqa: E402


assert plugin.ready()

# ---- the decisions, without a compiler and without a clock ---------------------------------------------------------------------------------


class Trials:
    """What the plugin's Trial says."""

    def __init__(self, answer=1):
        self.answer, self.pairs, self.checked = answer, 0, 0

    def add(self, *_):
        self.pairs += 1

    def result(self):
        return self.answer if self.pairs >= 3 else 0

    def ratio(self):
        return 0.5 if self.answer == 1 else 1.5

    def disturbed(self):
        return False

    def error(self):
        return 1e-7


class Graph:
    """Of the plugin: two parts of the same text, and one of another, for 80 of 100 ns."""

    def __init__(self):
        self.found, self.loaded, self.dropped, self.faster, self.fails = (["a", "a", "b"], [30, 30, 20], 100), [], False, 2, False

    def find_parts(self, *_):
        return self.found

    def load_part(self, text, path):
        self.loaded.append((text, os.path.basename(path)))

    def choose_parts(self, *_):
        return self.faster

    def run_parts(self, *_):
        if self.fails:
            raise RuntimeError("no memory\nfor it")
        return ("by Inductor",)

    def drop_parts(self):
        self.dropped = True

    def unsettled_runs(self):
        return 7


class Owner:
    """A compiler.Compiled whose forms are decided."""

    def __init__(self, name="key=1"):
        import threading

        self.name, self.choice, self.note, self.graph = name, True, {"choice": "bf16: things", "taken": 0}, Graph()
        self.exploring, self.right = threading.Lock(), True

    def answer(self, values):
        return ("as before",)

    def large_or_stock(self, values, result):
        self.note["taken"] += 1
        return result

    def tensors_of(self, values):
        return values

    numbers_of = tensors_of

    def is_accurate(self, values, mine, candidate, trial):
        trial.checked += 1
        return self.right


@pytest.fixture
def world(monkeypatch):
    """Files, processes and decisions by hand."""

    class World:
        ready, started, alive, known, said, why = set(), [], True, "", {}, ""

    world = World()
    world.ready, world.started, world.said = set(), [], {}

    class Process:
        def is_alive(self):
            return world.alive

    def start(texts):
        world.started.append(list(texts))
        return world.why, Process()

    monkeypatch.setattr(inductor, "why_not", lambda: "")
    monkeypatch.setattr(inductor, "why_not_compiled", lambda: "")
    monkeypatch.setattr(inductor, "mode", lambda: "auto")
    monkeypatch.setattr(inductor, "folder", lambda: "/nowhere")
    monkeypatch.setattr(inductor, "name_of", lambda text: f"name-{text}")
    monkeypatch.setattr(inductor, "state", lambda name: inductor.READY if name in world.ready else inductor.PENDING)
    monkeypatch.setattr(inductor, "whole_path_of", inductor.path_of)
    monkeypatch.setattr(inductor, "start", start)
    monkeypatch.setattr(parts, "POLL_S", 0.0)
    monkeypatch.setattr(parts.remembered, "graph_choice", lambda name: world.known)
    monkeypatch.setattr(parts.remembered, "remember_graph", lambda name, choice, *_: world.said.update({name: choice}))
    monkeypatch.setattr(parts.torch.classes.ipexrun, "Trial", Trials, raising=False)
    return world


def made(owner, answer=1):
    one = parts.Parts(owner)
    one.trial = Trials(answer)
    return one


def waited(owner, answer=1):
    """Found and worth it."""
    one = made(owner, answer)
    for _ in range(parts.LOOK_CALLS + 1):
        assert one([1]) == ("as before",)
    assert one.phase == one.save_up and not one.wants_calls()
    one.spent_s = 1e9
    return one


def test_the_course_of_a_win(world):
    owner = Owner()
    one = waited(owner)
    assert one([1]) == ("as before",) and world.started == [["name-a", "name-b"]]
    for _ in range(5):
        assert one([1]) == ("as before",) and one.pending()
    world.ready = {"name-a", "name-b"}
    tries = parts.tries()
    for _ in range(20):
        if one.answers():
            break
        assert one([1]) == ("as before",)
    assert one.answers() and one([1]) == ("by Inductor",)
    assert owner.graph.loaded == [("a", "name-a.so"), ("b", "name-b.so")]
    assert one.trial.checked >= 2 and parts.tries() > tries
    assert world.said == {"key=1,by=inductor": "inductor"} and owner.note["choice"] == "bf16: things, parts by Inductor"
    assert not owner.graph.dropped


@pytest.mark.parametrize("how", ["slower", "wrong", "none faster", "little", "ended early", "no start"])
def test_the_form_that_answered_goes_on_where_they_lose(world, how):
    owner = Owner()
    if how == "little":
        owner.graph.found = (["a"], [5], 100)
    owner.right = how != "wrong"
    owner.graph.faster = 0 if how == "none faster" else 2
    world.why = "no more processes" if how == "no start" else ""
    one = made(owner, -1) if how == "little" else waited(owner, -1 if how == "slower" else 1)
    world.alive = how != "ended early"
    if how not in ("ended early", "no start"):
        world.ready = {"name-a", "name-b"}
    for _ in range(40):
        assert one([1]) == ("as before",)
    assert one.over() and owner.graph.dropped and "inductor" in owner.note
    assert world.said == ({} if how in ("ended early", "no start") else {"key=1,by=inductor": "stock"})


def test_what_was_remembered_answers_after_one_check_and_without_a_compiler(world):
    world.known, world.ready = "inductor", {"name-a", "name-b"}
    owner = Owner()
    one = made(owner)
    calls = 0
    while not one.answers():
        assert one([1]) == ("as before",)
        calls += 1
    assert calls <= 4 and one.trial.checked == 1 and world.started == []


def test_what_was_remembered_and_is_gone_is_compiled_again_in_its_time(world):
    world.known = "inductor"
    owner = Owner()
    one = made(owner)
    one([1])
    assert one.phase == one.save_up and not one.certain


def test_what_lost_before_is_not_tried(world):
    world.known = "stock"
    one = made(Owner())
    assert one.over() and one([1]) == ("as before",)


def test_a_failure_later_goes_back_to_the_form_before(world):
    world.known, world.ready = "inductor", {"name-a", "name-b"}
    owner = Owner()
    one = made(owner)
    while not one.answers():
        one([1])
    owner.graph.fails = True
    assert one([1]) == ("as before",) and one.over() and owner.note["inductor"] == "failed: no memory" and owner.note["choice"] == "bf16: things"


def test_another_thread_that_tries_keeps_nobody_waiting(world):
    owner = Owner()
    one = waited(owner)
    with owner.exploring:
        assert one([1]) == ("as before",) and world.started == []


# ---- the process that compiles ---------------------------------------------------------------------------------------------------------------


def test_a_part_that_cannot_be_compiled_is_refused_once_and_others_go_on(tmp_path, monkeypatch):
    (tmp_path / "bad.part").write_text("{")
    (tmp_path / "good.part").write_text("{}")

    def compiled(part):
        made = tmp_path / "made.so"
        made.write_text("code")
        return str(made)

    monkeypatch.setattr(inductor_child, "compiled", compiled)
    monkeypatch.setattr(inductor_child, "tried", lambda made, part: None)
    for name in ("bad", "good", "bad"):
        inductor_child.compile_once(str(tmp_path), name)
    assert (tmp_path / "good.so").read_bytes() == inductor_child.sealed(b"code") and (tmp_path / "bad.no").read_text().strip()
    assert not glob.glob(f"{tmp_path}/*.lock") and not glob.glob(f"{tmp_path}/*.new")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
@pytest.mark.parametrize("code, said", [("__attribute__((constructor)) static void f(void) { *(volatile int *)8 = 1; }", "SIGSEGV"), ("int nothing;", "does not run")])
def test_what_ends_the_process_that_opens_it_is_refused(code, said, tmp_path, monkeypatch):
    (tmp_path / "one.part").write_text('{"inputs": [], "nodes": [], "values": []}')
    made = tmp_path / "made.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", made, "-"], input=code, text=True, check=True)
    monkeypatch.setattr(inductor_child, "compiled", lambda part: str(made))
    inductor_child.compile_once(str(tmp_path), "one")
    assert not (tmp_path / "one.so").exists() and said in (tmp_path / "one.no").read_text()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_it_is_refused_where_the_program_ignores_the_ends_of_its_children(tmp_path):
    """Python then takes each of them for one that did well."""
    (tmp_path / "one.part").write_text('{"inputs": [], "nodes": [], "values": []}')
    made = tmp_path / "made"
    crashes = "__attribute__((constructor)) static void f(void) { *(volatile int *)8 = 1; }"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-o", made, "-"], input=crashes, text=True, check=True)
    program = f"""
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
sys.path.insert(0, {os.path.dirname(inductor_child.__file__)!r})
import inductor_child
inductor_child.compiled = lambda part: {str(made)!r}
inductor_child.main({str(tmp_path)!r}, str(os.getppid()), "1", "0", "one")
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
    assert not (tmp_path / "one.so").exists() and "SIGSEGV" in (tmp_path / "one.no").read_text()


def test_a_trial_that_somebody_killed_is_no_refusal(tmp_path, monkeypatch):
    (tmp_path / "one.part").write_text("{}")
    monkeypatch.setattr(inductor_child, "compiled", lambda part: str(tmp_path / "made.so"))
    monkeypatch.setattr(inductor_child.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), -signal.SIGKILL, stderr=""))
    with pytest.raises(OSError):
        inductor_child.compile_once(str(tmp_path), "one")
    assert not (tmp_path / "one.no").exists()


def test_a_trial_that_takes_too_long_is_no_refusal(tmp_path, monkeypatch):
    (tmp_path / "one.part").write_text('{"inputs": [], "nodes": [], "values": []}')
    monkeypatch.setattr(inductor_child, "compiled", lambda part: str(tmp_path / "made.so"))
    monkeypatch.setattr(inductor_child, "TRIAL_S", 0.01)
    with pytest.raises(subprocess.TimeoutExpired):
        inductor_child.compile_once(str(tmp_path), "one")
    assert not (tmp_path / "one.no").exists()


def test_a_full_disk_is_no_refusal(tmp_path, monkeypatch):
    (tmp_path / "one.part").write_text("{}")

    def compiled(part):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(inductor_child, "compiled", compiled)
    with pytest.raises(OSError):
        inductor_child.compile_once(str(tmp_path), "one")
    assert not (tmp_path / "one.no").exists()


@pytest.mark.parametrize("said", ["a.cpp:9: fatal error: error writing to /tmp/a.s: No space left on device", "g++: fatal error: Killed signal terminated program cc1plus",
                                  "cc1plus: out of memory allocating 65536 bytes", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"])
def test_a_compiler_without_room_is_no_refusal(tmp_path, monkeypatch, said):
    (tmp_path / "one.part").write_text("{}")

    def compiled(part):
        raise RuntimeError(f"C++ compile error\n\nCommand:\ng++ a.cpp\n\nOutput:\n{said}")

    monkeypatch.setattr(inductor_child, "compiled", compiled)
    with pytest.raises(OSError):
        inductor_child.compile_once(str(tmp_path), "one")
    assert not (tmp_path / "one.no").exists()


def test_a_refusal_says_what_the_compiler_says(tmp_path, monkeypatch):
    (tmp_path / "one.part").write_text("{}")

    def compiled(part):
        raise RuntimeError("C++ compile error\n\nCommand:\ng++ a.cpp\n\nOutput:\nIn function f:\na.cpp:1:2: error: nothing of the kind\nmore")

    monkeypatch.setattr(inductor_child, "compiled", compiled)
    inductor_child.compile_once(str(tmp_path), "one")
    assert (tmp_path / "one.no").read_text() == "a.cpp:1:2: error: nothing of the kind\n"


@pytest.mark.parametrize("damage", [lambda code: code[:-1], lambda code: code[:20], lambda code: b"", lambda code: code[:9] + b"?" + code[10:]])
def test_what_is_not_whole_is_not_opened(tmp_path, monkeypatch, damage):
    """The loader would end the program, in this run and in each later one."""
    monkeypatch.setattr(inductor, "folder", lambda: str(tmp_path))
    code, path = inductor_child.sealed(b"code" * 99), tmp_path / "one.so"
    path.write_bytes(code)
    assert inductor.whole_path_of("one") == str(path)
    path.write_bytes(damage(code))
    with pytest.raises(OSError, match="damaged"):
        inductor.whole_path_of("one")
    assert inductor.state("one") == inductor.PENDING


def test_folders_of_processes_that_were_killed_go(tmp_path):
    folder = os.path.dirname(inductor_child.__file__)
    scratch = f"import sys, os; sys.path.insert(0, {folder!r}); import inductor_child; made, held = inductor_child.scratch_in({str(tmp_path)!r}); print(made, flush=True); "
    other = subprocess.Popen([sys.executable, "-c", scratch + "sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    lives = other.stdout.readline().strip()
    killed = subprocess.run([sys.executable, "-c", scratch + "os.kill(os.getpid(), 9)"], stdout=subprocess.PIPE, text=True).stdout.strip()
    assert os.path.isdir(lives) and os.path.isdir(killed) and os.path.dirname(killed) == str(tmp_path)
    mine, held = inductor_child.scratch_in(str(tmp_path))
    with held:
        assert sorted(os.listdir(tmp_path)) == sorted(map(os.path.basename, (lives, mine)))
    other.communicate()


def test_who_has_ended_and_was_not_asked_about_is_gone():
    """Where nobody collects a process that ended, the program waited for it, or it for the program, for ever."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert os.path.exists(f"/proc/{ended.pid}") and inductor_child.started_at(ended.pid) == ""
    ended.wait()


def test_the_kernel_ends_a_compiler_before_the_program_where_memory_runs_out(tmp_path, monkeypatch):
    monkeypatch.setattr(inductor, "folder", lambda: str(tmp_path))
    import fcntl

    with open(tmp_path / "one.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # it waits
        _, process = inductor.start({"one": "nothing"})
        for _ in range(100):
            with open(f"/proc/{process.number}/oom_score_adj") as score:
                if score.read() == "1000\n":
                    break
            time.sleep(0.1)
        else:
            pytest.fail("it is as dear as the program")


def test_modules_beside_torch_hide_none_of_pythons_own(tmp_path, monkeypatch):
    """Backports of old (pathlib, typing) lie in folders of packages, which come behind Python's own."""
    beside = tmp_path / "packages"
    beside.mkdir()
    (beside / "torch").symlink_to(os.path.dirname(torch.__file__))
    for name in ("pathlib", "random", "dataclasses"):
        (beside / f"{name}.py").write_text("raise ImportError('not for this Python')\n")
    monkeypatch.setattr(torch, "__file__", str(beside / "torch" / "__init__.py"))
    program = f"import runpy; print(runpy.run_path({inductor_child.__file__!r})['torch_of_the_program']().__file__)"
    done = subprocess.run([sys.executable, "-c", program], env=inductor.environment(), capture_output=True, text=True)
    assert done.stdout.strip() == torch.__file__, done.stderr


def test_it_ends_with_the_program_and_is_nobodys_child(tmp_path):
    """Killed, so that the program itself can do nothing about it."""
    program = f"""
import os, sys, time
sys.path.insert(0, {BUILD + "/lib/ipexrun/python"!r})
from ipexrun.graphs import inductor
inductor.folder = lambda: {str(tmp_path)!r}
why, process = inductor.start({{"one": "nothing"}})
assert why == "" and process.is_alive(), why
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print(process.number, flush=True)
time.sleep(60)
"""
    fifo = tmp_path / "one.lock"
    import fcntl

    with open(fifo, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # "another process compiles it": ours waits
        parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        number = int(parent.stdout.readline())
        assert inductor_child.started_at(number)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        for _ in range(100):
            if not inductor_child.started_at(number) or open(f"/proc/{number}/stat").read().rpartition(")")[2].split()[0] == "Z":
                break
            time.sleep(0.1)
        else:
            pytest.fail("it goes on")


def test_names_tell_torch_machine_threads_and_text(monkeypatch):
    names = {inductor.name_of("a"), inductor.name_of("b")}
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    names.add(inductor.name_of("a"))
    torch.set_num_threads(threads)
    monkeypatch.setattr(inductor, "machine", lambda: "another")
    names.add(inductor.name_of("a"))
    monkeypatch.setattr(torch, "__version__", "9.9")
    names.add(inductor.name_of("a"))
    assert len(names) == 5


def test_the_compiling_process_gets_nothing_of_ours(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/x.so")
    monkeypatch.setenv("IPEXRUN_MODE", "optimize")
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.setenv("HOME", "/home/me")
    environment = inductor.environment()
    assert environment["HOME"] == "/home/me" and not {"LD_PRELOAD", "IPEXRUN_MODE", "OMP_PROC_BIND"} & set(environment)


@pytest.mark.parametrize("name, value, said", [("IPEXRUN_INDUCTOR", "off", "off"), ("TORCH_COMPILE_DISABLE", "1", "DISABLE"), ("ATEN_CPU_CAPABILITY", "avx2", "capped"),
                                               ("IPEXRUN_CACHE", "off", "no folder")])
def test_why_not(monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    inductor.why_not.cache_clear()
    assert said in inductor.why_not()
    inductor.why_not.cache_clear()


@pytest.mark.parametrize("name, value, said", [("IPEXRUN_INDUCTOR", "kept", "kept"), ("CXX", "/nowhere/g++", "there is no /nowhere/g++")])
def test_why_nothing_is_compiled(monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    inductor.why_not_compiled.cache_clear()
    assert said in inductor.why_not_compiled()
    inductor.why_not_compiled.cache_clear()


# ---- all of it -------------------------------------------------------------------------------------------------------------------------------

# A recurrence written out, whose rows of operators no pass of ours makes one: Inductor does.
PROGRAM = """
import sys, json, time, torch
torch.manual_seed(0)
class Scan(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = torch.nn.Linear(64, 64)
    def forward(self, x):
        y, state, seen = self.mix(x), torch.zeros(x.shape[0], 64), []
        for i in range(12):
            state = state * torch.sin(y[:, i]) + torch.cos(x[:, i])
            seen.append(state)
        return torch.stack(seen, 1).roll(1, 1)
model, x = Scan().eval(), torch.randn(512, 12, 64)
def parts():
    graphs = sys.modules["ipexrun"].report()["graphs"] if "ipexrun" in sys.modules else []
    return [one["inductor"] for one in graphs if "inductor" in one]
with torch.no_grad():
    want = model(x)
    until = time.time() + float(sys.argv[1])
    while time.time() < until:
        got = model(x)
        time.sleep(0.01)  # the compiler may have the core
        assert got.stride() == want.stride() and torch.allclose(got, want, rtol=1e-2, atol=1e-2), (got - want).abs().max()
        if any("parts" in one or "failed" in one or "there is no" in one or "kept" in one or "faster" in one or "refused" in one for one in parts()):
            break
    other = torch.randn(100, 12, 64)
    assert torch.allclose(model(other), Scan.forward(model, other), rtol=1e-2, atol=1e-2)
print(json.dumps({"parts": parts(), "compiler": "torch._inductor.graph" in sys.modules}))
"""


def run(folder, *options, seconds=800, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": str(folder), "PYTHONPATH": f"{BUILD}/lib/ipexrun/python",
                   "IPEXRUN_GRAPH_WAIT": "0", "IPEXRUN_INDUCTOR": "now", **more}
    done = subprocess.run([IPEXRUN, "--dtype", "float32", *options, sys.executable, "-c", PROGRAM, str(seconds)], capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    return folder, run(folder)


def test_a_program_gets_parts_that_were_compiled_beside_it(first):
    folder, said = first
    assert any("parts" in one for one in said["parts"]), said
    assert not said["compiler"]  # not in the program's own process
    kept = sorted(os.path.splitext(one)[1] for one in os.listdir(folder / "inductor"))
    assert set(kept) == {".part", ".so"}, kept


def test_the_next_one_has_them_at_once(first):
    said = run(first[0], "--inductor", "kept", seconds=60, IPEXRUN_INDUCTOR="kept")
    assert any("remembered" in one for one in said["parts"]), said


@pytest.mark.sampled(1)
@pytest.mark.parametrize("damage", ["empty", "text", "cut", "gone"])
def test_damaged_files_are_left(first, tmp_path, damage):
    import shutil

    folder = tmp_path / "cache"
    shutil.copytree(first[0], folder)
    folder.chmod(0o700)
    for path in glob.glob(f"{folder}/inductor/*.so"):
        if damage == "gone":
            os.unlink(path)
        elif damage == "cut":
            os.truncate(path, 20000)
        else:
            open(path, "w").write("" if damage == "empty" else "no library\n" * 1000)
    said = run(folder, seconds=30, IPEXRUN_INDUCTOR="kept")
    assert not any("parts" in one and "remembered" in one for one in said["parts"]), said
    assert any(("kept" if damage == "gone" else "failed") in one for one in said["parts"]), said


def test_without_a_compiler_everything_else_works(tmp_path):
    tmp_path.chmod(0o700)
    said = run(tmp_path, seconds=60, CXX="/nowhere/g++")
    assert any("there is no /nowhere/g++" in one for one in said["parts"]), said


def test_off_is_off(tmp_path):
    tmp_path.chmod(0o700)
    said = run(tmp_path, "--inductor", "off", seconds=4, IPEXRUN_INDUCTOR="off")
    assert said["parts"] == ["--inductor off"] and not os.path.exists(tmp_path / "inductor")
