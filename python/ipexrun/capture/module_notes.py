"""What became of each module that was looked at.

Thread rule: under the interpreter lock."""

import functools
import weakref

from .. import remembered
from ..graphs.graph_notes import Notes

modules = Notes()  # for report()
_of = {}  # (id of a module that lives, whether its calls record gradients): its note
opened = weakref.WeakSet()  # modules of which nothing could be captured


def note(module, state, **more):
    """One line a module, and one more for its `training`: a later one takes its place."""
    place = id(module), bool(more)
    one = _of.get(place)
    if one is None or one["of"]() is not module:
        of = weakref.ref(module, functools.partial(_of.pop, place))  # which is given the reference, as what to return where there is none
        one = _of[place] = modules.add({"of": of, "module": type(module).__name__, **more})
    one["state"] = state
    return one


def leave_alone(module, reason):
    note(module, f"left alone: {reason}")
    remembered.OfModule(module).tell(remembered.STOCK, f"left alone: {reason}", 0, 0)


def report():
    """For ipexrun.report()["modules"]."""
    return [{key: value for key, value in one.items() if key != "of"} for one in modules]
