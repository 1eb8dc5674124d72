"""What operators warn of while a captured form runs. Called from the program, an operator's warning (TORCH_WARN in C++) is one of Python's, shown once for the
line it came from, collected or raised, as the program's filters say. A form of ours runs below Python, or on lines of its own.

So a call that warns is not answered by a form (Warned): the module itself answers it, as one whose graph raises (raised.py). What torch warns of once in a
process it would not repeat: such a warning, told by a second run without it, is passed on from here, at the line that called the module.

Thread rule: any thread, each for itself.
"""

import os
import re
import sys
import warnings

import torch

from ..problems import Passing
from ..quiet import RAISED, in_front


def nothing():
    """In the place of the extension's, where a plugin was loaded without it: such warnings are lines on stderr."""


_hook = sys.modules.get("_ipexrun_hook")
_keep, _kept = getattr(_hook, "keep_warnings", nothing), getattr(_hook, "kept_warnings", nothing)
NOT_THE_PROGRAMS = tuple(os.path.dirname(path) + os.sep for path in (torch.__file__, os.path.dirname(__file__)))  # torch, and all of this package
OF_TRACES = ("error", None, Warning, re.compile(re.escape(__name__) + "$"), 0)
ROUNDS = 8  # runs of a graph of torch's, each of which may stop at another warning, or at one that says something else each time
WARNED, BETWEEN = "ipexrun: a graph warned: ", "\x1e"  # as in preload/plugin/graph/builder.cpp


class Warned(Passing):
    """A form would have warned; nothing was shown."""


def by_a_form(run, *values):
    """What a form gives that runs in C++, has no effects and may be run twice."""
    try:
        return run(*values)
    except RuntimeError as problem:
        first = messages_of(problem)
        if not first:
            raise
    try:
        result = run(*values)
    except RuntimeError as problem:
        again = messages_of(problem)
        if not again:
            raise
        say(dict.fromkeys(one for one in first if one not in again))
        raise Warned(again[0]) from None
    say(dict.fromkeys(first))
    return result


def messages_of(problem):
    text = str(problem)
    return text.removeprefix(WARNED).split(BETWEEN) if text.startswith(WARNED) else []


def by_torch(run, *values):
    """Likewise of operators that are called from Python, in either of two ways, of which one has no part in Python's warnings."""
    said = {}
    for _ in range(ROUNDS):
        _keep()
        try:
            with in_front(RAISED):
                result = run(*values)
        except Warning as problem:
            found = {str(problem): type(problem)}
        else:
            found = {}
        finally:
            kept = _kept()
        found.update(dict.fromkeys(kept or ()))
        if not found:
            say(said)
            return result
        again = said.keys() & found
        said.update(found)
        if again:
            break
    say({one: kind for one, kind in said.items() if one not in found})
    raise Warned(next(iter(found)))


def noted(run, *values):
    """Its result, and what its operators warned of in the way that has no part in Python's warnings, for say(); or None."""
    _keep()
    try:
        result = run(*values)
    finally:
        kept = _kept()
    return result, kept and dict.fromkeys(kept)


def by_a_trace(run, *values):
    """Likewise of a TorchScript method whose operators' warnings are Python's, and of this file: called from here. Nothing is asked of a call that does
    not warn: a filter for warnings of this file (heed_traces()) stands in front of the program's, and where the program puts others before it, these see to the warning."""
    try:
        return run(*values)
    except Warning as problem:
        first = problem
    try:
        result = run(*values)
    except Warning:
        raise Warned(str(first)) from None
    say({str(first): type(first)})
    return result


def heed_traces():
    if OF_TRACES not in warnings.filters:
        warnings.filters.insert(0, OF_TRACES)  # without warnings.simplefilter(), which makes Python forget what was shown


def say(messages):
    """{message: class or None}, at the innermost line of the program's. May raise, as the program's filters say."""
    if not messages:
        return
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(NOT_THE_PROGRAMS):
        frame = frame.f_back
    known = frame.f_globals.setdefault("__warningregistry__", {})
    for message, kind in dict(messages).items():
        warnings.warn_explicit(message, kind or UserWarning, frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__"), known)
