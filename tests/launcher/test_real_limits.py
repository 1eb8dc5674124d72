"""Limits of the machine that runs the tests: affinity, and a real CPU quota where a cgroup may be made (skipped elsewhere)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

BINARY = Path(os.environ["IPEXRUN_BUILD_DIR"]) / "bin" / "ipexrun"


def plan(*args, before=None):
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run([BINARY, "--dry-run", "--json", *args, "true"], capture_output=True, text=True, timeout=60, env=env,
                          preexec_fn=before)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_plans_for_the_affinity_it_was_given():
    last = max(os.sched_getaffinity(0))
    instance = plan(before=lambda: os.sched_setaffinity(0, {last}))["instances"][0]
    assert instance["cpus"] == [last] and instance["threads"] == 1


def test_a_cpu_outside_of_the_affinity_is_refused():
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU")
    done = subprocess.run([BINARY, "--dry-run", "--cores-list", str(cpus[0]), "true"], capture_output=True, text=True, timeout=60,
                          preexec_fn=lambda: os.sched_setaffinity(0, {cpus[1]}))
    assert done.returncode == 2 and f"allowed: {cpus[1]}" in done.stderr


@pytest.fixture
def v1_group():
    parent = Path("/sys/fs/cgroup/cpu")
    if not (parent / "cpu.shares").exists():
        pytest.skip("no cgroup v1 cpu controller")
    upper = parent / f"ipexrun-test-{os.getpid()}"
    group = upper / "inner"
    try:
        upper.mkdir()
        group.mkdir()
    except OSError as failure:
        pytest.skip(f"no cgroup can be made: {failure}")
    yield upper, group
    group.rmdir()
    upper.rmdir()


def test_a_real_quota_of_an_ancestor_sizes_the_threads_and_nothing_is_pinned(v1_group):
    upper, group = v1_group
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    (upper / "cpu.cfs_quota_us").write_text("150000")  # 1.5 CPUs, on the group above the process's own
    done = plan(before=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
    assert done["instances"][0]["threads"] == 1
    assert any(reason["value"] == "not pinned" for reason in done["reasons"]), done["reasons"]
