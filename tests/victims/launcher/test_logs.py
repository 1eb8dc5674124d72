"""Logs lose nothing, whatever happens to the launcher, its stdout or the file system."""
import os
import subprocess

import pytest

LINES = 200_000
WRITER = f"""
import os, sys
for i in range({LINES}):
    sys.stdout.write('line %d of instance %s\\n' % (i, os.environ['INSTANCE']))
"""


def expected(instance):
    return "".join(f"line {i} of instance {instance}\n" for i in range(LINES))


def test_logs_and_what_is_shown_are_complete(run_plan, tmp_path, python):
    done = subprocess.run([run_plan, "--log-dir", tmp_path / "new" / "logs", "--cpus", "-", "--cpus", "-", "--", python, "-c", WRITER],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines(keepends=True)
    for i in (0, 1):
        assert (tmp_path / "new" / "logs" / f"run_{i}.log").read_text() == expected(i)
        assert "".join(line[4:] for line in shown if line.startswith(f"[{i}] ")) == expected(i)
    assert len(shown) == 2 * LINES


def test_one_instance_is_shown_without_prefix_and_with_both_streams_in_order(run_plan, tmp_path, sh):
    done = subprocess.run([run_plan, "--log-dir", tmp_path, "--", sh, "-c", "echo a; echo b >&2; printf c"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("a\nb\nc", "")
    assert (tmp_path / "run_0.log").read_text() == "a\nb\nc"


def test_an_unfinished_last_line_of_several_instances_is_ended(run_plan, tmp_path, sh):
    done = subprocess.run([run_plan, "--log-dir", tmp_path, "--cpus", "-", "--cpus", "-", "--", sh, "-c", "printf $INSTANCE"],
                          capture_output=True, text=True)
    assert sorted(done.stdout.splitlines()) == ["[0] 0", "[1] 1"]


def test_logs_survive_the_death_of_the_launcher(run_plan, tmp_path, witness, start, python):
    text = "import os, signal; print('before', flush=True); os.write(int(os.environ['WITNESS']), b'up\\n'); signal.pause()"
    launcher = start([run_plan, "--log-dir", tmp_path, "--cpus", "-", "--cpus", "-", "--", python, "-c", text], stdout=subprocess.DEVNULL)
    witness.wait_for(b"up\n", 2)
    launcher.kill()
    witness.wait_for_end()
    assert [(tmp_path / f"run_{i}.log").read_text() for i in (0, 1)] == ["before\n"] * 2


def test_a_second_run_appends(run_plan, tmp_path):
    for _ in range(2):
        done = subprocess.run([run_plan, "--log-dir", tmp_path, "--", "/bin/echo", "x"], capture_output=True, text=True)
        assert done.stdout == "x\n"
    assert (tmp_path / "run_0.log").read_text() == "x\nx\n"


def test_a_closed_stdout_holds_nobody_up(run_plan, tmp_path, python):
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([run_plan, "--log-dir", tmp_path, "--", python, "-c", WRITER], stdout=write_end, stderr=subprocess.PIPE, timeout=120)
    os.close(write_end)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run_0.log").read_text() == expected("0")


def test_a_stdout_that_nobody_reads_holds_no_instance_up(run_plan, tmp_path, witness, start, python):
    text = WRITER + "sys.stdout.flush(); os.write(int(os.environ['WITNESS']), b'done\\n')"
    read_end, write_end = os.pipe()
    launcher = start([run_plan, "--log-dir", tmp_path, "--", python, "-c", text], stdout=write_end)
    os.close(write_end)
    witness.wait_for(b"done\n")  # while the pipe to us is full
    with os.fdopen(read_end) as shown:
        assert shown.read() == expected("0")
    assert launcher.wait(60) == 0


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_descriptors_that_are_closed_stay_closed_for_the_program(run_plan, tmp_path, sh, closed):
    text = f"for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] || list=$list$fd; done; printf %s $list > {tmp_path / 'closed'}"
    closing = " ".join(("<&-", ">&-", "2>&-")[fd] for fd in closed)
    command = f'exec "$0" --cpus - --run-dir {tmp_path} -- {sh} -c \'{text}\' {closing}'
    assert subprocess.run([sh, "-c", command, run_plan], timeout=60).returncode == 0
    assert (tmp_path / "closed").read_text() == "".join(map(str, closed))


def test_captured_output_is_kept_and_passed_on(run_plan, tmp_path, python):
    done = subprocess.run([run_plan, "--capture", "--run-dir", tmp_path, "--", python, "-c", WRITER], capture_output=True, text=True, timeout=120)
    assert done.stdout == (tmp_path / "instance-0.out").read_text() == expected("0")


def test_quiet_runs_show_nothing_and_keep_everything(run_plan, tmp_path, sh):
    done = subprocess.run([run_plan, "--capture", "--quiet", "--run-dir", tmp_path, "--", sh, "-c", "echo out; echo err >&2"],
                          capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "instance-0.out").read_text() == "out\n"
    assert (tmp_path / "instance-0.err").read_text() == "err\n"


def test_a_log_folder_that_cannot_be_made_stops_everything_with_one_line(run_plan, tmp_path):
    (tmp_path / "file").write_text("")
    done = subprocess.run([run_plan, "--log-dir", tmp_path / "file" / "logs", "--", "/bin/echo", "never"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "cannot create log folder" in done.stderr


def test_a_full_log_folder_is_the_programs_error_as_it_would_be_by_itself(run_plan, tmp_path, python):
    room = tmp_path / "small"
    room.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", room], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        done = subprocess.run([run_plan, "--log-dir", room, "--", python, "-c", WRITER], capture_output=True, text=True, timeout=60)
        assert done.returncode not in (0, 127)
        written = (room / "run_0.log").read_text()
        assert len(written) > 32768 and expected("0").startswith(written)
        assert done.stdout == written
    finally:
        subprocess.run(["umount", room], check=True)


def test_no_room_for_event_files_costs_the_summary_only(run_plan, tmp_path):
    room = tmp_path / "small"
    room.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", room], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        done = subprocess.run([run_plan, "--run-dir", room, "--", "/bin/echo", "x"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "x\n")
        assert "there will be no summary" in done.stderr and done.stderr.count("\n") == 1
    finally:
        subprocess.run(["umount", room], check=True)
