"""The risk: a module that was changed and is answered as if it was not. Every way in which Python changes a dict, a list or a class has to be seen
by `unchanged`, with the versions of dicts and without."""

import array
import os
import sys

import pytest
from torch import nn

sys.path.insert(0, os.path.dirname(__file__))
import fake

if "_ipexrun_hook" not in sys.modules:
    fake.start(fake.load())
HOOK = sys.modules["_ipexrun_hook"]


class Plain:
    def __init__(self):
        self.size, self.name = 4, "one"

    def method(self):
        pass


def attribute_often(held):
    for value in [5] * 64 + [6]:  # long enough for bytecode to be specialized
        held.plain.size = value


CHANGES = {
    "an attribute": lambda held: setattr(held.plain, "size", 5),
    "an attribute, again and again": attribute_often,
    "an equal object that is another one": lambda held: setattr(held.plain, "name", "".join(["o", "ne"])),
    "a new attribute": lambda held: setattr(held.plain, "more", 1),
    "an attribute less": lambda held: delattr(held.plain, "size"),
    "through vars()": lambda held: vars(held.plain).update(size=7),
    "an item": lambda held: held.table.__setitem__("a", 9),
    "update": lambda held: held.table.update(b=object()),
    "or": lambda held: held.table.__ior__({"c": 1}),
    "pop": lambda held: held.table.pop("a"),
    "clear": lambda held: held.table.clear(),
    "setdefault": lambda held: held.table.setdefault("new", 0),
    "order": lambda held: held.table.__setitem__("a", held.table.pop("a")),
    "a parameter": lambda held: setattr(held.module, "weight", nn.Parameter(held.module.weight.detach().clone())),
    "a buffer": lambda held: held.module.register_buffer("mean", held.module.weight.detach()),
    "train": lambda held: held.module.train(not held.module.training),
    "a list": lambda held: held.row.append(1),
    "an element": lambda held: held.row.__setitem__(0, object()),
    "a method": lambda held: setattr(Plain, "method", lambda self: 1),
}


class Held:
    def __init__(self):
        self.plain, self.table, self.row, self.module = Plain(), {"a": object(), "b": object()}, [object(), object()], nn.Linear(2, 2)
        module = self.module
        self.containers = (vars(self.plain), self.table, self.row, vars(module), module._parameters, module._buffers, Plain, module)
        self.snapshot = HOOK.snapshot(self.containers)
        self.versions = bytearray(8 * len(self.containers))

    def answers(self):
        return [HOOK.unchanged(self.containers, self.snapshot, *more) for more in ((), (self.versions,), (bytearray(8 * len(self.containers)),))]


@pytest.fixture
def held(monkeypatch):
    monkeypatch.setattr(Plain, "method", Plain.method)  # put back afterwards
    return Held()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_change_is_seen(held, change, looks):
    for _ in range(looks):
        assert held.answers() == [True, True, True]
    CHANGES[change](held)
    assert held.answers() == [False, False, False]


def test_what_is_put_back_is_unchanged(held):
    value, row = held.table["b"], list(held.row)
    for _ in range(3):
        held.table["b"] = 1
        assert held.answers() == [False, False, False]
        held.table["b"] = value
        held.row.clear()
        assert held.answers() == [False, False, False]
        held.row.extend(row)
        assert held.answers() == [True, True, True]


def test_reading_is_no_change(held):
    assert held.answers() == [True, True, True]
    before = bytes(held.versions)
    held.plain.size, held.table["a"], held.table.get("nothing"), held.module.weight, list(held.table.items()), held.table.copy()
    assert held.answers() == [True, True, True] and bytes(held.versions) == before


def test_versions_of_another_size_are_refused(held):
    with pytest.raises(ValueError, match="8 bytes for each of 8 containers are needed, not 7"):
        HOOK.unchanged(held.containers, held.snapshot, bytearray(7))
    with pytest.raises(TypeError):
        HOOK.unchanged(held.containers, held.snapshot, b"x" * 64)


def test_lines_may_be_anywhere():
    """They are asked for, not read."""
    assert HOOK.fetch(array.array("Q", [0, 1, 2**64 - 1, id(HOOK)])) is None and HOOK.fetch(b"") is None and HOOK.fetch(b"12345") is None
    with pytest.raises(TypeError):
        HOOK.fetch([1, 2])
