"""What lies between products in a captured graph, compiled by torch's Inductor (docs/inductor.md): another candidate beside the form that answers.

The parts are found in one call (preload/plugin/graph/find_parts.cpp), compiled by a process of its own (inductor.py), and then judged and raced on the
program's calls like any other form: the form that answers so far goes on answering until they have won.

Thread rule: every function runs under the interpreter lock; any number of threads may call, one of them tries.
"""

import os
import time

import torch

from .. import remembered
from ..problems import let_through
from . import inductor, warned
from .races import CHECKS, REMATCHES, UNSETTLED, call_clock, may_have_won

PATIENCE = 1.0 if os.environ.get("IPEXRUN_SELECT") == "thorough" else 2.0  # compiled once so many times its price was spent in the graph
PRICE_S, PART_S = 6.0, 10.0  # of compiling: torch's import, and each part
LOOK_CALLS = 8  # before the parts are looked for, which takes as long as three calls
LEAST_SHARE = 0.15  # of the call's time between products
MOST = 10  # parts that are compiled
ENOUGH = 0.95  # of the time between products
POLL_S = 0.5
WON = "inductor"
BY_INDUCTOR = ", parts by Inductor"

_tries = 0  # calls in which parts were looked for, chosen or raced, or results judged beside the answer


def tries():
    """Who times calls leaves those out in which it moved."""
    return _tries


def leave_out():
    """This call is longer than those to come."""
    global _tries
    _tries += 1


class Parts:
    """Of a compiler.Compiled whose forms are decided."""

    def __init__(self, owner):
        self.owner = owner
        self.phase = self.wait
        self.spent_s = 0.0
        self.calls = self.checks = self.rematches = self.unsettled = 0
        self.key = f"{owner.name},by=inductor" if owner.name else ""
        known = remembered.graph_choice(self.key) if self.key else ""
        self.certain = known == WON
        self.bf16 = False
        self.names = {}  # name -> text of those that are wanted
        self.price_s = self.look_at = 0.0
        self.trial = torch.classes.ipexrun.Trial()
        self.times = [], []
        reason = inductor.why_not() or ("remembered" if known == "stock" else "")
        if reason:
            self.end(reason)

    def __call__(self, values):
        phase = self.phase  # which another thread may end
        return self.owner.answer(values) if phase is None else phase(values)

    def over(self):
        return self.phase is None

    def pending(self):
        """Something may still come of them."""
        return self.phase not in (None, self.answer)

    def answers(self):
        return self.phase == self.answer

    def end(self, why):
        self.phase = None
        self.owner.note["inductor"] = why
        self.names = {}

    def wants_calls(self):
        """False while nothing is to be done but to wait."""
        if self.phase == self.save_up:
            return self.spent_s >= PATIENCE * self.price_s or inductor.mode() == "now"
        if self.phase == self.compiling:
            return time.perf_counter() >= self.look_at
        return self.pending()

    def timed(self, values):
        started = time.perf_counter()
        result = self.owner.answer(values)
        self.spent_s += time.perf_counter() - started
        self.calls += 1
        return result

    def tried(self, values, attempt):
        """One thread at a time; what fails here ends the parts, not the program."""
        if not self.owner.exploring.acquire(blocking=False):
            return self.owner.answer(values)
        global _tries
        _tries += 1
        try:
            return attempt(values)
        except Exception as problem:
            let_through(problem)
            self.end(f"failed: {(str(problem).splitlines() or [type(problem).__name__])[0]}")
            self.owner.graph.drop_parts()
            return self.owner.answer(values)
        finally:
            self.owner.exploring.release()

    # ---- finding and compiling ---------------------------------------------------------------------------------------------------------

    def wait(self, values):
        if self.certain or inductor.mode() == "now" or self.calls >= LOOK_CALLS:
            return self.tried(values, self.look)
        return self.timed(values)

    def look(self, values):
        owner = self.owner
        self.bf16 = bool(owner.choice)
        texts, part_ns, whole_ns = owner.graph.find_parts(self.bf16, owner.tensors_of(values), owner.numbers_of(values), inductor.mode() == "now")
        result = owner.answer(values)
        share = sum(part_ns) / max(whole_ns, 1)
        owner.note["between_products"] = round(share, 3)
        by_text = {}
        for text, ns in zip(texts, part_ns):
            by_text[text] = by_text.get(text, 0) + ns
        if share < LEAST_SHARE and inductor.mode() != "now":
            self.lose("little of its time lies between products")
            return result
        covered = 0.0
        for text, ns in sorted(by_text.items(), key=lambda one: -one[1]):
            if len(self.names) == MOST or covered >= ENOUGH * sum(part_ns):
                break
            covered += ns
            self.names[inductor.name_of(text)] = text
        if not self.names:
            self.lose("nothing lies between products")
            return result
        missing = self.missing()
        if not missing:
            self.phase = self.load
        elif inductor.why_not_compiled():
            self.end(inductor.why_not_compiled())
            owner.graph.drop_parts()
        else:
            self.certain = False  # what was measured had other parts
            self.price_s = PRICE_S + PART_S * len(missing)
            self.phase = self.save_up
            owner.note["inductor"] = "waiting: not used for long enough yet"
        return result

    def missing(self):
        return {name: text for name, text in self.names.items() if inductor.state(name) == inductor.PENDING}

    def save_up(self, values):
        if self.spent_s < PATIENCE * self.price_s and inductor.mode() != "now":
            return self.timed(values)
        return self.tried(values, self.begin)

    def begin(self, values):
        why, self.process = inductor.start(self.missing())
        if why:
            self.lose(why, remember=False)
        else:
            self.phase = self.compiling
            self.owner.note["inductor"] = "compiling"
        return self.owner.answer(values)

    def compiling(self, values):
        now = time.perf_counter()
        if now >= self.look_at:
            self.look_at = now + POLL_S
            if not self.missing():
                self.phase = self.load
            elif not self.process.is_alive() and self.missing():  # it may have ended with the last one
                self.lose("the process that compiles them ended early", remember=False)
        return self.owner.answer(values)

    # ---- trying --------------------------------------------------------------------------------------------------------------------------

    def load(self, values):
        return self.tried(values, self.open)

    def open(self, values):
        graph = self.owner.graph
        for name, text in self.names.items():
            if inductor.state(name) == inductor.READY:
                graph.load_part(text, inductor.whole_path_of(name))
        chosen = graph.choose_parts(self.owner.tensors_of(values), self.owner.numbers_of(values))
        if chosen:
            self.phase = self.race
            self.owner.note["inductor"] = "racing"
        else:
            refusals = [inductor.refusal(name) for name in self.names if inductor.state(name) == inductor.REFUSED]
            self.lose(f"not compiled: {refusals[0]}" if len(refusals) == len(self.names) else "none of its parts is faster compiled")
        self.chosen = chosen
        self.calls = 0
        return self.owner.answer(values)

    def race(self, values):
        return self.tried(values, self.compare)

    def run(self, values):
        return tuple(warned.by_a_form(self.owner.graph.run_parts, self.owner.tensors_of(values), self.owner.numbers_of(values)))

    def compare(self, values):
        """The form that answers so far does; with the parts the graph runs beside it."""
        owner, mine, unsettled = self.owner, None, self.owner.graph.unsettled_runs()
        mine_first = self.calls % 2 == 1
        if mine_first:
            mine, mine_ns = self.clocked(self.run, values)
        result, before_ns = self.clocked(owner.answer, values)
        if mine is None:
            mine, mine_ns = self.clocked(self.run, values)
        self.calls += 1
        decided = 0
        self.unsettled += owner.graph.unsettled_runs() != unsettled  # kernels inside are still being chosen
        if self.calls > 1 and (owner.graph.unsettled_runs() == unsettled or self.unsettled > UNSETTLED):
            self.trial.add(before_ns, mine_ns)
            self.times[0].append(before_ns)
            self.times[1].append(mine_ns)
            decided = self.trial.result()
        if self.certain:
            decided = 1
        if self.checks < CHECKS or decided == 1:
            self.checks += 1
            if not owner.is_accurate(values, list(mine), self.bf16, self.trial):
                self.lose(f"its results are {self.trial.error():.1e} away")
                return result
        if decided == 1:
            self.win()
        elif decided == -1 and self.rematches < REMATCHES and may_have_won(self.trial):
            self.rematches += 1
            self.trial = torch.classes.ipexrun.Trial()
        elif decided == -1:
            self.lose(f"not faster, {1 / self.trial.ratio():.2f} of the speed without it")
        return result

    @staticmethod
    def clocked(function, values):
        now = call_clock()
        started = now()
        result = function(values)
        return result, now() - started

    def win(self):
        note = self.owner.note
        note["inductor"] = f"{self.chosen} parts" + (" (remembered)" if self.certain else "")
        note["error"] = max(note.get("error", 0), self.trial.error())
        if not self.certain:
            note["inductor_speed"] = round(1 / self.trial.ratio(), 2)
            self.remember(WON, "faster")
        if self.owner.choice is None:
            note["choice"] = "bf16" if self.bf16 else "float32"
        note["choice"] = note["choice"].removesuffix(BY_INDUCTOR) + BY_INDUCTOR
        self.phase = self.answer
        self.names = {}

    def answer(self, values):
        try:
            return self.owner.large_or_stock(values, self.run(values))
        except Exception as problem:
            let_through(problem)
            result = self.owner.answer(values)  # raises what is the user's own fault
            self.owner.note["choice"] = self.owner.note["choice"].removesuffix(BY_INDUCTOR)
            self.end(f"failed: {(str(problem).splitlines() or [type(problem).__name__])[0]}")
            return result

    def lose(self, why, remember=True):
        self.end(why)
        self.owner.graph.drop_parts()
        if remember:
            self.remember("stock", "slower")

    def remember(self, choice, reason):
        if self.key:
            before_ns, mine_ns = (sorted(times)[len(times) // 2] if times else 0 for times in self.times)
            choice_ns = before_ns if choice == "stock" else mine_ns
            remembered.remember_graph(self.key, choice, before_ns, choice_ns, len(self.times[0]), reason)
