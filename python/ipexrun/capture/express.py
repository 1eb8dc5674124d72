"""Traces beside TorchDynamo's graphs (`--graph-mode auto`): calls of a module that was captured as one graph are answered by a TorchScript trace where that
is faster yet, for it needs neither TorchDynamo's checks nor AOTAutograd's wrappers; and a later process begins with the trace, without TorchDynamo.

A trace sees operators, not Python. That there is nothing else to be seen is what TorchDynamo found out (proof.py): only calls of exact descriptions that its
graph answered are traced, and only while everything that it guards is as it was. All that `--graph-mode trace` refuses is refused here as well, and results
are held beside stock's in the same way (tracing.py); but which values they have proves nothing more, so one check is enough to begin with.

Thread rule: every function runs under the interpreter lock; an Express may be asked by several threads at once.
"""

import os
import threading
import time

import torch

from .. import remembered
from ..problems import first_line, let_through
from . import call_kinds, environment, modes, proof, traced_graph, tracing

WAY = "express"  # its name among the ways of remembered.OfModule
PATIENCE = 1.0  # traced once so many times the price was spent in calls of the kind: the module's graph has won, so it is called often
CALLS = 6  # of stock that trying a trace costs
PRICEY_NS = 2.5e9  # a trace of such a price is made where it is SHARE_LATER of the time: what it saves in a call is no part of a long one
PART = 0.1  # of TorchDynamo's time that a trace takes
TRACES = 8  # made for one module
SHARE, SHARE_LATER, LATER_S = 0.5, 0.05, 3.0  # of the time while traces are tried, and once that took LATER_S


class Silent:
    """Reports are the owner's."""

    def tell(self, *_):
        pass

    def pinned(self):
        return ""


class Kind:
    """Calls of one description that TorchDynamo's graph answers so far."""

    def __init__(self, owner):
        self.owner = owner
        self.spent_ns = self.calls = 0

    def pair(self, nanoseconds, stock):
        self.calls += 1
        self.spent_ns += nanoseconds

    def beside_stock(self, nanoseconds):
        """Stock's time is no reason to trace: nothing is proved of the call."""

    def is_due(self):
        if self.calls < 2:
            return False
        stock_ns = self.spent_ns / self.calls * max(self.owner.note.get("speed", 1.0), 1.0)
        price_ns = 1e9 * PART * self.owner.note.get("capture_s", 1.0) + CALLS * stock_ns
        return modes.AT_ONCE or self.spent_ns > price_ns * (PATIENCE if price_ns < PRICEY_NS else 1 / SHARE_LATER)


class Express(tracing.Target):
    """Of a capture.Target, its owner, who asks it first: gives a result, EAGER where the owner is to answer the call in the other way (whose time `timed`
    then wants), None where it has nothing to do with it."""

    proved = True
    most = 1.02  # as fast is enough: the next process begins with it

    def __init__(self, owner, module, graph, state, found, path):
        self.owner = owner
        super().__init__(module, graph, Silent(), {"state": ""}, WAY)
        self.state, self.proof, self.path = state, found, path
        self.kinds = {}
        self.exploring_s = self.explore_at = 0.0

    def may_explore(self):
        """Calls in which something is tried take several times as long: no two of them are neighbours."""
        return not tracing.RACE or time.perf_counter() >= self.explore_at

    def explored(self, seconds):
        self.exploring_s += seconds
        share = SHARE if self.exploring_s < LATER_S else SHARE_LATER
        self.explore_at = time.perf_counter() + seconds * (1 / share - 1)

    def expected_form(self):
        """That of the graph, which won against stock on the same calls. Whether the trace is as fast is its own race with the graph."""
        choices = {graph.choice for graph in self.owner.compiled}
        return int(choices.pop()) if len(choices) == 1 and None not in choices else -1

    def may_be_held(self):
        """Behind a graph a trace races that; the graph is held against stock."""
        return tracing.RACE and not self.owner.pinned and self.owner.phase == self.owner.wait

    @property
    def taken(self):
        """Calls answered, which are the owner's."""
        return self.owner.taken

    @taken.setter
    def taken(self, count):
        self.owner.taken = max(count, self.owner.taken)

    def register(self):
        pass

    def pass_by(self):
        return None

    def skip(self, why):
        pass

    def unchanged(self, module):
        return super().unchanged(module) and self.proof.holds()

    def is_changed(self):
        self.end("the module or what it depends on was changed")

    def refused(self, why):
        """One kind of calls."""
        self.owner.note["no_trace"] = why
        self.end_without_forms(why)

    def end_without_forms(self, why):
        """What one kind lost by, others will: being asked costs some microseconds in every call."""
        if not self.forms:
            self.end(why)

    def new_kind(self, key, module, args, kwargs, tensors):
        kind = self.kinds.get(key)
        if kind is False or self.traces >= TRACES:
            return None
        if kind is None:
            if len(self.kinds) > tracing.SEEN:
                self.kinds.pop(next(iter(self.kinds)), None)
            known = self.kept.of_call(call_kinds.signature_of_call(args, kwargs))
            kind = self.kinds[key] = known != remembered.STOCK and Kind(self.owner)
            if kind and known == remembered.CAPTURED and self.proof.covers(name_of(key)):
                return self.trace_again(key, module, args, kwargs, tensors)
            if not kind:
                return None
        elif kind.is_due() and self.may_explore():
            return self.try_trace(key, module, args, kwargs, tensors)
        self.timed[threading.get_ident()] = kind
        return None

    def try_trace(self, key, module, args, kwargs, tensors):
        if not self.lock.acquire(blocking=False):
            return None
        try:
            if not self.unchanged(module):
                self.is_changed()
                return None
            reads = environment.Reads(self.proof.environment is not None)
            if not reads.begin():
                return None
            self.kinds[key] = False
            begun = time.perf_counter()
            try:
                result = self.trace(key, module, args, kwargs, tensors)
            finally:
                reads.end()
            self.explored(time.perf_counter() - begun)
            if reads.all:
                self.forms.pop(key, None)
                self.refused("the call reads the whole environment")
            elif reads.names:
                self.proof.read(reads.names)
            if key not in self.forms:
                self.owner.note.setdefault("no_trace", self.note["state"].removeprefix("stock: "))
                self.kept.remember(call_kinds.signature_of_call(args, kwargs), remembered.STOCK, reason="no trace")
            return None if result is self.eager else result
        finally:
            self.lock.release()

    def trace_again(self, key, module, args, kwargs, tensors):
        """Where an earlier process found the trace right and as fast: it is judged in the same call, which stock's kernels answer."""
        self.hook.set_enabled(False)
        try:
            result = self.try_trace(key, module, args, kwargs, tensors)
            if result is None and key in self.forms:  # code in it asked whether it is traced
                result = module(*args, **kwargs)
        finally:
            self.hook.set_enabled(True)
        form = self.forms.get(key)
        if form is not None:
            why = form.differs(module, args, kwargs, result, tensors)
            if why:
                self.give_up(why)
            else:
                form.settle("remembered")
        return result

    def won(self, form, reason):
        self.answering += 1
        self.owner.express_won(reason, form.trial.error())
        if reason in ("faster", "as fast"):
            module = self.module()
            self.proof.add(name_of(form.key))
            if module is not None and self.path:
                self.proof.save(module, self.path)

    def lost(self, form, why):
        if form.look is not None and self.owner.phase == self.owner.wait:
            self.end(why)
            self.owner.express_lost(form.signature)
            return
        self.owner.note["no_trace"] = why
        form.phase, form.method = form.stock, None
        self.forms.pop(form.key, None)
        self.kinds[form.key] = False
        self.end_without_forms(why)

    def give_up(self, why):
        """A trace is wrong, or fails."""
        for form in list(self.forms.values()):
            self.kept.remember(form.signature, remembered.STOCK, reason=why)
        self.end(why)

    def end(self, why):
        self.verdict = False
        self.forget()
        self.owner.express_ended(self, why)

    def forget(self):
        super().forget()
        self.kinds = {}


def name_of(key):
    """Of the exact description of a call."""
    return remembered.digest(key)


def begin(owner, module, graphs):
    """For a module that was captured, by these (proof.seen()); None: TorchDynamo's graphs answer alone. `owner.express` is the one that there is already."""
    try:
        graph = torch.classes.ipexrun.Graph()
        if not graph.may_time():
            return None
        before = owner.express
        state = before.state if before is not None else traced_graph.State(module)
        found = proof.made(module, state, graphs)
        if before is not None:
            before.proof.join(found)
            return before
        return Express(owner, module, graph, state, found, proof.path_of(owner.known.name))
    except (traced_graph.Refused, proof.Unproved) as why:
        owner.note["no_trace"] = str(why)
    except Exception as problem:  # a torch whose insides are others than expected
        let_through(problem)
        owner.note["no_trace"] = first_line(problem)
    return None


def recalled(owner, module):
    """Where an earlier process proved that calls may be traced; else None."""
    try:
        path = proof.path_of(owner.known.name)
        graph = torch.classes.ipexrun.Graph()
        if not path or not os.path.exists(path) or not graph.may_time():
            return None
        state = traced_graph.State(module)
        found = proof.known_proof(module, state, path)
        return Express(owner, module, graph, state, found, path) if found is not None else None
    except traced_graph.Refused:
        return None
    except Exception as problem:
        let_through(problem)
        return None


