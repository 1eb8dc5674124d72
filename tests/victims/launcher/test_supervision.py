"""Exit codes, the end of the rest, orphans: what is left of the instances in every way a run can end."""
import os
import re
import signal
import subprocess

import pytest

# Writes its name when it is up, then waits for a signal.
WAITER = "import os, signal; os.write(int(os.environ['WITNESS']), b'up\\n'); signal.pause()"


def run(argv, **how):
    how.setdefault("timeout", 60)
    return subprocess.run([str(word) for word in argv], capture_output=True, text=True, **how)


def test_exit_codes_are_the_programs_own(run_plan, sh):
    for code in (0, 1, 2, 77, 126, 127, 255):
        assert run([run_plan, "--", sh, "-c", f"exit {code}"]).returncode == code


def test_death_by_signal_is_128_plus_n(run_plan, sh):
    for number in (signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT, signal.SIGPIPE):
        assert run([run_plan, "--", sh, "-c", f"ulimit -c 0; kill -{number.value} $$"]).returncode == 128 + number


def test_what_cannot_be_started_says_so_and_starts_nothing(run_plan, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    data = tmp_path / "data"
    data.write_bytes(b"\x7fELF no program")
    data.chmod(0o755)
    for path, code in ((tmp_path / "missing", 127), (script, 127), (data, 126), (tmp_path, 126)):
        done = run([run_plan, "--cpus", "-", "--cpus", "-", "--", path])
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
        assert done.stderr.startswith("ipexrun: cannot start"), done.stderr


def test_arguments_and_environment_arrive_untouched(run_plan, python):
    words = ["", "a b", "$HOME", "'", '"', "\\", "*", "é", "-x", "--"]
    done = run([run_plan, "--", python, "-c", "import sys; print(sys.argv[1:])", *words])
    assert done.stdout == repr(words) + "\n"


def test_first_failure_ends_the_rest(run_plan, witness, start, sh):
    text = "if [ $INSTANCE = 1 ]; then exit 3; fi; trap 'echo term >/dev/fd/$WITNESS; exit 9' TERM; echo up >/dev/fd/$WITNESS; while :; do sleep 1; done"
    launcher = start([run_plan, "--cpus", "-", "--cpus", "-", "--cpus", "-", "--", sh, "-c", text], stderr=subprocess.PIPE, text=True)
    _, errors = launcher.communicate(timeout=60)
    witness.wait_for_end()
    assert launcher.returncode == 3
    assert "instance 1 exited with code 3" in errors


def test_an_instance_that_ignores_sigterm_is_killed_after_the_grace_period(run_plan, witness, start, sh):
    text = "trap '' TERM; echo up >/dev/fd/$WITNESS; if [ $INSTANCE = 0 ]; then exit 5; fi; while :; do sleep 1; done"
    launcher = start([run_plan, "--grace-ms", "50", "--cpus", "-", "--cpus", "-", "--", sh, "-c", text], stderr=subprocess.DEVNULL)
    assert launcher.wait(60) == 5
    witness.wait_for_end()  # its `sleep` as well: the whole group is killed


def test_killing_the_launcher_leaves_no_process(run_plan, witness, start, python):
    launcher = start([run_plan, "--cpus", "-", "--cpus", "-", "--", python, "-c", WAITER])
    witness.wait_for(b"up\n", 2)
    launcher.kill()
    witness.wait_for_end()


def test_killing_the_launcher_of_one_instance_leaves_no_process(run_plan, witness, start, python):
    launcher = start([run_plan, "--", python, "-c", WAITER])
    witness.wait_for(b"up\n")
    launcher.kill()
    witness.wait_for_end()


def test_a_tick_that_says_stop_ends_the_run_without_failure(run_plan, witness, start, python):
    launcher = start([run_plan, "--stop-after-ms", "50", "--cpus", "-", "--cpus", "-", "--", python, "-c", WAITER],
                     env={"IPEXRUN_LOG": "info"}, stderr=subprocess.PIPE, text=True)
    _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 0, errors
    assert errors.count("code 143 stopped 1") == 2, errors
    witness.wait_for_end()


def test_two_instances_have_disjoint_masks_read_back_in_the_child(run_plan, tmp_path, sh):
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("needs two CPUs")
    command = [run_plan, "--run-dir", tmp_path, "--log-dir", tmp_path, "--cpus", allowed[0], "--cpus", allowed[1], "--", sh, "-c",
               "grep Cpus_allowed_list /proc/self/status"]
    done = run(command, env={**os.environ, "IPEXRUN_LOG": "info"})
    seen = [(tmp_path / f"run_{i}.log").read_text().split()[-1] for i in (0, 1)]
    assert seen == [str(allowed[0]), str(allowed[1])]
    assert re.findall(r"instance (\d): pid \d+, cores (\S+)", done.stderr) == [("0", seen[0]), ("1", seen[1])]


def test_a_mask_that_cannot_be_set_is_said_and_the_program_runs(run_plan):
    done = run([run_plan, "--cpus", "100000", "--", "/bin/true"])
    assert done.returncode == 0
    assert done.stderr == "ipexrun: instance 0 runs where the system puts it: sched_setaffinity: Invalid argument\n"


def test_memory_is_bound_to_the_node(run_plan, tmp_path, sh):
    done = run([run_plan, "--node", "0", "--run-dir", tmp_path, "--", sh, "-c", "grep -m1 -o 'bind:0' /proc/self/numa_maps"])
    if "set_mempolicy" in done.stderr or not os.path.exists("/proc/self/numa_maps"):
        pytest.skip("memory policy is not allowed here, or the kernel has no NUMA")
    assert done.stdout == "bind:0\n"


@pytest.mark.parametrize("answer, words", [("eperm", "Operation not permitted"), ("enosys", "Function not implemented")])
def test_without_permission_for_memory_policy_cores_alone_are_bound(run_plan, filtered, answer, words):
    core = min(os.sched_getaffinity(0))
    done = run([*filtered(answer), run_plan, "--cpus", core, "--node", "0", "--", "/bin/grep", "Cpus_allowed_list", "/proc/self/status"])
    assert done.returncode == 0
    assert done.stdout.split() == ["Cpus_allowed_list:", str(core)]
    assert done.stderr == f"ipexrun: instance 0 runs on its cores, its memory is left unbound: set_mempolicy: {words}\n"


def test_a_program_is_the_one_whom_a_service_manager_names(run_plan, python):
    """systemd's sockets and watchdog: LISTEN_PID is the process that it started, which is the launcher."""
    text = "import os; print([name for name in ('LISTEN_PID', 'WATCHDOG_PID', 'OTHER') if os.environ.get(name) == str(os.getpid())], os.environ['OTHER'] == os.environ['ITSELF'])"
    shell = "export LISTEN_PID=$$ WATCHDOG_PID=$$ OTHER=$$ ITSELF=$$ LISTEN_FDS=1; exec \"$@\""
    done = run(["sh", "-c", shell, "sh", run_plan, "--", python, "-c", text])
    assert done.stdout == "['LISTEN_PID', 'WATCHDOG_PID'] True\n", done.stderr
    done = run(["sh", "-c", "export LISTEN_PID=1; exec \"$@\"", "sh", run_plan, "--", python, "-c", "import os; print(os.environ['LISTEN_PID'])"])
    assert done.stdout == "1\n", done.stderr


def test_a_filter_that_kills_is_named(run_plan, filtered):
    done = run([*filtered("kill"), run_plan, "--node", "0", "--", "/bin/echo", "never"])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "SIGSYS" in done.stderr and "--no-memory-bind" in done.stderr
    # Without a memory policy to set there is no such call.
    assert run([*filtered("kill"), run_plan, "--", "/bin/echo", "runs"]).stdout == "runs\n"
