"""A program with a family: worker processes, a shell's background job, a daemon. Every one of them holds the witness's pipe, writes its
name and its process number once it is up, and never ends by itself or by a signal that can be ignored.

  family.py workers | forked | shell | headless | daemon | all [then exit N | kill N]
"""
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

PR_SET_NAME = 15
OUT = int(os.environ["WITNESS"])
INSTANCE = os.environ.get("INSTANCE", "0")


def up(name):
    os.write(OUT, f"{name} {INSTANCE} {os.getpid()}\n".encode())


def stay(name):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    up(name)
    while True:
        signal.pause()


def workers():
    """As DataLoader(num_workers=2): forked, daemonic in multiprocessing's sense, which is no help when the parent is killed."""
    for _ in range(2):
        multiprocessing.get_context("fork").Process(target=stay, args=("worker",), daemon=True).start()


def forked():
    """A worker with a worker: the middle one ends, so that the inner one is an orphan already."""
    if os.fork() == 0:
        if os.fork() == 0:
            stay("orphan")
        os._exit(0)
    os.wait()


def shell():
    subprocess.Popen(["sh", "-c", "trap '' TERM HUP INT; echo shell $INSTANCE $$ >/dev/fd/$WITNESS; while :; do sleep 1; done"], pass_fds=[OUT],
                     env={**os.environ, "INSTANCE": INSTANCE})


def headless():
    """Its first thread has ended, so it looks like a zombie, but another one runs."""
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        threading.Thread(target=lambda: (up("headless"), time.sleep(600))).start()
        ctypes.CDLL(None).pthread_exit(None)


def daemon():
    """Detached in the classic way: a session of its own, forked twice. And of a name that breaks a line of /proc/PID/stat."""
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"odd\n) name", 0, 0, 0)
        os.setsid()
        if os.fork() == 0:
            stay("daemon")
        os._exit(0)
    os.wait()


MEMBERS = ("workers", "forked", "shell", "headless", "daemon")


def main():
    wanted = MEMBERS if sys.argv[1] == "all" else [sys.argv[1]]
    for name in wanted:
        globals()[name]()
    if sys.argv[2:3] == ["then"]:
        # The end only once the family is complete: a word on stdin says so.
        sys.stdin.readline()
        if sys.argv[3] == "exit":
            os._exit(int(sys.argv[4]))
        os.kill(os.getpid(), int(sys.argv[4]))
    stay("main")


main()
