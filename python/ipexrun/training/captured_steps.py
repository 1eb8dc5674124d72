"""Capture of unedited training steps: a module whose calls record gradients is traced by TorchDynamo inside one of the program's own calls, its graph
is compared in other forms (step_forms.py), and the module is answered in such a form where whole steps, call and backward pass, are faster so.

The price stays in proportion to what a form is expected to save: tracing begins once it would be so much of the run so far (a quarter where images lie
channels last in bf16 from one convolution to the next, else a twentieth), and what comparing and racing cost beyond stock ends them at as much again. In a process group nothing is captured: no decision by timing may differ among ranks.

Thread rule: every function runs under the interpreter lock; calls of other threads meanwhile are answered by the module itself.
"""

import os
import sys
import threading
import time
import weakref

import torch

from .. import plugin, remembered
from ..capture import call_kinds, capturable, capture, handlers, importing, interrupts, modes, module_notes, prices
from ..capture.dynamo_calls import no_marks, ways_of_calling
from ..capture.unguarded import Unguarded
from ..capture.unguarded_arguments import Alike
from ..graphs import compiler, graph_notes
from ..problems import first_line, let_through
from . import step_forms
from .step_graphs import Arrivals
from .steps import Step, Stopwatch, in_process_group, is_plain_moment, recorded

# What a form may cost: the share of the run's time that it is expected to save, for tracing, and once more for comparing and racing. A run that ends
# when all of that is spent has lost it; one that goes on for as long again has it back.
SHARE = 0.05  # products in bf16 are the op tier's, too: seen 3% and less
SHARE_OF_IMAGES = 0.25  # bf16 and channels last from one convolution to the next: seen 28% to 37%
SHARE_KNOWN = 0.2  # for tracing what won in an earlier process
WATCHED = 0 if modes.AT_ONCE else 3  # steps of stock before tracing
UNPAIRED = 16  # calls in a row without a backward pass of their own, after which a module is left alone
HOPELESS = 1.3  # times stock's time: no race is run again
RACED = 512  # calls of one comparison or race
KINDS = (torch.nn.Conv2d, torch.nn.Linear)  # a module without one of these has nothing that a form could gain by
FORM_NAMES = {step_forms.LAST: "channels_last", step_forms.BF16_LAST: "bf16_channels_last"}

started = time.perf_counter()
targets = weakref.WeakSet()
opened = weakref.WeakSet()  # modules of which nothing could be captured
_scale = 1.0  # measured price of the last capture / predicted
BASE_S, PER_MODULE_S = 1.0, 0.015  # predicted price of a capture, until one was measured: two graphs


def run_s():
    """Seconds since torch was imported."""
    return time.perf_counter() - getattr(sys.modules["_ipexrun_hook"], "started", started)


def refusal(module):
    reason = capturable.is_taken_as_it_is(module) or capturable.is_not_plain(module)
    if reason:
        return reason
    if capturable.global_hooks() or capturable.Hooks(module).traced:
        return "hooks of modules"
    if in_process_group():
        return "in a process group no timing decides"
    if any(isinstance(one, torch.nn.parameter.UninitializedTensorMixin) for one in module.parameters()):
        return "not initialized yet"
    return importing.shadow()


def bf16_allowed():
    builder = torch.classes.ipexrun.Graph()
    return builder.may_time() and builder.bf16_allowed("") and (compiler.BF16_ASKED_FOR or builder.bf16_speed() >= prices.FASTER)


def keeps_float32(module):
    """Parts of one module may each be near enough in bf16, and not together."""
    return not compiler.BF16_ASKED_FOR and any(one is module for outer in opened for one in outer.modules())


def share_of_run(images, bf16):
    return SHARE_OF_IMAGES if images and bf16 else SHARE


def attempt(module, spent_s):
    """What the extension asks when `spent_s` seconds of calls that record gradients went by; answers as capture.attempt()."""
    if modes.TRACE or capturable.is_taken_as_it_is(module):
        return None
    if capturable.calls_in_its_own_way(module):
        opened.add(module)
        return False
    if not any(isinstance(one, KINDS) for one in module.modules()) or (len(module._modules) == 0 and type(module).__module__.startswith("torch.nn.")):
        return None  # a loss, or one layer
    if not plugin.ready() or not torch.classes.ipexrun.Graph().may_time():
        return None
    images = any(isinstance(one, torch.nn.Conv2d) for one in module.modules())
    bf16 = bf16_allowed() and not keeps_float32(module)
    if not images and not bf16:
        return None
    trace_s = _scale * (BASE_S + PER_MODULE_S * sum(1 for _ in module.modules()))
    price_s = importing.remaining_s() + trace_s
    known = remembered.OfModule(module, way="training")
    usual = share_of_run(images, bf16)
    share = max(SHARE_KNOWN, usual) if known.last() else usual
    if not modes.AT_ONCE and (run_s() * share < price_s or spent_s < price_s):
        return max(1.2 * spent_s, spent_s * price_s / (share * run_s()), price_s)
    reason = refusal(module)
    if reason:
        note(module, f"left alone: {reason}")
        return None
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is not None and dynamo._stance.stance != "default":
        return 2 * spent_s + 1.0  # the program's own wish
    try:
        return Target(module, price_s, trace_s, known, usual)
    except Exception as problem:  # a torch whose insides are others than expected
        let_through(problem)
        note(module, f"left alone: {first_line(problem)}")
        return None


def note(module, state):
    return module_notes.note(module, state, training=True)


def tell_ends():
    for target in list(targets):
        target.tell_end()


class Target:
    """Answers the calls of one module that record gradients: by itself, or with EAGER, upon which the extension lets the module answer and tells took()."""

    clock = staticmethod(time.perf_counter)  # of its price, which is a share of the run

    def __init__(self, module, price_s, trace_s, known, share):
        self.hook = sys.modules["_ipexrun_hook"]
        self.eager = self.hook.EAGER
        self.note = note(module, "being watched")
        self.known, self.price_s, self.trace_s, self.share = known, price_s, trace_s, share
        self.module_hooks = capturable.Hooks(module)
        self.unguarded = Unguarded()
        self.alike = Alike()
        self.where = type(module).__name__
        self.module = weakref.ref(module)
        capture.end_with(module, self)
        self.lock = threading.Lock()
        self.thread = self.stopwatch = None  # whose call stock answers now, to be told of, and since when
        self.key = self.step = self.verdict = None
        self.bf16_allowed = bf16_allowed()
        self.keeps_float32 = keeps_float32(module)
        self.kinds, self.kind, self.ran = None, None, None  # forms to be tried; the one in question; what answered the last call
        self.graphs, self.breaks, self.problems = [], [], []
        self.capture_s, self.extra_s = 0.0, 0.0
        self.limit_s = 0.0  # of it
        self.refused = ""  # why nothing of it is to be captured
        self.may_take_s = prices.limit_s(BASE_S + PER_MODULE_S * sum(1 for _ in module.modules()))
        self.graph_calls = self.seen = self.taken = self.attempts = self.turn = self.watched = self.unpaired = self.calls = self.missed = self.rematches = 0
        self.exploring = []  # of the steps of the race's form: whether operators were still being measured; choices to come may make it faster
        self.pairs, self.times = {}, {}
        self.signature = None
        self.trial = torch.classes.ipexrun.Trial()
        self.phase = self.watch
        self.interrupts = 0

        self.trace, self.run = ways_of_calling(self, self.backend_of_mine())
        graph_notes.tell_at_end(tell_ends)
        targets.add(self)

    def backend_of_mine(self):
        mine = weakref.ref(self)

        def ipexrun_training_capture(graph, inputs):
            target = mine()
            if target is None:
                raise capture.GivenUp("its module is gone")
            target.unguarded.see()
            reason = step_forms.refusal(graph) or handlers.refusal()
            if reason:
                target.problems.insert(0, reason)
                raise capture.GivenUp(reason)
            if target.kinds is None:
                target.kinds = step_forms.offered(graph, target.bf16_allowed and not target.keeps_float32)
            made = step_forms.Graph(graph, target, target.where)
            target.graphs.append(made)
            return made

        return ipexrun_training_capture

    def saw(self, code):
        resumed = capture.RESUMED.match(code.co_name)
        if resumed:
            self.breaks.append(f"{code.co_filename}:{resumed.group(1)}")

    def __call__(self, module, /, *args, **kwargs):
        self.seen += 1
        if self.phase == self.answered_by_stock or not self.module_hooks.are_these(module) or self.module_hooks.traced or not is_plain_moment():
            return self.eager
        if not self.unguarded.holds() or (self.attempts and not self.alike.holds(module, args, kwargs)):
            return self.eager
        if self.phase == self.answer:
            return self.answer(module, args, kwargs)
        if not self.lock.acquire(blocking=False):
            return self.eager
        try:
            return self.phase(module, args, kwargs)
        except BaseException as problem:
            self.interrupted(problem)
            raise
        finally:
            self.lock.release()
            interrupts.raise_late()

    interrupted = capture.Target.interrupted

    # ---- how long a step takes ----------------------------------------------------------------------------------------------------------

    def took(self, nanoseconds, result, explored):
        if self.thread == threading.get_ident():
            self.thread = None
            explored_ns = self.stopwatch.explored_ns()
            self.attend(Step(self.key, None, max(nanoseconds - explored_ns, 1), explored_ns), result)
        return self.verdict

    def broke_off(self):
        """As capture.Target.broke_off()."""
        if self.thread == threading.get_ident():
            self.thread = None

    def ask_stock(self, args, kwargs):
        """Stock answers, and its step is timed."""
        self.key = call_kinds.signature_of_call(args, kwargs)
        self.stopwatch = Stopwatch()
        self.thread = threading.get_ident()
        return self.eager

    def attend(self, step, result):
        if self.step is not None and not self.step.ended:
            self.step.alone = step.alone = False  # its backward pass may still come, and this one's with it
            self.unpaired += 1
            if self.unpaired > UNPAIRED:
                return self.give_up("its calls have no backward passes of their own")
        self.step = step
        made = torch.utils.hooks.RemovableHandle.next_id
        arrivals = Arrivals(recorded(result), at_end=lambda _: self.stepped(step, arrivals))
        if self.module_hooks.made == made:
            self.module_hooks.made = torch.utils.hooks.RemovableHandle.next_id  # those were ours

    def stepped(self, step, arrivals):
        step.ended = True
        if not step.alone:
            return
        self.unpaired = 0
        if self.phase == self.watch:
            self.watched += 1
        if self.phase == self.race and (step.kind is None or step.kind == self.kind):
            if step.kind is not None:
                self.exploring.append(step.explored_ns + arrivals.explored_ns > 0)
            self.pair(step.key, step.forward_ns + arrivals.backward_ns, step.kind is None)

    # ---- phases -------------------------------------------------------------------------------------------------------------------------

    def watch(self, module, args, kwargs):
        self.calls += 1
        if self.watched < WATCHED:
            if self.calls > WATCHED + UNPAIRED:
                self.give_up("its calls have no backward passes of their own")
            return self.ask_stock(args, kwargs)
        known = self.known.of_call(call_kinds.signature_of_call(args, kwargs))
        if known == remembered.STOCK:
            self.give_up("remembered", remember=False)
            return self.eager
        if not modes.AT_ONCE and not known and run_s() * self.share < self.price_s:
            return self.eager
        self.certain = known if known in FORM_NAMES.values() else None
        return self.capture(module, args, kwargs)

    def capture(self, module, args, kwargs):
        """Traces in this call, which is answered by the graph as it was captured."""
        global _scale
        if not self.attempts:
            if call_kinds.signature_of_call(args, kwargs) in call_kinds.LEFT:
                return self.eager
            self.alike.begin(module, args, kwargs)
        self.attempts += 1
        self.missed = 0
        kind, self.kind, before, self.ran = self.kind, None, len(self.graphs), None
        spent = self.capture_s
        self.limit_s = spent + self.may_take_s
        self.hook.end_drift_check()
        try:
            with no_marks(module):
                result = self.trace(module, *args, **kwargs)
            self.hook.raise_lost()
        finally:
            self.kind = kind
        if self.attempts == 1:
            _scale = min(max(self.capture_s / self.trace_s * _scale, 0.1), 20.0)
        self.extra_s += self.capture_s - spent if self.attempts > 1 else 0.0
        self.note.update(capture_s=round(self.capture_s, 2), graphs=len(self.graphs))
        if self.breaks or not self.graphs:
            if self.breaks:
                self.note["breaks"] = sorted(set(self.breaks))
            split = "split at " + ", ".join(map(os.path.basename, self.note["breaks"])) if self.breaks else "nothing of it could be captured"
            why = self.problems[0] if self.problems else split
            self.give_up(why, look_inside=True)
        elif len(self.graphs) > before and before == 0:
            if self.certain:
                self.kinds = [kind for kind in self.kinds if FORM_NAMES[kind] == self.certain]
            self.next_kind("no form of it is on offer")
        return result

    def next_kind(self, why):
        if not self.kinds:
            return self.give_up(why)
        self.kind = self.kinds.pop(0)
        self.note["state"] = f"comparing {self.kind}"
        self.trial, self.pairs, self.times, self.calls, self.rematches, self.exploring = torch.classes.ipexrun.Trial(), {}, {}, 0, 0, []
        self.phase = self.compare

    def lose(self, kind, why):
        """A form fell, in a graph's own check."""
        if kind != self.kind:
            return
        self.kind = None
        self.note.pop("form", None)
        self.note.setdefault("lost", []).append(f"{kind}: {why}")
        self.next_kind(f"{kind}: {why}")

    def mine(self, module, args, kwargs):
        """The captured module's result, and the step that it began."""
        self.ran = None
        key, watch = call_kinds.signature_of_call(args, kwargs), Stopwatch()
        result = self.run(module, *args, **kwargs)
        self.hook.raise_lost()
        step = Step(key, self.ran, watch.ns(), watch.explored_ns())
        if self.ran is None:  # another size or branch than was captured, perhaps
            self.miss()
        return result, step

    def miss(self):
        calls = sum(graph.note["calls"] for graph in self.graphs)
        self.missed = self.missed + 1 if calls == self.graph_calls else 0
        self.graph_calls = calls
        paid = modes.AT_ONCE or (self.attempts + 1) * self.price_s < self.share * run_s()
        if self.missed >= capture.IDLE and self.attempts < capture.ATTEMPTS and paid and self.phase != self.again:
            self.phase, self.resumed = self.again, self.phase

    def again(self, module, args, kwargs):
        self.phase = self.resumed
        return self.capture(module, args, kwargs)

    def compare(self, module, args, kwargs):
        self.calls += 1
        if self.is_spent():
            return self.eager
        began = time.perf_counter()
        result, step = self.mine(module, args, kwargs)
        self.extra_s += max(0.0, time.perf_counter() - began - 1e-9 * self.stock_forward_ns()) if step.kind is None else 0.0
        if self.phase == self.compare and any(self.kind in graph.right for graph in self.graphs):
            self.calls = 0
            if modes.FORCED or compiler.BF16_ASKED_FOR and self.kind == step_forms.BF16_LAST:
                self.settle("forced")
            elif self.certain:
                self.settle("remembered")
            else:
                self.note["state"] = f"racing stock: {self.kind}"
                self.phase = self.race
        return result

    def is_spent(self):
        """Whether stock answers this call: what comparing and racing took has to become its share of the run before they go on."""
        if self.calls > RACED:
            self.give_up(f"{self.kind}: not decided in {RACED} calls", remember=False)
            return True
        if self.extra_s <= self.share * run_s() or modes.AT_ONCE:
            return False
        self.calls -= 1
        self.pairs.clear()  # halves of pairs have to be neighbours
        return True

    def stock_forward_ns(self):
        return self.step.forward_ns if self.step is not None else 0

    def race(self, module, args, kwargs):
        self.turn += 1
        self.calls += 1
        key = call_kinds.signature_of_call(args, kwargs)
        if self.is_spent():
            return self.eager
        waiting = self.pairs.get(key)
        if waiting[1] if waiting is not None else self.turn % 4 in (1, 2):
            result, step = self.mine(module, args, kwargs)
            if step.kind is not None:
                self.attend(step, result)
            return result
        return self.ask_stock(args, kwargs)

    def pair(self, key, nanoseconds, stock):
        waiting = self.pairs.pop(key, None)
        if waiting is None or waiting[1] == stock:
            self.pairs[key] = (nanoseconds, stock)
            return
        stock_ns, mine_ns = (nanoseconds, waiting[0]) if stock else (waiting[0], nanoseconds)
        self.times.setdefault(True, []).append(stock_ns)
        self.times.setdefault(False, []).append(mine_ns)
        self.trial.add(stock_ns, mine_ns)
        self.extra_s += 1e-9 * (mine_ns - stock_ns)
        self.signature = key
        decided = self.trial.result()
        if decided == 1:
            self.note["speed"] = round(1 / self.trial.ratio(), 2)
            self.remember(FORM_NAMES[self.kind], "faster")
            self.settle("faster")
        elif decided == -1 and self.rematches < compiler.REMATCHES and (compiler.may_have_won(self.trial) or self.may_become_faster()):
            self.rematches += 1
            self.trial, self.exploring = torch.classes.ipexrun.Trial(), []
        elif decided == -1:
            self.note["speed"] = round(1 / self.trial.ratio(), 2)
            self.lose(self.kind, f"not faster, {self.note['speed']} of the uncaptured speed")

    def may_become_faster(self):
        """Stock answers at kinds of calls that are being measured; so a form that brings new ones is slower than it is going to be."""
        return 2 * sum(self.exploring) >= len(self.exploring) and self.trial.ratio() < HOPELESS

    def settle(self, reason):
        """The form answers from now on."""
        self.note.update(state="captured", form=self.kind, reason=reason, settled_at=self.seen)
        self.phase = self.answer
        self.pairs.clear()
        self.step = None
        self.tell(remembered.CAPTURED, f"{reason}: {self.kind}")

    def answer(self, module, args, kwargs):
        self.taken += 1
        self.ran = None
        result = self.run(module, *args, **kwargs)
        self.hook.raise_lost()
        if self.ran is None:
            self.miss()
        return result

    def give_up(self, why, look_inside=False, remember=True):
        if self.phase == self.answered_by_stock:
            return
        self.note.update(state=f"stock: {why}", settled_at=self.seen)
        self.note.pop("form", None)
        if remember and not self.taken and self.times:
            self.remember(remembered.STOCK, "slower")
        self.tell(remembered.STOCK, why)
        self.verdict = look_inside = look_inside and capture.holds_more(self.module())
        if look_inside:
            opened.add(self.module())
        self.phase = self.answered_by_stock
        self.kind = self.code = self.trace = self.run = None
        self.graphs.clear()
        self.pairs.clear()

    def let_go(self):
        self.kind = self.code = self.trace = self.run = self.step = None
        self.unguarded = Unguarded()
        self.graphs.clear()
        self.pairs.clear()

    def answered_by_stock(self, module, args, kwargs):
        return self.eager

    # ---- what becomes of it ---------------------------------------------------------------------------------------------------------------

    def medians(self):
        return [sorted(self.times[stock])[len(self.times[stock]) // 2] if self.times.get(stock) else 0 for stock in (True, False)]

    def remember(self, choice, reason):
        if self.signature is not None and not modes.FORCED:
            stock_ns, mine_ns = self.medians()
            self.known.remember(self.signature, choice, stock_ns, stock_ns if choice == remembered.STOCK else mine_ns, len(self.times[True]), reason)

    def tell(self, choice, reason):
        self.known.tell(choice, f"training: {reason}", self.seen, self.taken, *self.medians(), len(self.times.get(True, ())))

    def tell_end(self):
        captured = self.note["state"] == "captured"
        self.tell(remembered.CAPTURED if captured else remembered.STOCK,
                  f"{self.note['reason']}: {self.note.get('form', '')}" if captured else self.note["state"].removeprefix("stock: "))
