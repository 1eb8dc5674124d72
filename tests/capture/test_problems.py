"""Whose an exception is that was raised while ours ran (python/ipexrun/problems.py): no program is run.

Risk covered: what a signal handler or another thread of the program raises is taken for a failure of ours, and lost; a failure of ours ends the program.
"""

import ctypes
import functools
import os
import signal
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")

from ipexrun import problems  # noqa: E402
from ipexrun.capture import time_limit, traced_graph  # noqa: E402
from ipexrun.graphs import double  # noqa: E402


class Stop(Exception):
    pass


def once(number, frame):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    stop()


def stop():
    raise Stop


def more(extra, number, frame):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise Stop(extra)


class Says(Exception):
    def __init__(self, what="it took too long"):
        super().__init__(what)


class Handler:
    def __call__(self, *given):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        raise Stop


HANDLERS = {
    "once": once,
    "partial": functools.partial(more, 1),
    "object": Handler(),
    "of any arguments": lambda *given: (signal.signal(signal.SIGALRM, signal.SIG_DFL), stop()),
    "forgets what it was given": lambda number, frame, here=[]: here.append(frame := None) or stop(),
}


def of_thread(kind):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind))
    for _ in range(1000):
        pass


@pytest.fixture(params=[*HANDLERS, Stop, Says, TimeoutError, Exception], ids=str)
def interrupt(request):
    """A function out of which the program's exception comes."""
    if request.param not in HANDLERS:
        yield lambda: of_thread(request.param)
        return
    before = signal.getsignal(signal.SIGALRM)
    yield lambda: (signal.signal(signal.SIGALRM, HANDLERS[request.param]), signal.raise_signal(signal.SIGALRM))
    signal.signal(signal.SIGALRM, before)


def test_what_came_from_outside_is_the_programs(interrupt):
    with pytest.raises(Exception) as raised:
        try:
            interrupt()
        except Exception as problem:
            found = problem
            problems.let_through(problem)
    assert raised.value is found
    with pytest.raises(Exception) as raised:
        try:
            of_a_compiler(interrupt)
        except Exception as problem:
            found = problem.__cause__
            problems.let_through(problem)
    assert raised.value is found


def of_a_compiler(interrupt):
    try:
        interrupt()
    except Exception as problem:
        raise RuntimeError("of a compiler") from problem


OURS = {
    "index": lambda: [][1],
    "key": lambda: {}["x"],
    "an iterator's end": lambda: next(iter(())),
    "torch's": lambda: torch.ones(2) @ torch.ones(3),
    "of the program's class, in its own code": stop,
    "from an inner function": lambda: traced_graph.Plain().before("_assert", (torch.ones(1),), None, None),
    "an assertion": lambda: exec("assert False"),
    "of a library in C": lambda: ctypes.pythonapi.PyErr_SetString(ctypes.py_object(Stop), b"of a library"),
    "a timeout of the system's": lambda: exec("raise TimeoutError"),
}


@pytest.mark.parametrize("name", OURS)
def test_what_fails_by_itself_is_not(name):
    try:
        OURS[name]()
    except Exception as problem:
        assert problems.of_signal(problem) is None
        problems.let_through(problem)
    else:
        pytest.fail("nothing was raised")


def test_calls_in_float64_give_it_to_the_program_and_leave_the_module_as_it_was(interrupt):
    class Net(torch.nn.Module):
        def forward(self, x):
            self.kept = x * 2
            interrupt()
            return x

    module = Net()
    with pytest.raises(Exception):
        double.of_call(module, (torch.ones(2),), {})
    assert not hasattr(module, "kept")


@pytest.mark.parametrize("kind, arrives", [(Stop, True), (time_limit.TookTooLong, False)])
def test_what_arrives_while_a_limit_ends(kind, arrives):
    """What the program's other thread raised, or the limit's own, which came too late."""
    seen = False
    try:
        with time_limit.TimeLimit(0.0) as limit:
            lock = limit.left
            limit.left = SimpleNamespace(acquire=lock.acquire, release=lambda: (lock.release(), of_thread(kind)))
            try:
                while True:
                    pass
            except time_limit.TookTooLong:
                pass
    except kind:
        seen = True
    assert seen == arrives and time_limit._unraised.depth == 0
