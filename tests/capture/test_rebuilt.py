"""What a captured call hands to the program is what its own code makes (python/ipexrun/capture/rebuilt.py): the same kinds of objects, run when they are run.

Risk covered: TorchDynamo rebuilds generators and iterators as iterators of tuples that have run to their end, scalars of NumPy as arrays, and takes
torch's random numbers for NumPy's; custom operators run more often in training; what a capture leaves in the process.
"""

import functools
import os
import subprocess
import sys

import programs
import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
started = functools.partial(subprocess.run, capture_output=True, text=True)


def run(command, start=programs.run, **more):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python", **more}
    return start(command, env=environment, timeout=900)


def same_as_stock(program, *options):
    start = started if "--report" in options else functools.partial(programs.run, imports="torch torch._dynamo")  # the launcher's own words
    stock = run([sys.executable, "-W", "ignore", "-c", program])
    assert stock.returncode == 0 and stock.stdout, stock.stderr
    done = run([f"{BUILD}/bin/ipexrun", "--no-pin", *options, sys.executable, "-W", "ignore", "-c", program], start, IPEXRUN_GRAPH_WAIT="0")
    assert done.returncode == 0, done.stderr
    assert done.stdout == stock.stdout
    return done.stderr


KINDS = """
import contextlib, itertools
import numpy as np
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, give):
        super().__init__()
        self.first, self.last, self.give, self.kept = nn.Linear(64, 128), nn.Linear(128, 64), give, None
        self.number = np.float64(1.5)

    def forward(self, x):
        return self.give(self, self.last(torch.relu(self.first(x))))

def keeps(self, h):
    self.kept = reversed([1, 2])
    return h

def keeps_number(self, h):
    self.kept = np.float64(len(h)) / 3
    return h

def splits(self, h):
    steps = iter([h, h])
    print(end="")
    return h, steps

def yields(self, h):
    for i in range(3):
        h = h * 2
        yield h

class Names(set):
    pass

def fills(self, h):
    self.kept = Names([1, 2])
    return h

def adds(self, h):
    if not isinstance(self.kept, Names):
        self.kept = Names()
    self.kept.add(len(self.kept))
    return h

GIVE = dict(
    names=lambda self, h: (h, len(Names([1]))), fills=fills, adds=adds, reversed_tuple=lambda self, h: (h, reversed((1, 2))), own_set=lambda self, h: (h, Names([1, 2])),
    sentinel=lambda self, h: (h, iter(lambda: 1, 1)), nothing=lambda self, h: (h, contextlib.nullcontext()), root=lambda self, h: (h / np.sqrt(64), 2),
    generator=lambda self, h: (h[i] * 2 for i in range(3)), yields=yields, keeps=keeps, keeps_number=keeps_number, splits=splits,
    reversed=lambda self, h: [reversed([h, h])], iter=lambda self, h: {"a": iter([h])}, repeat=lambda self, h: (itertools.repeat(h, 3), h),
    product=lambda self, h: (h, itertools.product([h], [h])), context=lambda self, h: (h, torch.no_grad()),
    largest=lambda self, h: (h, h.detach().numpy().max()), third=lambda self, h: (h, np.float64(1) / 3), twice=lambda self, h: (h, self.number * 2),
    whole=lambda self, h: (h, np.int32(7) // 2), median=lambda self, h: (h, np.median(h.detach().numpy())), array=lambda self, h: (h, h.detach().numpy()),
    number=lambda self, h: (h, self.number), list=lambda self, h: [h, (h, {"a": h}, None, 3, 2.5, "x")], range=lambda self, h: (h, range(3)),
)

def kinds(value):
    if isinstance(value, (list, tuple, dict)):
        return [type(value).__name__, *map(kinds, value.values() if isinstance(value, dict) else value)]
    if isinstance(value, set):
        return [type(value).__name__, sorted(value)]
    return type(value).__name__

for name, give in GIVE.items():
    torch.manual_seed(0)
    model = Model(give).train(GRAD)
    seen = []
    for _ in range(STEPS):
        with torch.set_grad_enabled(GRAD):
            result = model(torch.randn(8, 64))
            seen.append((kinds(result), kinds(model.kept)))
            if GRAD and isinstance(result, tuple) and isinstance(result[0], torch.Tensor):
                result[0].square().sum().backward()
    print(name, [one for i, one in enumerate(seen) if one not in seen[:i]])
"""


@pytest.mark.parametrize("mode", ["dynamo", "auto", "trace"])
def test_results_are_of_the_kinds_that_the_program_makes(mode):
    same_as_stock(KINDS.replace("GRAD", "False").replace("STEPS", "12"), "--graph-mode", mode)


HELD = """
import sys
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 128), nn.Linear(128, 64)

class Held(Model):
    def forward(self, x):
        context = torch.no_grad() if GRAD else torch.enable_grad()
        print(end="")
        y = torch.relu(self.first(x))
        with context:
            return y, self.last(y)

class Behind(Model):
    def forward(self, x):
        y = torch.relu(self.first(x))
        context = torch.no_grad() if GRAD else torch.enable_grad()
        print(end="")
        return y, self.last(y), context is None

class Called(Model):
    def made(self):
        print(end="")
        return self.last

    def forward(self, x):
        y = torch.relu(self.first(x))
        return torch.set_grad_enabled(not GRAD)(self.made())(y), y

class Entered(Model):
    def forward(self, x):
        y = torch.relu(self.first(x))
        with torch.set_grad_enabled(not GRAD):
            y = torch.tanh(y * 2)
            print(end="")
            return y, self.last(y).exp()

for kind in (Held, Behind, Called, Entered):
    torch.manual_seed(0)
    model, seen = kind(), []
    for _ in range(12):
        torch.set_grad_enabled(GRAD)
        results = model(torch.randn(8, 64))
        seen.append([torch.is_grad_enabled(), *(one.requires_grad for one in results if isinstance(one, torch.Tensor))])
    torch.set_grad_enabled(True)
    print(kind.__name__, [one for i, one in enumerate(seen) if one not in seen[:i]])
try:
    import ipexrun
    print([(one["module"], one["state"]) for one in ipexrun.report().get("modules", [])], file=sys.stderr)
except ImportError:
    pass
"""


@pytest.mark.parametrize("grad", [False, True])
def test_contexts_of_gradients_are_entered_where_the_program_does(grad):
    """TorchDynamo makes torch.set_grad_enabled() for one that lives across a split, which switches where it is made."""
    stderr = same_as_stock(HELD.replace("GRAD", str(grad)), "--graph-mode", "dynamo")
    assert grad or "('Entered', 'captured')" in stderr, stderr


def test_what_comes_out_as_it_is_stays_captured():
    """TorchDynamo's own code loops where it fills a dict."""
    stderr = same_as_stock("""
import collections, dataclasses, sys
import numpy as np
import torch
from torch import nn
from transformers.utils import ModelOutput
@dataclasses.dataclass
class Output(ModelOutput):
    logits: torch.Tensor = None
    hidden: tuple = None
class Model(nn.Module):
    def __init__(self, give):
        super().__init__()
        self.first, self.last, self.give, self.store = nn.Linear(64, 128), nn.Linear(128, 64), give, {"other": torch.ones(4)}
    def forward(self, x):
        return self.give(self.last(torch.relu(self.first(x))))
class Split(Model):
    def forward(self, x, mask=torch.ones(64)):
        h = self.last(torch.relu(self.first(x)))
        print(end="")
        return torch.tanh(h * mask).exp() @ self.last.weight
class Stores(Model):
    def forward(self, x):
        h = self.last(torch.relu(self.first(x)))
        self.store["h"] = h
        return h * 2
give = [lambda h: collections.OrderedDict(a=h, b=h + 1), lambda h: Output(h, (h, h * 2)), lambda h: [h, {"b": h, "c": (h, 3)}], lambda h: [h * i for i in range(3)], lambda h: h / np.sqrt(64)]
with torch.no_grad():
    for one in [*give, Split, Stores]:
        model = one(None).eval() if isinstance(one, type) else Model(one).eval()
        for _ in range(30):
            result = model(torch.randn(8, 64))
        print(type(result).__name__)
try:
    import ipexrun
    print([(one["state"], one.get("graphs")) for one in ipexrun.report().get("modules", [])], file=sys.stderr)
except ImportError:
    pass
""", "--graph-mode", "dynamo")
    assert str([("captured", 1)] * 5 + [("captured", 2)] * 2) in stderr, stderr  # a dict with a new key is another one to TorchDynamo


def test_results_of_training_steps_are_too():
    same_as_stock(KINDS.replace("GRAD", "True").replace("STEPS", "8"))


def test_numbers_that_numpy_draws_are_its_own():
    same_as_stock("""
import numpy as np
import torch
from torch import nn
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    def forward(self, x):
        return self.inner(x) + torch.from_numpy(np.random.rand(64).astype(np.float32))
torch.manual_seed(0), np.random.seed(0)
model, before, alone = Noisy().eval(), torch.get_rng_state(), np.random.RandomState(0)
with torch.no_grad():
    for _ in range(12):
        away = model(torch.zeros(2, 64)) - model.inner(torch.zeros(2, 64)) - torch.from_numpy(alone.rand(64).astype(np.float32))
        print(bool(away.abs().max() < 1e-2), np.array_equal(alone.get_state()[1], np.random.get_state()[1]), torch.equal(before, torch.get_rng_state()))
""")


def test_a_random_stream_of_the_programs_own_goes_on():
    same_as_stock("""
import random
import torch
from torch import nn
class Shifts(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.random = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)), random.Random(7)
    def forward(self, x):
        return self.inner(x) * 0 + self.random.randint(0, 1000)
model = Shifts().eval()
with torch.no_grad():
    print([int(model(torch.zeros(2, 64))[0, 0]) for _ in range(12)])
""")


def test_a_custom_operator_runs_once_a_step():
    same_as_stock("""
import torch
from torch import nn
runs = []
@torch.library.custom_op("mine::gate", mutates_args=())
def gate(x: torch.Tensor) -> torch.Tensor:
    runs.append(1)
    return x * x.sigmoid()
gate.register_fake(torch.empty_like)
gate.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0].sigmoid(), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 128), nn.Linear(128, 64)
    def forward(self, x):
        return self.last(gate(self.first(x)))
model = Model()
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
for _ in range(30):
    optimizer.zero_grad()
    model(torch.randn(16, 64)).square().sum().backward()
    optimizer.step()
print(len(runs))
""")


def test_quantized_tensors_stay_so():
    """What goes on behind a split got a float32 tensor in their place."""
    stderr = same_as_stock("""
import torch
from torch import nn
class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 128), nn.Linear(128, 64)
    def forward(self, x):
        q = torch.quantize_per_tensor(self.first(x) * 0 + 1, 0.5, 0, torch.qint8)
        y = q.dequantize() + q.int_repr().float().mean()
        return self.last(y) * 0 + y.mean() + (2.0 if q.is_quantized else 1.0)
class Given(Split):
    def forward(self, x):
        q = torch.ops.aten.quantize_per_tensor(self.first(x) * 0 + 1, 0.5, 0, torch.quint8)
        return q.dequantize(), q
with torch.no_grad():
    for model in (Split().eval(), Given().eval()):
        results = [model(torch.randn(8, 64)) for _ in range(12)]
        print({one.mean().item() if torch.is_tensor(one) else (one[0].mean().item(), one[1].dtype, one[1].is_quantized) for one in results})
compiled = torch.compile(Given().eval(), backend="ipex" if "ipexrun" in __import__("sys").modules else "eager")
with torch.no_grad():
    print([one.dtype for one in compiled(torch.randn(8, 64))])
""", "--report")
    assert "quantized tensors, which a graph takes for plain ones" in stderr


def test_a_capture_leaves_the_process_as_it_was():
    """Results that are held against float64 walk over a graph, for which torch.fx makes a bar of tqdm: a thread, and a start method that is fixed."""
    stderr = same_as_stock("""
import multiprocessing, os, threading
import torch
from torch import nn

before = dict(os.environ)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 2048), nn.Softmax(-1), nn.Linear(2048, 64), nn.GELU(), nn.Linear(64, 64)).eval()
try:
    from ipexrun.graphs import compiler, double
    held = [double.results(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4))), [torch.randn(2, 4)]) is not None]
except ImportError:
    pass
with torch.no_grad():
    for _ in range(60):
        model(torch.randn(16, 64))
multiprocessing.set_start_method("spawn")
print([one.name for one in threading.enumerate()], sorted(set(os.environ) - set(before)))
""", "--dtype", "float32", "--report")
    assert "captured" in stderr
