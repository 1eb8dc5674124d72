"""The status line: on a terminal that the program does not write to, gone before anything else is written, and nowhere else."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pytest

CLEAR = "\r\x1b[K"
WAITS = "echo up >/dev/fd/$WITNESS; read line < $GATE; echo line of $INSTANCE; exit $INSTANCE"


class Screen:
    """A launcher at a terminal of its own; `text` is all that it wrote there."""

    def __init__(self, argv, env, columns=80, stdout=None, keep=()):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            if stdout is not None:
                os.dup2(stdout, 1)
            for fd in keep:
                os.set_inheritable(fd, True)
            os.execvpe(str(argv[0]), [str(word) for word in argv], {**os.environ, "TERM": "xterm", **env})
        self.text = ""

    def read(self):
        ready, _, _ = select.select([self.fd], [], [], 20)
        assert ready, self.text
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # EIO: the last process closed its side
            data = b""
        self.text += data.decode()
        return data

    def wait_for(self, pattern):
        while not (found := re.search(pattern, self.text)):
            assert self.read(), self.text
        return found

    def end(self):
        while self.read():
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def shown(self):
        """What is left on the screen: each line as a terminal shows it after carriage returns and clearing."""
        lines = []
        for line in self.text.replace("\r\n", "\n").split("\n"):
            lines.append(line.rpartition(CLEAR)[2])
        return lines


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def open_gate(gate, times):
    with open(gate, "w") as out:
        out.write("go\n" * times)


@pytest.fixture
def screen(run_plan, sh, tmp_path, gate, witness):
    def start(instances, *options, text=WAITS, env=None, **how):
        argv = [run_plan, "--progress-after-ms", "0", *options, *["--cpus", "-"] * instances, "--", sh, "-c", text]
        return Screen(argv, {"GATE": str(gate), "WITNESS": str(witness.write_end), **(env or {})}, keep=[witness.write_end], **how)

    return start


@pytest.fixture
def line_elsewhere(screen, tmp_path):
    """line_elsewhere(age) returns when a launcher that was started now has shown its line at that age, in seconds: whatever waits beside
    it has had as much time to show one."""

    def wait(age):
        own_gate = tmp_path / "gate-elsewhere"
        os.mkfifo(own_gate)
        other = screen(1, "--log-dir", tmp_path / "logs-elsewhere", text="read line < $GATE", env={"GATE": str(own_gate)})
        other.wait_for(rf"running, ([{age}-9]|\d\d+) s")
        open_gate(own_gate, 1)
        assert other.end() == 0

    return wait


def test_the_line_counts_and_is_gone_at_the_end(screen, gate, tmp_path):
    one = screen(1, "--log-dir", tmp_path / "logs")
    one.wait_for(r"ipexrun: 1 of 1 running, \d+ s")
    open_gate(gate, 1)
    assert one.end() == 0
    assert one.shown() == ["line of 0", ""], one.text


def test_it_tells_what_happened_last(screen, gate, tmp_path):
    text = "if [ $INSTANCE = 1 ]; then exit 0; fi; " + WAITS
    one = screen(2, "--log-dir", tmp_path / "logs", text=text)
    one.wait_for(r"ipexrun: 1 of 2 running, \d+ s, instance 1 ended \(0\)")
    open_gate(gate, 1)
    assert one.end() == 0
    assert one.shown() == ["[0] line of 0", ""], one.text


def test_output_of_the_program_is_never_mixed_with_it(screen, gate, tmp_path):
    """The line comes back after each line of the program, and makes room for the next one."""
    gates = []
    for i in (0, 1):
        os.mkfifo(f"{gate}-{i}")
        gates.append(os.open(f"{gate}-{i}", os.O_RDWR))  # never at its end, whenever the program opens it
    text = "for i in 1 2 3; do echo line $i; read line < $GATE-$INSTANCE; done"
    one = screen(2, "--log-dir", tmp_path / "logs", text=text)
    for n in (1, 2, 3):
        one.wait_for(rf"(?s)(?=.*\[0\] line {n}\b.*running)(?=.*\[1\] line {n}\b.*running)")
        for fd in gates:
            os.write(fd, b"go\n")
    assert one.end() == 0
    for fd in gates:
        os.close(fd)
    assert sorted(one.shown()) == [""] + sorted(f"[{i}] line {n}" for i in (0, 1) for n in (1, 2, 3)), one.text


def test_an_unfinished_line_of_the_program_is_left_alone(screen, gate, tmp_path, line_elsewhere):
    """A progress bar of the program itself stands there."""
    one = screen(1, "--log-dir", tmp_path / "logs", text="printf 'loading...'; " + WAITS)
    one.wait_for("loading")
    line_elsewhere(2)
    open_gate(gate, 1)
    assert one.end() == 0
    assert one.shown()[0].endswith("loading...line of 0") and "running" not in one.text.partition("loading")[2], one.text


def test_it_fits_a_narrow_terminal_and_follows_its_width(screen, gate, tmp_path):
    one = screen(1, "--log-dir", tmp_path / "logs", columns=20)
    one.wait_for(r"ipexrun: 1 of 1 run")
    assert "running" not in one.text
    fcntl.ioctl(one.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.kill(one.pid, signal.SIGWINCH)
    one.wait_for(r"1 of 1 running, \d+ s")
    open_gate(gate, 1)
    assert one.end() == 0


def test_a_warning_of_ours_stands_on_a_line_of_its_own(screen, tmp_path, gate):
    text = "if [ $INSTANCE = 1 ]; then read line < $GATE; exit 3; fi; exec sleep 600"
    one = screen(2, "--log-dir", tmp_path / "logs", text=text)
    one.wait_for("2 of 2 running")
    open_gate(gate, 1)
    assert one.end() == 3
    assert one.shown() == ["ipexrun: instance 1 exited with code 3; ending the others", ""], one.text


@pytest.mark.parametrize("why", ["no log folder", "dumb terminal", "quiet level"])
def test_no_line_where_it_would_disturb(screen, gate, tmp_path, line_elsewhere, why):
    options = [] if why == "no log folder" else ["--log-dir", tmp_path / "logs"]
    env = {"dumb terminal": {"TERM": "dumb"}, "quiet level": {"IPEXRUN_LOG": "error"}}.get(why, {})
    one = screen(1, *options, text="read line < $GATE", env=env)
    line_elsewhere(1)
    open_gate(gate, 1)
    assert one.end() == 0
    assert one.text == ""


def test_no_line_in_a_pipe(run_plan, sh, gate, tmp_path, line_elsewhere):
    argv = [run_plan, "--progress-after-ms", "0", "--log-dir", tmp_path / "logs", "--", sh, "-c", "read line < $GATE"]
    one = subprocess.Popen([str(word) for word in argv], env={**os.environ, "GATE": str(gate)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line_elsewhere(1)
    open_gate(gate, 1)
    assert (*one.communicate(timeout=60), one.returncode) == (b"", b"", 0)
