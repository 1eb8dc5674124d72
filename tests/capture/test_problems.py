"""Whose an exception is that was raised while ours ran (python/ipexrun/problems.py): no program is run.

Risk covered: what a signal handler or another thread of the program raises is taken for a failure of ours, and lost; a failure of ours ends the program.
"""

import ctypes
import functools
import os
import signal
import subprocess
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


class Guarded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inside(x)


def kept(function):
    hook = sys.modules["_ipexrun_hook"]
    return hook.guard(function, problems.of_signal), hook.raise_lost


@pytest.fixture
def hook(monkeypatch):
    """The extension, of which nothing is installed."""
    import importlib.machinery
    import importlib.util

    (path,) = [one for one in os.scandir(f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python") if one.name.startswith("_ipexrun_hook.")]
    spec = importlib.util.spec_from_loader("_ipexrun_hook", importlib.machinery.ExtensionFileLoader("_ipexrun_hook", path.path))
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "_ipexrun_hook", module)
    yield module


def test_what_a_guard_raises_by_itself_makes_it_fail_and_what_an_interrupt_raises_there_is_kept(hook):
    def fails(x):
        raise KeyError(x)

    guard, raise_lost = kept(fails)
    with pytest.raises(KeyError):
        guard(1)
    assert raise_lost() is None

    def interrupted(x):
        signal.raise_signal(signal.SIGINT)
        return x

    guard, raise_lost = kept(interrupted)
    assert guard.__wrapped__ is interrupted
    with pytest.raises(KeyboardInterrupt):
        guard(1)  # TorchDynamo takes that for False
    found = []
    other = threading.Thread(target=lambda: found.append(raise_lost()))
    other.start()
    other.join()
    assert found == [None], "it is this thread's"
    with pytest.raises(KeyboardInterrupt) as raised:
        raise_lost()
    assert "interrupted" in [one.name for one in raised.traceback], "where it came"
    assert raise_lost() is None
    assert kept(lambda x: x + 1)[0](1) == 2


@pytest.mark.parametrize("of_sizes", [False, True])
def test_guards_of_a_trace_keep_an_interrupt(hook, of_sizes, monkeypatch):
    """Of the state of torch, and of sizes that change, which come last."""
    from torch._dynamo import guards
    from torch._functorch._aot_autograd import utils

    from ipexrun.capture import interrupts

    model, x, armed, asked_for, given = Guarded(), torch.ones(5, 4), [], utils.top_saved_tensors_hooks, guards._get_closure_vars

    def interrupt(*arguments):
        if armed:
            armed.clear()
            signal.raise_signal(signal.SIGINT)
        return asked_for(*arguments) if not of_sizes else True

    if of_sizes:  # a part of the function that asks for sizes
        build = guards.build_guard_function
        monkeypatch.setattr(guards, "build_guard_function", lambda parts, names: build(["interrupt()", *parts], names))
        add = guards.GuardBuilder.add_python_lambda_leaf_guard_to_root
        monkeypatch.setattr(guards.GuardBuilder, "add_python_lambda_leaf_guard_to_root", lambda self, parts, verbose, closure_vars=None, **more: add(
            self, parts, verbose, closure_vars={**(closure_vars or given()), "interrupt": interrupt}, **more))
    else:
        monkeypatch.setattr(utils, "top_saved_tensors_hooks", interrupt)
    try:
        compiled = torch.compile(model, backend="eager", dynamic=of_sizes)
        with interrupts.heard(), torch.no_grad():
            truth = compiled(x)
        for kind, name in interrupts.WAYS:
            assert type(vars(getattr(torch._C._dynamo.guards, kind))[name]).__name__ == "instancemethod", "it is torch's again"
        armed.append(True)
        with torch.no_grad(), pytest.raises(KeyboardInterrupt):
            torch.testing.assert_close(compiled(x), truth)
            hook.raise_lost()
        assert not armed
    finally:
        torch._dynamo.reset()


def test_handlers_wait_for_the_end_of_a_trace(hook):
    from ipexrun.capture import interrupts

    called, before = [], {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGUSR1, signal.SIGINT)}
    try:
        signal.signal(signal.SIGUSR1, lambda number, frame: called.append(number))
        signal.signal(signal.SIGALRM, lambda number, frame: stop())
        mine = signal.getsignal(signal.SIGALRM)
        with interrupts.late():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGALRM)
            signal.raise_signal(signal.SIGUSR1)
            assert called == [], "nothing of the program's runs meanwhile"
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "what Python does not handle is left alone"
        assert called == [signal.SIGUSR1, signal.SIGUSR1]
        assert signal.getsignal(signal.SIGALRM) is mine
        found = []
        other = threading.Thread(target=lambda: found.append(interrupts.raise_late()))
        other.start()
        other.join()
        assert found == [None], "it is the main thread's"
        with pytest.raises(Stop) as raised:
            interrupts.raise_late()
        assert raised.value.__context__ is None
        assert interrupts.raise_late() is None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_second_ctrl_c_does_not_wait(hook):
    from ipexrun.capture import interrupts

    with pytest.raises(KeyboardInterrupt), interrupts.late():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it waits")
    assert interrupts.raise_late() is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_a_program_sets_in_a_trace_and_how_its_signals_restart_calls_stays(hook):
    from ipexrun.capture import interrupts

    class Action(ctypes.Structure):
        _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]

    def flags():
        action = Action()
        assert ctypes.CDLL(None).sigaction(int(signal.SIGUSR1), None, ctypes.byref(action)) == 0
        return action.flags

    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)
    try:
        signal.signal(signal.SIGUSR1, print)
        signal.signal(signal.SIGUSR2, print)
        signal.siginterrupt(signal.SIGUSR1, False)
        restarts = flags()
        with interrupts.late():
            assert flags() == restarts
            signal.signal(signal.SIGUSR2, repr)
        assert flags() == restarts
        assert signal.getsignal(signal.SIGUSR1) is print
        assert signal.getsignal(signal.SIGUSR2) is repr
    finally:
        signal.signal(signal.SIGUSR1, before[0])
        signal.signal(signal.SIGUSR2, before[1])


@pytest.mark.parametrize("taken_for_main", [False, True])
def test_other_threads_hold_no_signals(hook, taken_for_main, monkeypatch):
    """Nor one that threading takes for the main one: the first that imported it, in a program that embeds Python."""
    from ipexrun.capture import interrupts

    found = []

    def inside():
        if taken_for_main:
            monkeypatch.setattr(threading, "main_thread", threading.current_thread)
        with interrupts.late():
            found.append(signal.getsignal(signal.SIGINT))

    other = threading.Thread(target=inside)
    other.start()
    other.join()
    assert found == [signal.default_int_handler]


TIME_LIMITS = """
import signal, torch
class Stop(Exception): pass
def on(*_): raise Stop("time is up")
signal.signal(signal.SIGALRM, on)
torch.manual_seed(0)
model = torch.nn.Sequential(*[part for i in range(3) for part in (torch.nn.Conv2d(8 if i else 3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())])
optimizer, x, steps, odd = torch.optim.SGD(model.parameters(), 0.01), torch.randn(2, 3, 16, 16), 0, []
for i in range(60):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.02 + 0.1 * (i % 4))
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Stop as problem:
        if str(problem) != "time is up" or problem.__context__ is not None or problem.__cause__ is not None: odd.append(repr(problem))
print(odd, "some" if steps > 10 else steps)
"""


def test_a_time_limit_that_ends_in_a_trace_is_the_programs_and_the_program_gets_on():
    """Each attempt to trace was ended by it, with TorchDynamo's exception, or the process (std::terminate)."""
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0"}
    done = subprocess.run([f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun", sys.executable, "-c", TIME_LIMITS], capture_output=True, text=True, timeout=300, env=environment)
    assert (done.returncode, done.stdout) == (0, "[] some\n"), done.stderr
