"""Capture of unedited programs: a module that is called again and again is traced by TorchDynamo inside one of the program's own calls; its
graphs become programs of the plugin (compiler.py), and it is used in captured form if that wins on the program's own calls.

No code of the program's runs more often than it would: TorchDynamo looks at it without running it, trials are of captured graphs alone, and
a call that was not captured is answered by the module itself, as is the first one that was, whose two results are compared (as_module.py). The extension (python/hook) counts the time spent in modules and asks here.

One file, though long: a Target is one machine of states, and each of its methods is one of them. What a capture costs and when it is worth that stands in prices.py.

Thread rule: every function runs under the interpreter lock; a Target may be called by several threads at once.
"""

import collections
import os
import re
import sys
import threading
import time
import weakref

import torch
from torch.utils.weak import WeakIdKeyDictionary

from .. import plugin, remembered
from ..graphs import backend, compiler, graph_notes, parts, raised, random_draws
from ..graphs.races import call_clock
from ..problems import first_line, let_through, of_signal
from . import as_module, handlers, importing, interrupts, modes, module_notes, prices, python_speed
from .call_kinds import LEFT, has_state, signature_of_call
from .capturable import Hooks, calls_in_its_own_way, global_hooks, is_not_plain, is_taken_as_it_is
from .dynamo_calls import no_marks, ways_of_calling
from .fits import Fits
from .held import Held, Look
from .sizes import Sizes
from .unguarded import Unguarded
from .unguarded_arguments import Alike

COUNTS = 16  # calls whose operators are counted at most
ATTEMPTS = 4  # traces of one module; each waits for its price again
OF_A_FORM = ("by", "no_trace", "breaks", "speed", "reason", "error", "capture_s", "graphs")  # what a note says of what was captured
CHANGED, BEGINNINGS = 4, 3  # calls in a row that found it changed before a module begins anew, and how often one does
EXPLORING = 200  # calls after which graphs that are not decided wait no longer
QUIET = 2  # calls in a row in which no operator tried anything or waited for a check of whole passes
OPERATORS = 48  # calls in which operators may decide before several graphs in float32 race them
SHORTEST_S, FIRST_CALLS = 15e-6, 64  # where Python is as fast as the reference, of calls on average: what surrounds a captured call takes as much
SHORT_S, LEFT_OUT = 5e-4, 16  # after FIRST_CALLS, of such calls so many go by for each one that is looked at, which costs 13 to 70 us
INTERRUPTED = 4  # calls that the program broke off while more than its own work was done in them
IDLE = 8  # likewise calls in which none of these took part
REST, LONGEST_REST = 64, 4096  # calls that the module answers after IDLE others in which no part of a graph got on; twice as many each time
PAIRS_WANTED = 256  # racing calls after which a module whose calls never pair is left alone
CROWDED = 64  # calls in a row with too much in their arguments to be looked at, after which none is
KNOWN_STOCK_CALLS = 64  # after so many calls in a row that stock answered faster before, the module is not looked at again
LEAST_COVERAGE = 1 / 64  # of calls by graphs; a further trace waits so many times longer at most for those that were there doing little
RESUMED = re.compile(r"torch_dynamo_resume_in_.*_at_(\d+)")

targets = weakref.WeakSet()
gone_targets = collections.deque(maxlen=64)  # those whose modules died last, to be told of at the end
anew = WeakIdKeyDictionary()  # module: how often it began anew


Waiting = collections.namedtuple("Waiting", "doubtful began counts answered_ns")  # a call while nothing is traced yet
Missing = collections.namedtuple("Missing", "began rests")  # a call that no graph fits, and so many behind it
Changed = collections.namedtuple("Changed", "began")  # a call that found hooks, methods or what it reads to be others than when it was traced
Saving = collections.namedtuple("Saving", "parts rests")  # a call while these wait for being worth it, or want calls in vain
Resting = collections.namedtuple("Resting", "graphs")  # a call in which none of these tries its form
Beside = collections.namedtuple("Beside", "result")  # a call that a new graph has answered as well
Racing = collections.namedtuple("Racing", "key beside_ns")  # a call of a race, and what exploring took before
Half = collections.namedtuple("Half", "nanoseconds stock settled")  # of a pair, in which the kernels inside were chosen or not


LOST = "as a whole it was not faster"
APPEALS, AS_LONG, NEARLY = 3, 4, 1.1  # races after one that was lost by less; each as many times later as the one before lasted; time over stock's


class GivenUp(Exception):
    pass


def is_one_operator(module):
    """A layer of torch's, which the op tier has."""
    return type(module).__module__.startswith("torch.nn.modules.") and next(module.children(), None) is None


def mostly_convolutions(module):
    """Of its layers that multiply."""
    layers = [isinstance(one, torch.nn.modules.conv._ConvNd) for one in module.modules() if isinstance(one, (torch.nn.modules.conv._ConvNd, torch.nn.Linear))]
    return 2 * sum(layers) > len(layers)


def holds_more(module):
    """Whether something inside may be captured by itself: else each call of a layer inside would be looked up for nothing."""
    return module is not None and not all(one is module or is_one_operator(one) for one in module.modules())


def attempt(module, spent_s):
    """What the extension asks when `spent_s` seconds of calls went by: who answers from now on; seconds to wait for; None: stock, for good;
    False: stock, but look at the modules inside."""
    if modes.TRACE:
        from . import tracing

        return tracing.attempt(module)
    reason = is_taken_as_it_is(module)
    if reason:
        return module_notes.leave_alone(module, reason)
    if calls_in_its_own_way(module):
        module_notes.leave_alone(module, "its class has a __call__ of its own")
        module_notes.opened.add(module)
        return False
    parts = sum(1 for _ in module.modules())
    if is_one_operator(module):
        return None
    python_speed.look()
    want_s = prices.PATIENCE * prices.predicted_s(parts)
    known = remembered.OfModule(module)
    if spent_s < want_s / 2 and not modes.AT_ONCE and not known.last():
        return want_s / 2  # the other half is spent looking at its calls
    if importing.shadow():
        return module_notes.leave_alone(module, importing.shadow())
    reason = is_not_plain(module) or (global_hooks() and "torch.nn has global hooks")
    if reason:
        module_notes.leave_alone(module, reason)
        return 2 * spent_s
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is not None and dynamo._stance.stance != "default":
        return 2 * spent_s  # the program's own wish
    if not plugin.ready():
        return None
    try:
        waits = [0.0 if modes.AT_ONCE else times * want_s - min(spent_s, want_s / 2) for times in (1.0, prices.LATER)]
        if module in anew:
            waits[0] = 0.0  # which it has had
        target = Target(module, parts, known, want_s, *waits)
        target.spent_before_s = spent_s
        return target
    except Exception as problem:  # a torch whose insides are others than expected
        let_through(problem)
        return module_notes.leave_alone(module, first_line(problem))


def tell_ends():
    for target in list(targets):
        target.tell_end()


def gone(mine):
    target = mine()
    if target is not None:
        target.let_go()
        gone_targets.append(target)


def end_with(module, target):
    """What a target holds for its module goes with that."""
    weakref.finalize(module, gone, weakref.ref(target)).atexit = False


class Target:
    """Answers the calls of one module: by itself, or with EAGER, upon which the extension lets the module answer and tells took() how long that
    was.

    What its calls are worth and what a trace costs are both CPU time of the calling thread: by the wall clock a busy machine would make calls seem
    worth a trace that then takes as many times longer."""

    clock = staticmethod(time.thread_time)

    def __init__(self, module, parts, known, want_s, wait_s, wait_longer_s):
        self.hook = sys.modules["_ipexrun_hook"]
        self.eager = self.hook.EAGER
        self.note = module_notes.note(module, "being captured" if wait_s <= 0 else "waiting: not used for long enough yet")
        self.known = known  # what earlier processes found
        self.pinned = known.pinned() != ""
        self.want_s = want_s  # to be spent in its calls before the first trace, as predicted when this was made
        self.wait_s = wait_s  # what is left of it: of calls that nothing is known of, before the first trace
        self.wait_longer_s = wait_longer_s  # the same where tracing may well be in vain
        self.waits, self.waited_s = 0, 0.0  # such calls so far that were looked at, and their time
        self.spent_before_s = 0.0  # in calls before this was made
        self.answered = 0.0  # share of their time in operators that the op tier answers
        self.left_out = 0  # calls before the next one of them
        self.was_undecided = known.last() == remembered.UNDECIDED
        self.calls_that_pay = None  # see pays()
        self.import_s = 0.0  # that importing TorchDynamo took for its first trace
        self.known_stock = 0
        self.certain = False  # the race was won in an earlier process
        self.signature = None  # of the last call that was traced or raced
        self.times = {}  # stock -> nanoseconds of the race
        self.seen = self.taken = self.crowded = 0
        self.raised = 0  # calls whose graph raised
        self.module = weakref.ref(module)
        self.again = module in anew  # what was found before does not hold
        self.changed, self.changed_s = 0, 0.0  # calls in a row that were Changed, and their time
        end_with(module, self)
        self.is_part = any(one is module for outer in module_notes.opened for one in outer.modules())
        self.modules_inside = parts
        self.compiled = []  # graphs that became programs
        self.breaks = []
        self.problems = []
        self.capture_s = 0.0
        self.limit_s = 0.0  # of it
        self.refused = ""  # why nothing of it is to be captured
        self.attempts = 0
        self.graphs_a_call = 0  # when it was traced last
        self.missed_s = 0.0  # in calls for which no graph was there
        self.misses = False  # the last one was one
        self.waited = 0  # calls that had their graphs while one without was to be traced
        self.alone = 0  # calls in a row without any graph
        self.fits = Fits()
        self.operators, self.counts_more = 0, COUNTS  # of a call, once they were counted; in how many more they are
        self.turn = self.rematches = 0
        self.calls = 0
        self.idle = 0
        self.progress = []  # calls of the graphs that are not decided
        self.rest, self.resting = REST, 0  # calls of the next rest, and those that are left of this one
        self.verdict = None
        self.lost = False  # a race, but parts of its graphs are still being compiled
        self.appeals, self.lost_by_little = 0, False  # races that were lost and are run again; the last one
        self.held, self.look = Held(known), None  # against stock, where an earlier process found it faster; a Look while that is done
        self.race_s = self.rest_s = self.moment = 0.0  # seconds of the last race and the last rest; when the race or the rest began
        self.phase = self.wait
        self.interrupts = 0
        self.module_hooks = None  # until it is traced
        self.unguarded = Unguarded()
        self.alike = Alike()
        self.sizes = Sizes()
        self.trial = torch.classes.ipexrun.Trial()
        self.builder = torch.classes.ipexrun.Graph()  # asked for what the process has chosen so far
        self.rounds = self.builder.bf16_allowed("")
        self.products_gain = prices.products_gain(self.builder.bf16_speed(), self.rounds, mostly_convolutions(module))
        self.unsettled = 0  # captured calls of the race in which kernels inside were still being chosen
        self.in_float32 = False  # its graphs, because there are several
        self.quiet, self.undecided = 0, -1  # calls in a row in which no operator was undecided, and what was counted then
        self.pairs = {}  # signature: the Half that waits for the other one
        self.timed = {}  # thread: what the call that stock answers now is for: Waiting, Racing, Saving
        self.lock = threading.Lock()
        self.code = None  # of the frame with which TorchDynamo begins
        self.found = []  # what TorchDynamo found out about each graph that no proof was made of yet
        self.proved = 0  # graphs that one was made of
        self.express = None  # traces that answer before its graphs do
        self.express_begun = self.express_recalled = not modes.EXPRESS or self.is_part
        self.trace = self.run = None
        self.prepared = False  # they are made when they are needed: TorchDynamo takes a second to import
        graph_notes.tell_at_end(tell_ends)
        targets.add(self)

    def backend_of_mine(self):
        mine = weakref.ref(self)

        def ipexrun_capture(graph, inputs):
            target = mine()
            if target is None:
                raise GivenUp("its module is gone")
            from . import proof

            seen, before = [], len(target.compiled)
            unguarded = target.unguarded.see()
            try:
                whole = proof.is_whole(target.code)
            except Exception as problem:  # a torch whose insides are others than expected
                let_through(problem)
                whole = False
            catching = "" if whole else handlers.refusal()
            if catching:
                raise GivenUp(catching)
            if not target.is_part:
                seen.append(proof.seen(target.code, unguarded))
            options = {"dtype": "float32"} if target.is_part and not compiler.BF16_ASKED_FOR else None
            timed = not (modes.FORCED or target.pinned)
            only_computes = as_module.only_computes(whole)
            compiled = backend.backend(graph, inputs, options=options, made=target.compiled, timed=timed, where=target.note["module"])
            if isinstance(compiled, backend.Retreat):
                compiled.alone = whole
            for one in target.compiled[before:]:
                one.alone = whole
                one.only_computes = only_computes and not one.writes
                one.module_races = timed and not target.certain
                one.long_calls = whole and compiler.BOUNDED and target.mean_s() > compiler.LONG_S
                one.module_answers = one.long_calls and one.only_computes and target.can_tell_from_results(one)
            target.found += seen  # not where that raises: TorchDynamo begins anew with numbers as tensors, say
            return compiled

        return ipexrun_capture

    def saw(self, code):
        resumed = RESUMED.match(code.co_name)
        if resumed:
            self.breaks.append(f"{code.co_filename}:{resumed.group(1)}")

    def __call__(self, module, /, *args, **kwargs):
        self.seen += 1
        if self.module_hooks is not None:
            if not (self.module_hooks.are_these(module) and self.unguarded.holds()):
                self.timed[threading.get_ident()] = Changed(self.clock())
                return self.eager
            self.changed = 0
        try:
            return self.phase(module, args, kwargs)
        except BaseException as problem:
            self.interrupted(problem)
            raise

    def interrupted(self, problem):
        """A time limit of the program's may be just what its call takes, which never comes to an end where more is done in it."""
        if self.phase in (self.answer, self.answered_by_stock) or of_signal(problem) is None:
            return
        self.interrupts += 1
        if self.interrupts >= INTERRUPTED:
            self.give_up("the program interrupts its calls", remember=False)

    def took(self, nanoseconds, result, explored):
        """Stock answered the call that was EAGER. None: go on; a whole number: after so many calls that stock answers; else what attempt() gives."""
        left_out = 0
        key = self.timed.pop(threading.get_ident(), None)
        traces = self.express  # which another thread may end
        traced = traces.timed.pop(threading.get_ident(), None) if traces is not None else None
        if isinstance(key, Beside):
            why = as_module.differs(result, key.result)
            if why:
                self.give_up(why)
        elif isinstance(key, Waiting):  # exploring is a share of the time (decisions/0003): waiting for calls without it can take many times longer
            spent_s = self.clock() - key.began
            if key.counts:
                self.counted(self.builder.operators_counted(), explored)
            if not explored:
                share = 1e-9 * (self.builder.answered_ns() - key.answered_ns) / max(spent_s, 1e-9)
                self.answered += (min(share, 1.0) - self.answered) / 2
            left_out = self.looked_at(spent_s, key.doubtful, explored)
        elif isinstance(key, Changed):
            self.changed_s = (self.changed_s if self.changed else 0.0) + self.clock() - key.began
            self.changed += 1
            if self.changed >= CHANGED and self.changed_s > self.patience_s():
                self.begin_anew()
        elif isinstance(key, Racing):
            beside_ns = self.builder.exploration_ns() - key.beside_ns if explored else 0
            self.pair(key.key, Half(nanoseconds - beside_ns, stock=True, settled=not explored))
        elif isinstance(key, Missing):
            left_out = key.rests
            self.seen += key.rests
            self.missed((self.clock() - key.began) * (1 + key.rests))
        elif isinstance(key, Resting):
            for one in key.graphs:
                one.rested(nanoseconds * 1e-9)
        if explored:
            return self.verdict
        if traced is not None and self.phase == self.wait:
            traced.beside_stock(nanoseconds)
        if isinstance(key, Saving):
            for one in key.parts:
                one.spent_s += nanoseconds * 1e-9
            if key.rests and self.misses and self.phase == self.wait_for_parts:
                self.missed(nanoseconds * 1e-9)
        return self.verdict if left_out == 0 else left_out

    def broke_off(self):
        """The call ended with an exception: nobody tells took() of it, and the next one is not to be taken for it."""
        thread, traces = threading.get_ident(), self.express
        self.timed.pop(thread, None)
        if traces is not None:
            traces.timed.pop(thread, None)

    def counted(self, operators, explored):
        """Of a call in which operators tried candidates there are more than there are going to be, so others are counted for a while."""
        if operators > 0:
            self.operators = min(self.operators, operators) if self.operators else operators
        self.counts_more = self.counts_more - 1 if explored else 0

    def looked_at(self, spent_s, doubtful, explored):
        """took() of a call while nothing is traced yet: how many others go by now."""
        stands_for, self.left_out = self.left_out, 0
        self.seen += stands_for
        spent_with_s = spent_s + stands_for * min(spent_s, SHORT_S)
        self.wait_longer_s -= spent_with_s
        self.wait_s -= 0.0 if doubtful else spent_with_s
        self.waits, self.waited_s = self.waits + 1, self.waited_s + spent_s
        if self.waits == FIRST_CALLS and self.waited_s < FIRST_CALLS * SHORTEST_S * python_speed.slowness():
            self.ask_later()
        elif self.waits >= FIRST_CALLS and spent_s < SHORT_S and self.express is None and not explored:
            self.left_out = LEFT_OUT
        return self.left_out

    def wait(self, module, args, kwargs):
        """What earlier processes decided: calls that won are traced at once, those that lost never. Others after the usual time, or a
        multiple of it where tracing may well be in vain."""
        call = signature_of_call(args, kwargs)
        if call in LEFT:
            return self.pass_by(LEFT[call])
        self.crowded = 0
        known = "" if self.again and not self.pinned else self.known.of_call(call)
        if known == remembered.CAPTURED and not self.express_recalled:
            from . import express  # which needs this one

            self.express_recalled = True
            self.alike.begin(module, (), {})
            self.express = express.recalled(self, module)
        traces = self.express
        if traces is not None and self.alike.holds(module, args, kwargs):
            result = traces(module, *args, **kwargs)
            if result is not None:
                return result
        self.sizes.see(call, args, kwargs)
        with_state = has_state(args) or has_state(kwargs)
        doubtful = known == remembered.UNDECIDED or (not known and (self.was_undecided or (with_state and not self.sizes.alone_change(call))))
        won = known == remembered.CAPTURED
        if won and with_state and not modes.AT_ONCE and not self.sizes.are_known(call):
            return self.eager  # a few calls, which save the first of two traces
        if self.pays() if won else self.is_worth_a_trace(doubtful):
            self.phase = self.capture
            return self.capture(module, args, kwargs)
        if won:
            return self.eager
        if not known or doubtful:
            self.known_stock = 0
            counts = self.waits > 0 and self.counts_more > 0  # not of the first one, in which things are made
            if counts:
                self.builder.count_operators()
            self.timed[threading.get_ident()] = Waiting(doubtful, self.clock(), counts, self.builder.answered_ns())
            return self.eager
        self.known_stock += 1
        if known == remembered.INSIDE or self.known_stock >= KNOWN_STOCK_CALLS:
            self.give_up("pinned" if self.pinned else "remembered", look_inside=known == remembered.INSIDE, remember=False)
        return self.eager

    def pass_by(self, why):
        """A call with more in its arguments than is looked at, which would take longer than it saves, or with what is not to be looked at."""
        self.crowded += 1
        if self.crowded >= CROWDED:
            self.give_up(why, look_inside=True, remember=False)
        return self.eager

    def is_worth_a_trace(self, doubtful):
        """Whether its calls took as long as a capture's price asks for, which calls that take long are part of."""
        if modes.AT_ONCE or not self.waits:
            return (self.wait_longer_s if doubtful else self.wait_s) <= 0
        price_s = self.price_s() + (prices.ROUNDED_CALLS if self.rounds else prices.TRIAL_CALLS) * self.mean_s()
        more_s = prices.patience(self.mean_s(), self.products_gain, self.answered) * price_s - self.want_s
        return self.wait_longer_s + prices.LATER * more_s <= 0 if doubtful else self.wait_s + more_s <= 0

    def price_s(self):
        return prices.predicted_s(self.modules_inside, self.operators, self.sizes.change())

    def mean_s(self):
        """Seconds of a call while nothing is traced yet."""
        return self.waited_s / self.waits if self.waits else 0.0

    def can_tell_from_results(self, graph):
        """Whether the graph's form need not run beside stock's in the call that is traced, which the module answers and is compared with: what is
        rounded to bf16 may lie further apart than that comparison allows."""
        return graph.open == [False] and not graph.bf16_inside and not graph.rounds

    def pays(self):
        """Whether a module that won in an earlier process is traced now: at once if the last run was long enough to earn EARNS times what that takes; else
        when this run has been long enough to earn it and longer than the last one was. Programs of a few seconds that are run again and again would pay each
        time, by a trace at once as by one that leaves too few calls to earn it."""
        if self.calls_that_pay is None:
            calls, needed = self.known.number("calls"), self.known.number("pays")
            self.calls_that_pay = 0 if modes.AT_ONCE or self.pinned or calls >= prices.EARNS * needed else max(needed, calls)
        return self.seen > self.calls_that_pay

    def calls_made(self):
        """In this run; those of before it was looked at are taken to have lasted as long as the first that were."""
        return self.seen + (int(self.spent_before_s / self.mean_s()) if self.mean_s() > 0 else 0)

    def tell(self, choice, reason):
        stock_ns, captured_ns = self.medians()
        breaks = "; split at " + " ".join(map(os.path.basename, self.note["breaks"])) if "breaks" in self.note else ""
        samples = len(self.times.get(True, ()))
        self.known.tell(choice, reason + breaks, self.seen, self.taken, stock_ns, captured_ns, samples)

    def tell_end(self):
        captured = self.note["state"] == "captured"
        if self.attempts and not self.appeals and self.phase in (self.explore, self.let_operators_decide, self.race, self.capture, self.wait_for_parts):
            self.remember(remembered.UNDECIDED, "the process ended")
        if self.known.number("pays"):
            self.known.remember_number("calls", self.calls_made())
        self.held.tell_end()
        if self.express is not None:
            self.express.held.tell_end()
        self.tell(remembered.CAPTURED if captured else remembered.STOCK, self.note.get("reason", self.note["state"].removeprefix("stock: ")))

    def medians(self):
        return [sorted(self.times[stock])[len(self.times[stock]) // 2] if self.times.get(stock) else 0 for stock in (True, False)]

    def remember(self, choice, reason):
        if self.signature is not None and not modes.FORCED:
            stock_ns, captured_ns = self.medians()
            choice_ns = captured_ns if choice == remembered.CAPTURED else stock_ns
            self.known.remember(self.signature, choice, stock_ns, choice_ns, len(self.times.get(True, ())), reason)

    def settle(self, reason):
        """The captured form answers from now on."""
        self.note.update(state="captured", reason=reason)
        self.phase = self.answer
        self.look = None
        self.pairs.clear()
        stock_ns, captured_ns = self.medians()
        if 0 < captured_ns < stock_ns:
            price_s = self.import_s + self.note.get("capture_s", 0) + sum(graph.beside_s for graph in self.compiled)
            self.known.remember_number("pays", 1 + int(1e9 * price_s / (stock_ns - captured_ns)))
        self.tell(remembered.CAPTURED, reason)

    def give_up(self, why, look_inside=False, remember=True):
        look_inside = look_inside and holds_more(self.module())
        self.note["state"] = f"stock: {why}"
        if remember and not self.taken:
            self.remember(remembered.INSIDE if look_inside else remembered.STOCK, "slower")
        self.tell(remembered.STOCK, why)
        self.verdict = look_inside
        if look_inside:
            module_notes.opened.add(self.module())
        self.end()

    def begin_anew(self):
        """Hooks (transformers 5 installs some when hidden states are asked for, and leaves them), methods or what else TorchDynamo does not look at
        again stay others than those that were traced. The extension asks attempt() in the next call."""
        module = self.module()
        if module is None or self.phase == self.answered_by_stock:
            return
        anew[module] = anew.get(module, 0) + 1
        if anew[module] > BEGINNINGS or (self.again and not self.taken):  # the latter: a hook that is put there anew for every call, say
            self.give_up("its hooks, its methods or what it reads change again and again", remember=False)
            return
        self.note["state"] = "its hooks, its methods or what it reads changed"
        for what in OF_A_FORM:
            self.note.pop(what, None)
        targets.discard(self)  # the next one speaks at the end
        self.verdict = 0.0
        self.end()

    def ask_later(self):
        """Its calls are so short that a captured one would hardly take less, and looking at each takes longer. They may grow: attempt() is asked again."""
        self.note["state"] = f"waiting: its calls take {1e6 * self.waited_s / self.waits:.0f} us, about what surrounds a captured one"
        targets.discard(self)
        self.verdict = prices.LATER * prices.PATIENCE * prices.predicted_s(self.modules_inside)
        self.end()

    def end(self):
        self.phase = self.answered_by_stock
        self.end_traces()
        self.code = self.trace = self.run = None
        self.found = []
        for graph in self.compiled:
            graph.free()

    def end_traces(self):
        """A trace holds weights, and is part of a circle: these would stay until Python looks for such."""
        traces, self.express = self.express, None
        if traces is not None:
            traces.forget()

    def let_go(self):
        self.end_traces()
        self.code = self.trace = self.run = None
        self.compiled, self.found = [], []
        self.unguarded = Unguarded()  # which holds what the program's calls read

    def answered_by_stock(self, module, args, kwargs):
        return self.eager

    def capture(self, module, args, kwargs):
        """Traces in this call, which is answered by what was traced."""
        signature = signature_of_call(args, kwargs)
        if signature in LEFT or (self.compiled and not self.alike.holds(module, args, kwargs)) or not self.lock.acquire(blocking=False):
            return self.eager
        try:
            before = len(self.compiled)
            self.attempts += 1
            self.express_begun = not modes.EXPRESS or self.is_part
            self.capture_s, self.missed_s, self.calls = 0.0, 0.0, 0
            usual_s = prices.usual_price_s(self.modules_inside, self.operators, self.sizes.change())
            self.limit_s = prices.limit_s(prices.BASE_S + prices.PER_MODULE_S * self.modules_inside)
            if not self.prepared:
                self.prepared = True
                try:
                    self.import_s = importing.import_now()
                    self.trace, self.run = ways_of_calling(self, self.backend_of_mine())
                except Exception as problem:  # a torch whose insides are others than expected
                    let_through(problem)
                    self.give_up(first_line(problem), remember=False)
                    return self.eager
            self.builder.operators_counted()  # of a call that raised, which nobody told of
            trace = self.trace
            if trace is None or self.attempts > ATTEMPTS:
                self.give_up("its traces did not end", remember=False)
                return self.eager
            self.module_hooks = Hooks(module)
            self.signature = signature
            self.certain = (self.pinned or not self.again) and self.known.of_call(self.signature) == remembered.CAPTURED
            if not self.compiled:
                self.alike.begin(module, args, kwargs)
            ran = compiler.ran()
            self.hook.end_drift_check()
            with no_marks(module), self.sizes.told(args, kwargs):
                result = raised.call_or_leave(self, trace, module, args, kwargs)
            if self.compiled and self.capture_s == 0 and self.waited < EXPLORING:  # this call had its graphs: one that has none is meant
                self.attempts -= 1
                self.waited += 1
                return result
            self.waited = 0
            self.graphs_a_call = compiler.ran() - ran
            if (self.graphs_a_call > 1 or self.breaks) and not compiler.BF16_ASKED_FOR:
                self.in_float32 = True
                for graph in self.compiled:
                    graph.keep_float32()
            prices.measured(self.capture_s, usual_s)
            self.fits = Fits()
            self.note.update(capture_s=round(self.note.get("capture_s", 0) + self.capture_s, 2), graphs=len(self.compiled))
            if self.breaks:
                self.note["breaks"] = sorted(set(self.breaks))
            if self.capture_s >= self.limit_s:
                self.attempts = ATTEMPTS  # this was the last one
            if self.refused:
                self.give_up(self.refused, look_inside=True)
                return result
            if not self.compiled:
                self.give_up(self.problems[0] if self.problems else "nothing of it could be captured", look_inside=True)
            elif len(self.compiled) > before or self.phase == self.capture:
                self.note["state"] = "trying its graphs"
                self.phase = self.explore
            only_one = len(self.compiled) == before + 1 and self.compiled[before].only_computes
            if (only_one or any(graph.module_answers for graph in self.compiled[before:])) and result is not self.eager:
                self.timed[threading.get_ident()] = Beside(result)
                if any(graph.draws for graph in self.compiled[before:]):
                    random_draws.put_back()  # the module draws the same numbers
                return self.eager
            return result
        finally:
            for graph in self.compiled:
                graph.module_answers = False
            self.lock.release()
            interrupts.raise_late()

    def is_last_trace(self):
        return self.attempts >= ATTEMPTS or not self.graphs_a_call

    def patience_s(self):
        """Time in calls that no graph answers, after which one more trace may be worth its price."""
        return 0.0 if modes.AT_ONCE else prices.PATIENCE * max(self.note.get("capture_s", 0.0), 1.0)

    def serves(self):
        """The share of calls that a further trace is likely to be of use for: that of the last one, unless it did not know yet what changes."""
        return max(self.fits.coverage(), LEAST_COVERAGE) if self.sizes.tells or self.attempts > 1 else 1.0

    def missed(self, seconds):
        self.missed_s += seconds
        if self.missed_s > self.patience_s() / self.serves() and self.attempts < ATTEMPTS and self.phase != self.answered_by_stock:
            self.phase = self.capture

    def captured(self, module, args, kwargs, timed=True):
        """Its result, or EAGER; and how long it took, a Half, if a graph took part: the looks at its arguments are part of that. `timed`: for a race, whose clock
        costs a microsecond."""
        now = call_clock() if timed else time.perf_counter_ns
        began, started = self.clock(), now()
        if not self.alike.holds(module, args, kwargs):
            return self.eager, None
        rests = self.fits.rests() if self.phase != self.answer else 0
        if rests or self.fits.leaves_out(args, kwargs):
            self.alone += 1 + rests
            self.timed[threading.get_ident()] = Missing(self.clock(), rests)
            return self.eager, None
        before, tries, unsettled = compiler.ran(), parts.tries(), self.builder.unsettled_runs()
        self.hook.end_drift_check()
        run = self.run
        if run is None:  # another thread gave up
            return self.eager, None
        result = raised.call_or_leave(self, run, module, args, kwargs)
        if result is self.eager:
            if raised.too_often(self.raised, self.seen):
                self.give_up("its calls raise too often")
            return result, None
        nanoseconds = now() - started
        graphs = compiler.ran() - before
        self.alone = 0 if graphs else self.alone + 1
        self.fits.note(args, kwargs, bool(graphs))
        self.misses = graphs < self.graphs_a_call
        if self.misses:  # some of them have no form for this call
            self.missed(self.clock() - began)
        if self.alone > EXPLORING and self.is_last_trace() and self.phase != self.answer:
            self.give_up("no graph fits its calls", remember=False)
        settled = self.builder.unsettled_runs() == unsettled
        return result, Half(nanoseconds, stock=False, settled=settled) if graphs and parts.tries() == tries else None

    def explore(self, module, args, kwargs):
        """Graphs are tried inside these calls (compiler.py)."""
        trying = [graph for graph in self.compiled if not graph.settled()]
        if trying and all(graph.rests() for graph in trying):
            self.timed[threading.get_ident()] = Resting(trying)
            return self.eager
        passed_by = sum(graph.passed_by for graph in trying)
        result, half = self.captured(module, args, kwargs)
        if half is None or sum(graph.passed_by for graph in trying) != passed_by:
            return result
        self.calls += 1
        progress = [graph.calls for graph in self.compiled if not graph.settled()]
        self.idle = self.idle + 1 if progress == self.progress else 0
        self.progress = progress
        if self.phase == self.explore and (not progress or self.idle >= IDLE or self.calls > EXPLORING):
            if not any(graph.gained() for graph in self.compiled):
                if any(graph.parts_pending() for graph in self.compiled):
                    self.begin_waiting_for_parts()
                else:
                    self.give_up("none of its graphs gained")
            elif modes.FORCED:
                self.settle("forced")
            elif self.certain:
                self.settle("pinned" if self.pinned else "remembered")
            else:
                self.calls = self.unsettled = self.quiet = 0
                self.moment = time.perf_counter()
                self.phase = self.let_operators_decide if self.in_float32 else self.race
                self.note["state"] = "racing stock"
        return result

    def let_operators_decide(self, module, args, kwargs):
        """Several graphs are in float32 (compiler.keep_float32), where the op tier may round whole passes: a race before that is decided would be
        won by what is slower in the end, and no operator be asked again."""
        undecided = self.builder.unsettled_runs()
        self.quiet = self.quiet + 1 if undecided == self.undecided and not self.builder.drift_waits() else 0
        self.undecided = undecided
        self.calls += 1
        if self.quiet == QUIET or self.calls > OPERATORS:
            self.calls = 0
            self.moment = time.perf_counter()
            self.phase = self.race
        return self.eager

    def begin_waiting_for_parts(self):
        self.note["state"] = "waiting for Inductor"
        self.idle, self.rest, self.resting = 0, REST, 0
        self.phase = self.wait_for_parts

    def wait_for_parts(self, module, args, kwargs):
        """No graph won, but with parts that Inductor compiles one may: until these are there the module answers, and its time counts."""
        waiting = [graph.parts for graph in self.compiled if graph.parts_pending()]
        if self.lost and not waiting and not any(graph.has_parts() for graph in self.compiled):
            self.rest_or_give_up()
            return self.eager
        if waiting and not self.parts_want_calls():
            self.timed[threading.get_ident()] = Saving(waiting, self.resting > 0)
            return self.eager
        result, _ = self.captured(module, args, kwargs)
        progress = self.progress_of_parts()
        self.idle = self.idle + 1 if progress == self.progress else 0
        self.progress = progress
        if self.idle == 0:
            self.rest, self.resting = REST, 0
        elif self.idle >= IDLE:
            self.resting, self.rest = self.rest, min(2 * self.rest, LONGEST_REST)
        won = any(graph.has_parts() if self.lost else graph.gained() for graph in self.compiled)
        if self.phase == self.wait_for_parts and (won or (not waiting and not self.lost)):
            self.calls = self.idle = 0
            self.lost = False
            self.phase = self.explore
        return result

    def progress_of_parts(self):
        pending = [(graph, graph.parts) for graph in self.compiled if graph.parts_pending()]
        return [(graph.calls, parts.calls, parts.phase) for graph, parts in pending if parts is not None and parts.wants_calls()]

    def parts_want_calls(self):
        """Whether a captured call may bring one of them on. The one that wants calls may be of a graph whose sizes come no more: all others would be
        answered by graphs that did not win."""
        wanting = self.progress_of_parts()
        if self.resting > 0 and wanting == self.progress:  # else another one has begun to
            self.resting -= 1
            return False
        return bool(wanting)

    def race(self, module, args, kwargs):
        """Neighbouring calls of one signature, by stock and captured in turn."""
        key = signature_of_call(args, kwargs)
        if key in LEFT:
            return self.eager
        waiting = self.pairs.get(key)
        self.turn += 1
        if self.calls > PAIRS_WANTED and self.look is not None:
            self.settle("remembered")
            return self.eager
        if self.calls > PAIRS_WANTED:
            self.give_up("its calls differ too much to be compared", remember=False)
            return self.eager
        if waiting.stock if waiting is not None else self.turn % 2:  # the other half, or in turn
            result, half = self.captured(module, args, kwargs) if self.look is None else self.as_answered(module, args, kwargs)
            if half is None:
                self.pairs.pop(key, None)
            elif self.phase == self.race:
                self.calls += 1
                self.unsettled += not half.settled
                self.pair(key, half._replace(settled=True) if self.unsettled > compiler.UNSETTLED else half)
            return result
        self.timed[threading.get_ident()] = Racing(key, self.builder.exploration_ns())
        return self.eager

    def pair(self, key, half):
        if self.phase != self.race:
            return
        waiting = self.pairs.pop(key, None)
        if waiting is None or waiting.stock == half.stock:
            self.pairs[key] = half
            return
        if self.look is not None and self.look.warms_up():
            return
        stock, mine = (half, waiting) if half.stock else (waiting, half)
        self.times.setdefault(True, []).append(stock.nanoseconds)
        self.times.setdefault(False, []).append(mine.nanoseconds)
        (self.trial.add if stock.settled and mine.settled else self.trial.add_unsettled)(stock.nanoseconds, mine.nanoseconds)
        self.signature = key
        decided = self.trial.result()
        if self.look is not None and self.look.is_clear(stock.nanoseconds, mine.nanoseconds):
            decided = 1
        if decided == 1:
            self.note["speed"] = round(1 / self.trial.ratio(), 2)
            self.remember(remembered.CAPTURED, "faster")
            self.settle("faster")
        elif decided == -1 and self.rematches < compiler.REMATCHES and compiler.may_have_won(self.trial):
            self.rematches += 1
            self.calls = 0
            self.trial = self.new_trial()
        elif decided == -1 and self.look is not None and self.trial.ratio() <= 1:
            self.settle("as fast")  # nothing is gained by stock's
        elif decided == -1:
            self.note["speed"] = round(1 / self.trial.ratio(), 2)
            if self.look is not None:
                self.look = None
                self.note.pop("reason", None)
                self.remember(remembered.STOCK, "slower")
            self.lost_by_little, self.race_s = self.trial.ratio() < NEARLY, time.perf_counter() - self.moment
            if any(graph.parts_pending() for graph in self.compiled):
                self.forget_race()
                self.lost = True
                self.begin_waiting_for_parts()
            else:
                self.rest_or_give_up()

    def rest_or_give_up(self):
        self.lost = False
        if self.lost_by_little and self.appeals < APPEALS:
            self.rest_from_races()
        else:
            self.give_up(LOST, remember=self.appeals == 0)

    def new_trial(self):
        trial = torch.classes.ipexrun.Trial()
        if self.appeals:
            trial.doubt()
        return trial

    def forget_race(self):
        self.trial = self.new_trial()
        self.times = {}
        self.pairs.clear()
        self.calls = self.unsettled = 0

    def rest_from_races(self):
        """On a machine that is shared many races are lost by chance (decisions/0046): what lost by little races again when others may have gone. Stock
        answers until then, and is what the next process begins with."""
        self.rest_s = AS_LONG * max(self.race_s, self.rest_s)
        self.moment = time.perf_counter()
        self.appeals += 1
        self.note["state"] = f"stock: {LOST}"
        if self.appeals == 1 and not self.taken:
            self.remember(remembered.STOCK, "slower")
        self.tell(remembered.STOCK, LOST)
        self.forget_race()
        self.phase = self.between_races

    def between_races(self, module, args, kwargs):
        now = time.perf_counter()
        if now - self.moment < self.rest_s:
            return self.eager
        self.moment = now
        self.phase = self.race
        return self.race(module, args, kwargs)

    def answer(self, module, args, kwargs):
        if not self.express_begun and not any(graph.parts_pending() for graph in self.compiled):
            from . import express

            self.express_begun = True
            found, self.found = self.found, []
            if not found and self.proved:
                pass  # traced again in vain
            elif any(graph.draws for graph in self.compiled):
                self.note["no_trace"] = "it draws random numbers"
            elif any(graph.has_parts() for graph in self.compiled):
                self.note["no_trace"] = "Inductor compiled parts of its graph"
            elif self.proved + len(found) == len(self.compiled) and self.graphs_a_call == 1 and not self.breaks:
                self.express = express.begin(self, module, found)
                self.proved += len(found) if self.express is not None else 0
            elif self.express is None:
                self.note.setdefault("no_trace", "more than one graph")
        traces, waiting = self.express, None  # which another thread may end
        if self.certain and not (self.pinned or modes.FORCED) and self.held.is_due():
            return self.hold_against_stock(module, args, kwargs)
        if traces is not None and self.alike.holds(module, args, kwargs):
            result = traces(module, *args, **kwargs)
            if result is not None and result is not self.eager:
                return result
            waiting = traces.timed.pop(threading.get_ident(), None)
        result, half = self.captured(module, args, kwargs, timed=waiting is not None)
        self.taken += result is not self.eager
        if waiting is not None and half is not None:
            waiting.pair(half.nanoseconds, stock=True)
        return result

    def hold_against_stock(self, module, args, kwargs):
        """What an earlier process found faster races once more."""
        self.held.begin()
        self.look = Look()
        self.rematches = 0
        self.forget_race()
        self.moment = time.perf_counter()
        self.phase = self.race
        return self.race(module, args, kwargs)

    def as_answered(self, module, args, kwargs):
        """captured(), or what a trace gives that answers in its place."""
        now = call_clock()
        started, unsettled, traces = now(), self.builder.unsettled_runs(), self.express
        if traces is not None and traces.answering and self.alike.holds(module, args, kwargs):
            result = traces(module, *args, **kwargs)
            if result is not None and result is not self.eager:
                return result, Half(now() - started, stock=False, settled=self.builder.unsettled_runs() == unsettled)
            traces.timed.pop(threading.get_ident(), None)
        return self.captured(module, args, kwargs)

    def express_lost(self, signature):
        """The trace of an earlier process, held against stock: the graph computes the same, with more around it."""
        self.signature = signature
        self.note.pop("reason", None)
        self.remember(remembered.STOCK, "slower")
        self.give_up(LOST, remember=False)

    def express_won(self, reason, error):
        self.note["by"] = "trace"
        self.note.pop("no_trace", None)
        if self.phase == self.wait:
            self.note.update(state="captured", reason=reason, error=error)
            self.tell(remembered.CAPTURED, reason)

    def express_ended(self, ended, why):
        if self.express is ended:
            self.express = None
        self.note.pop("by", None)
        self.note["no_trace"] = why
        if self.phase == self.wait:
            self.note["state"] = f"stock: its trace ended: {why}"
