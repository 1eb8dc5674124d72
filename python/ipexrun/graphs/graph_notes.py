"""What became of each graph, for ipexrun.report() and the launcher's; and whether graphs may be used where a call is made.

Thread rule: under the interpreter lock."""

import atexit
import sys

import torch

from .. import remembered

MOST = 512  # notes of one kind


class Notes(list):
    """The first ones and the last ones of a program that makes ever more models; those between are counted."""

    left_out = 0

    def add(self, note):
        self.append(note)
        if len(self) > MOST:
            del self[MOST // 2]
            self.left_out += 1
        return note


graphs = Notes()
_told_at_end = set()


def tell_at_end(function):
    if function not in _told_at_end:
        _told_at_end.add(function)
        atexit.register(function)


def tell_graphs():
    """The launcher's report has what is known at the end, too."""
    for number, note in enumerate(graphs):
        tell(number, note)


def tell(number, note):
    form = f"stock: {note['left_alone']}" if "left_alone" in note else note["choice"]
    if "lost" in note and form == "stock":
        form = "stock: " + "; ".join(note["lost"])
    counts = note.get("calls", 0), note.get("taken", 0)
    remembered.tell_graph(note.get("where", ""), form, number, note["nodes"], *counts, note.get("speed", 0), note.get("error", 0))
    remembered.tell_times(number, note.get("time_by_op", []))


def new_note(where, **note):
    tell_at_end(tell_graphs)
    return graphs.add({"where": where, **note})


def enabled_here():
    """False while the thread has switched us off (ipexrun.set_enabled), and where results must not depend on what was faster."""
    if torch.are_deterministic_algorithms_enabled():
        return False
    hook = sys.modules.get("_ipexrun_hook")
    return hook is None or hook.enabled()
