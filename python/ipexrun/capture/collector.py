"""How often Python's collector of cycles runs while TorchDynamo traces. A trace makes some hundred thousand objects, nearly all of which stay until its end:
at the usual threshold the collector looks through them, and through whatever else the program holds, again and again in vain.

Thread rule: every function runs under the interpreter lock.
"""

import contextlib
import gc

from .. import forks

SELDOM = 100_000  # objects: a trace of BERT-base holds 3 MB more, one of 700, the usual threshold, takes a tenth longer


_usual = None  # the program's thresholds, while a thread is inside


def take_back():
    global _usual
    if _usual is not None and gc.get_threshold() == (SELDOM, *_usual[1:]):
        gc.set_threshold(*_usual)
    _usual = None


forks.in_child(take_back)  # which has not got that thread


@contextlib.contextmanager
def seldom():
    """Not where the program asked for less itself, nor does it take back what another thread asks for meanwhile."""
    global _usual
    now = gc.get_threshold()
    mine = 0 < now[0] < SELDOM
    if mine:
        _usual = now
        gc.set_threshold(SELDOM, *now[1:])
    try:
        yield
    finally:
        if mine:
            take_back()
