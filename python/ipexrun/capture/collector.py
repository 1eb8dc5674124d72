"""How often Python's collector of cycles runs while TorchDynamo traces. A trace makes some hundred thousand objects, nearly all of which stay until its end:
at the usual threshold the collector looks through them, and through whatever else the program holds, again and again in vain.

Thread rule: every function runs under the interpreter lock.
"""

import contextlib
import gc

SELDOM = 100_000  # objects: a trace of BERT-base holds 3 MB more, one of 700, the usual threshold, takes a tenth longer


@contextlib.contextmanager
def seldom():
    """Not where the program asked for less itself, nor does it take back what another thread asks for meanwhile."""
    first, *others = gc.get_threshold()
    if 0 < first < SELDOM:
        gc.set_threshold(SELDOM, *others)
    try:
        yield
    finally:
        if 0 < first < SELDOM and gc.get_threshold() == (SELDOM, *others):
            gc.set_threshold(first, *others)
