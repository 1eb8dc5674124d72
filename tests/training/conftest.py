"""One process with the plugin inside and selection on: optimizers take turns between stock and fused until one has won."""

import os
import sys

os.environ["IPEXRUN_CACHE"] = "off"  # nothing depends on what earlier processes measured
os.environ.pop("IPEXRUN_SELECT", None)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "op_tier"))

import plugin_loader  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def plugin():
    result, reason = plugin_loader.start()
    assert result == 0, reason
    hook = sys.modules.get("_ipexrun_hook")
    assert hook is not None, "the Python side did not load"
    return hook


@pytest.fixture
def hook(plugin):
    yield plugin
    plugin.force("")
    plugin.set_enabled(True)
