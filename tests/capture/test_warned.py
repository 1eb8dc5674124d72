"""What operators warn of in captured calls (python/ipexrun/graphs/warned.py, preload/plugin/warned.h): as in stock's.

Risk covered: lines on stderr that no filter of the program's sees, warnings that are lost, shown from a line of ours or not raised under an "error" filter.
"""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, warnings
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 128), nn.Linear(128, 64)
    def forward(self, x):
        return x + self.b(nn.functional.gelu(self.a(x)))

class Once(nn.Module):  # its operator warns once in a process
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.register_buffer("rows", torch.arange(16) % 4)
    def forward(self, x):
        return torch.zeros(4, 64).index_reduce(0, self.rows, self.block(x), "amax")

class Always(nn.Module):  # its operator warns whenever a batch is of one
    def __init__(self):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        y = self.block(x)
        return y.mean(0), y.std(0)

def states(name):
    if "ipexrun" in sys.modules:
        print([one["state"] for one in sys.modules["ipexrun"].report().get("modules", ()) if one["module"] == name], file=sys.stderr)

torch.manual_seed(0)
with torch.no_grad():
    model, seen = Once().eval(), []
    for _ in range(120):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model(torch.randn(16, 64))
        seen += said
    print(len(seen), [str(one.message)[:14] for one in seen])
    states("Once")
    model = Always().eval()
    compiled = torch.compile(model, backend=sys.argv[1]) if len(sys.argv) > 1 else model
    for _ in range(60):
        compiled(torch.randn(8, 64))
    for what in "always", "error", "ignore":
        raised, seen = 0, []
        for i in range(200):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter(what)
                try:
                    compiled(torch.randn(1 if i % 40 == 7 else 8, 64))
                except UserWarning:
                    raised += 1
            seen += said
        print(what, raised, [(str(one.message)[:6], one.category.__name__) for one in seen])
    states("Always")
"""


def run(*command):
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def stock():
    return run(sys.executable, "-c", PROGRAM).stdout


@pytest.mark.parametrize("mode", ["auto", "dynamo", "trace"])
def test_programs_are_warned_as_by_stock(stock, mode):
    done = run(f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun", "--graph-mode", mode, sys.executable, "-c", PROGRAM)
    assert done.stdout == stock and "always 0 [('std():', 'UserWarning')" in stock
    assert "[W" not in done.stderr and "Warning" not in done.stderr, done.stderr


def test_an_edited_program_is_warned_as_often(stock):
    """Once for each call: from where is torch.compile's."""
    done = run(f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun", "--graph-mode", "off", sys.executable, "-c", PROGRAM, "ipex")
    assert done.stdout == stock
    assert "[W" not in done.stderr and "Warning" not in done.stderr, done.stderr


TRACED = """
import warnings
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.LayerNorm(256)) for _ in range(3)]).eval()
with torch.no_grad():
    for _ in range(60):
        model(torch.randn(32, 256))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.jit.trace(model, torch.randn(32, 256))
print([str(one.message)[:60] for one in said if one.category is torch.jit.TracerWarning])
"""


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_a_trace_of_the_programs_is_held_beside_stock(mode):
    """A captured module, or operators, that answer in bf16 are further from it than torch allows."""
    done = run(f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun", "--graph-mode", mode, sys.executable, "-c", TRACED)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_what_warns_of_something_else_each_time_ends():
    """A graph of torch's is run again to tell what is said once only: not for ever."""
    sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")
    import warnings

    from ipexrun.graphs import warned

    runs, once = [], []

    def says_another():
        runs.append(1)
        warnings.warn(f"run {len(runs)}", stacklevel=1)

    def says_one_thing_once():
        if not once:
            once.append(1)
            warnings.warn("once", stacklevel=1)
        return 3

    def says_both():
        says_one_thing_once()
        warnings.warn("always", stacklevel=1)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(warned.Warned):
            warned.by_torch(says_another)
        said.clear()
        assert warned.by_torch(says_one_thing_once) == 3 and [str(one.message) for one in said] == ["once"]
        once.clear()
        said.clear()
        with pytest.raises(warned.Warned, match="always"):
            warned.by_torch(says_both)
        assert [str(one.message) for one in said] == ["once"]
    assert len(runs) == warned.ROUNDS
