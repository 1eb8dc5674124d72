"""What failed: in our own work, which goes on without (first_line() says why in notes), or in the program.

Signal handlers of the program's run between any two lines of Python, ours included, and another thread of its may raise something in this one there
(PyThreadState_SetAsyncExc): these (KeyboardInterrupt, the TimeoutError of an alarm) are the program's and go on their way, while what fails in our own
work stays inside.

Thread rule: under the interpreter lock; signal handlers run on the main thread alone."""

import opcode
import os
import sys
import types

import torch

NO_HANDLERS = tuple(os.path.dirname(path) + os.sep for path in (torch.__file__, __file__))  # but those that are registered, if any
RAISING = frozenset(opcode.opmap[name] for name in ("RAISE_VARARGS", "RERAISE"))
# What these define is raised by our work, and by what that is made of.
OF_OUR_WORK = frozenset((*sys.stdlib_module_names, "builtins", "torch", "functorch", "torchgen", "ipexrun", "numpy", "sympy", "mpmath", "networkx"))
RAISED_FROM_OUTSIDE = (Exception, RuntimeError, TimeoutError)


def codes_of_handlers():
    signal = sys.modules.get("signal")
    handlers = [] if signal is None else [signal.getsignal(number) for number in signal.valid_signals()]
    return {getattr(getattr(one, "__func__", one), "__code__", None) for one in handlers} - {None}


def is_called_as_handler(frame):
    """Whether it was given the very frame that it interrupts: a handler that is registered no more (it sees to that itself, say), or is part of an object."""
    code = frame.f_code
    if frame.f_back is None or code.co_filename.startswith(NO_HANDLERS):  # ours are still running: what is asked for their locals keeps these alive
        return False
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04)  # CO_VARARGS
    given = [frame.f_locals.get(name) for name in code.co_varnames[:count]]
    given += [one for several in given if type(several) is tuple for one in several]
    return any(one is frame.f_back for one in given)


def passed_through(problem, codes):
    trace = problem.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes or is_called_as_handler(trace.tb_frame):
            return True
        trace = trace.tb_next
    return False


def came_from_outside(problem):
    """Whether another thread raised it here: it came upon a line that does not raise, and says no more than its class does. What is written in C says what is
    wrong."""
    kind, trace = type(problem), problem.__traceback__
    of_ours = kind.__module__.partition(".")[0] in OF_OUR_WORK
    says_itself = not of_ours and isinstance(kind.__init__, types.FunctionType)
    if trace is None or (of_ours and kind not in RAISED_FROM_OUTSIDE) or (problem.args and not says_itself):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code.co_code
    return 0 <= trace.tb_lasti < len(code) and code[trace.tb_lasti] not in RAISING


def is_being_handled(problem):
    """Whether it is an older one that the program is just handling (`except KeyboardInterrupt: model(x)`): Python chains it to ours."""
    frame = sys._getframe()
    while frame is not None:
        if problem.__traceback__ is None or frame is problem.__traceback__.tb_frame:
            return True
        frame = frame.f_back
    return False


def of_signal(problem):
    """What a signal handler, or another thread, raised, or an exception that means the end (KeyboardInterrupt, SystemExit), where `problem` is that or stands
    for it, as TorchDynamo's InternalTorchDynamoError does; else None."""
    codes = codes_of_handlers()
    first, found, looked_at = problem, None, 0
    while problem is not None and looked_at < 20 and (problem is first or not is_being_handled(problem)):
        if not isinstance(problem, Exception) or passed_through(problem, codes) or came_from_outside(problem):
            found = problem
        problem = problem.__cause__ or problem.__context__
        looked_at += 1
    return found


class Passing(Exception):
    """Of ours: no failure of what it comes out of, but meant for who asked."""


def let_through(problem):
    """Raises what of_signal() finds, and what is Passing."""
    if isinstance(problem, Passing):
        raise problem
    programs = of_signal(problem)
    if programs is not None:
        raise programs from None


def first_line(problem):
    return (str(problem).splitlines() or [type(problem).__name__])[0]
