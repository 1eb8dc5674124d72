"""How fast this machine runs Python: what tracing a module is going to cost is nearly all Python."""

import time

STEPS = 5_000
REFERENCE_NS = 94_250  # of a core of Zen 5 at 4 GHz, Python 3.11
LOOPS = 20
LEAST, MOST = 0.5, 8.0
LOOKS = 4  # in a process: a core that has just woken up, or that others use, says too much

_looks, _slowness = 0, MOST


def slowness():
    """CPU time that Python takes here over what it took where prices were measured: the least that was seen."""
    if not _looks:
        look()
    return _slowness


def look():
    """Measures it once more (2 ms), in few of the calls that ask."""
    global _looks, _slowness
    if _looks < LOOKS:
        _looks += 1
        _slowness = min(_slowness, measured())


def measured(clock=time.thread_time_ns):
    return min(max(min(_loop_ns(clock) for _ in range(LOOPS)) / REFERENCE_NS, LEAST), MOST)


def _loop_ns(clock):
    began, total = clock(), 0
    for step in range(STEPS):
        total += step & 7
    return clock() - began
