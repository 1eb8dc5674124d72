"""Tests of device xpu run on whatever OpenCL has here, PoCL's CPU device for one. Without a driver they are skipped, and where it ends the process that
opens it (PoCL 3.1 does so where /sys is not mounted)."""

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

    opened = subprocess.run([sys.executable, "-c", "import torch; from ipexrun import xpu; xpu.install() or torch.ones(2, device='xpu').sum().item()"],
                            capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": PACKAGE})
    if opened.returncode < 0:
        pytest.skip(f"the OpenCL driver ends the process with signal {-opened.returncode}: {opened.stderr.strip().splitlines()[-1:]}")
    problem = xpu.install()
    if problem:
        pytest.skip(f"no device: {problem}")
    return xpu


@pytest.fixture
def child():
    """Runs a program in a process of its own: child(text, **environment) -> CompletedProcess."""

    def run(text, *argv, **environment):
        env = {**os.environ, "PYTHONPATH": PACKAGE, **environment}
        return subprocess.run([*(argv or [sys.executable]), *(["-c", text] if text else [])], capture_output=True, text=True, timeout=300, env=env)

    return run
