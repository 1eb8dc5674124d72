"""What a user sees of ipexrun from the command line: instances on cores of their own, and other programs left as they are."""
import os
import pathlib
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ.get("IPEXRUN_BUILD_DIR", pathlib.Path(__file__).parents[2] / "build/dev"))
IPEXRUN = str(BUILD / "bin" / "ipexrun")
PRINT_MASK = "import os; print('mask', sorted(os.sched_getaffinity(0)))"


def run(*argv):
    return subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "program",
    [["git", "--version"], ["ls", "/usr"], [sys.executable, "-c", "print(1)"], [sys.executable, "-c", "raise SystemExit(7)"]],
    ids=["git", "ls", "python", "exit-code"],
)
def test_a_program_without_torch_is_unchanged(program):
    plain, ours = run(*program), run(IPEXRUN, *program)
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_two_instances_have_disjoint_masks_and_a_log_each(tmp_path):
    done = run(
        IPEXRUN, "--ninstances", 2, "--ncores-per-instance", 1, "--use-logical-cores", "--log-dir", tmp_path, sys.executable, "-c", PRINT_MASK
    )
    assert done.returncode == 0, done.stderr
    masks = [line for path in tmp_path.rglob("*instance*") for line in path.read_text().splitlines() if line.startswith("mask")]
    assert len(masks) == 2 and len(set(masks)) == 2, (masks, list(tmp_path.iterdir()), done.stderr)


def test_require_shim_without_torch_fails_with_a_line():
    done = run(IPEXRUN, "--require-shim", sys.executable, "-c", "print(1)")
    assert done.returncode != 0
    assert "ipexrun:" in done.stderr


@pytest.mark.parametrize("command", ["tune", "xpu"])
def test_a_command_of_later_is_refused_in_one_line(command):
    done = run(IPEXRUN, command)
    assert done.returncode == 2
    assert done.stderr.startswith("ipexrun:") and done.stderr.count("\n") == 1
