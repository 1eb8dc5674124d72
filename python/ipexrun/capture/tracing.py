"""`--graph-mode trace`: a module whose calls come again is traced into TorchScript inside one of them (traced_graph.py). The trace runs with the
regions of the plugin (preload/plugin/graph/scripted_region.h) and answers where it was proved equal and is faster.

A trace holds for one exact description of a call: types, sizes and strides of tensors, all other values; and for the module as it is: the
very same submodules, parameters and attributes. While it is tried, stock answers: the traced form runs beside it, as often as it takes until
its regions are decided; in some of these calls, with other values each, both are held side by side. Then neighbouring calls are answered in
turn. A form that won is still looked at, in each call whose number is a power of four from 16 on.

One file, though long: a form and its target hand each call to and fro, and no other file knows either.

Thread rule: every function runs under the interpreter lock; a Target may be called by several threads at once.
"""

import collections
import sys
import threading
import time
import traceback
import weakref

import torch

from .. import plugin, remembered
from ..graphs import compiler, double, graph_notes, raised, warned
from ..graphs.races import call_clock
from ..problems import first_line, let_through, of_signal
from ..quiet import SILENT, in_front
from . import asked, call_kinds, capturable, module_notes
from .held import Held, Look
from .structures import Containers, Taken, Unknown, describe
from .traced_graph import WRITES, Refused, State, Trace

RACE = True  # False: a form that is equal answers at once
FORMS = 8  # kept for one module
TRACES = 32  # made for one module
SEEN = 64  # descriptions of calls that were seen once
CHECKS = 3  # calls with values of their own that are judged before the race, and one behind it
CHECKS_AGAIN = 1  # likewise where an earlier process found the trace right and faster
QUIET = 3  # runs in a row in which no region tried anything
WARMING = 200  # calls after which regions that are not decided wait no longer
SAME_VALUES = 32  # calls with values that were judged before, after which few are looked at
CHANGED = 4  # calls in a row for which the module was another one than when it was traced
RESTARTS = 8
FAILED = 3  # kinds of calls that raised what torch raises, and none that did not
LOOK_AGAIN = 16  # the first call that is judged after the race; then each power of four
SKIPPED = 1000  # calls in a row that no trace can take
ASKING = frozenset(("is_tracing", "_is_tracing", "_get_tracing_state"))  # names by which code asks whether it is traced
NOT_THE_PROGRAMS = asked.TORCHS

targets = weakref.WeakSet()


def tell_ends():
    for target in list(targets):
        target.tell_end()


def attempt(module):
    """As capture.attempt()."""
    reason = capturable.is_taken_as_it_is(module)
    if reason:
        return module_notes.leave_alone(module, reason)
    if capturable.calls_in_its_own_way(module):
        module_notes.opened.add(module)
        return False
    if any(capturable.looks_at_frames(one.__code__) for one in capturable.forwards_of(module)):
        module_notes.leave_alone(module, capturable.OF_FRAMES)
        module_notes.opened.add(module)
        return False
    if next(iter(module.children()), None) is None and type(module).__module__.startswith("torch.nn.modules."):
        return None  # one operator, which the op tier has
    if not plugin.ready():
        return None
    graph = torch.classes.ipexrun.Graph()
    if not graph.may_time():
        return None
    known = remembered.OfModule(module)
    if known.pinned() not in ("", remembered.CAPTURED):
        return module_notes.leave_alone(module, "pinned")
    return Target(module, graph, known)


class Form:
    """One trace: whether it is right, and whether it is faster."""

    def __init__(self, target, trace, key, signature, certain):
        self.target = target
        self.key = key  # the exact description of its calls
        self.signature = signature  # by which later processes know such calls
        self.certain = certain  # an earlier one found the trace right and faster
        self.wanted = CHECKS_AGAIN if certain or target.proved else CHECKS
        self.method = trace.method
        warned.heed_traces()
        self.taken = trace.taken
        self.layout = [(one.dtype, one.shape, one.stride()) for one in self.taken.tensors]
        trace.drop()
        self.phase = self.explore
        self.trial = torch.classes.ipexrun.Trial()
        self.margins = torch.classes.ipexrun.Margins() if target.bf16 else None
        self.small = 0  # calls with results too small for what bf16 rounds
        self.warned = 0  # calls whose operators warned
        self.calls = self.checks = self.quiet = self.turn = self.repeated = self.rematches = self.uses = 0
        self.judged = set()  # values
        self.look = None  # a Look while it is held against stock again
        self.waiting = None  # nanoseconds of a racing call without its other half, who answered it, and whether nothing was tried in it
        self.exploration_ns = 0  # when the racing call began

    def run(self, tensors):
        self.target.hook.end_drift_check()  # under which regions stand aside
        return self.method(*tensors)

    def aside(self, tensors):
        """Runs for nobody: what it warns of, the module does, which answers."""
        with in_front(SILENT):
            self.target.graph.expect_scripted(self.target.expected_form())
            try:
                return self.run(tensors)
            finally:
                self.target.graph.expect_scripted(-1)

    def beside(self, tensors):
        """As aside(), and says whether its regions tried something."""
        before = self.target.graph.scripted_trials()
        self.aside(tensors)
        return self.target.graph.scripted_trials() != before

    def explore(self, module, args, kwargs, tensors, started):
        target = self.target
        if not target.may_explore() or not target.lock.acquire(blocking=False):
            return target.eager
        begun = time.perf_counter()
        try:
            self.calls += 1
            quiet_for = QUIET if target.expected_form() < 0 else 1
            if self.checks >= self.wanted and (self.quiet >= quiet_for or self.calls > WARMING):
                wants_check = True
            else:
                wants_check = self.checks < self.wanted
            if wants_check and target.proved:
                return self.check(module, args, kwargs, tensors, None)
            if wants_check:
                if self.repeated > SAME_VALUES and self.calls & (self.calls - 1):
                    return target.eager
                values = sums(tensors)
                if values is None:
                    target.give_up("an argument of a kind that has no sum")
                    return target.eager
                if values in self.judged:
                    self.repeated += 1
                else:
                    return self.check(module, args, kwargs, tensors, values)
            if self.quiet < quiet_for:
                try:
                    self.quiet = 0 if self.beside(tensors) else self.quiet + 1
                except Exception as problem:
                    let_through(problem)
                    target.give_up(first_line(problem))
            return target.eager
        finally:
            target.explored(time.perf_counter() - begun)
            target.lock.release()

    def check(self, module, args, kwargs, tensors, values):
        """The call is answered by stock's kernels, the traced form beside it by theirs and by ours."""
        target = self.target
        hook = target.hook
        containers = Containers((args, kwargs))
        hook.set_enabled(False)
        try:
            result = module(*args, **kwargs)
        finally:
            hook.set_enabled(True)
        why = WRITES if containers.are_changed() else self.differs(module, args, kwargs, result, tensors)
        if why:
            target.give_up(why)
            return result
        self.judged.add(values)
        self.checks += 1
        if self.checks > self.wanted or (self.certain and target.proved):
            self.judged.clear()
            self.phase = self.race
            if not RACE or target.pinned or self.certain:
                self.settle("pinned" if target.pinned else "remembered" if self.certain else "forced")
            else:
                target.note["state"] = "racing stock" if target.answering == 0 else target.note["state"]
        return result

    def differs(self, module, args, kwargs, result, tensors):
        target = self.target
        try:
            state = target.state
            if state is None or not state.holds(module):
                return "a call changes attributes of the module"
            taken = Taken(result)
            if taken.form != self.taken.form:
                return "results other than tensors differ from call to call"
            if [(one.dtype, one.shape, one.stride()) for one in taken.tensors] != self.layout:
                return "sizes of results depend on values"
            if not (self.certain and target.proved):  # else the program is to have its best form soon: what answers is judged at once
                target.hook.set_enabled(False)
                try:
                    traced = self.aside(tensors)
                finally:
                    target.hook.set_enabled(True)
                if not self.is_like(taken.tensors, traced, torch.classes.ipexrun.Trial(), False):
                    return "the trace gives other results than the module"
            before = target.graph.scripted_trials()
            mine = self.aside(tensors)
            self.quiet = 0 if target.graph.scripted_trials() != before else self.quiet + 1
            if not self.is_large(mine):
                return ""  # it would not have answered
            if not self.is_right(module, args, kwargs, taken, mine):
                return f"its results are {self.trial.error():.1e} away"
            if self.margins is not None:
                self.margins.note(list(taken.tensors), list(mine))
        except Unknown as unknown:
            return str(unknown)
        except Exception as problem:
            let_through(problem)
            return first_line(problem)
        return ""

    def is_large(self, mine):
        """Whether each of its samples is large enough for what bf16 rounds."""
        return self.margins is None or self.margins.cover(list(mine))

    @staticmethod
    def is_like(truth, mine, trial, bf16, exact=()):
        mine = list(mine)
        if [one.stride() for one in mine] != [one.stride() for one in truth]:
            return False
        return trial.check_to_win(list(truth), mine, bf16, list(exact))

    def is_right(self, module, args, kwargs, taken, mine):
        """Beside stock's results, and where float32 is no closer than that, beside those of the call in float64: of calls that only compute."""
        target, exact = self.target, ()
        beside = torch.classes.ipexrun.Trial()
        if target.proved and not target.bf16 and not self.is_like(taken.tensors, mine, beside, False) and 0 < beside.error() <= compiler.NEAR:
            wide = double.of_call(module, args, kwargs)
            exact = () if wide is None else Taken(wide).tensors
        return self.is_like(taken.tensors, mine, self.trial, target.bf16, exact if len(exact) == len(taken.tensors) else ())

    def race(self, module, args, kwargs, tensors, started):
        """Neighbouring calls, by stock and traced in turn."""
        target = self.target
        waiting = self.waiting
        self.turn += 1
        self.exploration_ns = target.graph.exploration_ns()
        if waiting[1] if waiting is not None else self.turn % 2:
            looked_ns, now = time.perf_counter_ns() - started, call_clock()
            began = now()
            result = self.answered(module, args, kwargs, tensors)
            if result is not target.eager:
                nanoseconds = looked_ns + now() - began
                settled = target.graph.exploration_ns() == self.exploration_ns  # operators outside of its regions are the op tier's
                self.pair(nanoseconds, stock=False, settled=settled)
            return result
        target.timed[threading.get_ident()] = self
        return target.eager

    def pair(self, nanoseconds, stock, settled=True):
        target = self.target
        if self.phase != self.race:
            return
        waiting, self.waiting = self.waiting, None
        if waiting is None or waiting[1] == stock:
            self.waiting = (nanoseconds, stock, settled)
            return
        if self.look is not None and self.look.warms_up():
            return
        add = self.trial.add if settled and waiting[2] else self.trial.add_unsettled
        stock_ns, mine_ns = (nanoseconds, waiting[0]) if stock else (waiting[0], nanoseconds)
        add(stock_ns, mine_ns)
        decided = 1 if self.look is not None and self.look.is_clear(stock_ns, mine_ns) else self.trial.result()
        if decided == 1:
            target.note["speed"] = round(1 / self.trial.ratio(), 2)
            target.kept.remember(self.signature, remembered.CAPTURED)
            self.settle("faster")
        elif decided == -1 and self.rematches < compiler.REMATCHES and compiler.may_have_won(self.trial):
            self.rematches += 1
            self.trial = torch.classes.ipexrun.Trial()
        elif decided == -1 and self.trial.ratio() <= (target.most if self.look is None else 1.0):
            target.kept.remember(self.signature, remembered.CAPTURED, reason="as fast")
            self.settle("as fast")
        elif decided == -1:
            target.kept.remember(self.signature, remembered.STOCK, reason="slower")
            target.lost(self, f"as a whole it was not faster, {1 / self.trial.ratio():.2f} of stock's speed")

    def beside_stock(self, nanoseconds):
        self.pair(nanoseconds, stock=True)

    def beside_exploring_stock(self, nanoseconds):
        """Stock's call, in which the op tier tried candidates."""
        self.pair(nanoseconds - (self.target.graph.exploration_ns() - self.exploration_ns), stock=True, settled=False)

    def settle(self, reason):
        self.phase, self.look = self.answer, None
        self.target.won(self, reason)

    def answer(self, module, args, kwargs, tensors, started):
        self.uses += 1
        if self.certain and self.target.may_be_held() and self.target.held.is_due():
            self.target.held.begin()
            self.target.answering -= 1
            self.look, self.waiting, self.rematches = Look(), None, 0
            self.trial = torch.classes.ipexrun.Trial()
            self.phase = self.race
            return self.race(module, args, kwargs, tensors, started)
        if self.uses & (self.uses - 1) == 0 and self.uses >= LOOK_AGAIN and self.uses.bit_length() % 2:
            return self.look_again(module, args, kwargs, tensors)
        return self.answered(module, args, kwargs, tensors)

    def answered(self, module, args, kwargs, tensors):
        target = self.target
        method = self.method
        if method is None:  # lost, in another thread
            return target.eager
        target.hook.end_drift_check()
        try:
            mine = warned.by_a_trace(method, *tensors)
            large = self.is_large(mine)
            result = self.taken.like(mine) if large else None
        except warned.Warned:
            self.warned += 1
            if raised.too_often(self.warned, self.uses):
                target.give_up("its calls warn too often")
            return target.eager
        except Exception as problem:
            let_through(problem)
            target.give_up(first_line(problem))
            return target.eager  # which raises what is the program's own fault
        if not large:
            return self.by_stock(module, args, kwargs)
        target.taken += 1
        return result

    def by_stock(self, module, args, kwargs):
        """Results that are too small for what bf16 rounds, in operators by themselves as well."""
        self.small += 1
        if self.small >= compiler.SMALL_AT_FIRST and self.small * compiler.SMALL_SHARE > self.uses:
            self.target.give_up(compiler.TOO_SMALL)
        self.target.hook.set_enabled(False)
        try:
            return module(*args, **kwargs)
        finally:
            self.target.hook.set_enabled(True)

    def look_again(self, module, args, kwargs, tensors):
        target = self.target
        if not target.lock.acquire(blocking=False):
            return self.answered(module, args, kwargs, tensors)
        try:
            self.trial = torch.classes.ipexrun.Trial()
            containers = Containers((args, kwargs))
            target.hook.set_enabled(False)
            try:
                result = module(*args, **kwargs)
            finally:
                target.hook.set_enabled(True)
            why = WRITES if containers.are_changed() else self.differs(module, args, kwargs, result, tensors)
            if why:
                target.give_up(why)
            return result
        finally:
            target.lock.release()

    def stock(self, module, args, kwargs, tensors, started):
        return self.target.eager


class Target:
    """Answers the calls of one module, or says EAGER, upon which the extension lets the module answer and tells took() how long that was."""

    most = 0.0  # time over the other's up to which a form is taken that won no race
    proved = False  # whether it is known from elsewhere that calls do nothing but compute, in the same way for all values

    def __init__(self, module, graph, known, note=None, way="trace"):
        self.hook = sys.modules["_ipexrun_hook"]
        self.eager = self.hook.EAGER
        self.graph = graph
        self.bf16 = graph.bf16_allowed("")
        self.note = module_notes.note(module, "waiting for calls that come again") if note is None else note
        self.note["by"] = "trace"
        self.known = known
        self.kept = remembered.OfModule(module, way)  # what earlier processes found
        self.pinned = known.pinned() == remembered.CAPTURED  # no timing decides
        self.held = Held(self.kept)  # against stock, where an earlier process found a form faster
        self.module = weakref.ref(module, self.forget_weakly(weakref.ref(self)))
        self.forms = collections.OrderedDict()
        self.seen_once = collections.OrderedDict()  # False: not to be traced
        self.state = None
        self.timed = {}  # thread: the form whose call stock answers now
        self.verdict = None
        self.lock = threading.Lock()
        self.traces = self.failed = self.changed = self.restarts = self.skipped = self.answering = self.seen = self.taken = 0
        self.register()

    def register(self):
        graph_notes.tell_at_end(tell_ends)
        targets.add(self)

    def may_explore(self):
        return True

    def explored(self, seconds):
        """So long a call took in which something was tried."""

    def expected_form(self):
        """That regions of a trace are to be judged by results alone in: 1 with bf16 inside float32, 0 without; -1: they race."""
        return -1

    def may_be_held(self):
        """Whether a race would be one beside stock, and timing decides."""
        return RACE and not self.pinned

    def pass_by(self):
        """What a call is told with which there is nothing to do."""
        return self.eager

    def unchanged(self, module):
        state = self.state  # which another thread may forget
        return state is not None and state.holds(module)

    @staticmethod
    def forget_weakly(mine):
        def forget(_):
            target = mine()
            if target is not None:
                target.forget()

        return forget

    def forget(self):
        """All that holds parts of the module. A form is part of a circle, in which its weights would stay until Python looks for such."""
        for form in list(self.forms.values()):
            form.method = None
        self.forms.clear()
        self.seen_once.clear()
        self.state = None

    def __call__(self, module, /, *args, **kwargs):
        started = time.perf_counter_ns()
        self.seen += 1
        if self.verdict is not None or torch.is_autocast_enabled("cpu"):
            return self.pass_by()
        tensors = []
        try:
            key = describe(args, tensors), describe(kwargs, tensors), torch.is_inference_mode_enabled(), torch.get_default_dtype()
            if len(tensors) > 1 and len(set(map(id, tensors))) < len(tensors):
                raise Unknown("the same tensor twice")
            if not tensors:
                raise Unknown("no tensor")
            form = self.forms.get(key)
        except (Unknown, TypeError) as why:
            self.skip(f"an argument that is {why}")
            return self.pass_by()
        self.skipped = 0
        if form is None:
            return self.new_kind(key, module, args, kwargs, tensors)
        if not self.unchanged(module):
            self.is_changed()
            return self.pass_by()
        self.changed = 0
        try:
            self.forms.move_to_end(key)
        except KeyError:  # another thread's call has put it out
            pass
        return form.phase(module, args, kwargs, tensors, started)

    def took(self, nanoseconds, result, explored):
        form = self.timed.pop(threading.get_ident(), None)
        if form is not None and explored:
            form.beside_exploring_stock(nanoseconds)
        elif form is not None:
            form.beside_stock(nanoseconds)
        return self.verdict

    def broke_off(self):
        """As capture.Target.broke_off()."""
        self.timed.pop(threading.get_ident(), None)

    def skip(self, why):
        self.skipped += 1
        if not self.forms:
            self.note["state"] = f"stock: {why}"
        if self.skipped >= SKIPPED and not self.forms:
            self.give_up(why)

    def is_changed(self):
        self.changed += 1
        if self.changed >= CHANGED:
            self.changed = 0
            self.restarts += 1
            self.forget()
            if self.restarts > RESTARTS:
                self.give_up("its attributes change again and again")

    def new_kind(self, key, module, args, kwargs, tensors):
        """The second call of its kind is traced, if it is plain enough; the first where that won in an earlier process."""
        again = self.seen_once.get(key)
        if again is False:
            return self.eager
        if again is None:
            signature = call_kinds.signature_of_call(args, kwargs)
            known = self.kept.of_call(signature)
            again = known == remembered.CAPTURED
            self.seen_once[key] = known != remembered.STOCK
        if not again:
            if len(self.seen_once) > SEEN:
                self.seen_once.popitem(last=False)
            return self.eager
        if self.traces >= TRACES or not self.lock.acquire(blocking=False):
            return self.eager
        try:
            return self.trace(key, module, args, kwargs, tensors)
        finally:
            self.lock.release()

    def trace(self, key, module, args, kwargs, tensors):
        started = time.perf_counter()
        try:
            if self.state is None or not self.state.holds(module):
                self.forms.clear()
                self.state = State(module)
            if self.shares(tensors):
                self.skip("arguments that share memory")
                return self.eager
            self.hook.end_drift_check()
            made = Trace(module, args, kwargs, tensors, self.state, Containers((args, kwargs)))
        except Refused as why:
            self.refused(str(why))
            return self.eager
        except Exception as problem:  # a torch whose insides are others than expected
            let_through(problem)
            self.refused(first_line(problem))
            return self.eager
        self.traces += 1
        self.note["capture_s"] = round(self.note.get("capture_s", 0) + time.perf_counter() - started, 3)
        self.note["traces"] = self.traces
        if made.problem is not None:
            # What only a trace raises is none of the program's business. Nobody can tell by looking, so stock is asked.
            if self.is_for_stock(made):
                self.seen_once[key] = False  # no more of its kind
                self.failed += 1
                why = first_line(made.problem)
                if not self.forms:
                    self.note["state"] = f"stock: {why}"
                    if self.failed >= FAILED:
                        self.refused(why)
                return self.eager
            problem, made.problem = made.problem, None  # which would hold each other, and the module
            try:
                raise problem
            finally:
                del problem
        if not made.begun:
            self.refused(made.refused)
            return self.eager
        result = made.result
        if made.asked and (self.proved or made.clean):
            result = self.eager  # stock answers the call
        if made.refused is not None:
            self.refused(made.refused)
            return result
        self.seen_once.pop(key, None)
        signature = call_kinds.signature_of_call(args, kwargs)
        self.forms[key] = Form(self, made, key, signature, self.kept.of_call(signature) == remembered.CAPTURED)
        if len(self.forms) > FORMS:
            self.forms.popitem(last=False)
        if self.answering == 0:
            self.note["state"] = "trying its trace"
        return result

    def is_for_stock(self, made):
        """Whether a call that raised while it was traced may be made once more: of what only computes, unless something was written before."""
        if not made.clean or of_signal(made.problem) is not None:
            return False
        return self.proved or isinstance(made.problem, RuntimeError) or asks_whether_traced(made.problem)

    def refused(self, why):
        self.give_up(why)

    def shares(self, tensors):
        """Whether arguments share memory with one another or with the module: a trace would take them for one."""
        places = [one.untyped_storage().data_ptr() for one in tensors if one.numel() > 0]
        held = {one.untyped_storage().data_ptr() for one in self.state.tensors if one.numel() > 0}
        return len(set(places)) < len(places) or not held.isdisjoint(places)

    def won(self, form, reason):
        self.answering += 1
        self.note.update(state="captured", reason=reason, error=form.trial.error())
        self.known.tell(remembered.CAPTURED, reason, self.seen, self.taken)

    def lost(self, form, why):
        form.phase, form.method = form.stock, None
        if self.answering == 0:
            self.note["state"] = f"stock: {why}"

    def give_up(self, why):
        self.note["state"] = f"stock: {why}"
        self.verdict = False
        self.forget()
        self.known.tell(remembered.STOCK, why, self.seen, self.taken)

    def tell_end(self):
        self.held.tell_end()
        captured = self.note["state"] == "captured"
        why = self.note.get("reason", "") if captured else self.note["state"].removeprefix("stock: ")
        self.known.tell(remembered.CAPTURED if captured else remembered.STOCK, why, self.seen, self.taken)


def sums(tensors):
    """By which equal values are known."""
    try:
        return tuple(float(one.sum(dtype=torch.float64)).hex() for one in tensors)
    except Exception as problem:
        let_through(problem)
        return None


def asks_whether_traced(problem):
    """Whether code that the exception went through goes other ways under a tracer: for an exporter's, to which sizes are tensors, where these are numbers."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(problem.__traceback__)]
    return any(not ASKING.isdisjoint(code.co_names) for code in codes if not code.co_filename.startswith(NOT_THE_PROGRAMS))
