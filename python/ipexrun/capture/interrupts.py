"""Some of TorchDynamo's guards are functions in Python, and what one raises makes it fail: also what a signal handler of the program's raises there (ctrl-C,
an alarm), which comes up between any two lines. The call went on as if nothing had happened; of interrupts that met calls of ever other lengths 6% were lost.
Guards of our traces keep such an exception (python/hook/guards.h), which is raised behind the call.

Thread rule: under the interpreter lock; heard() inside of TorchDynamo's own lock, which a trace holds."""

import contextlib
import functools
import sys

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
