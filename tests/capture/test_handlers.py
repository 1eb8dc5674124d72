"""Which code catches what operators may raise (python/ipexrun/capture/handlers.py), and that steps of such code are the program's.

Risk covered: a captured step's exception goes past an `except` of the program's.
"""

import contextlib
import os
import subprocess
import sys

import pytest
import torch

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
sys.path.insert(0, f"{BUILD}/lib/ipexrun/python")
from ipexrun.capture import handlers  # noqa: E402


def bare():
    try:
        work()
    except:  # noqa: E722
        pass


def of_python():
    try:
        work()
    except TypeError:
        pass


def several_of_python():
    try:
        work()
    except (TypeError, KeyError) as problem:
        print(problem)


def one_of_several():
    try:
        work()
    except (TypeError, RuntimeError):
        pass


def of_torch():
    try:
        work()
    except torch.linalg.LinAlgError:
        pass


def two_clauses():
    try:
        work()
    except TypeError:
        pass
    except IndexError:
        pass


def passed_on():
    try:
        work()
    except Exception as problem:
        raise ValueError from problem


def suppressed():
    with contextlib.suppress(RuntimeError):
        work()


def at_its_end():
    try:
        work()
    finally:
        print()


def contexts():
    with open(os.devnull) as file:
        work()
    return [line for line in file]


def work():
    return [0][0]


@pytest.mark.parametrize("function, found", [(bare, True), (of_python, False), (several_of_python, False), (one_of_several, True), (of_torch, True),
                                             (two_clauses, True), (passed_on, True), (suppressed, True), (at_its_end, False), (contexts, False), (work, False)])
def test_clauses(function, found):
    assert handlers.catches(function.__code__) == found


PROGRAM = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU())
        self.head, self.calls = nn.Linear(16, 16), 0
    def forward(self, x, rows):
        self.calls += 1
        x = self.head(self.layers(x).mean((2, 3)))
        try:
            return x[rows]
        except IndexError:
            return x * 2

torch.manual_seed(0)
model = Net().train()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
caught = 0
for i in range(40):
    y = model(torch.randn(8, 3, 16, 16), torch.tensor([1, 99 if i % 4 == 0 else 2]))
    caught += len(y) == 8
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(caught, model.calls, int(model.layers[1].num_batches_tracked))
if "ipexrun" in sys.modules:
    print([one["state"] for one in sys.modules["ipexrun"].report()["modules"] if one["module"] == "Net"], file=sys.stderr)
"""


IN_TWO = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
    def forward(self, x, rows):
        x = torch.relu(self.first(x))
        if x.sum() < 1e9:  # a graph ends here
            x = x + 1
        try:
            return self.second(x)[rows]
        except IndexError:
            return x * 2

model, caught = Net().eval(), 0
with torch.no_grad():
    for i in range(60):
        caught += len(model(torch.randn(8, 64), torch.tensor([3, 99 if i % 4 == 3 else 7]))) == 8
print(caught)
if "ipexrun" in sys.modules:
    print([one["state"] for one in sys.modules["ipexrun"].report()["modules"] if one["module"] == "Net"], file=sys.stderr)
"""


def run(program):
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0"}
    return subprocess.run([f"{BUILD}/bin/ipexrun", sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=environment)


def test_a_forward_of_two_graphs_that_catches_is_the_programs():
    done = run(IN_TWO)
    assert done.stdout == "15\n", done.stderr
    assert "forward catches what operators may raise" in done.stderr, done.stderr


def test_a_step_that_catches_is_the_programs():
    done = run(PROGRAM)
    assert done.stdout == "10 40 40\n", done.stderr
    assert "forward catches what operators may raise" in done.stderr, done.stderr
