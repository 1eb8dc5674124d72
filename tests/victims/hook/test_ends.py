"""The risk: a program whose end is another one than stock's. What answers its modules holds functions of the program's, and TorchDynamo modules by name; were they
still held when Python clears the program's own module, files that are open would lose what was written last and finalizers would not run, or find nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = Path(os.environ["IPEXRUN_BUILD_DIR"])
PROGRAM = """
import os, sys
import torch
from torch import nn

log = open(sys.argv[1], "w")  # never closed: Python writes what is left when it clears the module

class Finalized:
    def __del__(self):
        os.write(1, f"finalized, {scale}\\n".encode())

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

    def forward(self, x):
        return scale * self.inner(x)

scale = 2.0
held = Finalized()
model = Model().eval()
with torch.no_grad():
    for _ in range(40):
        model(torch.ones(8, 64))
if "_ipexrun_hook" in sys.modules:
    import ipexrun
    assert ipexrun.report()["modules"]
log.write("a line\\n" * 10)
"""


@pytest.mark.parametrize("mode", ["stock", "dynamo", "trace"])
def test_files_are_written_and_finalizers_run(mode, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    launcher = [] if mode == "stock" else [BUILD / "bin/ipexrun", "--graph-mode", mode]
    argv = [*launcher, sys.executable, tmp_path / "program.py", tmp_path / "log.txt"]
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_LOG": "error"}
    done = subprocess.run([str(word) for word in argv], env=environment, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "finalized, 2.0\n", "")
    assert (tmp_path / "log.txt").read_text() == "a line\n" * 10
