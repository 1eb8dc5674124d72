"""Which variables of the environment a traced call reads. Every way to one in Python goes through the dict that os.environ and os.environb hold; while a
trace is made another object stands there, which notes the names.

Thread rule: one thread at a time notes, what others read meanwhile they get as always.
"""

import os
import threading

from .. import remembered

_noting = threading.Lock()


def variables():
    """As they are kept: nothing is decoded in every call."""
    held = getattr(os.environ, "_data", os.environ)
    return held.held if isinstance(held, Noted) else held


def value_of(name):
    return variables().get(name)


def described(value):
    """A digest: what is in the environment is nobody's business."""
    return remembered.digest("missing" if value is None else ["value", os.fsencode(value).hex()])


def holders():
    return [one for one in (os.environ, getattr(os, "environb", None)) if hasattr(one, "_data")]


class Reads:
    """`names`: of the variables that this thread read; `all`: or perhaps any."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.names = set()
        self.all = wanted and not holders()
        self.thread = threading.get_ident()

    def begin(self):
        """Whether it may: end() belongs to it then."""
        if not self.wanted:
            return True
        if not _noting.acquire(blocking=False):
            return False
        for one in holders():
            one._data = Noted(one._data, self)
        return True

    def end(self):
        if not self.wanted:
            return
        for one in holders():
            if isinstance(one._data, Noted):
                one._data = one._data.held
        _noting.release()

    def note(self, name):
        if threading.get_ident() == self.thread:
            self.names.add(name)

    def note_all(self):
        if threading.get_ident() == self.thread:
            self.all = True


class Noted:
    """In the place of os.environ's dict."""

    def __init__(self, held, reads):
        self.held = held
        self.reads = reads

    def __getitem__(self, name):
        self.reads.note(name)
        return self.held[name]

    def __contains__(self, name):
        self.reads.note(name)
        return name in self.held

    def get(self, name, default=None):
        self.reads.note(name)
        return self.held.get(name, default)

    def __getattr__(self, name):
        if name in ("held", "reads"):  # of an object that copy or pickle have just made
            raise AttributeError(name)
        self.reads.note_all()
        return getattr(self.held, name)

    def __reduce_ex__(self, _):
        """Copies are dicts."""
        self.reads.note_all()
        return dict, (dict(self.held),)

    def __setitem__(self, name, value):
        self.reads.note_all()
        self.held[name] = value

    def __delitem__(self, name):
        self.reads.note_all()
        del self.held[name]

    def __iter__(self):
        self.reads.note_all()
        return iter(self.held)

    def __len__(self):
        self.reads.note_all()
        return len(self.held)

    def __eq__(self, other):
        self.reads.note_all()
        return self.held == other

    __hash__ = None
