"""Signals sent to the launcher, and keys pressed on its terminal, reach the program exactly once."""
import os
import pty
import select
import signal
import subprocess
import time

import pytest

# Counts what arrives; "up" when ready; leaves at SIGTERM or after the signal named in $LAST.
COUNTER = """
import os, signal, sys
out = int(os.environ.get('WITNESS', '1'))
def seen(number, frame):
    os.write(out, b'got %d\\n' % number)
    if number == int(os.environ['LAST']):
        # A second delivery of the same press would be pending or arrive now: look before leaving.
        if signal.sigtimedwait({number}, 0.3): os.write(out, b'twice\\n')
        sys.exit(7)
for number in (1, 2, 3, 10, 12, 14, 15, 21, 22, 23, 28, 40): signal.signal(number, seen)
os.write(out, b'up\\n')
while True: signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGWINCH,
                                    signal.SIGALRM, signal.SIGTTIN, signal.SIGTTOU, signal.SIGURG, 40])
def test_one_instance_gets_a_forwarded_signal_once_and_its_exit_code_counts(run_plan, witness, start, python, number):
    launcher = start([run_plan, "--", python, "-c", COUNTER], env={"LAST": str(int(number))})
    witness.wait_for(b"up\n")
    launcher.send_signal(number)
    assert launcher.wait(60) == 7
    assert witness.wait_for_end() == b"up\ngot %d\n" % number


def test_a_clock_that_the_caller_set_before_it_became_the_launcher_rings_in_the_program(run_plan, witness, start, python):
    """perl -e 'alarm 600; exec @ARGV' ipexrun ..., as a time limit."""
    launcher = start([run_plan, "--", python, "-c", COUNTER], env={"LAST": "14"}, preexec_fn=lambda: signal.setitimer(signal.ITIMER_REAL, 6))
    witness.wait_for(b"up\n")
    assert launcher.wait(60) == 7
    assert witness.wait_for_end() == b"up\ngot 14\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_the_whole_group_is_seen_once(run_plan, witness, start, python, number):
    launcher = start([run_plan, "--", python, "-c", COUNTER], env={"LAST": "12"}, start_new_session=True)
    witness.wait_for(b"up\n")
    os.killpg(launcher.pid, number)
    witness.wait_for(b"got %d\n" % number)
    launcher.send_signal(signal.SIGUSR2)  # to it alone, once a second delivery of the first would have come
    assert launcher.wait(60) == 7
    assert witness.wait_for_end() == b"up\ngot %d\ngot 12\n" % number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_every_process_of_the_command_line_is_seen_once(run_plan, witness, start, python, number):
    """`pkill -f server.py`, or a control group's end by systemd."""
    launcher = start([run_plan, "--", python, "-c", COUNTER], env={"LAST": "12"})
    witness.wait_for(b"up\n")
    family, todo = [], [launcher.pid]
    while todo:
        family.append(todo.pop())
        with open(f"/proc/{family[-1]}/task/{family[-1]}/children", encoding="ascii") as file:
            todo += map(int, file.read().split())
    assert len(family) == 4
    for pid in sorted(family):
        os.kill(pid, number)
    witness.wait_for(b"got %d\n" % number)
    time.sleep(0.6)  # in which a second one would come
    launcher.send_signal(signal.SIGUSR2)
    assert launcher.wait(60) == 7
    assert witness.wait_for_end() == b"up\ngot %d\ngot 12\n" % number


def test_several_groups_get_what_is_sent_to_the_launchers(run_plan, witness, start, python):
    launcher = start([run_plan, "--cpus", "-", "--cpus", "-", "--", python, "-c", COUNTER], env={"LAST": "10"}, start_new_session=True)
    witness.wait_for(b"up\n", 2)
    os.killpg(launcher.pid, signal.SIGUSR1)
    assert launcher.wait(60) == 7
    assert witness.wait_for_end().count(b"got 10\n") == 2


def test_all_instances_get_it(run_plan, witness, start, python):
    launcher = start([run_plan, "--cpus", "-", "--cpus", "-", "--", python, "-c", COUNTER], env={"LAST": "10"})
    witness.wait_for(b"up\n", 2)
    launcher.send_signal(signal.SIGUSR1)
    assert launcher.wait(60) == 7
    assert witness.wait_for_end().count(b"got 10\n") == 2


def test_a_program_that_dies_of_the_signal_gives_128_plus_n(run_plan, witness, start, sh):
    launcher = start([run_plan, "--", sh, "-c", "echo up >/dev/fd/$WITNESS; exec sleep 60"])
    witness.wait_for(b"up\n")
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(60) == 143
    witness.wait_for_end()


def test_a_second_request_ends_stubborn_instances_at_once(run_plan, witness, start, python):
    text = """
import os, signal
out = int(os.environ['WITNESS'])
signal.signal(2, lambda *_: os.write(out, b'int\\n'))
signal.signal(15, signal.SIG_IGN)
os.write(out, b'up\\n')
while True: signal.pause()
"""
    launcher = start([run_plan, "--grace-ms", "600000", "--cpus", "-", "--cpus", "-", "--", python, "-c", text])
    witness.wait_for(b"up\n", 2)
    launcher.send_signal(signal.SIGINT)
    witness.wait_for(b"int\n", 2)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(60) == 137
    witness.wait_for_end()


def test_one_instance_may_take_its_time_after_sigterm(run_plan, witness, start, python):
    text = """
import os, signal, sys
out = int(os.environ['WITNESS'])
def save(*_):
    signal.sigtimedwait({signal.SIGUSR1}, 0.4)  # a checkpoint that takes longer than the grace period
    os.write(out, b'saved\\n')
    sys.exit(0)
signal.signal(15, save)
os.write(out, b'up\\n')
while True: signal.pause()
"""
    launcher = start([run_plan, "--grace-ms", "50", "--", python, "-c", text])
    witness.wait_for(b"up\n")
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(60) == 0
    assert witness.wait_for_end() == b"up\nsaved\n"


def test_an_ignored_signal_stays_ignored(run_plan, witness, start, python):
    launcher = start([run_plan, "--", python, "-c", COUNTER.replace("(1, 2,", "(2,")], env={"LAST": "12"},
                     preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    witness.wait_for(b"up\n")
    launcher.send_signal(signal.SIGHUP)
    launcher.send_signal(signal.SIGUSR2)
    assert launcher.wait(60) == 7
    assert witness.wait_for_end() == b"up\ngot 12\n"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_program_that_hears_what_the_caller_ignores_gets_it(run_plan, witness, start, python, number):
    """`ipexrun server & ... kill -INT $!` in a script, whose shell ignores SIGINT for jobs in the background."""
    launcher = start([run_plan, "--", python, "-c", COUNTER], env={"LAST": str(int(number))}, preexec_fn=lambda: signal.signal(number, signal.SIG_IGN))
    witness.wait_for(b"up\n")
    launcher.send_signal(number)
    assert launcher.wait(60) == 7
    assert witness.wait_for_end() == f"up\ngot {int(number)}\n".encode()


def test_several_instances_that_ignore_a_signal_are_not_ended_by_it(run_plan, witness, start, python):
    text = COUNTER.replace("(1, 2,", "(2,").replace("sys.exit(7)", "sys.exit(0)")
    launcher = start([run_plan, "--cpus", "-", "--cpus", "-", "--grace-ms", "50", "--", python, "-c", text], env={"LAST": "12"},
                     preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    witness.wait_for(b"up\n", 2)
    launcher.send_signal(signal.SIGHUP)
    launcher.send_signal(signal.SIGUSR1)  # goes the same way, behind it
    witness.wait_for(b"got 10\n", 2)
    launcher.send_signal(signal.SIGHUP)
    launcher.send_signal(signal.SIGUSR2)
    assert launcher.wait(60) == 0
    assert witness.wait_for_end().count(b"got 12\n") == 2


def test_the_program_starts_with_the_callers_mask_and_dispositions(run_plan, python):
    text = "import signal; print(signal.pthread_sigmask(0, ()), signal.getsignal(signal.SIGCHLD), open('/proc/self/status').read().split('SigIgn:')[1].split()[0])"

    def set_up():
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGUSR2})
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    seen = [subprocess.run([*words, python, "-c", text], preexec_fn=set_up, capture_output=True, text=True).stdout for words in ([], [run_plan, "--"])]
    assert seen[0] == seen[1] != ""


class Terminal:
    """A program at a terminal of its own, of which it is the foreground job."""

    def __init__(self, argv, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(argv[0], argv, {**os.environ, **env})
        self.text = b""

    def wait_for(self, text):
        while text not in self.text:
            ready, _, _ = select.select([self.fd], [], [], 20)
            assert ready, self.text
            self.text += os.read(self.fd, 4096)

    def end(self):
        try:
            while data := os.read(self.fd, 4096):
                self.text += data
        except OSError:  # EIO: the last process closed its side
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_ctrl_c_at_a_terminal_is_seen_once(run_plan, python):
    terminal = Terminal([run_plan, "--", python, "-c", COUNTER], {"LAST": "2"})
    terminal.wait_for(b"up")
    os.write(terminal.fd, b"\x03")
    assert terminal.end() == 7
    assert terminal.text.count(b"got 2") == 1 and b"twice" not in terminal.text, terminal.text


def test_ctrl_c_reaches_several_instances_once_each(run_plan, python):
    terminal = Terminal([run_plan, "--cpus", "-", "--cpus", "-", "--", python, "-c", COUNTER], {"LAST": "2"})
    while terminal.text.count(b"up") < 2:
        terminal.text += os.read(terminal.fd, 4096)
    os.write(terminal.fd, b"\x03")
    assert terminal.end() == 7
    assert terminal.text.count(b"got 2") == 2 and b"twice" not in terminal.text, terminal.text


def test_a_program_can_read_the_terminal(run_plan, python):
    terminal = Terminal([run_plan, "--", python, "-c", "print('answer', input('name? ').upper())"], {})
    terminal.wait_for(b"name? ")
    os.write(terminal.fd, b"ada\n")
    assert terminal.end() == 0
    assert b"answer ADA" in terminal.text


# What a shell does with a job: a process group in the foreground; told when it stops, it wakes it again.
JOB_SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
stopped = os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
print('stopped' if stopped else 'ended', flush=True)
os.killpg(pid, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_ctrl_z_stops_launcher_and_program_and_sigcont_wakes_both(run_plan, python):
    program = [run_plan, "--", python, "-c", "print('up', flush=True); print(input().upper())"]
    terminal = Terminal([python, "-c", JOB_SHELL, *program], {})
    terminal.wait_for(b"up")
    os.write(terminal.fd, b"\x1a")
    terminal.wait_for(b"stopped")
    os.write(terminal.fd, b"back\n")
    terminal.wait_for(b"BACK")
    assert terminal.end() == 0


def test_several_instances_do_not_share_the_terminals_input(run_plan, python):
    terminal = Terminal([run_plan, "--cpus", "-", "--cpus", "-", "--", python, "-c", "import sys; print('read ' + repr(sys.stdin.read()))"], {})
    assert terminal.end() == 0
    assert terminal.text.count(b"read ''") == 2, terminal.text
