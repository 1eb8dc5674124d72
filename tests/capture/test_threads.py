"""Risk: what stock survives and we do not, because we are at work in a thread of the program's: a trace ends the process where the thread's stack is small, or a child
that is forked meanwhile waits for ever for what that thread held, keeps quiet what it logs, or keeps what was changed for the trace."""

import gc
import logging
import os
import subprocess
import sys
import threading

import pytest

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")

MODULES = """
import sys, threading, torch
from torch import nn

class Net(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.softmax(torch.relu(layer(x)) * 2, -1)
        return x

x = torch.randn(32, 64)

def states():
    return {note["state"] for note in sys.modules["ipexrun"].report().get("modules", [])} if "ipexrun" in sys.modules else set()
"""

SMALL_STACK = """
def work():
    model = Net().eval()
    with torch.no_grad():
        results = [model(x) for _ in range(30)]
    print(all(torch.allclose(one, results[0], atol=1e-2) for one in results), bool(states()))

threading.stack_size(int(sys.argv[1]) * 1024)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""

FORKS = """
import os, time

stop = False

def work():
    torch.set_grad_enabled(False)
    layers = 0
    while not stop:
        layers += 1
        model = Net(2 + layers % 20).eval()
        for _ in range(12):
            model(x)

torch.set_grad_enabled(False)
mine = Net().eval()
stock = mine(x)
thread = threading.Thread(target=work)
thread.start()
for i in range(6):
    time.sleep(0.31)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if all(torch.allclose(mine(x), stock, atol=1e-2) for _ in range(40)) else 1)
    until = time.time() + 30
    ended = (0, 0)
    while ended[0] == 0 and time.time() < until:
        time.sleep(0.01)
        ended = os.waitpid(pid, os.WNOHANG)
    if ended[0] == 0:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    print("a child", "hung" if ended[0] == 0 else os.waitstatus_to_exitcode(ended[1]), flush=True)
stop = True
thread.join()
"""

ALONE = """
import os

torch.set_grad_enabled(False)
pid = os.fork()
if pid == 0:
    model = Net().eval()
    for _ in range(60):
        model(x)
    print(any("waiting" not in state for state in states()), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""

BESIDE = """
import time
import ipexrun.capture.tracing

ipexrun.capture.tracing.RACE = False  # which call wins a race beside other threads says nothing about what is found again

def calls_until(model, given, kind, captured):
    until = time.monotonic() + 60
    while sum(note["state"] == "captured" for note in ipexrun.report()["modules"] if note["module"] == kind) < captured and time.monotonic() < until:
        model(given)
    for _ in range(20):
        model(given)

def other():
    with torch.no_grad():
        calls_until(nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512)).eval(), torch.randn(256, 512), "Sequential", 2)

with torch.no_grad():
    threads = [threading.Thread(target=other) for _ in range(2)]
    for thread in threads:
        thread.start()
    models = [Net(2 + number).eval() for number in range(4)]
    for number, model in enumerate(models):
        calls_until(model, x, "Net", number + 1)
for thread in threads:
    thread.join()
report = ipexrun.report()
for note in report["modules"]:
    print(note["module"], note["state"], note["graphs"])
print(min(graph["calls"] for graph in report["graphs"]) >= 10)
"""

OF_ONE_CLASS = """
class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        x = self.layer(x).relu()
        sys.stderr.write("")
        return self.layer(x).relu()

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Broken()

    def forward(self, x):
        return self.inner(x) * 2

import ipexrun

near = True
with torch.no_grad():
    for model in [Outer().eval() for _ in range(20)]:
        for _ in range(6):
            y = model(x)
        ipexrun.set_enabled(False)
        near &= torch.allclose(y, model(x), atol=1e-5)
        ipexrun.set_enabled(True)
report = ipexrun.report()
print(near, {(note["state"], note["graphs"]) for note in report["modules"]}, {graph["calls"] for graph in report["graphs"]})
"""


def run(tmp_path, program, *arguments, options=()):
    (tmp_path / "program.py").write_text(MODULES + program)
    build = os.environ["IPEXRUN_BUILD_DIR"]
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{build}/lib/ipexrun/python"}
    command = [f"{build}/bin/ipexrun", *options, sys.executable, str(tmp_path / "program.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("kib", "captured"), [(96, False), (512, False), (2048, True)])
def test_threads_with_small_stacks_are_left_alone(tmp_path, kib, captured):
    assert run(tmp_path, SMALL_STACK, str(kib)) == [f"True {captured}"]


def test_children_forked_beside_a_thread_whose_modules_are_captured(tmp_path):
    assert run(tmp_path, FORKS) == ["a child 0"] * 6


def test_a_child_of_a_single_thread_captures(tmp_path):
    assert run(tmp_path, ALONE) == ["True"]


def test_what_is_traced_beside_captured_calls_of_other_threads_is_found_again(tmp_path):
    assert sorted(run(tmp_path, BESIDE, options=["--graph-mode", "dynamo"])) == [*["Net captured 1"] * 4, *["Sequential captured 1"] * 2, "True"]


def test_modules_of_one_class_in_several_graphs_have_graphs_of_their_own(tmp_path):
    assert run(tmp_path, OF_ONE_CLASS, options=["--graph-mode", "dynamo"]) == ["True {('captured', 3)} {6}"]


def in_child(work):
    """Whether work() is true in a forked child."""
    pid = os.fork()
    if pid == 0:
        answer = False
        try:
            answer = work()
        finally:
            os._exit(0 if answer else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture
def inside():
    """Calls a function while another thread is inside of a `with`."""
    ends, threads = threading.Event(), []

    def beside(context, work):
        begun = threading.Event()

        def hold():
            with context:
                begun.set()
                ends.wait()

        threads.append(threading.Thread(target=hold))
        threads[0].start()
        assert begun.wait(20)
        return work()

    yield beside
    ends.set()
    threads[0].join()


def test_a_child_is_not_kept_quiet(inside):
    from ipexrun import quiet

    shown = []
    handler = logging.Handler()
    handler.emit = shown.append
    logging.root.addHandler(handler)

    def logs():
        for filter in handler.filters:
            filter.thread = threading.get_ident()  # as a thread of the child's may be called
        logging.error("of the child")
        return len(shown) == 1

    try:
        assert inside(quiet.quiet(), lambda: in_child(logs))
    finally:
        logging.root.removeHandler(handler)


def test_a_child_collects_as_often_as_the_program_wants(inside):
    from ipexrun.capture import collector

    usual = gc.get_threshold()
    assert inside(collector.seldom(), lambda: gc.get_threshold() != usual and in_child(lambda: gc.get_threshold() == usual))


def test_locks_that_another_thread_held_are_free_in_a_child(inside):
    from ipexrun import forks

    lock = threading.RLock()
    forks.renew(lock)
    assert inside(lock, lambda: not lock.acquire(blocking=False) and in_child(lambda: lock.acquire(blocking=False)))
