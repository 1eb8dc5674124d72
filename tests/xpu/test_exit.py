"""A process that ran backward passes on xpu ends as it should (python/ipexrun/autograd_threads.py)."""

import os

from ipexrun import autograd_threads


def seen(*states):
    """What a thread shows, one look after the other; the last one stays."""
    left = list(states)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_waits_until_threads_sleep_and_stay_asleep():
    slept = []
    asleep = {"1": ("S", "9")}
    look = seen({"1": ("R", "7")}, {"1": ("S", "8")}, {"1": ("S", "9")}, asleep)
    autograd_threads.settle(look=look, sleep=slept.append)
    assert len(slept) == 3


def test_does_not_wait_where_there_are_none():
    slept = []
    autograd_threads.settle(look=dict, sleep=slept.append)
    assert slept == []


def test_gives_up_on_a_thread_that_works():
    slept, number = [], iter(range(10**9))
    autograd_threads.settle(limit=0.06, look=lambda: {"1": ("R", next(number))}, sleep=slept.append)
    assert len(slept) == 10


def test_processes_end_with_0(child):
    text = """
import glob, torch, ipexrun
x = torch.randn(32, 32, device="xpu", requires_grad=True)
for _ in range(20): torch.special.erfcx((x @ x).softmax(-1)).sum().backward()
print(any(open(name).read().startswith("pt_autograd") for name in glob.glob("/proc/self/task/*/comm")))
"""
    for _ in range(3):
        done = child(text)
        assert (done.returncode, done.stdout) == (0, "True\n"), (done.returncode, done.stderr, os.uname())
