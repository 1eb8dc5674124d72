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


def has_bf16():
    """Without bf16 of the CPU's own there is nothing that a step of training gains by, and modules that are trained are not looked at."""
    import torch

    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


@pytest.fixture
def needs_bf16():
    if not has_bf16():
        pytest.skip("no bf16 products on this CPU")


@pytest.fixture(autouse=True)
def first_optimizers():
    """Optimizers are looked at from their first step on until a process has made many."""
    if "ipexrun.training.optimizers" in sys.modules:
        sys.modules["ipexrun.training.optimizers"]._made = itertools.count(1)
        sys.modules["ipexrun.training.optimizers"]._kinds.clear()
