"""`--bench` of training loops: steps, and where their time goes.

Risk covered: steps that are not seen, phases that are counted twice (checkpoints compute forward inside backward, closures inside the
optimizer), and a loader that waits without being named.
"""

import json
import os
import subprocess
import sys

import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]

PROGRAM = """
import sys, time, torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset
kind = sys.argv[1]
class Numbers(Dataset):
    def __len__(self): return 16 * 40
    def __getitem__(self, i):
        if kind == "loader": time.sleep(0.0005)
        return torch.full((64,), float(i % 7)), i % 4
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh())
        self.last = torch.nn.Linear(256, 4)
    def forward(self, x):
        return self.last(checkpoint(self.inner, x, use_reentrant=True) if kind == "checkpoint" else self.inner(x))
net = Net()
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2) if kind == "closure" else torch.optim.SGD(net.parameters(), lr=0.01)
def main():
    for x, y in DataLoader(Numbers(), batch_size=16):
        def closure():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x.requires_grad_(kind == "checkpoint")), y)
            loss.backward()
            return loss
        if kind == "closure": optimizer.step(closure)
        else: closure(); optimizer.step()
main()
"""


def bench(tmp_path, kind):
    out = tmp_path / "bench.json"
    command = [f"{BUILD}/bin/ipexrun", "--bench", "--bench-output", str(out), sys.executable, "-c", PROGRAM, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off"})
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), done.stderr


@pytest.mark.parametrize("kind", ["plain", "checkpoint", "closure", "loader"])
def test_steps_and_their_parts(tmp_path, kind):
    found, said = bench(tmp_path, kind)
    (row,) = found["training"]
    assert row["steps"] + row["left_out"] == 40 and row["steps"] >= 3
    parts = [row[part] for part in ("data_s", "forward_s", "backward_s", "optimizer_s")]
    assert all(part > 0 for part in parts)
    assert sum(parts) <= row["steps"] / row["steps_per_s"] * 1.001  # nothing is counted twice
    assert row["samples_per_s"] == pytest.approx(16 * row["steps_per_s"], rel=0.01)
    assert row["batches_per_s"] == pytest.approx(row["steps_per_s"], rel=0.05)
    assert "training steps" in said
    assert ("the loader gives" in row["bottleneck"]) or kind != "loader"


def test_inference_has_no_steps(tmp_path):
    out = tmp_path / "bench.json"
    program = "import torch\nm = torch.nn.Linear(8, 8)\nwith torch.no_grad():\n    for _ in range(50): m(torch.ones(4, 8))"
    done = subprocess.run([f"{BUILD}/bin/ipexrun", "--bench", "--bench-output", str(out), sys.executable, "-c", program], capture_output=True,
                          text=True, timeout=300, env={**os.environ, "IPEXRUN_CACHE": "off"})
    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())["training"] == [] and "training steps" not in done.stderr
