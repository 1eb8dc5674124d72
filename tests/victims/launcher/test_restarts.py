"""--max-restarts and --timeout: what is started again, what counts as the result, and that an end is an end."""
import os
import signal
import subprocess

import pytest

# Counts its starts in $COUNT.INSTANCE, then does what the list in $DOES says for that start: an exit code, or "k9" for a signal.
PROGRAM = """
name=$COUNT.$INSTANCE; echo x >> $name; n=$(wc -l < $name)
echo "start $n restart ${IPEXRUN_RESTART:-none} events ${IPEXRUN_EVENTS:-none}"
set -- $DOES; shift $((n - 1))
case $1 in k*) kill -${1#k} $$;; wait) echo up >/dev/fd/$WITNESS; exec sleep 600;; *) exit $1;; esac
"""


@pytest.fixture
def run(run_plan, tmp_path, sh):
    def run(does, *options, instances=1, restarts=3):
        done = subprocess.run([run_plan, *options, "--max-restarts", str(restarts), "--restart-pause-ms", "1", *["--cpus", "-"] * instances,
                               "--", sh, "-c", "ulimit -c 0;" + PROGRAM],
                              env={**os.environ, "COUNT": str(tmp_path / "count"), "DOES": does, "IPEXRUN_LOG": "info"},
                              capture_output=True, text=True, timeout=120)
        done.starts = [len((tmp_path / f"count.{i}").read_text().split()) for i in range(instances)]
        return done

    return run


def test_a_restart_that_succeeds_counts(run):
    done = run("3 k9 0")
    assert (done.returncode, done.starts) == (0, [3]), done.stderr
    assert "instance 0 exited with code 3 after" in done.stderr and "(1 of 3)" in done.stderr
    assert "instance 0 was ended by SIGKILL after" in done.stderr and "(2 of 3)" in done.stderr
    assert "code 0 stopped 0 restarts 2" in done.stderr


def test_the_last_failure_counts_when_no_restart_is_left(run):
    done = run("3 4 5", restarts=2)
    assert (done.returncode, done.starts) == (5, [3]), done.stderr


def test_a_program_that_succeeds_is_not_started_again(run):
    done = run("0")
    assert (done.returncode, done.starts) == (0, [1])


def test_another_instance_goes_on_meanwhile(run):
    done = run("3 0", instances=2)
    assert (done.returncode, done.starts) == (0, [2, 2]), done.stderr
    assert "ending the others" not in done.stderr


def test_the_program_knows_and_the_log_goes_on(run, tmp_path):
    done = run("1 0", "--log-dir", tmp_path, "--run-dir", tmp_path)
    events = tmp_path / "instance-0.events"
    text = f"start 1 restart none events {events}\nstart 2 restart 1 events {events}\n"
    assert done.stdout == (tmp_path / "run_0.log").read_text() == text
    assert events.stat().st_size > 0


def test_an_unfinished_line_is_ended_before_the_next_start(run_plan, tmp_path, sh):
    text = "printf begun; [ -n \"$IPEXRUN_RESTART\" ]"
    done = subprocess.run([run_plan, "--max-restarts", "1", "--restart-pause-ms", "1", "--log-dir", tmp_path, "--", sh, "-c", text],
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "begun\nbegun")


def test_when_restarts_are_used_up_the_others_are_ended(run_plan, witness, start, tmp_path, sh):
    text = "if [ $INSTANCE = 0 ]; then echo up >/dev/fd/$WITNESS; exec sleep 600; fi; exit 6"
    launcher = start([run_plan, "--max-restarts", "2", "--restart-pause-ms", "1", "--cpus", "-", "--cpus", "-", "--", sh, "-c", text],
                     stderr=subprocess.PIPE, text=True)
    _, errors = launcher.communicate(timeout=60)
    witness.wait_for_end()
    assert launcher.returncode == 6
    assert errors.count("starting it again") == 2 and errors.count("instance 1 exited with code 6; ending the others") == 1, errors


@pytest.mark.parametrize("end", ["kill -9 $$", "kill -11 $$", "exit 3"])
def test_what_a_failed_start_left_running_is_gone_before_the_next(run_plan, witness, start, tmp_path, sh, end):
    text = f"""ulimit -c 0
if [ -n "$IPEXRUN_RESTART" ]; then kill -0 $(cat left) && exit 7; exit 0; fi
(trap '' TERM HUP; echo up >/dev/fd/$WITNESS; exec sleep 600) &
echo $! > left; read go; {end}"""
    launcher = start([run_plan, "--max-restarts", "1", "--restart-pause-ms", "1", "--", sh, "-c", text], cwd=tmp_path, stdin=subprocess.PIPE)
    witness.wait_for(b"up")
    launcher.stdin.write(b"go\n")
    launcher.stdin.close()
    assert launcher.wait(60) == 0
    witness.wait_for_end()


def test_ctrl_c_during_the_pause_ends_the_run(run_plan, start, witness, sh):
    text = "echo up >/dev/fd/$WITNESS; exit 6"
    launcher = start([run_plan, "--max-restarts", "1", "--restart-pause-ms", "1000000", "--", sh, "-c", text], stderr=subprocess.PIPE, text=True)
    assert "starting it again in 30.0 s" in launcher.stderr.readline()  # the pause has begun; it is never longer than that
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(20) == 6
    assert witness.wait_for_end() == b"up\n"


def test_a_request_to_end_is_no_failure_to_be_repaired(run_plan, start, witness, sh):
    launcher = start([run_plan, "--max-restarts", "5", "--restart-pause-ms", "1", "--", sh, "-c", "echo up >/dev/fd/$WITNESS; exec sleep 600"])
    witness.wait_for(b"up\n")
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(60) == 143
    assert witness.wait_for_end() == b"up\n"


def test_a_program_that_has_gone_meanwhile_is_said(run_plan, tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nrm $0\nexit 3\n")
    program.chmod(0o755)
    done = subprocess.run([run_plan, "--max-restarts", "2", "--restart-pause-ms", "1", "--", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 127
    assert "cannot be started again" in done.stderr and done.stderr.count("\n") == 2, done.stderr


@pytest.mark.parametrize("trap", ["", "trap '' TERM;", "trap 'exit 0' TERM;"])
def test_the_time_limit(run_plan, witness, start, sh, trap):
    """Whether the program dies of SIGTERM, ignores it or ends well: 124, as with timeout(1)."""
    text = trap + "echo up >/dev/fd/$WITNESS; while :; do sleep 0.1; done"
    launcher = start([run_plan, "--timeout-ms", "300", "--grace-ms", "2000", "--cpus", "-", "--cpus", "-", "--", sh, "-c", text],
                     stderr=subprocess.PIPE, text=True)
    _, errors = launcher.communicate(timeout=60)
    witness.wait_for_end()
    assert launcher.returncode == 124
    assert errors.startswith("ipexrun: the time limit of 0.3 s is over; ending instance 0, 1, which still ran\n")
    assert errors.count("ipexrun: ") == 1, errors


def test_the_time_limit_names_only_those_that_still_run(run_plan, witness, start, sh):
    text = "[ $INSTANCE = 0 ] && exit 0; exec sleep 600"
    launcher = start([run_plan, "--timeout-ms", "3000", "--cpus", "-", "--cpus", "-", "--", sh, "-c", text], stderr=subprocess.PIPE, text=True)
    _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 124
    assert "ending instance 1, which still ran" in errors


def test_the_time_limit_ends_a_pause(run_plan, sh):
    done = subprocess.run([run_plan, "--max-restarts", "1", "--restart-pause-ms", "1000000", "--timeout-ms", "300", "--", sh, "-c", "exit 3"],
                          capture_output=True, text=True, timeout=25)
    assert done.returncode == 124
    assert "no instance was running" in done.stderr


def test_a_run_within_its_time_limit_is_untouched(run_plan, sh):
    done = subprocess.run([run_plan, "--timeout-ms", "1000000", "--", sh, "-c", "exit 5"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (5, "")
