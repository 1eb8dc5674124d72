"""What the samples of bench/'s drivers share. Importing it lets bench/ be imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
needs_launcher = pytest.mark.skipif(not (Path(BUILD) / "bin" / "ipexrun").exists(), reason="this build has no launcher")


def minutes(whole):
    """As an argument: what `./dev test --all` and pytest by itself run for; the sample of `./dev test` runs a third of it."""
    return str(whole / 3 if os.environ.get("IPEXRUN_TESTS") == "sample" else whole)


def run_driver(name, *arguments, timeout=800):
    """bench/NAME.py as a person runs it, on this build."""
    command = [sys.executable, str(BENCH / f"{name}.py"), "--build", BUILD, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)
