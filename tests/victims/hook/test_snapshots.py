"""The risk: a module that was changed and is answered as if it was not. Every way in which Python changes a dict, a list or a class has to be seen
by `unchanged`, with the versions of dicts and without."""

import array
import gc
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
    "a method less": lambda held: delattr(Plain, "method"),
    "a method more": lambda held: setattr(Plain, "more_methods", lambda self: 1),
    "the code of a method": lambda held: setattr(Plain.method, "__code__", (lambda self: 2).__code__),
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
    monkeypatch.setattr(Plain.method, "__code__", Plain.method.__code__)
    yield Held()
    if "more_methods" in vars(Plain):
        del Plain.more_methods


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_change_is_seen(held, change, looks):
    for _ in range(looks):
        assert held.answers() == [True, True, True]
        held.plain.method()  # from here on the interpreter knows the class by a tag
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
    held.plain.method()  # gives the class its tag
    assert held.answers() == [True, True, True]
    before = bytes(held.versions)
    held.plain.size, held.table["a"], held.table.get("nothing"), held.module.weight, list(held.table.items()), held.table.copy()
    assert held.answers() == [True, True, True] and bytes(held.versions) == before


def test_a_class_that_changes_all_the_time_is_read_each_time(held):
    for i in range(5):
        Plain.count = i  # no method
        assert held.answers() == [True, True, True]
        held.plain.method()
    method = Plain.method
    Plain.method = lambda self: 1
    assert held.answers() == [False, False, False]
    Plain.method = method
    del Plain.count
    held.plain.method()
    assert held.answers() == [True, True, True]


@pytest.mark.parametrize("collections", range(1, 6))
def test_a_dict_that_a_finalizer_changes_meanwhile(collections):
    """Until Python 3.11 garbage is collected whenever a tuple is made; one that was made for fewer entries was written beyond its end."""
    table = {number: object() for number in range(20)}

    class Cycle:  # makes another one of itself in its finalizer, so that one of the collections comes at the tuple of the dict
        def __init__(self, left):
            self.left, self.itself = left, self

        def __del__(self):
            if self.left:
                Cycle(self.left - 1)
            else:
                table.popitem()

    thresholds = gc.get_threshold()
    gc.disable()
    gc.collect()
    try:
        Cycle(collections)
        gc.set_threshold(1, 1, 1)
        gc.enable()
        (contents,) = HOOK.snapshot((table,))
        gc.disable()
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    assert len(contents) == 2 * len(table) and HOOK.unchanged((table,), (contents,))


def test_versions_of_another_size_are_refused(held):
    with pytest.raises(ValueError, match="8 bytes for each of 8 containers are needed, not 7"):
        HOOK.unchanged(held.containers, held.snapshot, bytearray(7))
    with pytest.raises(TypeError):
        HOOK.unchanged(held.containers, held.snapshot, b"x" * 64)


def test_objects_are_known_by_a_word_in_them():
    """As tensors are by where torch's own object lies, which utils.swap_tensors() exchanges."""

    class Pair:
        __slots__ = ("first", "second")

    pairs = [Pair(), Pair()]
    pairs[0].first, pairs[1].first = held = [object(), object()]
    words = array.array("Q", map(id, held))
    offset = HOOK.word_in(pairs[0], id(held[0]))
    assert offset > 0 and offset % 8 == 0 and HOOK.word_in(pairs[1], id(held[1])) == offset
    assert HOOK.word_in(pairs[0], 12345) == -1 and HOOK.word_in(object(), 0) == -1  # which has no more than a head
    assert HOOK.same_tensors(tuple(pairs), offset, words, array.array("Q", [7, 8])) is True  # of the stand-in: what lies there is 7, 8, ...
    assert HOOK.same_tensors((object(), object()), offset, words, array.array("Q", [7, 8])) is False
    assert HOOK.same_tensors(tuple(reversed(pairs)), offset, words, array.array("Q", [7, 8])) is False
    assert HOOK.same_tensors(tuple(pairs), offset, words, array.array("Q", [7, 9])) is False
    for wrong in ((tuple(pairs), -8, words, words), (tuple(pairs), 4096, words, words), (tuple(pairs), offset, words[:1], words), (pairs, offset, words, words)):
        with pytest.raises((ValueError, TypeError)):
            HOOK.same_tensors(*wrong)


def test_facts_are_asked_by_identity():
    one, table = object(), {}
    table["one"] = one
    facts = ((table.get, "one", one), (table.get, "two", None))
    assert HOOK.all_same(facts) is True and HOOK.all_same(()) is True
    table["two"] = 2
    assert HOOK.all_same(facts) is False
    assert HOOK.all_same(((lambda key: [key], 1, [1]),)) is False  # equal is not enough, and what was found is gone again
    with pytest.raises(KeyError):
        HOOK.all_same(((table.__getitem__, "three", one),))
    for wrong in ([], ((table.get, "one"),), (1,)):
        with pytest.raises(TypeError):
            HOOK.all_same(wrong)


def test_lines_may_be_anywhere():
    """They are asked for, not read."""
    assert HOOK.fetch(array.array("Q", [0, 1, 2**64 - 1, id(HOOK)])) is None and HOOK.fetch(b"") is None and HOOK.fetch(b"12345") is None
    with pytest.raises(TypeError):
        HOOK.fetch([1, 2])
