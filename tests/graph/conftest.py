"""Every test here compiles for the plugin of the build under test, in this process, as plain Python would load it."""

import os
import shutil
import subprocess
import sys

import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
sys.path.insert(0, f"{BUILD}/lib/ipexrun/python")
os.environ.setdefault("IPEXRUN_CACHE", "off")


@pytest.fixture
def comma(tmp_path, monkeypatch):
    """A locale in which 1.5 is written 1,5."""
    made = tmp_path / "comma.UTF-8"
    if shutil.which("localedef") is None or subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", made], capture_output=True).returncode != 0:
        pytest.skip("no locale to make")
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    return made.name
