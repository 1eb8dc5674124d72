"""Keeps what torch's compiler says while it works on our behalf, and the program did not ask for it, off the program's stderr.

warnings.catch_warnings() would do so for the whole process: filters that another thread sets meanwhile are lost, and Python forgets which warnings were
shown (each of the program's would be shown once more). A filter that matches on one thread alone does neither."""

import contextlib
import logging
import os
import re
import sys
import threading
import warnings

from . import forks

_lock = threading.RLock()  # what a signal handler calls may come here while this thread holds it
forks.renew(_lock)
_depth = {}  # filter: how many are inside, of all threads
_said = threading.local()  # .of: the kind that record() keeps on this thread, and what was said


class OfThisThread(logging.Filter):
    """A child that another thread forks meanwhile keeps it for good, and may give the thread's number to one of its own."""

    def __init__(self):
        super().__init__()
        self.thread, self.process = threading.get_ident(), os.getpid()

    def filter(self, record):
        return record.thread != self.thread or os.getpid() != self.process


class OfThreads:
    """Stands where a filter of warnings has a pattern for the text."""

    def __init__(self):
        self.inside = threading.local()

    def match(self, text):
        return getattr(self.inside, "times", 0) > 0

    def __reduce__(self):  # some libraries send the filters to their workers, where nobody is inside
        return re.compile, ("(?!)",)


SILENT, RAISED = ("ignore", OfThreads(), Warning, None, 0), ("error", OfThreads(), Warning, None, 0)


@contextlib.contextmanager
def in_front(one):
    """The filter stands in front of the program's while somebody is inside. Without warnings.simplefilter(), which makes Python forget what was shown."""
    inside = one[1].inside
    with _lock:
        _depth[one] = _depth.get(one, 0) + 1
        if not warnings.filters or warnings.filters[0] is not one:
            warnings.filters.insert(0, one)
    inside.times = getattr(inside, "times", 0) + 1
    try:
        yield
    finally:
        inside.times -= 1
        with _lock:
            _depth[one] -= 1
            if _depth[one] == 0:
                warnings.filters[:] = [other for other in warnings.filters if other is not one]


def handlers_of_torch():
    """Root's, which get what loggers pass on, and those that torch gave some forty loggers of its own."""
    loggers = [logging.root, *(one for name, one in logging.root.manager.loggerDict.copy().items() if f"{name}.".startswith("torch."))]
    return list(dict.fromkeys([*(handler for one in loggers for handler in getattr(one, "handlers", ())), logging.lastResort]))  # some are no loggers yet


@contextlib.contextmanager
def quiet():
    """No warning and no log line of this thread; no code of the program's may run meanwhile."""
    handlers = handlers_of_torch()
    ours = OfThisThread()
    for handler in handlers:
        handler.addFilter(ours)
    try:
        with in_front(SILENT):
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(ours)


@contextlib.contextmanager
def no_progress_bars():
    """torch.fx makes a bar of tqdm for each walk over a graph, hidden as a rule; tqdm starts a thread for the first one all the same, which stays."""
    interpreter = sys.modules.get("torch.fx.interpreter")
    stand_in = getattr(sys.modules.get("torch.hub"), "_Faketqdm", None)
    bars = getattr(interpreter, "tqdm", None)
    if bars is None or stand_in is None or bars is stand_in or not getattr(interpreter.config, "disable_progress", False):
        yield
        return
    interpreter.tqdm = stand_in
    try:
        yield
    finally:
        interpreter.tqdm = bars


def keeper(show):
    """What Python calls to show a warning: keeps those that this thread records."""

    def show_or_keep(message):
        kind, kept = getattr(_said, "of", None) or (None, None)
        if kind is None or not issubclass(message.category, kind):
            return show(message)
        kept.append(message)

    show_or_keep.is_ours = True
    return show_or_keep


_always = {}  # category: its filter


class Kept(list):
    """What was said. `complete`: no other filter came before ours meanwhile, by which something may be missing."""

    complete = True


def forget_shown(category):
    """Python asks what was shown before it asks filters: what the program has been told once would not be kept."""
    for module in list(sys.modules.values()):
        shown = getattr(module, "__dict__", {}).get("__warningregistry__")
        for key in list(shown or ()):
            if isinstance(key, tuple) and len(key) > 1 and isinstance(key[1], type) and issubclass(key[1], category):
                shown.pop(key, None)


@contextlib.contextmanager
def record(category):
    """A list that gets each warning of this kind that this thread raises, instead of stderr; all others are shown as ever."""
    with _lock:
        if category not in _always:
            _always[category] = ("always", OfThreads(), category, None, 0)
        if not getattr(warnings._showwarnmsg, "is_ours", False):  # it stays: another thread may be inside when this one leaves
            warnings._showwarnmsg = keeper(warnings._showwarnmsg)
    forget_shown(category)
    outer, kept = getattr(_said, "of", None), Kept()
    _said.of = category, kept
    try:
        with in_front(_always[category]):
            try:
                yield kept
            finally:
                kept.complete = next((one is _always[category] for one in warnings.filters if one is not SILENT), False)
    finally:
        _said.of = outer
