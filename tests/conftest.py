"""Tests whose every case starts a program of its own: `./dev test` runs a sample of them, `./dev test --all` and pytest by itself all of them.

    @pytest.mark.sampled(3)     a function with more cases than that: the first, the last and one in the middle are the sample

Where one program computes all cases of a file, the fixture that runs it asks `names_for` which ones are wanted.
"""

import os

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "sampled(count): of the cases of this function, so many are run where IPEXRUN_TESTS=sample")


def sample(items):
    """Those of `items` to leave: of each marked function all but `count` cases, which lie as far apart as they can."""
    cases = {}
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark is not None:
            cases.setdefault((item.parent.nodeid, item.function.__name__, mark.args[0]), []).append(item)
    left = []
    for (_, _, count), found in cases.items():
        last = len(found) - 1
        kept = {round(last * i / max(count - 1, 1)) for i in range(count)}
        left += [item for i, item in enumerate(found) if i not in kept]
    return left


def pytest_collection_modifyitems(config, items):
    if os.environ.get("IPEXRUN_TESTS") != "sample":
        return
    left = sample(items)
    if left:
        config.hook.pytest_deselected(items=left)
        gone = set(map(id, left))
        items[:] = [item for item in items if id(item) not in gone]


@pytest.fixture(scope="module")
def names_for(request):
    """names_for(fixture, every): those of `every` that tests of this file that ask for the fixture get as `name`; all of them if none does so by name."""

    def names(fixture, every):
        items = [item for item in request.session.items if item.getparent(pytest.Module) is request.node and fixture in item.fixturenames]
        asked = {item.callspec.params.get("name") for item in items if hasattr(item, "callspec")}
        return [name for name in every if name in asked] or list(every)

    return names
