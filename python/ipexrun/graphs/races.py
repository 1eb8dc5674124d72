"""What races of graphs, of their parts and of modules have in common.

Thread rule: no state; any thread."""

import time

import torch

CHECKS = 3  # calls whose results are judged; the last of them no earlier than the race's end
REMATCHES = 2  # after races that something else on the machine disturbed, and that may have been won without
UNSETTLED = 32  # calls that are left out of a race because something inside was still being chosen


def call_clock():
    """A function that gives nanoseconds, for calls of this thread: of the thread's own time where torch computes on it alone, else on the wall. Threads of a
    program take turns at the cores and at Python's lock, and the form that happened to wait for them would lose."""
    return time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns


def may_have_won(trial):
    """A race that was lost by little while something else ran on the machine."""
    return trial.disturbed() and trial.ratio() < 1.05
