"""Ends work of torch's compiler that takes too long: sizes that changed between calls can keep its symbolic algebra busy for minutes inside one operator of
one function (a detection model of torchvision did), and nothing of torch's own bounds that.

Method: a thread that sleeps looks at the CPU clock of the working one and, once that is over its limit, raises TookTooLong there, between two lines of
Python, as a signal handler would: what the compiler has open is closed as for KeyboardInterrupt. It knows no CPU time of threads below Linux's clocks.

Thread rule: a TimeLimit belongs to the thread that entered it."""

import _thread  # not of threading.enumerate(), in which the program would see it
import ctypes
import sys
import threading
import time

from .. import forks

LOOK_S = 0.25
AGAIN_S = 1.0  # of CPU time after an exception that somebody swallowed


class TookTooLong(BaseException):
    """Not an Exception, which compilers catch and go on."""


def is_over(problem):
    """Whether it is TookTooLong, or stands for it."""
    seen = 0
    while problem is not None and seen < 20:
        if not isinstance(problem, Exception):
            return isinstance(problem, TookTooLong)  # not where the program's KeyboardInterrupt came upon it
        problem = problem.__cause__ or problem.__context__
        seen += 1
    return False


def _raise_in(thread, what):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if what is None else ctypes.py_object(what))


class Unraised:
    """While somebody is inside, sys.unraisablehook is not told of TookTooLong: it may come upon a callback of a weak reference, or a `__del__`, out of which
    Python raises nothing."""

    def __init__(self):
        self.lock, self.depth, self.before = threading.RLock(), 0, None
        forks.renew(self.lock)

    def tell(self, what):
        if what.exc_type is not TookTooLong:
            (self.before or sys.__unraisablehook__)(what)

    def enter(self):
        with self.lock:
            self.depth += 1
            if self.depth == 1 and self.before is None:  # else a hook of somebody else's calls this one still
                self.before, sys.unraisablehook = sys.unraisablehook, self.tell

    def leave(self):
        with self.lock:
            self.depth -= 1
            if self.depth == 0 and sys.unraisablehook == self.tell:  # nobody has put one of his own there
                sys.unraisablehook, self.before = self.before, None


_unraised = Unraised()


class TimeLimit:
    """`with TimeLimit(seconds):` raises TookTooLong in the body after so many seconds of CPU time of this thread, and never after it."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        self.thread = threading.get_ident()
        self.clock = time.pthread_getcpuclockid(self.thread)
        self.until = time.clock_gettime(self.clock) + self.seconds
        self.lock, self.left = threading.Lock(), threading.Lock()
        self.inside, self.fired = True, False
        self.left.acquire()
        _thread.start_new_thread(self.watch, ())
        return self

    def watch(self):
        while not self.left.acquire(timeout=LOOK_S):
            with self.lock:
                if not self.inside:
                    return
                now = time.clock_gettime(self.clock)
                if now > self.until:
                    if not self.fired:
                        _unraised.enter()
                    self.fired = True
                    self.until = now + AGAIN_S  # not while what was open is being closed
                    _raise_in(self.thread, TookTooLong)

    def await_own(self):
        """One that is still on its way comes now. To call it back would call back one of the program's, which may have taken its place."""
        try:
            for _ in range(8):
                pass
        except TookTooLong:
            raise
        except BaseException:  # a signal handler's came first, or the program's has taken its place
            _raise_in(self.thread, None)
            raise

    def __exit__(self, *problem):
        try:
            try:
                with self.lock:
                    self.inside = False
            finally:
                self.inside = False  # where it was raised just here
                try:
                    self.left.release()
                    if self.fired:
                        self.await_own()
                finally:
                    if self.fired:
                        _unraised.leave()
        except TookTooLong:
            pass
        return False
