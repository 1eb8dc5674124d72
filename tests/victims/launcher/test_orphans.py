"""Whatever is killed, nothing stays behind: workers, shells, orphans and daemons, all of which ignore every polite request.

The witness's pipe ends when the last process that holds it has gone, so its end is the proof and a hang is the failure."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from conftest import children_of, inner_launcher

FAMILY = pathlib.Path(__file__).with_name("family.py")
ALL = [b"worker", b"worker", b"orphan", b"shell", b"headless", b"daemon", b"main"]


@pytest.fixture
def family(run_plan, python, witness, start):
    """family(instances, what, ...) -> the launcher, once the whole family is up."""

    def run(instances, what="all", *more, members=ALL, options=(), **how):
        cpus = ["--cpus", "-"] * instances
        launcher = start([run_plan, *options, *cpus, "--", python, FAMILY, what, *more], **how)
        for name in set(members):
            witness.wait_for(name + b" ", instances * members.count(name))
        return launcher

    yield run


def pids(witness, name):
    return [int(line.split()[2]) for line in witness.text.decode().splitlines() if line.startswith(name + " ")]


@pytest.mark.parametrize("instances", [1, 2])
def test_kill_9_of_the_launcher_leaves_nobody(family, witness, instances):
    family(instances).kill()
    witness.wait_for_end()


@pytest.mark.parametrize("instances", [1, 2])
def test_kill_9_of_its_inner_process_leaves_nobody_and_says_so(family, witness, instances):
    launcher = family(instances, stderr=subprocess.PIPE, text=True)
    os.kill(inner_launcher(launcher), signal.SIGKILL)
    witness.wait_for_end()
    assert launcher.wait(60) == 137
    assert launcher.stderr.read() == "ipexrun: the launcher itself was ended by signal 9; what it had started was ended\n"


@pytest.mark.parametrize("instances", [1, 2])
def test_kill_9_of_its_whole_process_group_leaves_nobody(family, witness, instances):
    launcher = family(instances, start_new_session=True)
    os.killpg(launcher.pid, signal.SIGKILL)
    witness.wait_for_end()


def test_kill_9_by_name_leaves_nobody(family, witness):
    """What `killall -9 NAME` and `pkill -9 NAME` do, here with the launcher's own processes only."""
    launcher = family(2)
    names = {pid: pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in (launcher.pid, inner_launcher(launcher))}
    for pid, name in names.items():
        if names[launcher.pid] in name:
            os.kill(pid, signal.SIGKILL)
    witness.wait_for_end()


def test_kill_9_of_one_instance_ends_its_family_and_the_other_instance(family, witness):
    launcher = family(2, options=["--grace-ms", "50"], stderr=subprocess.PIPE, text=True)
    os.kill(pids(witness, "main")[0], signal.SIGKILL)
    witness.wait_for_end()
    assert launcher.wait(60) == 137
    assert "was ended by SIGKILL; ending the others" in launcher.stderr.read()


def test_kill_9_of_the_only_instance_ends_its_family(family, witness):
    launcher = family(1)
    os.kill(pids(witness, "main")[0], signal.SIGKILL)
    witness.wait_for_end()
    assert launcher.wait(60) == 137


def test_the_time_limit_ends_the_family(family, witness):
    launcher = family(1, options=["--timeout-ms", "1500", "--grace-ms", "50"], members=[], stderr=subprocess.PIPE, text=True)
    witness.wait_for_end()
    assert launcher.wait(60) == 124


def test_a_crash_ends_what_is_attached_and_leaves_what_detached_itself(family, witness, start):
    """Ended by a signal, a program could not clean up; a daemon it left on purpose goes on, as it would without ipexrun."""
    launcher = family(1, "all", "then", "kill", str(int(signal.SIGTERM)), members=ALL[:-1], stdin=subprocess.PIPE)
    launcher.stdin.write(b"go\n")
    launcher.stdin.close()
    assert launcher.wait(60) == 143
    daemon, = pids(witness, "daemon")
    for name in ("worker", "orphan", "shell", "headless"):
        for pid in pids(witness, name):
            assert not os.path.exists(f"/proc/{pid}"), name
    os.kill(daemon, signal.SIGKILL)  # it was still there
    witness.wait_for_end()


def test_a_program_that_ends_by_itself_may_leave_processes_running(family, witness):
    launcher = family(1, "daemon", "then", "exit", "3", members=[b"daemon"], stdin=subprocess.PIPE)
    launcher.stdin.write(b"go\n")
    launcher.stdin.close()
    assert launcher.wait(60) == 3
    os.kill(pids(witness, "daemon")[0], signal.SIGKILL)
    witness.wait_for_end()


def test_orphans_that_end_while_the_program_runs_are_reaped(run_plan, witness, start, sh):
    # A shell leaves 20 orphans that end at once; its parent, the launcher's inner process, must not keep zombies of them.
    text = "for i in $(seq 20); do (true & ) ; done; echo up >/dev/fd/$WITNESS; read go"
    launcher = start([run_plan, "--", sh, "-c", text], stdin=subprocess.PIPE)
    witness.wait_for(b"up")
    inner = inner_launcher(launcher)
    deadline = time.monotonic() + 20
    while zombies_of(inner) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert zombies_of(inner) == []
    launcher.stdin.close()
    assert launcher.wait(60) == 1  # read at the end of its input


def zombies_of(parent):
    return [child for child, state in children_of(parent).items() if state == "Z"]


def test_many_rounds_leave_no_orphan_and_no_zombie_and_lose_no_exit_code(run_plan, witness, start, sh, python):
    """IPEXRUN_ROUNDS=200 for the long form. Each round runs two instances of which one leaves a worker and a code of its own."""
    rounds = int(os.environ.get("IPEXRUN_ROUNDS", "25"))
    program = "if [ $INSTANCE = 1 ]; then (trap '' TERM; sleep 600) & exit $((ROUND % 100 + 1)); fi; exec sleep 600"
    text = f"""
import os, subprocess, sys
for i in range({rounds}):
    code = subprocess.run([sys.argv[1], "--cpus", "-", "--cpus", "-", "--", sys.argv[2], "-c", sys.argv[3]], env={{**os.environ, "ROUND": str(i)}},
                          close_fds=False, stderr=subprocess.DEVNULL).returncode
    assert code == i % 100 + 1, (i, code)
try:
    os.waitpid(-1, os.WNOHANG)
    sys.exit("a child is left")
except ChildProcessError:
    print("clean")
"""
    loop = start([python, "-c", text, run_plan, sh, program], stdout=subprocess.PIPE, text=True)
    out, _ = loop.communicate(timeout=60 + 5 * rounds)
    assert out == "clean\n"
    witness.wait_for_end()
