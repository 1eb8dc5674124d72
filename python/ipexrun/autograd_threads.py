"""The end of a process that ran backward passes on a device.

torch gives each device a thread for its backward passes, and lets go of a pass after the program's `backward()` has returned: in that thread, for which
it takes Python's lock, since torch 2.13 keeps a copy of the program's context variables with the pass. A thread that asks for the lock while Python ends
is ended by Python in the midst of torch's C++, and the process aborts ("terminate called without an active exception") after its work was done: 1 in
20 short programs. So Python waits, at its end, until these threads have nothing more to do.
"""

import glob
import time

_INTERVAL = 0.006  # seconds; who waits for Python's lock looks every 5 ms


def _look():
    """{thread: (state, how often it has slept)} of torch's backward threads."""
    found = {}
    for path in glob.glob("/proc/self/task/*/status"):
        try:
            with open(path) as file:
                rows = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        except OSError:  # the thread has ended
            continue
        if rows.get("Name", "").startswith("pt_autograd"):
            found[path] = (rows.get("State", "")[:1], rows.get("voluntary_ctxt_switches"))
    return found


def settle(limit=2.0, look=_look, sleep=time.sleep):
    """Returns when torch's backward threads sleep and do not wake, or after `limit` seconds; at once where there are none. Gives up Python's lock meanwhile."""
    before = look()
    for _ in range(max(1, int(limit / _INTERVAL))):
        if not before:
            return
        sleep(_INTERVAL)
        now = look()
        if now == before and all(state == "S" for state, _ in now.values()):
            return
        before = now
