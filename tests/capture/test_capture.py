"""Capture of unedited programs (python/ipexrun/capture/capture.py): whatever a program does, it sees what stock shows.

Risk covered: results, state, random streams, exceptions, hooks or memory that differ because a module was captured; a module that somebody
else has captured; switches that do not switch.

One file, though long: every case runs one program as stock and in each way of capturing, and they are compared by the same functions.
"""

import json
import os
import subprocess
import sys

import programs
import pytest
import torch

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "adversaries.py")
sys.path[:0] = [HERE, f"{BUILD}/lib/ipexrun/python"]
import adversaries  # noqa: E402


def run(command, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python", **more}
    captures = "--graph-mode" in command or "IPEXRUN_GRAPH_WAIT" in more
    return programs.run(command, env=environment, timeout=900, imports="torch torch._dynamo" if captures else "torch")


def run_alone(command, **more):
    """Options and variables that no other program here has, or what is imported is what is asked for."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python", **more}
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)


def results_of(path, names, launcher=(), **more):
    done = run_alone([*launcher, sys.executable, "-W", "ignore", PROGRAM, str(path), *names], **more)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr and "orch._dynamo" not in done.stderr
    return torch.load(path, weights_only=False)


def launched(*options):
    return [f"{BUILD}/bin/ipexrun", "--dtype", "float32", *options]


@pytest.fixture(scope="module")
def stock(tmp_path_factory, names_for):
    return results_of(tmp_path_factory.mktemp("stock") / "results.pt", names_for("stock", adversaries.CASES))


@pytest.fixture(scope="module")
def captured(tmp_path_factory, names_for):
    """Every module at its first call, used as soon as it was found accurate."""
    return results_of(tmp_path_factory.mktemp("captured") / "results.pt", names_for("captured", adversaries.CASES), launched("--graph-mode", "dynamo"))


@pytest.fixture(scope="module")
def chosen(tmp_path_factory, names_for):
    """As a user gets it, but that every module is captured at its second call."""
    return results_of(tmp_path_factory.mktemp("chosen") / "results.pt", names_for("chosen", adversaries.CASES), launched(), IPEXRUN_GRAPH_WAIT="0")


def same(mine, want, where):
    assert type(mine) is type(want), where
    if isinstance(want, torch.Tensor):
        assert mine.dtype == want.dtype and mine.shape == want.shape and mine.stride() == want.stride(), where
        torch.testing.assert_close(mine, want, rtol=1e-4, atol=1e-5, msg=lambda text: f"{where}: {text}")
    elif isinstance(want, (list, tuple)):
        assert len(mine) == len(want), where
        for i, (one, other) in enumerate(zip(mine, want)):
            same(one, other, f"{where}[{i}]")
    elif isinstance(want, dict):
        assert list(mine) == list(want), where
        for key in want:
            same(mine[key], want[key], f"{where}[{key!r}]")
    elif isinstance(want, float):
        assert mine == pytest.approx(want, rel=1e-5), where
    else:
        assert mine == want, where


@pytest.mark.sampled(22)
@pytest.mark.parametrize("name", adversaries.CASES)
def test_captured_modules_show_what_stock_shows(name, stock, captured):
    same(captured[name], stock[name], name)


@pytest.mark.sampled(19)
@pytest.mark.parametrize("name", adversaries.CASES)
def test_so_they_do_while_forms_race(name, stock, chosen):
    same(chosen[name], stock[name], name)


def test_modules_were_captured_at_all(captured):
    states = [one["state"] for one in captured["modules"]]
    assert states.count("captured") >= 8 * (len(captured) - 1) // len(adversaries.CASES), captured["modules"]


SMALL = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
{extra}
with torch.no_grad():
    for i in range(12):
        model(torch.randn(8, 64))
import sys, ipexrun
print([one["state"] for one in ipexrun.report().get("modules", [])], "torch._dynamo.eval_frame" in sys.modules)
"""


def small(*options, extra="", run=run, **more):
    done = run([*launched(*options), sys.executable, "-c", SMALL.format(extra=extra)], **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_module_is_captured():
    assert small("--graph-mode", "dynamo", run=run_alone) == "['captured'] True"


def test_a_short_program_imports_no_compiler():
    assert small() == "[] False"


def test_time_in_which_a_module_does_not_compute_is_not_worth_a_trace():
    """Calls of 0.4 s that wait for something, twelve of them: by the wall clock they would have paid for one after seven."""
    assert small(extra="import time; model[1].register_forward_pre_hook(lambda *_: time.sleep(0.4))") == "[] False"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("switch", [("--graph-mode", "off"), ("--no-optimize",), ("--disable-ipex-graph-mode",)])
def test_it_is_switched_off_by_options(switch):
    assert small(*switch, run=run_alone, IPEXRUN_GRAPH_WAIT="0") == "[] False"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name, value", [("TORCH_COMPILE_DISABLE", "1"), ("TORCHDYNAMO_DISABLE", "1"), ("IPEXRUN_SELECT", "off"),
                                         ("IPEXRUN_GRAPH_MODE", "off")])
def test_it_is_switched_off_by_variables(name, value):
    assert small(run=run_alone, **{"IPEXRUN_GRAPH_WAIT": "0", name: value}) == "[] False"


def test_a_stance_of_the_users_is_kept():
    assert small("--graph-mode", "dynamo", extra="torch.compiler.set_stance('force_eager')") == "[] True"


def test_deterministic_programs_are_left_alone():
    assert small("--graph-mode", "dynamo", extra="torch.use_deterministic_algorithms(True)").startswith("[] ")


def test_scripted_modules_are_taken_as_they_are():
    said = small("--graph-mode", "dynamo", extra="model = torch.jit.script(model)")
    assert said.startswith("['left alone: scripted, traced or exported already']")


def test_tensors_of_other_kinds_are_left_alone():
    said = small("--graph-mode", "dynamo", extra="model[0].weight = nn.Parameter(torch.eye(64).to_sparse_csr())")
    assert "captured" not in said.split("]")[0].split("'")


@pytest.mark.parametrize("mode", ["dynamo", "trace"])
def test_parameters_that_are_swapped_are_left_alone(mode):
    """torch swaps none that somebody holds weakly: the program's own `model.double()` raised."""
    swapped = "torch.__future__.set_swap_module_params_on_conversion(True); model(torch.randn(8, 64))\nfor _ in range(40): torch.no_grad()(model)(torch.randn(8, 64))\nmodel.double(); model.float()"
    assert "'captured'" not in small("--graph-mode", mode, extra=swapped, IPEXRUN_GRAPH_WAIT="0")


def test_where_it_is_switched_off_the_module_answers():
    before = """
import ipexrun
def on_stock(*shape):
    ipexrun.set_enabled(False)
    with torch.no_grad():
        result = model(torch.ones(*shape))
    ipexrun.set_enabled(True)
    return result
want = on_stock(8, 64)
"""
    after = """
got = on_stock(8, 64)
on_stock(2, 3, 64)
with torch.no_grad():
    model(torch.ones(8, 64))
print(torch.equal(want, got), [one["graphs"] for one in ipexrun.report()["modules"]])
"""
    done = run([*launched("--graph-mode", "dynamo"), sys.executable, "-c", SMALL.format(extra=before) + after])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True [1]"


def test_calls_of_other_sizes_than_the_first_ones_are_captured_too():
    extra = """
with torch.no_grad():
    for rows in [3, 3] + [9] * 30:
        model(torch.randn(rows, 64))
import ipexrun
print([one["graphs"] for one in ipexrun.report()["modules"]])
"""
    assert small(extra=extra, IPEXRUN_GRAPH_WAIT="0").startswith("[2]")


def test_bf16_is_for_modules_that_are_one_graph(tmp_path):
    """The router of experts, say, chooses otherwise: what two graphs round, each within its bounds, is not bounded together."""
    program = tmp_path / "program.py"
    text = BROKEN.replace("print(", "print([one.get('choice', '') for one in ipexrun.report()['graphs']], ")
    program.write_text(text.replace("range(24)", "range(100)"))  # its kernels are chosen first, then its forms
    done = run([f"{BUILD}/bin/ipexrun", "--graph-mode", "dynamo", sys.executable, str(program)])
    assert done.returncode == 0, done.stderr
    assert "bf16:" not in done.stdout.split("]")[0] and "captured" in done.stdout


BROKEN = (
    "import torch, sys, ipexrun\n"
    "class Model(torch.nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.a, self.b = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)\n"
    "    def forward(self, x):\n"
    "        x = self.a(x)\n"
    "        if x.sum().item() > 1e9:\n"
    "            x = x * 2\n"
    "        return self.b(x)\n"
    "model = Model().eval()\n"
    "with torch.no_grad():\n"
    "    for i in range(24): model(torch.randn(8, 64))\n"
    "print(ipexrun.report()['modules'])\n"
)


def test_graph_breaks_name_the_line(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(BROKEN)
    done = run([*launched("--graph-mode", "dynamo"), sys.executable, str(program)])
    assert done.returncode == 0, done.stderr
    assert f"{program}:8" in done.stdout and "'captured'" in done.stdout


ALARM = """
import signal
import sys
import torch
from torch import nn

class Late(Exception):
    pass

def late(number, frame):
    raise Late

signal.signal(signal.SIGALRM, late)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
import ipexrun.capture.capture
import ipexrun.graphs.compiler
owner = {owner}
inner = owner.{name}
calls = 0

def interrupted(*args, **kwargs):
    global calls
    calls += 1
    if calls == 1:
        signal.raise_signal(signal.SIGALRM)
    return inner(*args, **kwargs)

owner.{name} = interrupted
seen = 0
with torch.no_grad():
    for i in range(40):
        try:
            model(torch.randn(8, 64))
        except {caught}:
            seen += 1
print(calls > 0, seen)
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "owner, name",
    [
        ("ipexrun.capture.capture", "attempt"),
        ("ipexrun.capture.capture.Target", "took"),
        ("ipexrun.capture.capture.Target", "saw"),
        ("ipexrun.graphs.backend", "static_inputs"),
        ("ipexrun.graphs.compiler.Compiled", "mine"),
        ("torch", "are_deterministic_algorithms_enabled"),
    ],
)
def test_what_a_signal_handler_raises_meanwhile_reaches_the_program(owner, name):
    """An alarm or Ctrl-C may come while ours runs inside a call; it was taken for a failure of ours, and lost."""
    program = ALARM.format(owner=owner, name=name, caught="Late")
    done = run([*launched(), sys.executable, "-c", program], IPEXRUN_GRAPH_WAIT="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True 1"


ONCE = "signal.signal(number, signal.SIG_DFL)\n    raise Late"


@pytest.mark.parametrize("mode, owner, name, when", [
    ("auto", "ipexrun.graphs.compiler.Compiled", "mine", "calls == 1"),
    ("trace", "nn.Linear", "forward", "ipexrun.capture.asked.tracing_state() and signal.getsignal(signal.SIGALRM)"),
])
def test_so_does_what_a_handler_raises_that_is_registered_no_more(mode, owner, name, when):
    program = ALARM.format(owner=owner, name=name, caught="Late").replace("raise Late", ONCE).replace("calls == 1", when).replace("Late(Exception)", "Late(RuntimeError)")
    program = program.replace("import ipexrun.capture.capture", "import ipexrun.capture.asked")
    done = run([*launched("--graph-mode", mode), sys.executable, "-c", program], IPEXRUN_GRAPH_WAIT="0")
    assert done.stdout.strip() == "True 1", done.stderr


def test_so_does_an_interrupt_of_the_keyboard():
    program = ALARM.format(owner="ipexrun.capture.capture.Target", name="took", caught="KeyboardInterrupt").replace("raise Late", "raise KeyboardInterrupt")
    done = run([*launched(), sys.executable, "-c", program], IPEXRUN_GRAPH_WAIT="0")
    assert done.stdout.strip() == "True 1", done.stderr


HANDLED = """
import sys
import torch
from torch import nn
import ipexrun.capture.capture as capture
said = []

class Handler:
    def __call__(self, module, x):
        said.append("asked")
        return sys.modules["_ipexrun_hook"].EAGER

    def took(self, nanoseconds, result, explored):
        said.append("took")

    def broke_off(self):
        said.append("broke off")

class Net(nn.Module):
    def forward(self, x):
        return self.of(x)

capture.attempt = lambda module, seconds: Handler()
model = Net()
with torch.no_grad():
    for of, trace in ((torch.relu, None), (torch.relu, None), (lambda x: [][1], None), (torch.relu, lambda *_: None), (torch.relu, None)):
        model.of = of
        sys.settrace(trace)
        try:
            model(torch.ones(2))
        except IndexError:
            said.append("IndexError")
        sys.settrace(None)
        said.append(";")
print(*said)
"""


def test_a_handler_is_told_of_calls_that_raise_and_not_asked_while_a_debugger_follows():
    done = run([*launched(), sys.executable, "-c", HANDLED], IPEXRUN_GRAPH_WAIT="0")
    assert done.stdout.strip() == "asked took ; asked took ; asked broke off IndexError ; ; asked took ;", done.stderr


MONITORING = """
import sys, types
tools = [None, None]
sys.monitoring = types.SimpleNamespace(DEBUGGER_ID=0, COVERAGE_ID=1, get_tool=tools.__getitem__)
"""


@pytest.mark.parametrize("tool", [0, 1])
def test_nor_while_it_follows_by_the_monitoring_of_later_pythons(tool):
    program = MONITORING + HANDLED.replace("sys.settrace(trace)", f"tools[{tool}] = trace and 'a debugger'").replace("sys.settrace(None)", f"tools[{tool}] = None")
    done = run_alone([*launched(), sys.executable, "-c", program], IPEXRUN_GRAPH_WAIT="0")
    assert done.stdout.strip() == "asked took ; asked took ; asked broke off IndexError ; ; asked took ;", done.stderr


FOLLOWED = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        x = self.a(x)
        x = torch.relu(x)
        return self.b(x)

model, lines = Net().eval(), []

def follow(frame, event, argument):
    if frame.f_code is Net.forward.__code__ and event == "line":
        lines.append(frame.f_lineno - frame.f_code.co_firstlineno)
    return follow

with torch.no_grad():
    for i in range(20):
        model(torch.randn(8, 64))
    sys.settrace(follow)
    model(torch.randn(8, 64))
    sys.settrace(None)
import ipexrun
print(lines, ipexrun.report()["modules"][0]["state"])
"""


def test_a_debugger_sees_the_lines_of_a_captured_module():
    done = run([*launched("--graph-mode", "dynamo"), sys.executable, "-c", FOLLOWED])
    assert done.stdout.strip() == "[1, 2, 3] captured", done.stderr


HANDLING = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
import ipexrun.capture.capture

def fail(*_):
    raise ValueError("of ours")

ipexrun.capture.capture.Target.saw = fail
try:
    raise KeyboardInterrupt
except KeyboardInterrupt:
    with torch.no_grad():
        for i in range(12):
            model(torch.randn(8, 64))
print("done")
"""


def test_an_interrupt_that_the_program_handles_already_does_not_come_again():
    done = run([*launched(), sys.executable, "-c", HANDLING], IPEXRUN_GRAPH_WAIT="0")
    assert done.stdout.strip() == "done", done.stderr


COLLECTING = """
import gc
import torch
from torch import nn
import ipexrun.capture.capture

def see(target, code, saw=ipexrun.capture.capture.Target.saw):
    seen.append(gc.get_threshold())
    if {change}:
        gc.set_threshold(*{change})
    saw(target, code)

ipexrun.capture.capture.Target.saw = see
gc.set_threshold(*{before})
seen = []
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
with torch.no_grad():
    for i in range(12):
        model(torch.randn(8, 64))
print(seen[0], gc.get_threshold())
"""


@pytest.mark.parametrize(
    "before, change, meanwhile, after",
    [
        ((700, 10, 10), None, (100_000, 10, 10), (700, 10, 10)),
        ((0, 10, 10), None, (0, 10, 10), (0, 10, 10)),  # never, as the program asked
        ((700, 10, 10), (500, 5, 5), (100_000, 10, 10), (500, 5, 5)),  # what another thread asks for meanwhile
    ],
)
def test_cycles_are_looked_for_seldom_during_a_trace_and_then_as_before(before, change, meanwhile, after):
    done = run([*launched(), sys.executable, "-c", COLLECTING.format(before=before, change=change)], IPEXRUN_GRAPH_WAIT="0")
    assert done.stdout.strip() == f"{meanwhile} {after}", done.stderr


def test_sizes_that_change_from_module_to_module_are_not_unknown_ones():
    """TorchDynamo knows code by its place in a file: what differs between calls of two modules is not what differs between those of one."""
    program = """
import gc, torch
from ipexrun.graphs import backend as tier
unknown = []
def backend(graph, inputs, real=tier.backend, **options):
    unknown.append(sum(isinstance(one, torch.SymInt) for one in inputs))
    return real(graph, inputs, **options)
tier.backend = backend
class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(3, 16, 3), torch.nn.Linear(16, 8)
    def forward(self, image):
        return self.last(torch.tanh(self.first(image)).mean((2, 3)))
with torch.no_grad():
    models = [Mean().eval(), Mean().eval()]
    for model, size in zip(models, (40, 24)):
        for _ in range(6):
            model(torch.randn(1, 3, size, size))
def names():
    return len([one for one in torch._dynamo.pgo.get_code_state() if one.name.startswith("captured_module")])
before = names()
del model, models
gc.collect()
print(unknown, before, names())
"""
    done = run([*launched("--graph-mode", "dynamo"), sys.executable, "-c", program], IPEXRUN_GRAPH_WAIT="0")
    assert done.stdout.strip() == "[0, 0] 2 0", done.stdout + done.stderr  # of those that died nothing is kept


RAISING = """
import traceback
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Conv3d(3, 16, 3, padding=1)
    def forward(self, x):
        return nn.functional.avg_pool3d(self.inner(x), (2, 7, 7))
model = Model().eval()
with torch.no_grad():
    for _ in range(4):
        try:
            model(torch.randn(1, 3, 4, 4, 4))
        except RuntimeError as problem:
            print(problem, [(line.filename.rsplit("/", 1)[-1], line.name) for line in traceback.extract_tb(problem.__traceback__)])
"""


@pytest.mark.parametrize("options", [("--graph-mode", "dynamo"), ("--graph-mode", "trace"), ("--graph-mode", "auto")], ids=lambda options: options[1])
def test_what_a_captured_call_raises_looks_as_on_stock(options):
    """Also risk: log lines of torch's compiler on the program's stderr."""
    stock = run([sys.executable, "-c", RAISING])
    assert stock.returncode == 0 and stock.stdout.count("forward") == 4 and not stock.stderr
    done = run([*launched(*options), sys.executable, "-c", RAISING], IPEXRUN_GRAPH_WAIT="0")
    assert done.stdout == stock.stdout
    assert not [line for line in done.stderr.splitlines() if not line.startswith("ipexrun: ")], done.stderr


def test_what_was_compiled_goes_with_its_module():
    """Also: files that are left open (-X dev says so)."""
    program = """
import gc, torch
from ipexrun.capture import capture
from ipexrun.graphs import compiler
from ipexrun.training import step_forms
def model():
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64))
x = torch.randn(16, 64)
for _ in range(2):
    one = model()
    step = torch.optim.SGD(one.parameters(), 1e-2)
    for _ in range(12):
        one(x).square().mean().backward()
        step.step()
        step.zero_grad()
    with torch.no_grad():
        for _ in range(6):
            one.eval()(x)
alive = lambda: [type(each) for each in gc.get_objects() if type(each) in (compiler.Compiled, step_forms.Graph)]
assert {compiler.Compiled, step_forms.Graph} <= set(alive()), alive()
lost = model()
with torch.no_grad():
    for _ in range(6):
        lost(x)
for target in capture.targets:
    if target.module() is lost:
        target.give_up("lost")
        break
else:
    raise AssertionError("not captured")
del one, step, lost, target
for _ in range(3):
    gc.collect()
assert not alive(), alive()
last = model()  # which ends with the process
with torch.no_grad():
    for _ in range(6):
        last(x)
"""
    launcher = [f"{BUILD}/bin/ipexrun", "--dtype", "bfloat16", "--graph-mode", "dynamo"]  # in float32 alone there is no form of a training step
    done = run_alone([*launcher, sys.executable, "-X", "dev", "-c", program], IPEXRUN_GRAPH_WAIT="0")
    assert done.returncode == 0 and not [line for line in done.stderr.splitlines() if not line.startswith("ipexrun: ")], done.stderr


def test_a_module_that_won_before_is_traced_at_once_where_the_last_run_was_long():
    from ipexrun.capture import capture

    class Known:
        def __init__(self, **numbers):
            self.numbers = numbers

        def number(self, what):
            return self.numbers.get(what, 0)

    def first_call_that_pays(**numbers):
        target = object.__new__(capture.Target)
        target.known, target.calls_that_pay, target.pinned = Known(**numbers), None, False
        for target.seen in range(1, 1000):
            if target.pays():
                return target.seen
        return None

    assert first_call_that_pays() == 1, "nothing is known of runs"
    assert first_call_that_pays(calls=200, pays=100) == 1
    assert first_call_that_pays(calls=125, pays=100) == 1
    assert first_call_that_pays(calls=124, pays=100) == 125, "it may be as short again, and would then pay for the trace of its last calls"
    assert first_call_that_pays(calls=20, pays=100) == 101
    assert first_call_that_pays(pays=100) == 101, "the process did not say how it ended"


def test_calls_of_a_run_are_those_before_it_was_looked_at_too():
    """Else a run of equal length would seem too short for what its first calls went into."""
    from ipexrun.capture import capture

    target = object.__new__(capture.Target)
    target.seen, target.waits, target.waited_s, target.spent_before_s = 70, 10, 0.1, 0.3
    assert target.calls_made() == 100
    target.waits, target.waited_s = 0, 0.0
    assert target.calls_made() == 70


DEFAULT_DEVICE = """
import json, sys, torch
from torch import nn
from torch.overrides import TorchFunctionMode
torch.set_default_device("cpu")
class Made(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)
    def forward(self, x):
        return self.inner(torch.relu(x)), torch.zeros(3) + 1
class Counting(TorchFunctionMode):
    seen = 0
    def __torch_function__(self, function, types, args=(), kwargs=None):
        Counting.seen += 1
        return function(*args, **(kwargs or {}))
module, x, said = Made().eval(), torch.randn(4, 16), {}
with torch.no_grad():
    first = module(x)
    for _ in range(30):
        last = module(x)
    said["near"] = all(torch.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in zip(first, last))
    said["devices"] = [one.device.type for one in last]
    said["states"] = [one["state"] for one in sys.modules["ipexrun"].report()["modules"] if one["module"] == "Made"]
    with torch.device("meta"):
        said["made"] = module(x)[1].device.type
    torch.set_default_device("meta")
    said["default"] = module(x)[1].device.type
    torch.set_default_device(None)
    with Counting():
        module(x)
    said["seen"] = Counting.seen > 2
    said["none"] = module(x)[1].device.type
print(json.dumps(said))
"""


@pytest.mark.parametrize("mode", ["dynamo", "trace"])
def test_the_cpu_as_the_default_device_is_no_reason_not_to_capture(mode):
    """Also risk: what is captured answers where another default device, or a mode of the program's own, wants to see what is called."""
    done = run([*launched("--graph-mode", mode), sys.executable, "-c", DEFAULT_DEVICE], IPEXRUN_GRAPH_WAIT="0")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    states = said.pop("states")
    assert said == {"near": True, "devices": ["cpu", "cpu"], "made": "meta", "default": "meta", "seen": True, "none": "cpu"}
    assert states == ["captured"] if mode == "dynamo" else states and not states[0].startswith(("left alone", "waiting")), states


OWN_COMPILE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(256, 1024), nn.Linear(1024, 256), nn.LayerNorm(256)
    def forward(self, x):
        return self.norm(x + self.b(nn.functional.gelu(self.a(x))))

graphs = []
def backend(module, inputs):
    graphs.append(module)
    return module.forward

layers = nn.Sequential(*[Block() for _ in range(4)]).eval()
head = torch.compile(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).eval(), backend=backend)
with torch.no_grad():
    head(layers(torch.randn(32, 256)))
    torch.compiler.set_stance("fail_on_recompile")
    for _ in range(300):
        head(layers(torch.randn(32, 256)))
print(len(graphs))
"""


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_what_the_program_compiled_itself_is_compiled_once(mode):
    """Also risk: the key of a drift check, which TorchDynamo's guards compare (checks of whole passes begin where --dtype is auto)."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off"}
    done = subprocess.run([f"{BUILD}/bin/ipexrun", "--graph-mode", mode, sys.executable, "-c", OWN_COMPILE], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0 and done.stdout == "1\n", done.stderr
