"""The backend "ipex" of torch.compile: graphs of AOTAutograd become programs of the plugin (preload/plugin/graph).

Python only translates; what is fused, how it runs, and whether it is right and faster is decided in C++. A graph that cannot be held
(operators that write or draw random numbers by what is computed, custom ones) runs as torch captured it.

Over 500 lines, since trying, resting, judging and answering of a graph share its state.
"""

import os
import sys
import threading

import torch

from .. import remembered
from ..problems import first_line, let_through
from . import choices, double, graph_notes, raised, warned
from .graph_notes import enabled_here
from .parts import Parts, leave_out
from .races import CHECKS, REMATCHES, UNSETTLED, call_clock, may_have_won
from .translation import Translation, Unsupported, as_it_lies
from .unrounded import rounds_all_products

BF16_ASKED_FOR = os.environ.get("IPEXRUN_DTYPE") == "bfloat16"
FREE_CALLS, FREE_S = 4, 3.0  # calls of a form, and seconds in one graph, that it may be tried in without a rest
CHOOSING = 3  # times as many calls where kernels inside it are still being chosen, so that it does not lead yet
SHARE, LEAD_SHARE = 0.05, 0.2  # of stock's time may go into trying a form after that; while it leads
LEAD_S = 9.0  # seconds in one graph that a form that leads, or chooses kernels, may be tried in without a rest
LEADS, RECENT = 0.95, 6  # of stock's time, in the middle of so many last pairs: it may well win. By single calls a form that is level led for minutes
BOUNDED = os.environ.get("IPEXRUN_GRAPH_WAIT") != "0" and os.environ.get("IPEXRUN_GRAPH_MODE") != "dynamo"
LONG_S, NEAR = 0.1, 1e-4  # of such calls, and of results so near stock's, float64 tells the rest later; of such calls also the time of each operator;
# and each call that tries a form is followed by a rest (decisions/0052)
LOOK_AGAIN = 16  # the first call answered with bf16 inside that is judged once more; then each power of four
SMALL_SHARE = 8  # one call of so many may have results that are too small for what bf16 rounds
SMALL_AT_FIRST = 32  # such calls after which that is asked of a form that answers
NOT_THE_WHOLE = "not the whole of what the program calls"
COUNTS = "its results are whole numbers, which bf16 has only while they are small"
TOO_SMALL = "too many results are small beside what it rounds"


def form_name(bf16):
    return "bf16" if bf16 else "float32"


def function_of(graph):
    """The forward of a graph, compiled. Until then a graph has another one, which goes by way of the module, and that prints what is raised."""
    compile_now = getattr(graph, "real_recompile", None)
    if compile_now is not None:
        compile_now()
    return graph.forward


_runs = threading.local()


def ran():
    """How many graphs of ours this thread has run."""
    return getattr(_runs, "count", 0)


class Compiled:
    """A captured graph: stock's form, ours, and which of them answers."""

    _boxed_call = True  # AOTAutograd hands its inputs over in a list

    def __init__(self, module, translation, dtype, timed=True, where="", source=None):
        """`source`: the graph that `translation` is of, where that is the module in float32, without the program's autocast (unrounded.py)."""
        self.source = source or module
        self.rounds = source is not None and rounds_all_products(module)  # stock's results are rounded to 16 bits themselves
        if self.rounds and dtype is None:
            dtype = "auto"  # the program asks for it
        self.timed = self.races = timed  # False: the first form that is accurate answers; `races`: but for what earlier processes found
        self.as_captured = function_of(module)
        self.module = module
        self.graph = translation.graph
        if not self.graph.may_time():
            raise Unsupported("selection is off (--select off): no timing may decide")
        self.tensors = translation.inputs_are_tensors
        self.lifted = translation.lifted
        self.static = translation.static
        self.laid_out = False  # it was made anew for how stock's results lie
        self.alone = False  # it is all that a call of the captured module does: see raised.py
        self.only_computes = self.writes = False  # nothing but its results is left of a call: see as_module.py; it writes inputs or buffers
        self.draws = False  # some of its inputs are random numbers that are drawn in each call: see random_draws.py
        self.module_races = False  # what wins here races once more, as a part of its module
        self.module_answers = False  # this call, whose results are compared with the form's
        self.long_calls = False  # as the module knows before any call of this graph
        self.open = [False]  # candidates that are still to be tried: whether products of float32 may be bf16
        # Where bf16 is allowed the operators that our float32 form leaves to torch may be answered in it by the op tier.
        self.bf16_inside = self.graph.bf16_allowed(dtype or "")
        steered = self.bf16_inside and not BF16_ASKED_FOR and dtype != "bfloat16" and choices.steer(module.graph)
        if self.bf16_inside and not steered:
            self.open.insert(0, True)
        self.name = remembered.graph_name(self.source, dtype) if timed else ""
        known = remembered.graph_choice(self.name) if timed else ""
        if known == "stock":
            self.open = []
        elif known:
            self.timed = known not in map(form_name, self.open)
            self.open = [bf16 for bf16 in self.open if self.timed or form_name(bf16) == known]
        self.fused = {bf16: self.graph.compile(bf16) for bf16 in self.open}
        self.of_products = choices.results_of_products(module.graph)
        self.exploring = threading.Lock()
        self.beside_s = self.stock_s = 0.0  # spent in trying beside stock; by stock in the last call that tried
        self.choosing_ns = 0  # of our form's last run, that went into ways of its kernels which are not the best known ones
        self.begin_trial()
        self.choice = None  # None: stock; else as in `open`
        self.passed_by = 0  # calls that stock answered because another thread tried a form
        # It won while kernels inside were still being chosen, or before CHECKS calls were judged: a call with those that stay is judged once more.
        self.unjudged = False
        self.too_coarse = ""  # why it is to keep float32 from now on: who finds that out may be inside of `exploring` (parts.Parts.tried)
        self.problem = ""  # of the last run that failed
        self.note = graph_notes.new_note(where, nodes=len(module.graph.nodes), choice="stock: remembered" if known == "stock" else "stock", calls=0, taken=0)
        self.parts = Parts(self) if self.races and source is None else None  # what Inductor may compile, once the forms above are decided
        if steered:
            self.note["lost"] = ["bf16: a choice among its values (topk, argmax, sort or a comparison) steers what follows"]

    def __call__(self, arguments):
        _runs.count = ran() + 1
        self.note["calls"] += 1
        try:
            return self.answer_call(arguments)
        except Exception as problem:
            raised.by_graph(problem, self.alone)
            raise

    def stock(self, *values):
        """The graph as it was captured, by torch."""
        if self.alone:
            return warned.by_torch(self.as_captured, *values)
        result, said = warned.noted(self.as_captured, *values)
        if said:
            _runs.said = {**said, **(_runs.said or {})}
        return result

    def answer_call(self, arguments):
        values = list(arguments)
        if isinstance(arguments, list):
            arguments.clear()  # a boxed call: its caller gives the inputs up
        _runs.said = None  # a call that raised may have left some
        try:
            result = self.by_a_form(values)
        except warned.Warned:
            if self.alone:
                raise  # upon which the module answers
            result = self.stock(*values)
        if _runs.said:
            warned.say(_runs.said)
        return result

    def by_a_form(self, values):
        if not enabled_here():
            return self.stock(*values)
        if not self.open:
            parts = self.parts  # which another thread may end
            result = self.answer(values) if parts is None else self.with_parts(parts, values)
            if self.too_coarse:
                self.be_finer()
            return result
        if not self.exploring.acquire(blocking=False):
            self.passed_by += 1
            return self.stock(*values)
        try:
            if not self.open:
                return self.stock(*values)
            return self.rest(values) if self.rest_s > 0 else self.explore_apart(values)
        finally:
            self.exploring.release()

    def rest(self, values):
        """A call in which nothing is tried."""
        now = call_clock()
        started = now()
        result = self.stock(*values)
        self.rested(1e-9 * (now() - started))
        return result

    def rests(self):
        return self.rest_s > 0 and bool(self.open)

    def rested(self, seconds):
        self.rest_s -= seconds

    def leads(self):
        ratios = sorted(mine / max(stock, 1) for stock, mine in zip(*(times[-RECENT:] for times in self.times)))
        return bool(ratios) and (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2 <= LEADS

    def is_long(self):
        """Each call that tries a form takes much of a program's time, and says much."""
        return self.stock_s > LONG_S or self.long_calls

    def is_costly(self, more_s=0.0):
        """A form that gains little is decided by many pairs, and a model of long calls would take twice as long for a minute."""
        return BOUNDED and self.timed and self.beside_s + more_s > FREE_S

    def rest_after(self, beside_s, choosing):
        """Seconds of stock's calls before the form is tried again, after a call that took so many more than stock's."""
        if not self.timed:
            return 0.0  # it is known to be faster, and answers as soon as it is known to be right
        if self.open and BOUNDED and self.is_long():
            if self.calls == 1 and self.open[0]:
                return 0.0  # where bf16 is native long calls nearly always gain by it
            return beside_s / (LEAD_SHARE if self.calls == 1 or choosing or self.leads() else SHARE)
        if not (self.open and self.is_costly()):
            return 0.0
        leads = self.leads()
        hopeful = leads or (choosing and self.calls < FREE_CALLS * CHOOSING)
        if self.calls < FREE_CALLS or (hopeful and self.beside_s <= LEAD_S):
            return 0.0
        return beside_s / (LEAD_SHARE if leads else SHARE)

    def explore_apart(self, values):
        """Without a check for drift in it: stock's form runs twice here and ours beside it, which is no pass of the program's."""
        was = self.graph.set_apart(True)
        choosing = self.graph.choosing_runs()
        now = call_clock()
        started, self.stock_s = now(), 0.0
        try:
            return self.explore(values)
        finally:
            self.graph.set_apart(was)
            beside_s = 1e-9 * (now() - started) - self.stock_s
            self.beside_s += beside_s
            self.rest_s = self.rest_after(beside_s, self.graph.choosing_runs() != choosing)

    def answer(self, values):
        """By the form that won."""
        if self.choice is None:
            return tuple(self.stock(*values))
        try:
            unsettled = self.graph.unsettled_runs() if self.unjudged else 0
            result = self.mine(self.choice, values)
            if self.unjudged and self.graph.unsettled_runs() == unsettled:
                self.unjudged = False
                leave_out()
                if not self.is_accurate(values, list(result), self.choice):
                    away = self.trial.error()
                    closer = self.be_exact(self.choice)
                    result = self.mine(self.choice, values) if closer else result
                    if not closer or not self.is_accurate(values, list(result), self.choice):
                        raise RuntimeError(f"its results are {away:.1e} away")
                self.note_choice(self.choice)
            if self.calls_until_times > 0:
                self.calls_until_times -= 1
                if self.calls_until_times == 0:
                    leave_out()
                    self.note_times(self.choice, values)
            return self.large_or_stock(values, result)
        except Exception as problem:
            let_through(problem)
            result = self.stock(*values)  # raises what is the user's own fault
            self.choice = None
            self.note["choice"] = f"stock: {first_line(problem)}"
            return result

    def large_or_stock(self, values, result):
        """The results, unless what bf16 rounds may be too much for one of their samples: then torch's own, from which is learnt."""
        if self.margins is None:
            self.note["taken"] += 1
            return result
        taken = self.note["taken"]
        covered = self.margins.cover(list(result))
        if covered and not (taken >= LOOK_AGAIN and taken & (taken - 1) == 0 and taken.bit_length() % 2):
            self.note["taken"] += 1
            return result
        truth = tuple(self.truth(values))
        self.margins.note(list(truth), list(result))
        if covered:
            self.look_again(truth, result)
            return truth
        self.small += 1
        if self.small >= SMALL_AT_FIRST and self.small * SMALL_SHARE > self.note["taken"]:
            self.too_coarse = TOO_SMALL
        return truth

    def look_again(self, truth, result):
        """The program's inputs may have changed since the form was judged."""
        self.note["taken"] += 1
        leave_out()
        trial = torch.classes.ipexrun.Trial()
        if not trial.check(list(truth), list(result), True):
            self.too_coarse = f"its results are {trial.error():.1e} away"

    def be_finer(self):
        """Behind a call; behind a later one where another thread, or the call around this one, tries something now."""
        if not self.exploring.acquire(blocking=False):
            return
        why, self.too_coarse = self.too_coarse, ""
        try:
            self.leave_bf16(why)
        except Exception as problem:  # a form that could not be made
            let_through(problem)
            self.open, self.choice, self.parts = [], None, None
            self.note["choice"] = f"stock: {why}"
        finally:
            self.exploring.release()

    def with_parts(self, parts, values):
        result = parts(values)
        if parts.over() and self.parts is parts:
            self.parts = None
        return result

    def gained(self):
        """It answers in a form of ours."""
        return self.choice is not None or self.has_parts()

    def has_parts(self):
        parts = self.parts  # which another thread may end
        return parts is not None and parts.answers()

    def parts_pending(self):
        parts = self.parts
        return parts is not None and parts.pending()

    def mine(self, bf16, values):
        return tuple(warned.by_a_form(self.graph.run, bf16, self.tensors_of(values), self.numbers_of(values)))

    def numbers_of(self, values):
        return [int(value) for value, tensor in zip(values, self.tensors) if not tensor]

    def tensors_of(self, values):
        return [value for value, tensor in zip(values, self.tensors) if tensor] + self.lifted

    def explore(self, values):
        """The user gets stock's result; ours is computed beside it, judged and timed."""
        candidate = self.open[0]
        if self.calls == 0 and self.module_answers:
            return self.packed(candidate, values)
        unsettled = self.graph.unsettled_runs()
        mine_first = self.calls % 2 == 1
        if mine_first:
            mine, mine_ns = self.attempt(candidate, values)
        first = self.calls == 0  # it packs, and is judged but not timed: torch's own kernels may answer it
        try:
            result, stock_ns, beside_ns = self.stock_timed(values, by_torch=first)
        except RuntimeError as problem:
            let_through(problem)
            if not self.lay_out(values):  # a view of what lies otherwise than AOTAutograd took it to
                raise
            return self.stock(*values)
        if not mine_first:
            try:
                mine, mine_ns = self.attempt(candidate, values)
            except warned.Warned:
                if self.alone:
                    raise
                return result  # which has warned
        self.calls += 1
        if mine is not None and self.margins is not None:
            self.tried += 1
            self.small += not self.margins.cover(list(mine))
        if mine is None:
            self.lose(values, f"failed: {self.problem}")
            return result
        decided = 0
        # While kernels inside are still chosen, times say nothing of what they will be.
        self.unsettled += self.graph.unsettled_runs() != unsettled
        if not first:
            if self.graph.unsettled_runs() == unsettled or self.unsettled > UNSETTLED:
                self.trial.add(stock_ns, mine_ns)
            else:
                stock_ns -= beside_ns
                self.trial.add_unsettled(stock_ns, mine_ns)
                # For guesses alone: ways are timed on the wall, where another program's turn looks like a slow one.
                mine_ns -= min(self.choosing_ns, mine_ns // 2)
            self.times[0].append(stock_ns)
            self.times[1].append(mine_ns)
            decided = self.trial.result() if self.timed else int(self.calls > (1 if self.is_long() else CHECKS))
            if decided == 0 and self.goes_on_in_a_race(stock_ns, mine_ns):
                decided = 1
        early = self.checks < CHECKS and (self.checks == 0 or not self.is_costly(self.stock_s))
        if first or decided == 1 or (early and not self.is_long()):
            self.checks += 1
            if not self.is_accurate(values, list(mine), candidate, may_wait=decided != 1, truth=result if first else None):
                if self.lies_otherwise(result, mine) and self.lay_out(values):
                    return result
                away = self.trial.error()
                if self.be_exact(candidate):
                    return result  # the trial begins anew
                self.lose(values, COUNTS if self.counts else f"its results are {away:.1e} away")
                return result
        if decided == 1 and self.is_often_small():
            self.lose(values, TOO_SMALL)
        elif decided == 1:
            self.small = 0
            self.unjudged = self.graph.unsettled_runs() != unsettled or ((self.timed or self.is_long()) and (self.postponed or self.checks < CHECKS))
            self.choice = candidate
            self.open = []  # last: whoever finds nothing open asks what was chosen, in another thread at any time
            self.note_choice(candidate)
            if self.timed:
                self.note["speed"] = round(1 / self.trial.ratio(), 2)
                self.remember(form_name(candidate), "faster")
                if self.stock_s > LONG_S:  # as a share of what it answers
                    self.calls_until_times = 1 + int((1 + 1 / self.trial.ratio()) / SHARE)
                else:
                    self.note_times(candidate, values)
            self.note["error"] = self.trial.error()
        elif decided == -1 and self.rematches < REMATCHES and may_have_won(self.trial):
            self.rematches += 1
            self.trial = torch.classes.ipexrun.Trial()
        elif decided == -1:
            self.lose(values, f"not faster, {1 / self.trial.ratio():.2f} of stock's speed")
        return result

    def goes_on_in_a_race(self, stock_ns, mine_ns):
        """The module's, all of whose calls answer: a form that leads may as well choose the rest of its kernels there. One pair of long calls says so, of
        others the middle of several."""
        if not self.module_races:
            return False
        if self.is_long():
            return mine_ns <= LEADS * stock_ns
        return self.choosing_ns > 0 and self.checks >= CHECKS and self.leads()

    def packed(self, candidate, values):
        """What a call that is a first one leaves behind, and its results, with which no more is done than compare them with the module's."""
        mine, _ = self.attempt(candidate, values)
        self.calls += 1
        if mine is not None:
            return mine
        self.lose(values, f"failed: {self.problem}")
        return tuple(self.stock(*values))

    def lies_otherwise(self, truth, mine):
        """They may be as stock's but for their strides."""
        pairs = [*zip(truth, mine)] if len(truth) == len(mine) else []
        alike = all((one.dtype, one.shape) == (other.dtype, other.shape) for one, other in pairs)
        return alike and any(one.stride() != other.stride() for one, other in pairs)

    def lay_out(self, values):
        """The graph once more, from how each result of stock's lies in these calls."""
        if self.laid_out:
            return False
        self.laid_out = True
        hook = sys.modules.get("_ipexrun_hook")
        try:
            if hook is not None:
                hook.set_enabled(False)
            try:
                found, copies = as_it_lies(self.source, values)
            finally:
                if hook is not None:
                    hook.set_enabled(True)
            if found is None and not copies:
                return False
            self.as_captured = function_of(self.module)
            translation = Translation(self.source, self.static, found).run()
            fused = {bf16: translation.graph.compile(bf16) for bf16 in self.open}
        except Exception as problem:  # a graph that cannot be run node by node
            let_through(problem)
            return False
        self.graph.drop_programs()
        self.graph, self.lifted, self.fused = translation.graph, translation.lifted, fused
        self.begin_trial()
        return True

    def is_often_small(self):
        """So often that torch's own answers, which such calls cost besides, would take what is gained."""
        return self.small * SMALL_SHARE > self.tried or (self.small > 0 and self.small / self.tried + self.trial.ratio() >= 1)

    def stock_timed(self, values, by_torch=False):
        """Stock's result, its nanoseconds, and how many of these it will not take once the op tier has chosen. `by_torch`: by torch's own kernels."""
        now = call_clock()
        beside, started = self.graph.exploration_ns(), now()
        result = tuple(self.truth(values) if by_torch else self.stock(*values))
        nanoseconds = now() - started
        self.stock_s = nanoseconds * 1e-9
        return result, nanoseconds, self.graph.exploration_ns() - beside

    def settled(self):
        return not self.open

    def keep_float32(self):
        """For one, it is one graph of several in a module, or one module of several in another: each may be near enough in bf16, and all together not."""
        if self.rounds:
            return  # stock rounds in each of them, and more
        with self.exploring:
            self.leave_bf16(NOT_THE_WHOLE)

    def leave_bf16(self, why):
        """Inside of `exploring`."""
        if True not in self.fused:
            if why != NOT_THE_WHOLE:
                self.choice, self.parts = None, None
                self.note["choice"] = f"stock: {why}"
            return
        self.note.setdefault("lost", []).append(f"bf16: {why}")
        self.fused = {False: self.fused[False] if False in self.fused else self.graph.compile(False)}
        if not self.choice and True not in self.open:
            return
        self.open, self.choice, self.timed = [False], None, self.races
        self.parts = Parts(self) if self.races and self.source is self.module else None
        self.note["choice"] = "stock"
        self.begin_trial()

    def begin_trial(self):
        self.trial = torch.classes.ipexrun.Trial()
        self.counts = False  # results are whole numbers
        self.rest_s = 0.0  # of stock's time until the next try
        self.calls_until_times = 0  # that the form answers before the time of each operator is measured; 0 and less: it was, or is not to be
        self.postponed = False  # what float64 alone can tell of a result: it is asked when the form is about to win, and once more after that
        self.calls = self.checks = self.rematches = self.unsettled = self.small = self.tried = 0
        self.margins = torch.classes.ipexrun.Margins() if self.bf16_inside and not self.rounds else None
        self.times = [], []  # nanoseconds of stock's form and of ours

    def free(self):
        """Nobody calls it any more on our behalf: who does gets what was captured, and our programs go."""
        if self.parts_pending():
            self.note["inductor"] = "given up with its module"
        self.open, self.choice, self.parts = [], None, None
        self.graph.drop_programs()

    def truth(self, values):
        """Results of torch's own kernels."""
        hook = sys.modules.get("_ipexrun_hook")
        if hook is None:
            return self.stock(*values)
        hook.set_enabled(False)
        try:
            return self.stock(*values)
        finally:
            hook.set_enabled(True)

    def is_accurate(self, values, mine, candidate, trial=None, may_wait=False, truth=None):
        """`may_wait`: the form is not about to win, so that what float64 alone can tell, at some four times the price of a call, may wait for that.
        `truth`: where results of torch's own kernels are there already."""
        bf16 = candidate or self.bf16_inside or self.rounds
        truth, exact = list(self.truth(values) if truth is None else truth), []
        beside = torch.classes.ipexrun.Trial()
        if not bf16 and not beside.check(truth, mine, bf16):
            if may_wait and self.stock_s > LONG_S and 0 < beside.error() <= NEAR:
                self.postponed = True
                return True
            exact = double.results(self.module, values) or []
        right = (self.trial if trial is None else trial).check_to_win(truth, mine, bf16, exact)
        if right and candidate and not self.rounds and any(of_products and beside.counts(one) for of_products, one in zip(self.of_products, truth)):
            self.counts, right = True, False
        if right and self.margins is not None:
            self.margins.note(truth, mine)
        return right

    def be_exact(self, candidate):
        """From now on without kernels that are less exact than others, of which a graph may have too many; False where it has none of them."""
        if candidate or self.bf16_inside or self.rounds or not self.graph.be_exact(candidate):
            return False
        self.trial = torch.classes.ipexrun.Trial()
        return True

    def note_choice(self, candidate):
        """For reports; kernels that race are those that were taken last."""
        kernels = self.graph.kernels(candidate)
        self.note["choice"] = form_name(candidate) + (f" ({kernels})" if kernels else "") + f": {self.fused[candidate]}"

    def note_times(self, candidate, values):
        """Where the time of one call goes, for reports."""
        try:
            rows = self.graph.times(candidate, self.tensors_of(values), self.numbers_of(values))
        except RuntimeError as problem:
            let_through(problem)
            return
        self.note["time_by_op"] = [
            {"op": op, "before": before, "before_us": before_ns / 1e3, "after": after, "after_us": after_ns / 1e3}
            for op, (before, before_ns, after, after_ns) in rows
        ]

    def attempt(self, candidate, values):
        """Our results and the time that they took; None where the program failed, which ends its trial."""
        now = call_clock()
        started, choosing_ns = now(), self.graph.choosing_ns()
        try:
            mine = self.mine(candidate, values)
            took_ns = now() - started
            self.choosing_ns = self.graph.choosing_ns() - choosing_ns
            return mine, took_ns
        except Exception as problem:
            let_through(problem)
            self.problem = first_line(problem)
            return None, 0

    def remember(self, choice, reason):
        stock_ns, mine_ns = (sorted(times)[len(times) // 2] if times else 0 for times in self.times)
        remembered.remember_graph(self.name, choice, stock_ns, stock_ns if choice == "stock" else mine_ns, len(self.times[0]), reason)

    def lose(self, values, why):
        self.note.setdefault("lost", []).append(f"{form_name(self.open[0])}: {why}")
        if len(self.open) == 1 and self.timed and not self.problem:
            self.remember("stock", "slower")
        self.graph.drop(self.open.pop(0), self.tensors_of(values))
        self.begin_trial()
