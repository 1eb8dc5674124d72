"""One process with the plugin inside and selection on: optimizers take turns between stock and fused until one has won."""

import itertools
import os
import sys

import pytest

os.environ["IPEXRUN_CACHE"] = "off"  # nothing depends on what earlier processes measured
os.environ.pop("IPEXRUN_SELECT", None)
sys.path.insert(0, os.path.join(os.environ["IPEXRUN_BUILD_DIR"], "lib/ipexrun/python"))  # tests that import a module of the package before the plugin is there
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "op_tier"))

from plugin_fixtures import hook, plugin  # noqa: E402, F401


@pytest.fixture(autouse=True)
def first_optimizers():
    """Optimizers are looked at from their first step on until a process has made many."""
    if "ipexrun.optimizers" in sys.modules:
        sys.modules["ipexrun.optimizers"]._made = itertools.count(1)
