"""Sizes that change from call to call, known before the first trace (python/ipexrun/capture/sizes.py).

Risk covered: a cache of keys and values that is traced for one length; objects that differ in more than sizes taken for alike; marks left in the program's
tensors; objects of the program's whose code runs when they are looked at.
"""

import os
import sys

import pytest
import torch

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")
from ipexrun.capture import call_kinds  # noqa: E402
from ipexrun.capture.sizes import ALIKE, LOOKED_AT, Sizes  # noqa: E402


class Layer:
    def __init__(self, length, heads=2):
        self.keys, self.values, self.length, self.ready = torch.randn(1, heads, length, 4), torch.randn(1, heads, length, 4), length, True


class Cache:
    def __init__(self, length, layers=2, **more):
        self.layers = [Layer(length) for _ in range(layers)]
        self.itself = self
        vars(self).update(more)


def saw(*calls):
    sizes = Sizes()
    for kwargs in calls:
        key = call_kinds.signature_of_call((), kwargs)
        sizes.see(key, (), kwargs)
    return sizes, key


def steps(count, **more):
    return [{"x": torch.randn(1, 1), "mask": torch.ones(1, 20 + i), "cache": Cache(20 + i, **more)} for i in range(count)]


def test_a_cache_that_grows_is_nothing_to_wait_for():
    sizes, key = saw(*steps(ALIKE))
    assert not sizes.alone_change(key) and not sizes.are_known(key)
    sizes, key = saw(*steps(ALIKE + 1))
    assert sizes.alone_change(key) and sizes.are_known(key)


class Sparse(torch.nn.Module):
    pass


@pytest.mark.parametrize("other", [lambda i: {"name": str(i)}, lambda i: {"scale": 0.5 * i}, lambda i: {"done": i % 2 == 0}, lambda i: {"seen": list(range(i))},
                                   lambda i: {"kept": torch.ones([2] * (i % 2 + 1))}, lambda i: {"at": {i: 1}}, lambda i: {"of": Layer if i % 2 else Cache},
                                   lambda i: {"on": Sparse() if i % 2 else Layer(3)}])
def test_what_else_changes_is(other):
    sizes, key = saw(*[{"cache": Cache(20 + i, **other(i))} for i in range(LOOKED_AT)])
    assert not sizes.alone_change(key) and sizes.are_known(key), "and no more calls are looked at"


def test_objects_are_looked_at_without_their_code():
    class Shy:
        def __init__(self):
            object.__setattr__(self, "x", torch.ones(2))

        def __getattribute__(self, name):
            raise AssertionError("it was asked")

    class Counts(dict):
        def __iter__(self):
            raise AssertionError("it was asked")

        items = keys = __iter__

    class Row(tuple):
        __slots__ = ()

        def __iter__(self):
            raise AssertionError("it was asked")

    given = {"a": Shy(), "b": Counts(x=1), "c": Row((1, 2))}
    sizes = Sizes()
    for _ in range(LOOKED_AT):
        sizes.see("call", (), given)
    assert sizes.alone_change("call")


def test_too_much_to_look_at_is_not_looked_at():
    sizes, key = saw(*[{"cache": Cache(4, layers=2000)} for _ in range(2)])
    assert sizes.are_known(key) and not sizes.alone_change(key) and not sizes.sizes


class Model(torch.nn.Module):
    def forward(self, x, mask, cache):
        for layer in cache.layers:
            layer.keys = torch.cat([layer.keys, layer.keys[:, :, :1] + x.sum()], 2)
            layer.length += 1
            if layer.length > 1000:
                layer.keys = layer.keys[:, :, 1:]
        return mask.sum() + sum(layer.keys.mean() for layer in cache.layers)


def test_the_first_trace_serves_all_sizes():
    calls = steps(12)
    model, graphs = Model(), []
    sizes, _ = saw(*calls[:5])
    torch._dynamo.reset()

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def called(module, /, *args, **kwargs):
        return module(*args, **kwargs)

    compiled = torch.compile(called, backend=backend)
    one, before = calls[5], torch.compiler.config.dynamic_sources
    held = [one["mask"], *(layer.keys for layer in one["cache"].layers)]
    with sizes.told((), one):
        assert "_dynamo_weak_dynamic_indices" in vars(held[0])
        compiled(model, **one)
    assert not any(vars(tensor) for tensor in held) and torch.compiler.config.dynamic_sources == before
    for kwargs in calls[6:]:
        compiled(model, **kwargs)
    assert len(graphs) == 1
    assert [layer.length for layer in calls[-1]["cache"].layers] == [32, 32] and type(calls[-1]["cache"].layers[0].length) is int


def test_marks_of_the_programs_own_stay():
    calls = steps(6)
    sizes, _ = saw(*calls[:5])
    mask = calls[5]["mask"]
    torch._dynamo.maybe_mark_dynamic(mask, 0)
    with sizes.told((), calls[5]):
        assert mask._dynamo_weak_dynamic_indices == {0}
    assert mask._dynamo_weak_dynamic_indices == {0}
