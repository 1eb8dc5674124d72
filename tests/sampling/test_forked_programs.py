"""Risk: a program that tests/programs.py forks sees or shows something else than one that is started, or outlives the tests."""

import os
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import programs  # noqa: E402

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
LAUNCHER = f"{BUILD}/bin/ipexrun"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python"}
PROGRAMS = {
    "arguments": "import os, sys; print(sys.argv, sys.path[0], os.getcwd(), sys.warnoptions, __name__, '__file__' in globals(), [*globals()][:1])",
    "environment": "import os; print(os.environ['MARK'], os.environ.get('IPEXRUN_MARK')); os.system('echo $MARK $IPEXRUN_MARK')",
    "outputs": "import os, sys; print('out'); print('err', file=sys.stderr); sys.stdout.flush(); os.system('echo child'); print('last')",
    "input": "import sys; print(repr(sys.stdin.read()))",
    "exception": "def f(): 1 / 0\nprint(1)\nf()",
    "status": "import sys; sys.exit(3)",
    "text": "import sys; sys.exit('why')",
    "signal": "import os; os.kill(os.getpid(), 9)",
    "at the end": "import atexit, threading, time\natexit.register(print, 'atexit')\nthreading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()",
    "main": "import pickle, torch\nclass Mine: pass\nprint(Mine.__module__, type(pickle.loads(pickle.dumps(Mine()))) is Mine, torch.ones(2).sum().item())",
}


@pytest.fixture
def sample(monkeypatch):
    monkeypatch.setenv("IPEXRUN_TESTS", "sample")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("launched", [False, True], ids=["", "launched"])
def test_a_forked_program_shows_what_a_started_one_shows(launched, name, sample, tmp_path):
    if launched and not os.path.exists(LAUNCHER):
        pytest.skip("needs the launcher")
    command = [*([LAUNCHER] if launched else []), sys.executable, "-W", "ignore", "-c", PROGRAMS[name], "one", "two words"]
    environment = {**ENVIRONMENT, "MARK": "mark", "IPEXRUN_MARK": "1"}
    forked = programs.run(command, env=environment, cwd=tmp_path)
    started = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = "".join(line for line in started.stderr.splitlines(True) if not line.startswith("ipexrun: "))
    assert (forked.returncode if not launched or name != "signal" else 128 - forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr == said or (launched and name == "signal"), started.stderr


OURS = """
import os, sys, torch
torch.manual_seed(0)
layer, x = torch.nn.Linear(256, 256), torch.randn(64, 256)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
with torch.no_grad():
    for _ in range(60):
        model(torch.randn(8, 64))
    for _ in range(200):
        torch.nn.functional.linear(x, layer.weight)
import ipexrun
ipexrun.force("onednn_f32_packed")
with torch.no_grad():
    for _ in range(20):
        torch.nn.functional.linear(x, layer.weight)
report = ipexrun.report()
print([one["state"] for one in report["modules"]], report["explorations"] > 0, report["pack_bytes"] > 0, os.environ.get("IPEXRUN_DISABLE"))
"""


def test_a_launched_program_is_captured_explores_and_packs(sample):
    """And what was forked had nothing of ours before."""
    command = [LAUNCHER, "--dtype", "float32", "--graph-mode", "dynamo", sys.executable, "-W", "ignore", "-c", OURS]
    forked = programs.run(command, env=ENVIRONMENT, imports="torch torch._dynamo")
    started = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert forked.stdout == started.stdout == "['captured'] True True None\n", (forked, started)


def test_files_are_programs_too(sample, tmp_path):
    (tmp_path / "beside.py").write_text("NUMBER = 7\n")
    (tmp_path / "program.py").write_text("import inspect, sys, beside\ndef f(): pass\nprint(beside.NUMBER, __file__, sys.argv[1:], inspect.getsource(f))")
    command = [sys.executable, str(tmp_path / "program.py"), "one"]
    assert programs.run(command, env=ENVIRONMENT).stdout == subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True).stdout != ""


def test_one_process_for_programs_of_one_environment_without_threads(sample):
    code = "import os, torch, sys; print(os.getppid(), len(os.listdir('/proc/self/task')), 'torch._dynamo' in sys.modules)"
    first, second = (programs.run([sys.executable, "-c", code], env=ENVIRONMENT).stdout.split() for _ in range(2))
    other = programs.run([sys.executable, "-c", code], env={**ENVIRONMENT, "MARK": "mark"}).stdout.split()
    dynamo = programs.run([sys.executable, "-c", code], env=ENVIRONMENT, imports="torch torch._dynamo").stdout.split()
    assert first == second and len({first[0], other[0], dynamo[0]}) == 3
    assert [one[1:] for one in (first, other, dynamo)] == [["1", "False"], ["1", "False"], ["1", "True"]]
    threads = programs.run([sys.executable, "-c", "import os; print(os.getppid())"], env={**ENVIRONMENT, "OMP_NUM_THREADS": "2"})
    assert int(threads.stdout) == os.getpid(), "torch's import may start some"


def test_timeouts_end_the_program(sample):
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run([sys.executable, "-c", "import time; time.sleep(60)"], env=ENVIRONMENT, timeout=1)
    assert programs.run([sys.executable, "-c", "print(1)"], env=ENVIRONMENT).stdout == "1\n"


def test_everything_starts_programs_anew(monkeypatch):
    monkeypatch.delenv("IPEXRUN_TESTS", raising=False)
    done = programs.run([sys.executable, "-c", "import os, sys; print(os.getppid(), 'torch' in sys.modules)"], env=ENVIRONMENT)
    assert done.stdout == f"{os.getpid()} False\n"


@pytest.mark.parametrize("how", ["ends", "killed"])
def test_servers_end_with_the_tests(how):
    code = f"""
import os, sys, time
sys.path.insert(0, {os.path.dirname(programs.SERVER)!r})
import programs
print(programs.run([sys.executable, "-c", "import os; print(os.getppid())"]).stdout, end="", flush=True)
if {how == "killed"}:
    programs.run([sys.executable, "-c", "import time; time.sleep(60)"])
"""
    with subprocess.Popen([sys.executable, "-c", code], env={**ENVIRONMENT, "IPEXRUN_TESTS": "sample"}, stdout=subprocess.PIPE, text=True) as tests:
        server = int(tests.stdout.readline())
        if how == "killed":
            tests.send_signal(signal.SIGKILL)
    until = time.monotonic() + 30
    while os.path.exists(f"/proc/{server}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{server}")
