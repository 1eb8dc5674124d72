"""What earlier processes found about modules and graphs, and what this one finds: decisions beside those of kinds of calls
(docs/decisions/0012-decision-cache.md). Only the timing order is taken over; results are judged again in every process.

A module is known by its classes, their code, and the names, types and sizes of its tensors; a call of it by the types and sizes of its
arguments; a graph by its text and the sizes of its inputs. Nothing here raises.
"""

import hashlib
import os
import re

import torch

from . import plugin

CAPTURED, STOCK, INSIDE = "captured", "stock", "inside"  # INSIDE: nothing of the module itself could be captured
UNDECIDED = "undecided"  # it was traced, and the process ended before anything was known
PINNABLE = (CAPTURED, STOCK, INSIDE)

MOST_CALLS = 1024  # kinds of calls of one module that are kept in mind: the names in a dictionary may be others in each

_unknown = set()  # modules of whose pinned choice the program was told that there is no such thing

class _Nothing:
    """Where there is no plugin nothing is known."""

    def recall(self, *_):
        return ""

    pinned = path = recall

    def remember(self, *_):
        pass

    tell = tell_graph = tell_times = remember


_decisions = None


def _plugin():
    global _decisions
    if _decisions is None:
        try:
            _decisions = torch.classes.ipexrun.Decisions()
        except RuntimeError:
            _decisions = _Nothing()
    return _decisions


def digest(*parts):
    return hashlib.sha256(repr(parts).encode(errors="replace")).hexdigest()[:16]


def structure(module):
    """A name for modules that compute alike."""
    classes = {}
    parts = []
    for name, one in module.named_modules():
        kind = type(one)
        if kind not in classes:
            code = getattr(getattr(kind, "forward", None), "__code__", None)
            classes[kind] = (kind.__module__, kind.__qualname__, getattr(code, "co_code", b""), getattr(code, "co_names", ()))
            parts.append(classes[kind])
        parts.append((name, kind.__qualname__, one.training))
    for tensors in (module.named_parameters(), module.named_buffers()):
        parts += [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors]
    return digest(*parts)


def operator_of(module):
    return "module:" + re.sub(r"[^\w.]", "_", type(module).__name__)[:40]


def folder():
    """Where decisions are kept; "" where nothing is."""
    return os.path.dirname(_plugin().path())


class OfModule:
    """Decisions about one module; `way`: of capturing it, where that is not TorchDynamo's."""

    def __init__(self, module, way=""):
        self.operator = operator_of(module)
        try:
            self.name = digest(way, structure(module)) if way else structure(module)
        except Exception:  # a module of the program's own making
            self.name = ""
        self.calls = {}  # signature -> what is known of such calls

    def key(self, signature):
        return f"key={self.name},call={digest(signature)}"

    def last(self):
        """What was decided last about some kind of call of such modules; "" where nothing is known."""
        return _plugin().recall(self.operator, f"key={self.name}") if self.name else ""

    def pinned(self):
        """What a config says of such modules: no timing may decide; "" = nothing."""
        choice = _plugin().pinned(self.operator, f"key={self.name}") if self.name else ""
        if choice in ("", *PINNABLE):
            return choice
        if self.name not in _unknown:
            _unknown.add(self.name)
            plugin.say(f"the config's choice '{choice}' for {self.operator} is not used: a module's is one of {', '.join(PINNABLE)}")
        return ""

    def of_call(self, signature):
        """CAPTURED, STOCK, INSIDE, UNDECIDED, or "" where nothing is known."""
        known = self.calls.get(signature)
        if known is None:
            known = self.name and (self.pinned() or _plugin().recall(self.operator, self.key(signature)))
            if len(self.calls) >= MOST_CALLS:
                self.calls.clear()
            self.calls[signature] = known
        return known

    def remember(self, signature, choice, stock_ns=0, choice_ns=0, samples=0, reason="faster"):
        if self.name:
            for key in (self.key(signature), f"key={self.name}"):
                _plugin().remember(self.operator, key, choice, stock_ns, choice_ns, samples, reason)

    def number(self, what):
        """Of remember_number(); 0: not known."""
        text = _plugin().recall(self.operator, f"key={self.name},{what}") if self.name else ""
        return int(text) if text.isdecimal() else 0

    def remember_number(self, what, number):
        if self.name:
            _plugin().remember(self.operator, f"key={self.name},{what}", str(number), 0, 0, 0, "faster")

    def tell(self, choice, reason, calls, taken, stock_ns=0, choice_ns=0, samples=0):
        """For --report and the launcher's summary."""
        values = [calls, taken, calls - taken, stock_ns, choice_ns, samples]
        _plugin().tell(self.operator, f"key={self.name}", choice, reason, values)


def graph_name(module, dtype):
    inputs = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    shapes = [(one.dtype, str(tuple(one.shape))) if isinstance(one, torch.Tensor) else str(type(one)) for one in inputs]
    return f"key={digest(module.code, shapes, dtype)}"


def graph_choice(name):
    return _plugin().recall("graph", name)


def remember_graph(name, choice, stock_ns, choice_ns, samples, reason):
    _plugin().remember("graph", name, choice, stock_ns, choice_ns, samples, reason)


def tell_graph(where, form, number, nodes, calls, taken, speed, error):
    _plugin().tell_graph(where, form, [number, nodes, calls, taken, int(1e3 * speed), int(1e9 * min(error, 1e9))])


def tell_times(number, times):
    """Of a graph: rows of its note's "time_by_op"."""
    rows = [(row["op"], [row["before"], int(1e3 * row["before_us"]), row["after"], int(1e3 * row["after_us"])]) for row in times]
    if rows:
        _plugin().tell_times(number, rows)


def tell_optimizer(name, number, choice, reason, values):
    """For --report and the launcher's summary; values as in OfModule.tell()."""
    _plugin().tell(f"optimizer:{name}", f"key={number:x}", choice, reason, values)
