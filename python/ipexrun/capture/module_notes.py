"""What became of each module that was looked at.

Thread rule: under the interpreter lock."""

import weakref

from .. import remembered

modules = []  # notes, for report()
opened = weakref.WeakSet()  # modules of which nothing could be captured


def note(module, state):
    """One line a module: a later one takes its place."""
    for one in modules:
        if one["of"]() is module and not one.get("training"):
            one["state"] = state
            return one
    one = {"of": weakref.ref(module), "module": type(module).__name__, "state": state}
    modules.append(one)
    return one


def leave_alone(module, reason):
    note(module, f"left alone: {reason}")
    remembered.OfModule(module).tell(remembered.STOCK, f"left alone: {reason}", 0, 0)


def report():
    """For ipexrun.report()["modules"]."""
    return [{key: value for key, value in one.items() if key != "of"} for one in modules]
