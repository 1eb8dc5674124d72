"""Limits of the machine that runs the tests: affinity, and real cgroups and user limits where they may be made (skipped elsewhere)."""

import ctypes
import json
import os
import resource
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


def topology(*args, before=None):
    done = subprocess.run([BINARY, "topology", "--json", *args], capture_output=True, text=True, timeout=60, preexec_fn=before)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def has_note(machine, part):
    return any(part in note for note in machine["notes"])


class Groups:
    """Groups of cgroup v1, two deep in each hierarchy that was asked for: the limit goes to the upper one, the process into the lower."""

    def __init__(self, controllers):
        self.upper = {}
        for name in controllers:
            parent = Path("/sys/fs/cgroup") / name
            if not (parent / "cgroup.procs").exists():
                self.remove()
                pytest.skip(f"no cgroup v1 {name} controller")
            upper = parent / f"ipexrun-test-{os.getpid()}"
            try:
                upper.mkdir()
                self.upper[name] = upper
                (upper / "inner").mkdir()
            except OSError as failure:
                self.remove()
                pytest.skip(f"no cgroup can be made: {failure}")

    def remove(self):
        for upper in self.upper.values():
            for folder in (upper / "inner", upper):
                if folder.exists():
                    folder.rmdir()

    def enter(self):
        for upper in self.upper.values():
            (upper / "inner" / "cgroup.procs").write_text(str(os.getpid()))


@pytest.fixture
def groups():
    made = []

    def make(*controllers):
        made.append(Groups(controllers))
        return made[-1]

    yield make
    for one in made:
        one.remove()


def test_a_real_quota_of_an_ancestor_sizes_the_threads_and_nothing_is_pinned(groups):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    group = groups("cpu")
    (group.upper["cpu"] / "cpu.cfs_quota_us").write_text("100000")  # 1 CPU
    done = plan(before=group.enter)
    assert done["instances"][0]["threads"] == 1
    assert any(reason["value"] == "not pinned" for reason in done["reasons"]), done["reasons"]
    machine = topology(before=group.enter)
    assert machine["quota_cpus"] == 1
    assert has_note(machine, f"{group.upper['cpu']}/cpu.cfs_quota_us")


def test_a_cgroup_namespace_hides_no_quota_that_its_mounts_show(groups):
    """As in a container that has the host's /sys/fs/cgroup: the mount is at "/../..", the own path is "/"."""
    clone_newcgroup = 0x02000000
    libc = ctypes.CDLL(None, use_errno=True)
    group = groups("cpu")
    (group.upper["cpu"] / "cpu.cfs_quota_us").write_text("100000")

    def enter():
        group.enter()
        if libc.unshare(clone_newcgroup) != 0:
            os._exit(77)

    done = subprocess.run([BINARY, "topology", "--json"], capture_output=True, text=True, timeout=60, preexec_fn=enter)
    if done.returncode == 77:
        pytest.skip("no cgroup namespace can be made")
    assert json.loads(done.stdout)["quota_cpus"] == 1, done.stdout


def test_a_real_quota_of_one_and_a_half_is_two_threads_and_pin_pins(groups):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    group = groups("cpu")
    (group.upper["cpu"] / "cpu.cfs_quota_us").write_text("150000")
    assert plan(before=group.enter)["instances"][0]["threads"] == 2
    pinned = plan("--pin", before=group.enter)
    assert not any(reason["value"] == "not pinned" for reason in pinned["reasons"]), pinned["reasons"]
    assert len(pinned["instances"][0]["cpus"]) == 2
    assert plan("--ninstances", "2", before=group.enter)["instances"][1]["threads"] == 1


def test_a_real_cpuset_is_told_from_affinity(groups):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU")
    group = groups("cpuset")
    upper = group.upper["cpuset"]
    for folder, allowed in ((upper, f"{cpus[0]},{cpus[-1]}"), (upper / "inner", str(cpus[-1]))):
        (folder / "cpuset.mems").write_text((Path("/sys/fs/cgroup/cpuset") / "cpuset.mems").read_text())
        (folder / "cpuset.cpus").write_text(allowed)
    machine = topology(before=group.enter)
    assert [core["cpus"] for core in machine["cores"]] == [[cpus[-1]]]
    assert has_note(machine, "(cpuset)")
    assert has_note(topology(before=lambda: os.sched_setaffinity(0, {cpus[0]})), "(affinity)")


def test_a_real_pids_limit_of_an_ancestor_says_how_many_threads_are_left(groups):
    group = groups("pids")
    (group.upper["pids"] / "pids.max").write_text("6")
    machine = topology(before=group.enter)
    assert 1 <= machine["max_threads"] <= 5
    assert has_note(machine, f"{group.upper['pids']}/pids.max")


def test_a_real_memory_limit_of_an_ancestor_is_the_machines_memory(groups):
    group = groups("memory")
    (group.upper["memory"] / "memory.limit_in_bytes").write_text(str(512 << 20))
    machine = topology(before=group.enter)
    assert machine["memory_limit_bytes"] == 512 << 20
    assert 0 < machine["memory_available_bytes"] <= 512 << 20
    assert has_note(machine, f"a memory limit of 512 MiB holds ({group.upper['memory']}/memory.limit_in_bytes)")


def test_a_machine_gathered_inside_real_limits_has_them_outside(groups, tmp_path):
    group = groups("cpu", "memory")
    (group.upper["cpu"] / "cpu.cfs_quota_us").write_text("50000")
    (group.upper["memory"] / "memory.limit_in_bytes").write_text(str(768 << 20))
    archive = tmp_path / "limited.tar.gz"
    done = subprocess.run([BINARY, "gather", archive], capture_output=True, text=True, timeout=60, preexec_fn=group.enter)
    assert done.returncode == 0, done.stderr
    machine = topology("--sysroot", archive)
    assert machine["quota_cpus"] == 0.5 and machine["memory_limit_bytes"] == 768 << 20
    assert not has_note(machine, "ipexrun-test"), "the group's name is nobody's business"
    assert plan("--sysroot", str(archive))["instances"][0]["threads"] == 1


def test_ulimit_u_of_a_plain_user_leaves_so_many_threads():
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    nobody = 65534

    def limited():
        resource.setrlimit(resource.RLIMIT_NPROC, (64, 64))
        os.setgid(nobody)
        os.setuid(nobody)

    try:
        machine = topology(before=limited)
    except (PermissionError, subprocess.SubprocessError) as failure:
        pytest.skip(f"another user cannot run the binary here: {failure}")
    assert 1 <= machine["max_threads"] <= 63

    def as_root():
        resource.setrlimit(resource.RLIMIT_NPROC, (64, 64))

    if Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]:
        assert not has_note(topology(before=as_root), "ulimit -u")  # root is exempt


def test_a_memory_policy_of_the_caller_is_seen():
    set_mempolicy, bind = 238, 2  # x86_64
    if os.uname().machine != "x86_64":
        pytest.skip("the number of the system call is x86's")
    libc = ctypes.CDLL(None, use_errno=True)
    node = topology()["nodes"][0]["node"]

    def bound():
        mask = ctypes.c_ulong(1 << node)
        if libc.syscall(set_mempolicy, bind, ctypes.byref(mask), ctypes.c_ulong(64)) != 0:
            os._exit(77)

    done = subprocess.run([BINARY, "topology", "--json"], capture_output=True, text=True, timeout=60, preexec_fn=bound)
    if done.returncode == 77:
        pytest.skip("set_mempolicy is refused here")
    machine = json.loads(done.stdout)
    assert machine["memory_policy"] == f"bind:{node}"
    assert has_note(machine, "the caller set a memory policy")
