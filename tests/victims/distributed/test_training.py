"""Real 2-rank data-parallel training over gloo: with ipexrun and its optimizations the losses are those of plain torchrun."""
import json
import os
import re
import sys

import pytest
from conftest import ONE_FAILS, TOP, environment, needs_two_cpus, run

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)
pytestmark = needs_two_cpus

PROGRAM = str(TOP / "examples" / "ddp_train.py")
STEPS = 5
TOLERANCE = 1e-5  # rules.md: relative, float32


@pytest.fixture(scope="session")
def plain_losses(tmp_path_factory):
    out = tmp_path_factory.mktemp("plain") / "losses.json"
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, PROGRAM, "--steps", STEPS, "--losses", out]
    done = run(argv, environment(OMP_NUM_THREADS=1))
    assert done.returncode == 0, done.shown
    return json.loads(out.read_text())


def compare(done, out, plain, ranks=2):
    assert done.returncode == 0, done.shown
    assert len(re.findall(r"rank \d of 2: ", done.stdout)) == ranks, done.shown
    losses = json.loads(out.read_text())
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses, plain, strict=True))
    assert len(losses) == STEPS and worst <= TOLERANCE, (losses, plain)
    assert losses[-1] < losses[0]


# What the selection measures decides in "select"; "forced" takes our float32 kernel wherever it can run, gradients included.
@pytest.mark.parametrize("force", ["", "onednn_f32_packed"], ids=["select", "forced"])
def test_torchrun(ipexrun, tmp_path, plain_losses, force):
    out = tmp_path / "losses.json"
    env = environment(**({"IPEXRUN_FORCE": force} if force else {}))
    done = run([ipexrun, "--nproc-per-node", 2, "--dtype", "float32", PROGRAM, "--steps", STEPS, "--losses", out], env)
    compare(done, out, plain_losses)


def test_mpirun(ipexrun, tmp_path, plain_losses, mpi):
    _, env = mpi
    out = tmp_path / "losses.json"
    done = run([ipexrun, "--engine", "mpirun", "--nproc-per-node", 2, "--dtype", "float32", PROGRAM, "--steps", STEPS, "--losses", out], env)
    compare(done, out, plain_losses)


def test_an_unedited_script_under_mpirun_itself(ipexrun, tmp_path, plain_losses, mpi):
    flavour, env = mpi
    out = tmp_path / "losses.json"
    unbound = ["--bind-to", "none", "--oversubscribe"] if flavour == "openmpi" else []
    env["MASTER_PORT"] = str(20000 + os.getpid() % 20000)
    done = run(["mpirun", *unbound, "-np", 2, ipexrun, "--dtype", "float32", PROGRAM, "--steps", STEPS, "--losses", out], env)
    compare(done, out, plain_losses)


def test_a_rank_that_fails_in_training_ends_all(ipexrun, tmp_path):
    program = tmp_path / "fails.py"
    program.write_text(ONE_FAILS)
    done = run([ipexrun, "--nproc-per-node", 2, program], environment())
    assert done.returncode == 3, done.shown
    assert "rank 1 exited with code 3" in done.stderr, done.shown


def test_bench_measures_rank_0(ipexrun, tmp_path):
    report = tmp_path / "report.json"
    done = run([ipexrun, "--nproc-per-node", 2, "--bench-output", report, PROGRAM, "--steps", 40], environment())
    assert done.returncode == 0, done.shown
    assert report.exists() and done.stdout.count("of 2: ") == 2, done.shown
