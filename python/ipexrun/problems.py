"""What failed: in our own work, which goes on without (first_line() says why in notes), or in the program.

Signal handlers of the program's run between any two lines of Python, ours included: what they raise (KeyboardInterrupt, the TimeoutError of an
alarm) is the program's and goes on its way, while what fails in our own work stays inside.

Thread rule: under the interpreter lock; signal handlers run on the main thread alone."""

import sys


def codes_of_handlers():
    signal = sys.modules.get("signal")
    handlers = [] if signal is None else [signal.getsignal(number) for number in signal.valid_signals()]
    return {getattr(getattr(one, "__func__", one), "__code__", None) for one in handlers} - {None}


def passed_through(problem, codes):
    trace = problem.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def is_being_handled(problem):
    """Whether it is an older one that the program is just handling (`except KeyboardInterrupt: model(x)`): Python chains it to ours."""
    frame = sys._getframe()
    while frame is not None:
        if problem.__traceback__ is None or frame is problem.__traceback__.tb_frame:
            return True
        frame = frame.f_back
    return False


def of_signal(problem):
    """What a signal handler raised, or an exception that means the end (KeyboardInterrupt, SystemExit), where `problem` is that or stands for it, as
    TorchDynamo's InternalTorchDynamoError does; else None."""
    codes = codes_of_handlers()
    first, found, looked_at = problem, None, 0
    while problem is not None and looked_at < 20 and (problem is first or not is_being_handled(problem)):
        if not isinstance(problem, Exception) or passed_through(problem, codes):
            found = problem
        problem = problem.__cause__ or problem.__context__
        looked_at += 1
    return found


def let_through(problem):
    """Raises what of_signal() finds."""
    programs = of_signal(problem)
    if programs is not None:
        raise programs from None


def first_line(problem):
    return (str(problem).splitlines() or [type(problem).__name__])[0]
