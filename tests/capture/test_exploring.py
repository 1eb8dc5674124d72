"""What trying a graph costs a program of long calls (python/ipexrun/graphs/compiler.py): how often it is tried, and how often stock's form runs for it.

Risk covered: a model of long calls takes twice as long for a minute; a graph that wins is never judged, or its report stays empty.
"""

import ast
import os
import sys

import programs
import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]


def run(command, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python", **more}
    return programs.run(command, env=environment, timeout=900, imports="torch torch._dynamo" if "IPEXRUN_GRAPH_WAIT" in more else "torch")


def launched():
    return [f"{BUILD}/bin/ipexrun", "cpu", "--no-pin"]


BOUND = """
import time
import torch
from torch import nn
import ipexrun.graphs.compiler

ipexrun.graphs.compiler.BOUNDED, ipexrun.graphs.compiler.FREE_S = True, 0.0
stock_ns, mine_ns = {stock}, {mine}  # what a call of each takes, as far as races know

def stock_timed(graph, values, by_torch=False, real=ipexrun.graphs.compiler.Compiled.stock_timed):
    result, _, beside = real(graph, values, by_torch)
    return result, stock_ns, 0

def attempt(graph, candidate, values, real=ipexrun.graphs.compiler.Compiled.attempt):
    result, _ = real(graph, candidate, values)
    tries.append(calls)
    return result, mine_ns

ipexrun.graphs.compiler.Compiled.stock_timed, ipexrun.graphs.compiler.Compiled.attempt = stock_timed, attempt
tries, calls = [], 0
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
with torch.no_grad():
    for calls in range(60):
        model(torch.randn(8, 64))
states = [one["state"] for one in ipexrun.report()["modules"]]
print(len(tries), tries == list(range(tries[0], tries[0] + len(tries))), states)
"""


LEADS_NO_LONGER = """
import ipexrun.graphs.compiler as compiler

compiler.BOUNDED = True
graph = object.__new__(compiler.Compiled)
graph.timed, graph.open, graph.beside_s, graph.times, graph.calls = True, [False], 8.0, ([], []), 1
graph.stock_s, graph.long_calls = compiler.LONG_S / 2, False
rests = []
for stock, mine in [(8, 7)] * 4 + [(7, 7)] * 5:  # stock's own kernels were still being chosen in the first ones
    graph.calls += 1
    graph.times[0].append(stock)
    graph.times[1].append(mine)
    rests.append(graph.rest_after(1.0, choosing=False))
graph.beside_s, graph.times = 9.5, ([8] * 6, [7] * 6)
print(rests, graph.rest_after(1.0, choosing=False))
graph.beside_s, graph.stock_s = 0.0, 2 * compiler.LONG_S  # of long calls each is followed by a rest
long = [graph.rest_after(1.0, choosing=False)]
graph.times = [8] * 6, [9] * 6
print(long + [graph.rest_after(1.0, choosing=True), graph.rest_after(1.0, choosing=False)])
"""


def test_a_form_that_no_longer_leads_rests_and_one_that_leads_does_after_a_while():
    done = run([sys.executable, "-c", LEADS_NO_LONGER], PYTHONPATH=os.path.join(BUILD, "lib", "ipexrun", "python"))
    assert done.stdout.splitlines() == [f"{[0.0] * 7 + [20.0] * 2} 5.0", "[5.0, 5.0, 20.0]"], done.stderr


@pytest.mark.parametrize("mine, seldom", [(1000, True), (500, False)])
def test_a_form_that_does_not_lead_is_tried_seldom(mine, seldom):
    """A form as fast as stock's needs many pairs until it is known; each call of a model of long calls took twice as long meanwhile."""
    done = run([*launched(), sys.executable, "-c", BOUND.format(stock=1000, mine=mine)], IPEXRUN_GRAPH_WAIT="0")
    assert done.returncode == 0, done.stderr
    tries, in_a_row, states = done.stdout.strip().split(" ", 2)
    if seldom:
        assert 4 <= int(tries) <= 12 and "trying its graphs" in states, done.stdout
    else:
        assert in_a_row == "True" and "trying its graphs" not in states, done.stdout


OTHERS_TRY = """
import threading, time
import torch
from torch import nn
from ipexrun.capture import capture
from ipexrun.graphs import compiler, races

made = []

def begun(graph, *values, real=compiler.Compiled.__init__, **more):
    real(graph, *values, **more)
    made.append(graph)
    graph.exploring.acquire()  # as another thread does while it tries a form

compiler.Compiled.__init__ = begun
compiler.Compiled.attempt = lambda graph, candidate, values, real=compiler.Compiled.attempt: (real(graph, candidate, values)[0], 1)
capture.Target.pair = lambda target, key, half: target.settle("faster")
model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval(), torch.randn(8, 64)
states = lambda: [one["state"] for one in ipexrun.report()["modules"]]
import ipexrun
with torch.no_grad():
    for _ in range(2 * capture.EXPLORING):
        model(x)
    print(states(), made[0].passed_by > capture.EXPLORING)
    made[0].exploring.release()
    for _ in range(200):
        model(x)
    print(states())

def spins():
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        pass

now = races.call_clock()
began = now()
other = threading.Thread(target=spins)
other.start(); other.join()
print(now() - began < 150_000_000)
torch.set_num_threads(2)
print(races.call_clock() is time.perf_counter_ns)
"""


def test_calls_that_pass_by_while_another_thread_tries_a_form_decide_nothing():
    """A module of four threads was left to stock because eight calls in a row met a graph that another thread was trying."""
    done = run([*launched(), sys.executable, "-c", OTHERS_TRY], IPEXRUN_GRAPH_WAIT="0", IPEXRUN_GRAPH_MODE="dynamo")
    assert done.stdout.splitlines() == ["['trying its graphs'] True", "['captured']", "True", "True"], done.stdout + done.stderr


LONG = """
import sys
import torch
from torch import nn
from ipexrun.capture import capture, modes
from ipexrun.graphs import compiler, graph_notes

modes.EXPRESS = False
capture.Target.pair = lambda target, key, half: target.settle("faster")  # a module so small would lose
compiler.BOUNDED, compiler.LONG_S = True, 0.0  # each call is a long one
stock_runs, checks, timed_at = [], [], []

def stock_timed(graph, values, by_torch=False, real=compiler.Compiled.stock_timed):
    stock_runs.append(call)
    return real(graph, values, by_torch)[0], 400_000_000, 0

def truth(graph, values, real=compiler.Compiled.truth):
    if sys._getframe(1).f_code.co_name != "stock_timed":
        stock_runs.append(call)
    return real(graph, values)

def is_accurate(graph, *values, real=compiler.Compiled.is_accurate, **more):
    checks.append(call)
    return real(graph, *values, **more)

def attempt(graph, candidate, values, real=compiler.Compiled.attempt):
    return real(graph, candidate, values)[0], 100_000_000

def note_times(graph, candidate, values, real=compiler.Compiled.note_times):
    timed_at.append(call)
    real(graph, candidate, values)

for name in ("stock_timed", "truth", "is_accurate", "attempt", "note_times"):
    setattr(compiler.Compiled, name, globals()[name])
compiler.Compiled.is_costly = lambda graph, more_s=0.0: True  # as after FREE_S seconds of it
compiler.Compiled.rest_after = lambda *_: 0.0
capture.Target.mean_s = lambda target: {mean}
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
with torch.no_grad():
    for call in range(400):
        model(torch.randn(8, 64))
first = stock_runs[0]
graph = graph_notes.graphs[0]
print([[one - first for one in what] for what in (stock_runs, checks, timed_at)], len(graph.get("time_by_op", [])) > 0, graph["taken"] > 0)
"""


@pytest.mark.parametrize("mean, first, second", [(0.0, [0], 1), (1.0, [], 0)])
def test_a_graph_of_long_calls_costs_few_calls_of_stock(mean, first, second):
    """The first call of a graph is answered and judged by one run of torch's kernels, or by none where the module is known to take long, for then it
    answers; who leads in one pair races on as a part of its module; where its time goes is measured when it has earned that."""
    done = run([*launched(), "--dtype", "float32", sys.executable, "-c", LONG.format(mean=mean)], IPEXRUN_GRAPH_WAIT="0")
    assert done.returncode == 0 and done.stdout, done.stderr
    lists, told, taken = done.stdout.strip().rsplit(" ", 2)
    stock_runs, checks, timed_at = ast.literal_eval(lists)
    assert (told, taken) == ("True", "True")
    assert stock_runs[: 2 + len(first)] == first + [second, second]  # the last one judges the winner
    assert checks[: 1 + len(first)] == first + [second]
    assert len(timed_at) == 1 and timed_at[0] > 100, timed_at


WAITS = """
import torch
from torch import nn
from ipexrun.capture import capture, module_notes, prices

class Twice(nn.Module):  # about 0.1 ms
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(12)])

    def forward(self, x):
        return self.layers(x), 2 * x

prices._scale = 0.1  # of what a capture usually takes
prices.importing.remaining_s = lambda: 0.0
looked_at, real = [], capture.Target.__call__
def call(target, *args, **kwargs):
    looked_at.append(target.phase == target.wait)
    return real(target, *args, **kwargs)
capture.Target.__call__ = call
model, x = Twice().eval(), torch.randn(4, 16)
with torch.no_grad():
    for calls in range(1, 20000):
        model(x)
        if module_notes.report() and module_notes.report()[0].get("capture_s", 0) > 0:
            break
print((calls, sum(looked_at), module_notes.report()[0]["capture_s"]))
"""


def test_few_of_the_calls_before_a_trace_are_looked_at():
    done = run([*launched(), sys.executable, "-c", WAITS])
    assert done.returncode == 0, done.stderr
    calls, looked_at, capture_s = ast.literal_eval(done.stdout)
    assert capture_s > 0 and calls < 19_999, "it is traced in the end"
    assert 64 <= looked_at <= calls / 3, "half of the time goes by before, and 1 of 17 is looked at after 64"
