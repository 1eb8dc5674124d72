"""How calls are told apart by their arguments (python/ipexrun/capture/call_kinds.py, fits.py): no program is run but at the end.

Risk covered: code of the program's runs where stock runs none (an iterator that is used up, a tensor subclass that refuses); a look that takes longer than
the call.
"""

import os
import subprocess
import sys
import time

import pytest
import torch

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")

from ipexrun import remembered  # noqa: E402
from ipexrun.capture import call_kinds, fits, sizes  # noqa: E402


def refuse(*_, **__):
    raise AssertionError("code of the program's ran")


class Strict(torch.Tensor):
    __torch_function__ = classmethod(refuse)


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, size):
        return torch.Tensor._make_wrapper_subclass(cls, (size,), dispatch_sizes_strides_policy="sizes")

    __torch_function__ = torch._C._disabled_torch_function_impl
    __torch_dispatch__ = classmethod(refuse)


class OnceList(list):
    __iter__ = __len__ = __bool__ = __getitem__ = refuse


class OnceDict(dict):
    __iter__ = __len__ = __bool__ = __getitem__ = values = items = keys = refuse


class OnceTuple(tuple):
    __iter__ = __len__ = __bool__ = __getitem__ = refuse


class Masked:
    __class__ = property(refuse)


class Key:
    __eq__ = __repr__ = refuse

    def __hash__(self):
        return 1 if self.may else refuse()

    may = True


def of_key():
    made = {Key(): 1}
    Key.may = False
    return made


@pytest.mark.parametrize("made", [
    lambda: torch.ones(3).as_subclass(Strict), lambda: Wrapped(3), lambda: OnceList([1, 2]), lambda: OnceDict(a=1), lambda: OnceTuple((1, 2)), Masked, of_key,
], ids=["strict tensor", "wrapped tensor", "list", "dict", "tuple", "object", "key"])
def test_nothing_of_the_programs_runs(made):
    Key.may = True
    one = made()
    key = call_kinds.signature_of_call((one,), {"b": [one]})
    hash(key), hash(fits.exactly_of((one,), {"b": (one,)}))
    assert call_kinds.has_state((one,)) == isinstance(one, Masked)


class Named(torch.Tensor):
    pass


def test_sizes_of_plain_subclasses_count():
    def of(size, kind=Named):
        return (torch.ones(size).as_subclass(kind),), {}

    assert call_kinds.signature_of_call(*of(5)) == call_kinds.signature_of_call(*of(7)) != call_kinds.signature_of_call(*of(9))
    assert fits.exactly_of(*of(5)) != fits.exactly_of(*of(7)) and fits.exactly_of(*of(5)) != fits.exactly_of(*of(5, torch.Tensor))


def shared(levels):
    one = [torch.ones(1), 1]
    for _ in range(levels):
        one = [one, one]
    return one


def deep(levels):
    one = [1]
    for _ in range(levels):
        one = [one]
    return one


def around():
    one = [1]
    one.append(one)
    return one


LARGE = {"shared": lambda: shared(25), "shared tuples": lambda: (lambda one: [one := (one, one) for _ in range(25)][-1])((1,)), "deep": lambda: deep(900),
         "around": around, "long": lambda: [1] * 10**6, "of long ones": lambda: [[1] * 400] * 3 + [[1] * 400], "long dict": lambda: dict.fromkeys(range(10**6))}


@pytest.mark.parametrize("name", LARGE)
def test_looking_takes_no_longer_than_so_much(name):
    one = LARGE[name]()
    began = time.perf_counter()
    for _ in range(5):
        key = call_kinds.signature_of_call((one,), {})
        exact = fits.exactly_of((one,), {})
        call_kinds.has_state(one)
        assert hash(key) == hash(call_kinds.signature_of_call((one,), {})) and hash(exact) == hash(fits.exactly_of((one,), {}))
    assert time.perf_counter() - began < 0.5
    assert (key == call_kinds.TOO_MANY) == (exact == call_kinds.TOO_MANY) == ("long" in name)
    assert call_kinds.has_state(one) == ("long" in name or name == "deep")


def test_usual_calls_are_told_apart_as_ever():
    """By what earlier processes have written down, too."""
    x = torch.ones(5, 3)
    assert call_kinds.signature_of_call((x, [x, True]), {"a": (None, 2), "b": {"c": x}}) == (
        ((torch.float32, 8, 3), ((torch.float32, 8, 3), True)), (("a", (None, int)), ("b", (("c", (torch.float32, 8, 3)),))), False)


def test_long_texts_are_not_kept():
    text = "a" * 10**6
    assert text not in str(fits.exactly_of((text,), {})) and fits.exactly_of((text,), {}) != fits.exactly_of((text + "b",), {})


@pytest.mark.parametrize("kind", [Strict, Wrapped])
def test_tensors_with_code_of_their_own_are_left_to_the_module(kind):
    one = Wrapped(3) if kind is Wrapped else torch.ones(3).as_subclass(kind)
    assert call_kinds.signature_of_call(([{"a": one}],), {}) == call_kinds.OWN_CODE in call_kinds.LEFT
    assert call_kinds.signature_of_call((torch.nn.Parameter(torch.ones(3)),), {}) not in call_kinds.LEFT


def run(program, *words):
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0"}
    return subprocess.run([f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun", *words, sys.executable, "-c", program], capture_output=True, text=True, timeout=300,
                          env=environment)


COUNTED = """
import collections
import torch
from torch import nn

counts = collections.Counter()

class Counted(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        counts[function.__name__] += 1
        return super().__torch_function__(function, types, args, kwargs or {})

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))
    def forward(self, x):
        return self.inside(x) + 1

torch.manual_seed(0)
for mode in "eval", "train":
    model = getattr(Net(), mode)()
    for i in range(40):
        counts.clear()
        x = torch.randn(2, 3, 16, 16)
        with torch.set_grad_enabled(mode == "train"):
            y = model(x.as_subclass(Counted) if i % 4 == OF else x)
        if mode == "train":
            y.as_subclass(torch.Tensor).sum().backward()
        assert dict(counts) == ({"conv2d": 2, "relu": 1, "add": 1} if i % 4 == OF else {}), (mode, i, counts)
import ipexrun
print([one["state"] for one in ipexrun.report()["modules"] if one["module"] == "Net"])
"""


@pytest.mark.parametrize("of", [0, 1, 3])
def test_what_a_tensor_subclass_does_is_done_as_often_as_ever(of):
    """As the first call of all, or once graphs of plain tensors are there, whose guards would ask it."""
    done = run(COUNTED.replace("OF", str(of)))
    assert done.returncode == 0 and done.stdout.startswith("["), done.stdout + done.stderr


PROGRAM = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    def forward(self, x, more=()):
        return self.inside(x)

model, many = Net().eval(), [1] * 600
with torch.no_grad():
    for _ in range(100):
        model(torch.randn(8, 64), many)
import ipexrun
print({one["module"]: one["state"] for one in ipexrun.report()["modules"]})
"""


def test_a_module_whose_calls_hold_too_much_is_left_alone_and_those_inside_are_not():
    done = run(PROGRAM)
    assert done.stdout.startswith("{'Net': 'stock: its arguments hold too many things', 'Sequential': "), done.stdout + done.stderr


def test_sizes_are_bounded_likewise():
    assert sizes.things((shared(25),), {}) is None


def test_kinds_that_never_come_again_are_not_all_kept():
    """The keys of a dict are the names of users, say."""
    module = remembered.OfModule(torch.nn.Linear(2, 2))
    for user in range(3 * remembered.MOST_CALLS):
        signature = call_kinds.signature_of_call(({f"user {user}": torch.zeros(1)},), {})
        assert module.of_call(signature) == ""
    assert len(module.calls) <= remembered.MOST_CALLS
