"""The plugin inside this process, as fixtures: imported by the conftest of every folder whose tests run in it. Environment variables that the
plugin reads have to be set before `import plugin_fixtures`."""

import sys

import plugin_loader
import pytest


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
