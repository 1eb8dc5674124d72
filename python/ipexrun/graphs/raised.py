"""Who answers a call whose captured graph raises. TorchDynamo runs the graph first and then does what else the call does, and it knows no `except` of the
program's at run time: a call that catches the exception, or has set attributes before it, comes out otherwise than the program wrote it. Nothing has
happened yet when such a graph raises, so the module itself answers the call from the beginning.

Thread rule: any thread, each for itself.
"""

import threading

from ..problems import Passing, let_through

ALLOWED, SHARE = 16, 0.05  # calls that may raise before it is asked whether they are more than such a share: each of them is computed twice

_last = threading.local()


def by_graph(problem, alone):
    """`alone`: nothing of the call but this graph has run. What it drew is put back, and what it writes is written behind it."""
    _last.problem, _last.alone = id(problem), alone


def was_harmless(problem):
    """Of an exception that is on its way: whether by_graph() has seen it, of a graph that ran alone."""
    return getattr(_last, "problem", None) == id(problem) and _last.alone


def call_or_leave(owner, run, module, args, kwargs):
    """What `run` gives; owner.eager where its graph raised and the module itself is to answer."""
    _last.problem = None  # another exception may lie where an older one lay
    try:
        result = run(module, *args, **kwargs)
        owner.hook.raise_lost()
        return result
    except Exception as problem:
        owner.hook.raise_lost()  # else a later call would
        if not was_harmless(problem):
            raise
        if not isinstance(problem, Passing):
            let_through(problem)
        owner.raised += 1
        return owner.eager
    finally:
        _last.problem = None


def too_often(count, calls):
    return count > ALLOWED and count > SHARE * calls
