"""Tests of device xpu run on whatever OpenCL has here, PoCL's CPU device for one. Without a driver they are skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(os.environ["IPEXRUN_BUILD_DIR"])
PACKAGE = str(BUILD / "lib" / "ipexrun" / "python")
sys.path.insert(0, PACKAGE)
os.environ.setdefault("IPEXRUN_XPU", "any")


@pytest.fixture(scope="session", autouse=True)
def device():
    import torch  # noqa: F401

    import ipexrun  # noqa: F401
    from ipexrun import xpu

    problem = xpu.install()
    if problem:
        pytest.skip(f"no device: {problem}")
    return xpu


@pytest.fixture
def child():
    """Runs a program in a process of its own: child(text, **environment) -> CompletedProcess."""

    def run(text, *argv, **environment):
        env = {**os.environ, "PYTHONPATH": PACKAGE, **environment}
        return subprocess.run([*(argv or [sys.executable]), "-c", text], capture_output=True, text=True, timeout=300, env=env)

    return run
