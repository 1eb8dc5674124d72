"""How fast this machine runs Python: what tracing a module is going to cost is nearly all Python."""

import functools
import time

STEPS = 5_000
REFERENCE_NS = 94_250  # of a core of Zen 5 at 4 GHz, Python 3.11
LOOPS = 20
LEAST, MOST = 0.5, 8.0


@functools.cache
def slowness(clock=time.thread_time_ns):
    """CPU time that Python takes here over what it took where prices were measured (2 ms, once a process)."""
    return min(max(min(_loop_ns(clock) for _ in range(LOOPS)) / REFERENCE_NS, LEAST), MOST)


def _loop_ns(clock):
    began, total = clock(), 0
    for step in range(STEPS):
        total += step & 7
    return clock() - began
