"""A torch program under ipexrun: the kill switch keeps everything of ours out of the process."""
import ast
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
BUILD = pathlib.Path(os.environ.get("IPEXRUN_BUILD_DIR", pathlib.Path(__file__).parents[2] / "build/dev"))
MAPPED = "import torch; print(sorted({l.split('/')[-1].strip() for l in open('/proc/self/maps') if 'ipexrun' in l}))"


def test_the_kill_switch_maps_nothing_of_ours():
    argv = [BUILD / "bin" / "ipexrun", sys.executable, "-c", MAPPED]
    done = subprocess.run(argv, env={**os.environ, "IPEXRUN_DISABLE": "1"}, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert not [name for name in ast.literal_eval(done.stdout) if "plugin" in name or "torch" in name], done.stdout
