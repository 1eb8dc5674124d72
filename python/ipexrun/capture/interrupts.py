"""Signal handlers of the program's, while TorchDynamo traces and in its guards.

While it traces they wait (late()): an exception between any two lines of the compiler's is its failure, under another name, and what torch runs in C++ meanwhile
asks Python for sizes while it unwinds, where one more exception ends the process (seen: std::terminate below autograd's InputMetadata). They are called when
the trace is done, and what they raise is raised behind the program's call (raise_late()). So nothing traced is lost either: a time limit shorter than a trace would
end each attempt, and the module's call with it, for as long as the program runs. A second ctrl-C is not kept waiting.

Some of TorchDynamo's guards are functions in Python, and what one raises makes it fail: also what a signal handler of the program's raises there (ctrl-C,
an alarm), which comes up between any two lines. The call went on as if nothing had happened; of interrupts that met calls of ever other lengths 6% were lost.
Guards of our traces keep such an exception (python/hook/guards.h), which is raised behind the call.

Thread rule: under the interpreter lock; heard() inside of TorchDynamo's own lock, which a trace holds."""

import _thread
import contextlib
import functools
import signal
import sys
import threading

from ..problems import of_signal

WAYS = (("GuardManager", "add_lambda_guard"), ("RootGuardManager", "add_epilogue_lambda_guard"))  # by which TorchDynamo adds a function


def keeping(add, guard):
    @functools.wraps(add)
    def add_keeping(manager, function, *more):
        return add(manager, guard(function, of_signal), *more)

    return add_keeping


@contextlib.contextmanager
def heard():
    """Guards that are made meanwhile keep what is the program's."""
    guard = getattr(sys.modules.get("_ipexrun_hook"), "guard", None)
    guards = sys.modules.get("torch._C._dynamo.guards")
    found = [(kind, name, vars(kind).get(name)) for kind, name in ((getattr(guards, kind, None), name) for kind, name in WAYS) if kind is not None]
    if guard is None:
        found = []
    for kind, name, add in found:
        if add is not None:
            setattr(kind, name, keeping(add, guard))
    try:
        yield
    finally:
        for kind, name, add in found:
            if add is not None:
                setattr(kind, name, add)


_raised = []  # by handlers that waited, until raise_late()


def held(hook, instead):
    """{number: handler} of the handlers that `instead` stands in for; of none where Python's main thread is another one than threading takes for it (the first
    that imported threading, in a program that embeds Python)."""
    try:
        return hook.hold_signals(instead)
    except ValueError as problem:
        if of_signal(problem) is not None:
            raise
        return {}


@contextlib.contextmanager
def late():
    """Handlers of signals that come meanwhile are called at its end. Whoever traces calls raise_late() then."""
    hook = sys.modules.get("_ipexrun_hook")
    if hook is None or threading.get_ident() != threading.main_thread().ident:
        yield
        return
    came = []

    def note(number, frame):
        if number == signal.SIGINT and number in came:
            came.remove(number)
            handlers[number](number, frame)
        else:
            came.append(number)

    handlers = held(hook, note)
    try:
        yield
    finally:
        hook.let_signals(note, handlers)
        for i, number in enumerate(came):
            try:
                handlers[number](number, sys._getframe())
            except BaseException as problem:
                _raised.append(problem)
                for later in came[i + 1 :]:
                    _thread.interrupt_main(later)
                break


def raise_late():
    if _raised and threading.get_ident() == threading.main_thread().ident:
        raise _raised.pop(0)
