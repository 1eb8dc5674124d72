"""Which calls are left to the module because no graph fits them (python/ipexrun/capture/fits.py): no program is run.

Risk covered: a module whose lengths change has a look at guards that never hold in each call, for good; or calls that a graph would answer are left out
for ever."""

import os
import sys

import pytest
import torch

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")

from ipexrun.capture import fits  # noqa: E402


def of(length):
    return (torch.empty(2, length),), {}


def looked_at(found, call, hit):
    """As a target does: whether the call was looked at."""
    if found.rests() or found.leaves_out(*call):
        return False
    found.note(*call, hit)
    return True


def test_calls_of_sizes_that_no_graph_fits_are_left_out_but_for_one_in_many():
    found = fits.Fits()
    seen = {True: 0, False: 0}
    for i in range(4000):
        hit = i % 4 == 0
        seen[hit] += looked_at(found, of(7 if hit else 8 + i % 4), hit)
    assert seen[True] == 1000, "what a graph answers is never left out"
    assert seen[False] <= 3 * (fits.TIMES + 1000 // fits.PROBE + 1)
    assert found.coverage() == pytest.approx(0.25)


def test_sizes_that_a_graph_fits_again_are_looked_at_again():
    found = fits.Fits()
    for _ in range(fits.TIMES):
        assert looked_at(found, of(5), False)
    assert not looked_at(found, of(5), False)
    assert [looked_at(found, of(5), True) for _ in range(fits.PROBE)].count(True) >= 1, "an attribute was set back, say"
    assert all(looked_at(found, of(5), True) for _ in range(100))


def test_calls_in_a_row_without_a_graph_rest_ever_longer():
    found, rests = fits.Fits(), []
    for i in range(100_000):
        calls = found.rests()
        rests += [calls] if calls else []
        if not calls:
            found.note(*of(10 + i), False)  # another size each time
        if len(rests) == 9:
            break
    assert rests == [64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]
    assert i == 64 + 9 + 8 * fits.LOOKS - 1
    found.note(*of(3), True)
    assert not any(found.rests() for _ in range(10)), "one that fitted ends it"
    assert found.coverage() < 0.01


def test_few_kinds_of_calls_are_kept_apart():
    found = fits.Fits()
    for length in range(3 * fits.MOST):
        found.note(*of(length), False)
    assert len(found.missing) <= fits.MOST


def test_what_is_the_same_call():
    def same(call):
        return fits.exactly_of(call, {})

    x = torch.empty(2, 3)
    assert same(((x, [x]), {"a": True})) == same(((x + 1, [x]), {"a": True}))
    assert same((x,)) != same((x.double(),)) and same((x,)) != same((torch.empty(3, 2),))
    assert same(([x],)) != same(((x,),)) and same((1,)) != same((2,)) and same((1,)) != same((True,)) and same((None,)) != same((0,))
    assert same(({"a": x},)) != same(({"b": x},))
    hash(same((x, object(), {"a": [1.5, "text", torch.float32]})))
