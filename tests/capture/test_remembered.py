"""Decisions about captured modules that outlive a process, and what a run leaves for `ipexrun explain-last`.

Risk covered: a second run that explores what the first one found, a decision about one module that is taken for another's, a pinned
decision that timing overrules, a switch that does not switch, and a report that says nothing.
"""

import json
import os
import re
import subprocess
import sys

import programs
import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
IPEXRUN = f"{BUILD}/bin/ipexrun"

# Small and with so many rows that a captured form is much faster than stock: no elementwise pass is left.
NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)
    def forward(self, x):
        for _ in range(3):
            x = torch.nn.functional.gelu(self.second(torch.relu(self.first(x)) * 0.5 + x))
        return x
"""
PROGRAM = """
import sys, json, torch
torch.manual_seed(0)
""" + NET + """model, x = Net().eval(), torch.randn(512, 256)
with torch.no_grad():
    want = model(x)
    for i in range(int(sys.argv[1])):
        got = model(x)
        assert torch.allclose(got, want, rtol=1e-2, atol=1e-2), (got - want).abs().max()
        if i == 30 and "ipexrun" in sys.modules:
            early = sys.modules["ipexrun"].report().get("modules", [])
import ipexrun
print(json.dumps({"dynamo": "torch._dynamo.convert_frame" in sys.modules, "early": early if "early" in dir() else [], "end": ipexrun.report().get("modules", [])}))
"""


def run(folder, *options, calls=400, program=PROGRAM, imports="torch torch._dynamo", **more):
    # A module that lost would wait for Inductor's parts to the end, and nothing be decided.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": str(folder), "PYTHONPATH": f"{BUILD}/lib/ipexrun/python", "IPEXRUN_INDUCTOR": "off", **more}
    command = [IPEXRUN, *options, sys.executable, "-c", program, str(calls)]
    if "--save-config" in options or "--config" in options:  # files of the launcher's
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    else:
        done = programs.run(command, env=environment, imports=imports, late=more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run without a past; its cache, what it found, and what it said."""
    folder = tmp_path_factory.mktemp("cache")
    folder.chmod(0o700)
    found, said = run(folder, "--save-config", folder / "found.yaml", IPEXRUN_GRAPH_WAIT="0")
    return folder, found["end"], said


def lines_about(folder, operator):
    (file,) = folder.glob("decisions-*")
    return [line.split("\t") for line in file.read_text().splitlines() if line.startswith(operator)]


def test_a_decision_is_written_for_the_call_and_for_the_module(first):
    folder, modules, _ = first
    assert modules[0]["state"].startswith(("captured", "stock: "))
    choice = "captured" if modules[0]["state"] == "captured" else "stock"
    lines = lines_about(folder, "module:Net")
    name = re.search(r"key=\w+", lines[0][0]).group()
    # A trace beside the graph has a name of its own; how many calls a capture pays for is a number, written where that took long.
    lines = [line for line in lines if name in line[0] and not line[1].isdecimal()]
    last = {line[0]: line[1] for line in lines}  # stock's, before a later race was won
    assert set(last.values()) == {choice} and len(last) == 2
    assert any("call=" in one for one in last) and any("call=" not in one for one in last)


def with_choice(folder, to, choice):
    """The same cache, with another decision about the module, as a machine would leave it on which the other form won."""
    to.chmod(0o700)
    (file,) = folder.glob("decisions-*")
    text = re.sub(r"^(module:[^\t]*)\t\w+", rf"\1\t{choice}", file.read_text(), flags=re.M)
    text = re.sub(r"^(graph\|[^\t]*)\t\w+", r"\1\tfloat32", text, flags=re.M) if choice == "captured" else text  # known on every CPU
    (to / file.name).write_text(text)
    (to / file.name).chmod(0o600)
    return to


def test_what_won_before_is_captured_in_the_first_calls(first, tmp_path):
    folder = with_choice(first[0], tmp_path, "captured")
    found, _ = run(folder, "--dtype", "auto", calls=120)
    (module,) = found["end"]
    assert (module["state"], module["reason"]) == ("captured", "remembered")
    assert "speed" not in module, "nothing was raced"


def test_what_lost_before_is_not_traced(first, tmp_path):
    folder = with_choice(first[0], tmp_path, "stock")
    found, _ = run(folder, calls=400, imports="torch")
    assert [module["state"] for module in found["end"]] == ["stock: remembered"]
    assert "capture_s" not in found["end"][0] and not found["dynamo"], "TorchDynamo takes a second to import"


WAITING = """
import sys, json, time, torch, ipexrun
from ipexrun import remembered
from ipexrun.capture import call_kinds, capture, prices
spent_s = 0.0
capture.Target.clock = staticmethod(lambda: spent_s + 1e-6 * time.thread_time())  # traces take next to nothing, but not nothing
class Net(torch.nn.Sequential):
    def forward(self, x, cache=None):
        return super().forward(x)
class Cache:
    def __init__(self, changes):
        self.changes = changes
def net():
    return Net(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
x = torch.randn(2, 8)
prices._scale = 1.0
prices.importing.remaining_s = lambda: 0.0
prices.TRIAL_CALLS, prices.ROUNDED_CALLS, prices.LIKELY = 0, 0, prices.PATIENCE  # what calls of seconds add to the price stands in test_targets.py
want_s = prices.PATIENCE * (prices.BASE_S + 3 * prices.PER_MODULE_S)

def traced_after(module, *args, explored=False, **kwargs):
    "Seconds in such calls, a tenth of want_s each, until one is traced."
    global spent_s
    prices._scale = 1.0
    target = capture.attempt(module, want_s / 2)
    assert isinstance(target, capture.Target)
    for i in range(1, 100):
        for one in kwargs.values():
            if isinstance(one, Cache) and one.changes:
                one.name = str(i)
        with torch.no_grad():
            target(module, *args, **kwargs)
            if target.attempts:
                return round((i - 1) / 10 + 0.5, 1)
        spent_s += want_s / 10
        target.took(1, None, explored)

first = net()
assert capture.attempt(first, 0.4 * want_s) == want_s / 2
out = {"plain": traced_after(first, x), "state": traced_after(net(), x, cache=Cache(True)), "steady": traced_after(net(), x, cache=Cache(False)), "inside": traced_after(net(), x, cache={"a": [x, 1, None, "b"]})}
out["exploring"] = traced_after(net(), x, explored=True)
class Other(Net):
    pass
other = Other(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
known = remembered.OfModule(other)
known.remember(call_kinds.signature_of_call((x,), {}), remembered.UNDECIDED, reason="a test")
out |= {"undecided": traced_after(other, x), "its other calls": traced_after(other, torch.randn(70, 8))}
print(json.dumps(out))
"""


def test_what_is_traced_later(tmp_path):
    """In vain, most likely: calls that carry objects in which more than sizes changes, and modules of which an earlier process did not know when it ended. Not what was called while the
    op tier explored: a model whose calls take a second explores in fifty of them."""
    tmp_path.chmod(0o700)
    found, _ = run(tmp_path, program=WAITING)
    assert found == {"plain": 1.0, "state": 3.0, "steady": 1.4, "inside": 1.0, "exploring": 1.0, "undecided": 3.0, "its other calls": 3.0}


def test_a_process_that_ends_before_it_knows_says_so(tmp_path):
    tmp_path.chmod(0o700)
    run(tmp_path, calls=2, IPEXRUN_GRAPH_WAIT="0")
    assert {line[1] for line in lines_about(tmp_path, "module:Net")} == {"undecided"}
    found, _ = run(tmp_path, calls=60)
    assert "capture_s" not in found["end"][0]


CHANGING = PROGRAM.replace("        got = model(x)", "        x = torch.randn(512, 256); sys.modules['ipexrun'].set_enabled(False); want = model.forward(x); sys.modules['ipexrun'].set_enabled(True)\n        got = model(x)")


def test_a_trace_that_won_before_is_made_at_the_first_call_and_races_nothing(tmp_path):
    tmp_path.chmod(0o700)
    found, _ = run(tmp_path, "--graph-mode", "trace", calls=200, program=CHANGING)
    (module,) = found["end"]
    if module["state"] == "captured":  # what the clock said; else there is nothing to remember but the name
        assert module["reason"] == "faster"
    (file,) = tmp_path.glob("decisions-*")
    text = file.read_text()
    assert text.count("module:Net|") == 2
    for choice, state in (("captured", ("captured", "remembered")), ("stock", ("stock", None))):
        file.write_text(re.sub(r"^(module:[^\t]*)\t\w+", rf"\1\t{choice}", text, flags=re.M))
        found, _ = run(tmp_path, "--graph-mode", "trace", calls=60, program=CHANGING)
        (module,) = found["end"] or [{"state": "stock"}]
        if choice == "captured":
            assert (module["state"], module["reason"]) == state and "speed" not in module
        else:
            assert "traces" not in module, module


def test_another_module_of_the_name_is_none_of_it(first, tmp_path):
    folder = with_choice(first[0], tmp_path, "captured")
    found, _ = run(folder, calls=120, program=PROGRAM.replace("torch.relu", "torch.tanh"))
    assert not any("remembered" in module["state"] or module.get("reason") == "remembered" for module in found["end"]), found


def test_a_config_pins_what_was_found(first, tmp_path):
    folder, modules, _ = first
    text = (folder / "found.yaml").read_text()
    assert "module:Net|-|-|key=" in text
    empty = tmp_path / "cache"
    empty.mkdir(mode=0o700)
    for choice, state in (("captured", "captured"), ("stock", "stock: pinned")):
        config = pinned_to(choice, text, tmp_path)
        found, _ = run(empty, "--config", config, "--save-config", tmp_path / "again.yaml", calls=200)
        assert [module["state"] for module in found["end"]] == [state]
        assert all(module.get("reason", "pinned") == "pinned" for module in found["end"])
        assert re.search(rf'choice: "{choice}".*site: "module:Net\|', (tmp_path / "again.yaml").read_text()), "what was pinned stays so"


def pinned_to(choice, text, folder):
    config = folder / f"{choice}.yaml"
    changed = re.sub(r'choice: "\w+"(?=[^}]*site: "module:)', f'choice: "{choice}"', text)
    assert choice in changed
    config.write_text(changed)
    return config


def test_a_choice_that_there_is_not_is_told(first, tmp_path):
    text = (first[0] / "found.yaml").read_text()
    config = pinned_to("captrued", text, tmp_path)
    found, said = run(tmp_path / "none", "--config", config, calls=200, IPEXRUN_GRAPH_WAIT="0")
    assert said.count("the config's choice 'captrued' for module:Net is not used: a module's is one of captured, stock, inside") == 1, said
    assert found["end"][0]["state"] == "captured" or "capture_s" in found["end"][0], "as if nothing were pinned"


def test_select_off_captures_nothing(tmp_path):
    tmp_path.chmod(0o700)
    found, _ = run(tmp_path, "--select", "off", calls=50, IPEXRUN_GRAPH_WAIT="0")
    assert found["end"] == []


def test_explain_last_shows_the_module(first):
    folder, modules, said = first
    environment = {**os.environ, "IPEXRUN_CACHE": str(folder)}
    done = subprocess.run([IPEXRUN, "explain-last"], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "last run:" in done.stdout and "exit code 0" in done.stdout and "\nmodules\n" in done.stdout
    row = re.search(r"^ *Net .*", done.stdout, re.M).group()
    assert ("captured" if modules[0]["state"] == "captured" else "stock") in row
    whole = json.loads(subprocess.run([IPEXRUN, "explain-last", "--json"], capture_output=True, text=True, env=environment).stdout)
    assert whole["exit_code"] == 0 and whole["report"]["instances"][0]["modules"][0]["module"] == "Net"
    assert (folder / "last-run.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [None, "", "{", '{"schema": 99}', "[1]", '{"schema": 1, "command": 3}'])
def test_explain_last_without_a_run_is_one_line(tmp_path, content):
    tmp_path.chmod(0o700)
    if content is not None:
        (tmp_path / "last-run.json").write_text(content)
    done = subprocess.run([IPEXRUN, "explain-last"], capture_output=True, text=True, env={**os.environ, "IPEXRUN_CACHE": str(tmp_path)}, timeout=60)
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("ipexrun: ")


@pytest.mark.parametrize("content", ['{"schema": "x", "command": []}', '{"schema": 1, "command": ["a b", 3], "ended_at": "x", "exit_code": [], "plan": 7}',
                                     '{"schema": 1, "command": [], "ended_at": 9000000000000000000}'])
def test_explain_last_survives_a_damaged_run(tmp_path, content):
    tmp_path.chmod(0o700)
    (tmp_path / "last-run.json").write_text(content)
    done = subprocess.run([IPEXRUN, "explain-last"], capture_output=True, text=True, env={**os.environ, "IPEXRUN_CACHE": str(tmp_path)}, timeout=60)
    assert done.returncode in (0, 1) and "terminate" not in done.stderr, done
    assert "a b" not in content or "last run: 'a b' ?\n" in done.stdout


def test_a_program_without_torch_leaves_the_last_run(first):
    folder = first[0]
    before = (folder / "last-run.json").read_text()
    subprocess.run([IPEXRUN, "true"], env={**os.environ, "IPEXRUN_CACHE": str(folder)}, check=True, timeout=60)
    assert (folder / "last-run.json").read_text() == before


def test_a_check_of_drift_that_is_open_hides_no_captured_form(tmp_path):
    """The dispatch key of such checks stayed behind on the thread: TorchDynamo's guards met it, and captured calls ran uncaptured for good."""
    for attempt in range(3):
        found, _ = run("off", calls=120, IPEXRUN_GRAPH_WAIT="0")
        (module,) = found["end"]
        assert module["state"] != "stock: its calls differ too much to be compared", attempt
    key = "print(json.dumps({'key': torch._C._dispatch_tls_is_dispatch_key_included('TESTING_ONLY_GenericMode')}))"
    found, _ = run("off", calls=120, program=PROGRAM[: PROGRAM.index("import ipexrun\n")] + key, IPEXRUN_GRAPH_WAIT="0")
    assert found == {"key": False}


HELD = """
import sys, json, os, time, torch
import ipexrun
from ipexrun.capture import held, modes, tracing
from ipexrun.graphs import compiler
held.AFTER = 40
if os.environ.get("SLOW"):
    for kind, name in ((tracing.Form, "answered"), (compiler.Compiled, "__call__")):
        def slow(*arguments, inner=getattr(kind, name)):
            until = time.thread_time() + 0.02  # which races count: a thread that sleeps takes no time of its own
            while time.thread_time() < until:
                pass
            return inner(*arguments)
        setattr(kind, name, slow)
if os.environ.get("WINS"):
    # Whether it wins depends on the machine: here any form does.
    def pair(self, nanoseconds, stock, settled=True):
        if self.phase == self.race:
            self.target.kept.remember(self.signature, "captured")
            self.settle("faster")
    tracing.Form.pair = pair
""" + NET + """torch.manual_seed(0)
model, x = Net().eval(), torch.randn(512, 256)
with torch.no_grad():
    for i in range(int(sys.argv[1])):
        y = x + 0.001 * i
        got = model(y)
        if i % 16 == 0:
            ipexrun.set_enabled(False)
            assert torch.allclose(got, model.forward(y), rtol=1e-2, atol=1e-2), i
            ipexrun.set_enabled(True)
print(json.dumps({"end": ipexrun.report().get("modules", [])}))
"""


@pytest.mark.parametrize("mode", ["auto", "trace"])
def test_what_won_before_is_held_against_stock_now_and_then(mode, first, tmp_path):
    """A loser that was once written down as the winner answered in every process."""
    tmp_path.chmod(0o700)
    options = ("--dtype", "auto", "--graph-mode", mode)

    def again(calls, **more):
        found, _ = run(tmp_path, *options, calls=calls, program=HELD, IPEXRUN_GRAPH_WAIT="0", **more)
        (module,) = found["end"]
        lines = [line for line in lines_about(tmp_path, "module:Net") if not line[1].isdecimal()]
        counts = [int(line[1]) for line in lines_about(tmp_path, "module:Net") if ",unheld|" in line[0]]
        return module, lines[-1][1], counts

    if mode == "auto":
        with_choice(first[0], tmp_path, "captured")
    else:
        again(60, WINS="1")
    module, _, counts = again(36)
    assert (module["state"], module["reason"]) == ("captured", "remembered") and counts and 0 < counts[-1] < 40, (module, counts)
    module, choice, counts = again(150, SLOW="1")
    assert module["state"].startswith("stock: as a whole it was not faster") and choice == "stock" and counts[-1] == 0, (module, choice, counts)
