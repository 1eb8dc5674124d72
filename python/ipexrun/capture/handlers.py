"""Whether code catches what an operator may raise. What is captured runs a graph where the program ran a `try` around an operator: what that raises comes out of
the call, past an `except` of the program's. Where the graph is all of a call the module answers such a call instead (graphs/raised.py); a call of several
graphs, and a step of training, which writes running statistics and draws random numbers, cannot be made once more.

By the code of the functions that were traced, whether or not the operators stand inside of the `try`. Thread rule: any thread.
"""

import dis
import os

import torch

OF_TORCH = os.path.join(os.path.dirname(torch.__file__), "")  # whose functions catch nothing of the kind
# Which no operator raises in a graph that was traced: not its arguments' kinds, but their numbers are others.
OF_PYTHON = frozenset(("TypeError", "AttributeError", "KeyError", "ImportError", "ModuleNotFoundError", "NameError", "StopIteration", "StopAsyncIteration",
                       "AssertionError", "OSError", "FileNotFoundError", "GeneratorExit", "KeyboardInterrupt"))


def catches(code):
    """Whether it has an `except` of no class or of another one than these, or names contextlib.suppress."""
    if "suppress" in code.co_names:
        return True
    names, before = set(), None
    for one in dis.get_instructions(code):
        if one.opname in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH", "JUMP_IF_NOT_EXC_MATCH"):
            if not names or not names <= OF_PYTHON:
                return True
            names = set()
        elif one.opname.startswith("LOAD"):  # a class, or those of a tuple
            names.add(one.argval if isinstance(one.argval, str) else repr(one.argval))
        elif one.opname == "POP_TOP" and before == "PUSH_EXC_INFO":
            return True
        elif one.opname not in ("BUILD_TUPLE", "CACHE", "EXTENDED_ARG", "PRECALL"):
            names = set()
        before = one.opname
    return False


def refusal():
    """Inside the call of a backend: why the frame is not to be captured, or ""."""
    context = torch._guards.TracingContext.try_get()
    codes = () if context is None else context.traced_code or ()
    found = next((code for code in codes if not code.co_filename.startswith(OF_TORCH) and catches(code)), None)
    return "" if found is None else f"{found.co_name} catches what operators may raise"
