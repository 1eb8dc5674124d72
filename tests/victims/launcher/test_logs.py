"""Logs lose nothing, whatever happens to the launcher, its stdout or the file system."""
import contextlib
import os
import re
import resource
import subprocess

import pytest

from conftest import inner_launcher

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


def test_two_runs_of_the_same_second_do_not_share_a_log(run_plan, tmp_path, witness, start, sh):
    first = start([run_plan, "--log-dir", tmp_path, "--", sh, "-c", "echo first; echo up >/dev/fd/$WITNESS; read go"], stdin=subprocess.PIPE,
                  stdout=subprocess.DEVNULL)
    witness.wait_for(b"up\n")
    second = subprocess.run([run_plan, "--log-dir", tmp_path, "--", "/bin/echo", "second"], capture_output=True, text=True, timeout=60)
    assert (second.returncode, second.stdout) == (0, "second\n")
    assert "another run writes to" in second.stderr and "run_0.2.log" in second.stderr
    first.stdin.close()
    assert first.wait(60) == 1  # read at the end of its input
    assert (tmp_path / "run_0.log").read_text() == "first\n"
    assert (tmp_path / "run_0.2.log").read_text() == "second\n"


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


@contextlib.contextmanager
def small_file_system(folder, size="64k"):
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("instances", [1, 2])
def test_a_full_log_folder_costs_the_log_and_nothing_else(run_plan, tmp_path, python, instances):
    code = 7 if instances == 1 else 0  # of several, a failure would end the others
    with small_file_system(tmp_path / "small") as room:
        done = subprocess.run([run_plan, "--log-dir", room, *["--cpus", "-"] * instances, "--", python, "-c", WRITER + f"sys.stdout.flush(); sys.exit({code})"],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == code
        lines = [line for line in done.stderr.splitlines() if "cannot be written" in line]
        assert len(lines) == instances and all("goes on" in line and "No space left" in line for line in lines), done.stderr
        for i in range(instances):
            written = (room / f"run_{i}.log").read_text()
            assert expected(str(i)).startswith(written)
        assert sum((room / f"run_{i}.log").stat().st_size for i in range(instances)) > 32768
        shown = done.stdout if instances == 1 else "".join(line[4:] for line in done.stdout.splitlines(keepends=True) if line.startswith("[1] "))
        assert shown == expected(str(instances - 1))  # whole, though most of it is in no file


def test_when_there_is_room_again_the_log_goes_on_and_marks_the_gap(run_plan, tmp_path, witness, start, sh):
    """The room is the launcher's limit of file size, which can be taken away and given back to the byte."""
    gates = [tmp_path / "first", tmp_path / "second"]  # one each: opened again, the second read could meet the first writer's end
    for gate in gates:
        os.mkfifo(gate)
    text = f"echo before; echo up >/dev/fd/$WITNESS; read go < {gates[0]}; echo lost; echo up >/dev/fd/$WITNESS; read go < {gates[1]}; echo after"
    launcher = start([run_plan, "--log-dir", tmp_path, "--", sh, "-c", text], stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE, text=True)
    witness.wait_for(b"up", 1)
    assert launcher.stdout.readline() == "before\n"  # the log has it
    inner = inner_launcher(launcher)
    usual = resource.prlimit(inner, resource.RLIMIT_FSIZE, ((tmp_path / "run_0.log").stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    gates[0].write_text("go\n")
    assert "goes on" in launcher.stderr.readline()
    witness.wait_for(b"up", 2)
    assert launcher.stdout.readline() == "lost\n"
    resource.prlimit(inner, resource.RLIMIT_FSIZE, usual)
    gates[1].write_text("go\n")
    rest, _ = launcher.communicate(timeout=60)
    assert (launcher.returncode, rest) == (0, "[ipexrun: 5 bytes are missing here: File too large]\nafter\n")
    assert (tmp_path / "run_0.log").read_text() == "before\n" + rest


def test_a_limit_of_file_size_does_not_end_the_program_or_the_launcher(run_plan, tmp_path, python):
    done = subprocess.run([run_plan, "--log-dir", tmp_path, "--", python, "-c", WRITER], capture_output=True, text=True, timeout=120,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)))
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected("0")
    assert (tmp_path / "run_0.log").stat().st_size == 100_000
    assert re.fullmatch(r"ipexrun: instance 0 goes on, but its output cannot be written to '.*': File too large\n", done.stderr)


def test_no_room_for_event_files_costs_the_summary_only(run_plan, tmp_path):
    with small_file_system(tmp_path / "small") as room:
        done = subprocess.run([run_plan, "--run-dir", room, "--", "/bin/echo", "x"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "x\n")
        assert "there will be no summary" in done.stderr and done.stderr.count("\n") == 1
