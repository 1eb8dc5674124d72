"""Captured modules whose hooks, methods or surroundings change for good (capture.py, begin_anew()): what was traced answers no call any more, so they are
captured once more, with what there is then.

Risk covered: a hook that is not run, or run twice; a module that is captured again and again for a program that changes it all the time; one that is
never captured again.
"""

import json
import os
import sys

import programs
import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
sys.path.insert(0, f"{BUILD}/lib/ipexrun/python")

# Each captured form is taken as soon as it is equal.
SETTLED = ("import ipexrun.capture.capture as c\n"
           "c.Target.race = lambda self, module, args, kwargs: (self.settle('faster'), self.answer(module, args, kwargs))[1]\n"
           "c.compiler.Compiled.lose = lambda self, values, why: None if 'not faster' in why else 1 / 0\n"
           "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')")
PROGRAM = """
import json, os, sys, torch
from torch import nn
SEEN = []
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
    def forward(self, x):
        return self.second(torch.relu(self.first(x)))
torch.manual_seed(0)
model = Net().eval()
def keep(module, args, output):
    SEEN.append(round(float(output.detach()[0, 0]), 3))
def doubled(module, args, output):
    return output * 2
out, handle = [], None
with torch.no_grad():
    for i in range(90):
        MIDDLE
        out.append(model(torch.full((8, 64), 0.01 * i)).sum().item())
import ipexrun
report = ipexrun.report()
print(json.dumps({"out": out, "seen": SEEN, "notes": report.get("modules", []), "graphs": report.get("graphs", [])}))
"""


def found(command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python"}
    done = programs.run(command, env=environment, imports="torch torch._dynamo")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def both(tmp_path, middle):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.replace("MIDDLE", middle))
    stock = found([sys.executable, str(path)])
    mine = found([f"{BUILD}/bin/ipexrun", "--dtype", "float32", "--graph-mode", "dynamo", sys.executable, "-W", "ignore", "-c", SETTLED, str(path)])
    assert mine["out"] == pytest.approx(stock["out"], rel=1e-5) and mine["seen"] == pytest.approx(stock["seen"], abs=2e-3)
    (note,) = mine["notes"]
    return note, mine["graphs"]


@pytest.mark.parametrize("middle", [
    "if i == 40: model.second.register_forward_hook(doubled)",
    "if i == 40: type(model).forward = lambda self, x: self.first(torch.relu(self.second(x)))",
    "if i == 40: model.first.register_forward_pre_hook(lambda module, args: (args[0] + 1,))",
])
def test_what_stays_changed_is_captured_once_more(middle, tmp_path):
    note, graphs = both(tmp_path, middle)
    assert note["state"] == "captured" and "no_trace" not in note and "breaks" not in note, note
    assert sum(one["calls"] > 10 for one in graphs) == 2, "one before the change, one since"


def test_hooks_with_effects_are_run_once_a_call(tmp_path):
    both(tmp_path, "if i == 40: model.second.register_forward_hook(keep)")


def test_a_hook_for_a_call_or_two_changes_nothing(tmp_path):
    note, graphs = both(tmp_path, "if i % 20 == 10: handle = model.second.register_forward_hook(doubled)\n        if i % 20 == 12: handle.remove()")
    assert note["state"] == "captured" and len(graphs) == 1 and graphs[0]["calls"] > 60, (note, graphs)


def test_what_changes_all_the_time_is_left_to_stock(tmp_path):
    middle = "if i % 10 == 9:\n            if handle: handle.remove()\n            handle = model.second.register_forward_hook(doubled)"
    note, _ = both(tmp_path, middle)
    assert "change again and again" in note["state"], note


def test_what_changes_in_every_call_is_captured_once_in_vain(tmp_path):
    middle = "if i >= 40:\n            if handle: handle.remove()\n            handle = model.second.register_forward_hook(doubled)"
    note, graphs = both(tmp_path, middle)
    assert "change again and again" in note["state"] and len(graphs) <= 2, (note, graphs)


def test_waiting_goes_by_time_in_calls_that_find_it_changed():
    from ipexrun.capture import capture, modes, prices

    def calls_until_it_begins_anew(seconds, capture_s, interrupted=None):
        class Hooks:
            same = False

            def are_these(self, module):
                return self.same

            def holds(self):  # what TorchDynamo does not guard
                return True

        class Target(capture.Target):
            now, begun = 0.0, False

            def clock(self):
                return self.now

            def begin_anew(self):
                self.begun = True

        target = object.__new__(Target)
        target.timed, target.express, target.verdict, target.eager, target.seen, target.changed, target.changed_s = {}, None, None, "eager", 0, 0, 0.0
        target.module_hooks = target.unguarded = Hooks()
        target.note, target.phase = {"capture_s": capture_s}, lambda *_: "answered"
        calls = 0
        while not target.begun and calls < 1000:
            calls += 1
            target.module_hooks.same = calls == interrupted
            if target(None) == "eager":
                target.now += seconds
                target.took(int(seconds * 1e9), None, False)
        return calls

    assert not modes.AT_ONCE and prices.PATIENCE == 3.0
    assert calls_until_it_begins_anew(0.5, 3.0) == 19, "three times the price of a capture"
    assert calls_until_it_begins_anew(0.25, 0.1) == 13, "at least a second's"
    assert calls_until_it_begins_anew(5.0, 1.0) == capture.CHANGED
    assert calls_until_it_begins_anew(0.5, 3.0, interrupted=10) == 29, "in a row"
