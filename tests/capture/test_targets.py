"""Parts of captures with stand-ins for what they ask (python/ipexrun/capture/capture.py, raised.py, quiet.py): no program is run, and no clock asked.

Risk covered: a module that races again and again, or never again; one that waits for ever; a note, a warning or a filter that is another's.
"""

import contextlib
import io
import os
import pickle
import sys
import threading
import warnings
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")


def test_several_graphs_in_float32_race_once_operators_have_decided():
    from ipexrun.capture import capture

    class Plugin:
        counts, waiting = [], []

        def unsettled_runs(self):
            return self.counts.pop(0)

        def drift_waits(self):
            return self.waiting.pop(0)

    def calls_until_race(counts, waiting):
        target = object.__new__(capture.Target)
        target.builder, target.eager, target.calls, target.quiet, target.undecided = Plugin(), "eager", 0, 0, -1
        target.builder.counts, target.builder.waiting = list(counts), list(waiting)
        target.phase = target.let_operators_decide
        made = 0
        while target.phase != target.race:
            assert target.phase(None, (), {}) == "eager"
            made += 1
        assert target.calls == 0
        return made

    assert calls_until_race([5] * 9, [False] * 9) == 3
    assert calls_until_race([5, 6, 7, 7, 7], [False] * 5) == 5, "something was tried"
    assert calls_until_race([7] * 9, [True, True, True, False, False]) == 6, "something waits for a check"
    assert calls_until_race(range(99), [True] * 99) == capture.OPERATORS + 1, "nobody waits for ever"


@pytest.mark.parametrize("us, later, left_out", [(10, True, 0), (29, True, 0), (31, False, 16), (400, False, 16), (600, False, 0)])
def test_few_calls_are_looked_at_while_they_are_short_and_very_short_ones_later(monkeypatch, us, later, left_out):
    """Where Python is half as fast as the reference's: calls of 30 us are not worth a trace."""
    from ipexrun.capture import capture, prices

    now = [0.0]
    monkeypatch.setattr(prices.python_speed, "slowness", lambda: 2.0)
    monkeypatch.setattr(prices.importing, "remaining_s", lambda: 0.5)
    monkeypatch.setattr(prices, "_scale", None)
    target = object.__new__(capture.Target)
    target.clock, target.builder, target.answered = (lambda: now[0]), SimpleNamespace(answered_ns=lambda: 0), 0.0
    target.timed, target.express, target.compiled, target.found, target.note, target.verdict = {}, None, [], [], {"state": ""}, None
    target.wait_s = target.wait_longer_s = 1e9
    target.waits, target.waited_s, target.left_out, target.seen, target.modules_inside, target.phase = 0, 0.0, 0, 0, 3, target.wait
    answers = []
    for _ in range(200):
        target.timed[threading.get_ident()] = capture.Waiting(False, now[0], False, 0)
        now[0] += us * 1e-6
        answers.append(target.took(us * 1000, None, False))
        if target.verdict is not None:
            break
    if later:
        assert answers == [None] * 63 + [prices.LATER * prices.PATIENCE * (0.5 + 2.0 * (prices.BASE_S + 3 * prices.PER_MODULE_S))]
        assert target.phase == target.answered_by_stock and f"{us} us" in target.note["state"]
    else:
        assert answers == [None] * 63 + [left_out or None] * 137 and target.phase == target.wait
        assert target.seen == 136 * left_out and 1e9 - target.wait_s == pytest.approx((200 + target.seen) * us * 1e-6, abs=1e-4)


@pytest.mark.parametrize("inside, more", [(torch.nn.Dropout(), False), (torch.nn.Sequential(torch.nn.ReLU()), True), (torch.nn.LSTM(2, 2), False)])
def test_layers_alone_are_nothing_to_look_for_inside(inside, more):
    from ipexrun.capture import capture

    assert capture.holds_more(torch.nn.Sequential(torch.nn.Linear(2, 2), inside)) == more
    assert not capture.holds_more(None)


def test_who_lost_by_little_races_again_ever_later_and_then_no_more(monkeypatch):
    """Also risk: a program is left with what a neighbour on the machine decided, or pays for races without end."""
    from ipexrun.capture import capture

    class Time:
        now = 0.0

        @classmethod
        def perf_counter(cls):
            return cls.now

    class Trial:
        def __init__(self, ratio):
            self.of = ratio

        def ratio(self):
            return self.of

        def disturbed(self):
            return False

        def add(self, stock, mine):
            pass

        def result(self):
            return 1 if self.of < 1 else -1

    class Target(capture.Target):
        def __init__(self, ratios):
            self.ratios, self.eager, self.answered = list(ratios), "eager", []
            self.note, self.times, self.pairs, self.compiled = {}, {}, {}, []
            self.rematches = self.appeals = self.calls = self.unsettled = self.taken = 0
            self.look = None
            self.rest_s = self.race_s = self.moment = 0.0
            self.remembered = []
            self.phase = self.race
            self.forget_race()

        def forget_race(self):
            self.trial, self.calls, self.unsettled = Trial(self.ratios.pop(0)), 0, 0

        def race(self, module, args, kwargs):
            Time.now += 1.0  # a race of one pair
            self.pair("key", capture.Half(10, True, True))
            self.pair("key", capture.Half(10, False, True))
            return "raced"

        def remember(self, choice, reason):
            self.remembered.append(choice)

        def tell(self, choice, reason):
            self.told = choice

        def give_up(self, why, look_inside=False, remember=True):
            self.phase = lambda *call: "given up"

        def settle(self, reason):
            self.phase = lambda *call: "captured"

        def seconds_of_rest(self):
            """Until something else is answered than by stock; what."""
            began = Time.now
            while True:
                got = self.phase(None, (), {})
                if got != "eager":
                    return round(Time.now - began), got
                Time.now += 1.0

    monkeypatch.setattr(capture, "time", Time)
    unlucky = Target([1.05, 1.02, 0.7, 0.0])
    assert unlucky.seconds_of_rest() == (1, "raced") and unlucky.note["state"] == f"stock: {capture.LOST}"
    assert unlucky.remembered == [capture.remembered.STOCK] and unlucky.told == capture.remembered.STOCK, "the next process begins with it"
    assert unlucky.seconds_of_rest() == (5, "raced")
    assert unlucky.seconds_of_rest() == (17, "raced")
    assert unlucky.seconds_of_rest() == (0, "captured")
    loser = Target([1.05] * 5)
    assert [loser.seconds_of_rest()[1] for _ in range(1 + capture.APPEALS + 1)] == ["raced"] * (1 + capture.APPEALS) + ["given up"]
    far_behind = Target([1.2, 0.0])
    assert [far_behind.seconds_of_rest()[1] for _ in range(2)] == ["raced", "given up"]


def test_calls_that_raise_again_and_again_end_a_capture():
    """Each is computed twice."""
    from ipexrun.graphs import raised

    def graph(module, problem, alone):
        raised.by_graph(problem, alone)
        raise problem

    def interrupted():
        owner.hook.raise_lost = lambda: None
        raise KeyboardInterrupt

    owner = SimpleNamespace(eager="eager", raised=0, seen=10, hook=SimpleNamespace(raise_lost=interrupted))
    with pytest.raises(KeyboardInterrupt):
        raised.call_or_leave(owner, graph, None, (IndexError(), True), {})
    assert owner.raised == 0, "what a guard has kept is not left to a later call"
    assert raised.call_or_leave(owner, graph, None, (IndexError(), True), {}) == "eager" and owner.raised == 1
    for other in (lambda *_: graph(None, IndexError(), False), lambda *_: [][0]):  # what ran before it would be done twice; not of a graph
        with pytest.raises(IndexError):
            raised.call_or_leave(owner, other, None, (), {})
    assert owner.raised == 1 and not raised.too_often(owner.raised, 1)
    assert raised.too_often(17, 100) and not raised.too_often(17, 1000)


def test_silence_is_of_one_thread_and_no_filter_is_lost():
    from ipexrun import quiet

    shown, before = [], list(warnings.filters)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")

        def elsewhere():
            warnings.warn("of another thread", stacklevel=2)
            warnings.filterwarnings("ignore", "set meanwhile")

        with quiet.quiet():
            warnings.warn("ours", stacklevel=1)
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        with quiet.record(DeprecationWarning) as kept:
            for _ in range(2):
                warnings.warn("kept", DeprecationWarning, stacklevel=1)
            warnings.warn("of the program", stacklevel=1)
        warnings.warn("set meanwhile", stacklevel=1)
        warnings.warn("afterwards", stacklevel=1)
        assert quiet.SILENT not in warnings.filters
    assert [str(one.message) for one in shown] == ["of another thread", "of the program", "afterwards"]
    assert [str(one.message) for one in kept] == ["kept", "kept"] and kept.complete
    assert warnings.filters == before
    assert pickle.loads(pickle.dumps(quiet.SILENT))[1].match("anything") is None, "some libraries send filters to their workers"

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for _ in range(2):  # the program was told of this line before
            with contextlib.nullcontext([]) if _ == 0 else quiet.record(DeprecationWarning) as kept, contextlib.redirect_stderr(io.StringIO()):
                warnings.warn("twice", DeprecationWarning, stacklevel=1)
        assert [str(one.message) for one in kept] == ["twice"]
        with quiet.record(DeprecationWarning) as kept:
            warnings.simplefilter("ignore")
            warnings.warn("hidden", DeprecationWarning, stacklevel=1)
        assert not kept and not kept.complete


def test_a_module_that_trains_and_answers_has_a_note_for_each():
    from ipexrun.capture import module_notes
    from ipexrun.training import captured_steps

    module = torch.nn.Linear(1, 1)
    trains, answers = captured_steps.note(module, "training"), module_notes.note(module, "captured")
    assert trains is not answers and trains["state"] == "training" and captured_steps.note(module, "stock") is trains
    assert module_notes.note(module, "stock: x") is answers
    module_notes.modules[:] = [one for one in module_notes.modules if one["of"]() is not module]


def test_parts_of_a_graph_whose_calls_come_no_more_keep_no_call_from_the_module():
    from ipexrun.capture import capture

    class Parts:
        calls, phase, spent_s = 0, "some", 0.0

        def __init__(self, wants):
            self.wants = wants

        def wants_calls(self):
            return self.wants

    class Graph:
        calls = 0

        def __init__(self, wants):
            self.parts = Parts(wants)

        def parts_pending(self):
            return True

        def gained(self):
            return False

    def waiting(graphs, comes):
        target = object.__new__(capture.Target)
        target.compiled, target.lost, target.eager, target.timed, target.note, target.progress = graphs, False, "eager", {}, {}, []
        target.express, target.verdict, target.sizes = None, None, SimpleNamespace(tells=False)
        target.begin_waiting_for_parts()

        def captured(*_):
            if comes is not None:
                comes.parts.calls += 1
            return "captured", None

        target.captured = captured
        return target

    def calls_captured(graphs, comes, calls):
        """Of so many calls, those that are answered by graphs; comes: the one whose parts get on by them."""
        target = waiting(graphs, comes)
        return [target.phase(None, (), {}) for _ in range(calls)].count("captured")

    def resting(graphs):
        target = waiting(graphs, None)
        while target.resting == 0:
            target.phase(None, (), {})
        return target

    saving, wanting = Graph(False), Graph(True)
    assert calls_captured([saving], None, 100) == 0
    assert calls_captured([saving, wanting], wanting, 100) == 100, "they get on"
    assert capture.IDLE < calls_captured([saving, wanting], None, 2000) <= capture.IDLE + 6

    target = resting([saving, wanting])
    saving.parts.wants = True
    assert target.phase(None, (), {}) == "captured", "it saved enough, and waits for nobody's rest"
    saving.parts.wants = False

    target = resting([saving, wanting])
    target.attempts, target.misses, target.missed_s, target.note["capture_s"] = 1, True, 0.0, 1.0
    target.phase(None, (), {})
    target.took(10**10, None, False)
    assert target.phase == target.capture, "time without a graph counts while graphs rest"


@pytest.mark.parametrize(
    "speed, rounds, convolutions, gains",
    [
        (2.0, True, False, True),
        (0.55, True, False, False),  # AVX512-BF16 of Intel's cores
        (2.0, False, False, False),  # float32 asked for, products in parts would take longer
        (8.0, False, False, True),  # AMX: float32 in parts
        (0.0, False, True, True),
        (0.0, False, False, False),
    ],
)
def test_products_gain_where_the_cpu_multiplies_faster_as_a_graph_does(speed, rounds, convolutions, gains):
    from ipexrun.capture import prices

    assert prices.products_gain(speed, rounds, convolutions) is gains


@pytest.mark.parametrize("speed, asked_for, allowed", [(2.0, False, True), (0.55, False, False), (0.55, True, True)])
def test_training_is_rounded_where_that_is_faster_or_asked_for(speed, asked_for, allowed, monkeypatch):
    from ipexrun.training import captured_steps

    builder = SimpleNamespace(may_time=lambda: True, bf16_allowed=lambda dtype: True, bf16_speed=lambda: speed)
    monkeypatch.setattr(captured_steps, "torch", SimpleNamespace(classes=SimpleNamespace(ipexrun=SimpleNamespace(Graph=lambda: builder))))
    monkeypatch.setattr(captured_steps.compiler, "BF16_ASKED_FOR", asked_for)
    assert captured_steps.bf16_allowed() is allowed


def test_which_modules_are_mostly_convolutions():
    from ipexrun.capture import capture

    images = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 8, 3), torch.nn.Linear(8, 2))
    patches = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    assert capture.mostly_convolutions(images)
    assert not capture.mostly_convolutions(patches)
    assert not capture.mostly_convolutions(torch.nn.Sequential(torch.nn.ReLU()))


def test_a_trace_is_worth_its_price_and_that_of_the_calls_that_try_it(monkeypatch):
    """Also risk: calls of a second are tried after three; a call of a thousand operators is traced as if it had ten."""
    from ipexrun.capture import capture, modes, prices

    monkeypatch.setattr(prices.python_speed, "slowness", lambda: 1.0)
    monkeypatch.setattr(prices.importing, "remaining_s", lambda: 0.6)
    monkeypatch.setattr(prices, "_scale", None)
    monkeypatch.setattr(modes, "AT_ONCE", False)

    def calls_until_traced(call_s, operators=10, changes=False, doubtful=False, rounds=False, gains=True, answered=0.0):
        target, now = object.__new__(capture.Target), [0.0]
        target.clock, target.builder = (lambda: now[0]), SimpleNamespace(operators_counted=lambda: operators, answered_ns=lambda: answered * now[0] * 1e9)
        target.timed, target.express, target.verdict, target.sizes = {}, None, None, SimpleNamespace(change=lambda: changes)
        target.waits, target.waited_s, target.left_out, target.seen, target.modules_inside, target.operators, target.counts_more = 0, 0.0, 0, 0, 10, 0, capture.COUNTS
        target.rounds, target.products_gain, target.answered = rounds, gains, 0.0
        target.want_s = prices.PATIENCE * prices.predicted_s(10)
        target.wait_s = target.want_s / 2  # the other half was spent before
        target.wait_longer_s = prices.PATIENCE * prices.predicted_s(10) * (prices.LATER - 0.5)
        while not target.is_worth_a_trace(doubtful):
            target.timed[threading.get_ident()] = capture.Waiting(doubtful, now[0], target.waits == 1, target.builder.answered_ns())
            now[0] += call_s
            target.took(int(call_s * 1e9), None, False)
        return now[0] + prices.PATIENCE * prices.predicted_s(10) / 2

    price = 0.6 + prices.BASE_S + 10 * prices.PER_MODULE_S
    assert calls_until_traced(0.01) == pytest.approx(prices.LIKELY * (price + 0.01 * prices.TRIAL_CALLS), abs=0.02)
    assert calls_until_traced(1.0) == pytest.approx(prices.LIKELY * (price + prices.TRIAL_CALLS), abs=1.01)
    assert calls_until_traced(1.0, rounds=True) == pytest.approx(prices.LIKELY * (price + prices.ROUNDED_CALLS), abs=1.01), "where bf16 is native"
    assert calls_until_traced(1.0, rounds=True, gains=False) == pytest.approx(prices.UNLIKELY * (price + prices.ROUNDED_CALLS), abs=1.01), "and no faster"
    assert calls_until_traced(0.01, gains=False) == pytest.approx(prices.UNLIKELY * (price + 0.01 * prices.TRIAL_CALLS), abs=0.02), "linear layers in float32"
    assert calls_until_traced(0.001, gains=False) == pytest.approx(prices.PATIENCE * (price + 0.001 * prices.TRIAL_CALLS), abs=0.01)
    rounded = price + 0.01 * prices.ROUNDED_CALLS
    assert calls_until_traced(0.001, rounds=True) == pytest.approx(prices.PATIENCE * (price + 0.001 * prices.ROUNDED_CALLS), abs=0.01), "calls that compute little"
    inside, half = 1 / prices.SAVED_INSIDE, 2 / (prices.SAVED_INSIDE + prices.SAVED_BETWEEN)
    assert calls_until_traced(0.01, rounds=True, answered=1.0) == pytest.approx(inside * rounded, rel=0.02), "little lies between what is answered"
    assert calls_until_traced(0.01, rounds=True, answered=2.0) == pytest.approx(inside * rounded, rel=0.02), "times of other calls"
    assert calls_until_traced(0.01, rounds=True, answered=0.5) == pytest.approx(half * rounded, rel=0.02)
    assert calls_until_traced(0.01, rounds=True, gains=False, answered=0.5) == pytest.approx(prices.UNLIKELY * rounded, rel=0.02)
    assert calls_until_traced(0.001, rounds=True, answered=1.0) == pytest.approx(inside * rounded, rel=0.02)
    many = 0.6 + prices.BASE_S + 2000 * prices.PER_OPERATOR_S
    assert calls_until_traced(0.01, operators=2000) == pytest.approx(prices.LIKELY * (many + 0.01 * prices.TRIAL_CALLS), abs=0.02)
    changing = 0.6 + prices.BASE_S + 2000 * prices.PER_OPERATOR_S * prices.CHANGING
    assert calls_until_traced(0.01, 2000, changes=True) == pytest.approx(prices.LIKELY * (changing + 0.01 * prices.TRIAL_CALLS), abs=0.02)
    assert calls_until_traced(0.01, doubtful=True) == pytest.approx(prices.LATER * prices.LIKELY * (price + 0.01 * prices.TRIAL_CALLS), abs=0.03)


def test_who_serves_few_calls_waits_longer_for_a_further_trace():
    """Also risk: a module over trees is traced four times for a graph each that fits no other tree, or one whose first trace knew nothing never again."""
    from ipexrun.capture import capture, fits, prices

    def seconds_until_traced(share, tells, attempts):
        target = object.__new__(capture.Target)
        target.note, target.fits, target.sizes, target.attempts = {"capture_s": 2.0}, fits.Fits(), SimpleNamespace(tells=tells), attempts
        target.fits.calls, target.fits.hits, target.missed_s, target.phase = 1000, int(1000 * share), 0.0, target.explore
        seconds = 0
        while target.phase != target.capture and seconds < 10_000:
            target.missed(1.0)
            seconds += 1
        return seconds

    plain = prices.PATIENCE * 2.0
    assert seconds_until_traced(0.0, tells=False, attempts=1) == pytest.approx(plain, abs=1)
    assert seconds_until_traced(0.5, tells=True, attempts=1) == pytest.approx(2 * plain, abs=1)
    assert seconds_until_traced(0.0, tells=False, attempts=2) == pytest.approx(plain / capture.LEAST_COVERAGE, abs=1)
    assert seconds_until_traced(1.0, tells=True, attempts=capture.ATTEMPTS) == 10_000, "the last one"


def test_notes_of_modules_that_come_and_go_have_an_end(monkeypatch):
    """Also risk: each new one looks through all that were."""
    from ipexrun.capture import module_notes
    from ipexrun.graphs import graph_notes

    monkeypatch.setattr(module_notes, "modules", graph_notes.Notes())
    monkeypatch.setattr(module_notes, "_of", {})
    lasting = torch.nn.Linear(1, 1)
    first = module_notes.note(lasting, "being captured")
    looked = []
    for i in range(3 * graph_notes.MOST):
        gone = torch.nn.ReLU()
        module_notes.note(gone, f"stock: {i}")
        module_notes.note(gone, "training", training=True)
        looked.append(len(module_notes._of))
        del gone
    assert max(looked) == 3 and set(module_notes._of) == {(id(lasting), False)}
    assert len(module_notes.modules) == graph_notes.MOST and module_notes.modules.left_out == 1 + 6 * graph_notes.MOST - graph_notes.MOST
    assert module_notes.modules[0] is first and module_notes.report()[-2]["state"] == f"stock: {i}"
    assert module_notes.note(lasting, "captured") is first and module_notes.report()[0] == {"module": "Linear", "state": "captured"}
    for _ in range(graph_notes.MOST):
        module_notes.note(torch.nn.ReLU(), "x")
    assert module_notes.note(lasting, "stock") is first, "whatever became of its line"


def test_what_is_told_at_the_end_is_told_once(monkeypatch):
    from ipexrun.graphs import graph_notes

    registered = []
    monkeypatch.setattr(graph_notes.atexit, "register", registered.append)
    monkeypatch.setattr(graph_notes, "_told_at_end", set())
    monkeypatch.setattr(graph_notes, "graphs", graph_notes.Notes())
    for _ in range(3):
        graph_notes.new_note("here", nodes=1)
        graph_notes.graphs.clear()
    assert registered == [graph_notes.tell_graphs]


def test_a_call_that_raised_is_not_taken_for_the_next_one():
    """Also risk: its results live as long as the module."""
    from ipexrun.capture import capture, tracing
    from ipexrun.training import captured_steps

    here, other, told = threading.get_ident(), object(), []
    target = object.__new__(capture.Target)
    target.express, target.verdict, target.give_up = SimpleNamespace(timed={here: 1, other: 2}), None, told.append
    target.timed = {here: capture.Beside(torch.ones(2)), other: 3}
    target.broke_off()
    assert target.took(10, torch.zeros(2), False) is None and not told
    assert target.timed == {other: 3} and target.express.timed == {other: 2}
    traced = object.__new__(tracing.Target)
    traced.timed = {here: 1}
    traced.broke_off()
    assert not traced.timed
    for thread in (here, other):
        steps = object.__new__(captured_steps.Target)
        steps.thread = thread
        steps.broke_off()
        assert steps.thread is (None if thread is here else other)
