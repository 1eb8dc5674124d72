"""Memory that a training loop gives back and takes again in each step stays with the process.

Gradients, activations and what optimizers need for a moment are freed and allocated anew in each step. The C library's malloc hands the ends of its heap,
and blocks of 32 MiB and more, back to the kernel at once, so the next step meets fresh pages: a fault each, and zeros that nobody reads. Where steps do
that (their faults are counted), malloc is told to keep such memory; if faults do not fall, or steps take longer, it is told to do as before.

What is kept stays bounded: by twice what a step takes and 64 to 256 MiB, looked at every CHECK steps; more is given back, and where that is so LAPSES times
in a row all is as before. Left alone: another malloc than the C library's, a user's own settings of it, several NUMA nodes (fresh pages come from the node of the thread
that writes them first), --select off, too little free memory.

Thread rule: under the interpreter lock.
"""

import ctypes
import os
import pathlib
import sys
import time

import torch

from ..graphs import double

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt()
AS_BEFORE = {MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}  # what malloc itself comes to with large blocks
LARGEST = 1 << 30  # blocks above are given back at once, as before
WARM, STEPS = 4, 6  # steps before those that count, and these
PAGE = os.sysconf("SC_PAGE_SIZE")
STAT = "/proc/self/stat"
LEAST_BYTES = 1 << 20  # of a step, below which nothing is worth it
FAULT_S = 5e-7  # at least, of a fault and the zeros of its page
SHARE = 0.01  # of a step's CPU time that its faults take at least
SLOWER = 1.05
SLACK, SLACK_BYTES = 16, (64 << 20, 256 << 20)  # times what a step faults, at least and at most: small steps keep little
SHARE_OF_FREE_MEMORY = 0.25
CHECK = 16
AGAIN, SELDOM = 64, 4096  # steps until steps that were not worth it are looked at again: twice as many each time, up to so many
LAPSES = 4
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")


class Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def c_library():
    """The C library where its malloc is the process's and nobody has set it up, else None."""
    if any(name in os.environ for name in SETTINGS):
        return None
    try:
        library, process = ctypes.CDLL("libc.so.6"), ctypes.CDLL(None)
        library.mallinfo2.restype = Mallinfo2  # since glibc 2.33
        library.malloc_trim.argtypes = process.malloc.argtypes = [ctypes.c_size_t]
        process.malloc.restype, process.free.argtypes, process.free.restype = ctypes.c_void_p, [ctypes.c_void_p], None
    except (OSError, AttributeError):
        return None
    size_bytes = 96 << 10
    before = library.mallinfo2().uordblks
    block = process.malloc(size_bytes)
    grown = library.mallinfo2().uordblks - before
    process.free(block)
    return library if grown >= size_bytes else None


def numbers(text):
    """CPUs of a list as Linux writes it: 0-3,8."""
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def nodes():
    """NUMA nodes that this process may compute on."""
    allowed = os.sched_getaffinity(0)
    lists = [path.read_text(encoding="ascii") for path in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*/cpulist")]
    return sum(not allowed.isdisjoint(numbers(text)) for text in lists)


def may_keep():
    hook = sys.modules.get("_ipexrun_hook")
    return hook is not None and bool(hook.optimizing()) and os.environ.get("IPEXRUN_SELECT") != "off" and nodes() <= 1 and os.access(STAT, os.R_OK)


def read():
    """Faults and CPU seconds of the process so far. A program may have a resource.py or a statistics.py of its own, which an import in its step would run."""
    file = os.open(STAT, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fields = os.read(file, 4096).rpartition(b")")[2].split()  # what stands before is the program's name, which may hold anything
    finally:
        os.close(file)
    return int(fields[7]), time.process_time()


class Keeper:
    """step() at the end of each optimizer's step. States: watching, trying, kept, left (for good)."""

    def __init__(self, library, read=read, free_bytes=double.free_bytes):
        self.library, self.read, self.free_bytes = library, read, free_bytes
        self.state = "watching"
        self.wait = WARM  # steps that count for nothing
        self.again = AGAIN
        self.faults, self.cpu_s = [], []
        self.last = None
        self.before = self.now = None  # faults and CPU seconds of a step as it was, and as it is
        self.lapses = self.steps = 0

    def note(self):
        return {"state": self.state, "faults_a_step": self.before and self.before[0], "faults_a_step_now": self.now and self.now[0]}

    def step(self):
        if self.state == "left":
            return
        if self.state == "kept":
            self.steps += 1
            if self.steps % CHECK == 0:
                self.look()
            return
        if self.wait > 0:  # asking takes longer than many a small step's optimizer, 95 us in a virtual machine
            self.wait -= 1
            if self.wait == 0:
                self.last = self.read()
            return
        last, self.last = self.last, self.read()
        self.faults.append(self.last[0] - last[0])
        self.cpu_s.append(self.last[1] - last[1])
        if len(self.faults) == STEPS:
            found = sum(sorted(self.faults)[(STEPS - 1) // 2 : STEPS // 2 + 1]) // (2 - STEPS % 2), min(self.cpu_s)
            self.faults, self.cpu_s = [], []
            self.judge(*found) if self.state == "trying" else self.decide(*found)

    def decide(self, faults, cpu_s):
        """As malloc does by itself, a step takes so many faults."""
        self.wait, self.again = self.again, min(2 * self.again, SELDOM)
        bytes_a_step = faults * PAGE
        wanted = 2 * bytes_a_step + min(max(SLACK * bytes_a_step, SLACK_BYTES[0]), SLACK_BYTES[1])
        if bytes_a_step < LEAST_BYTES or faults * FAULT_S < SHARE * cpu_s or wanted > SHARE_OF_FREE_MEMORY * self.free_bytes():
            return
        self.before, self.kept_bytes = (faults, cpu_s), min(wanted, (1 << 31) - 1)
        self.library.mallopt(MMAP_THRESHOLD, LARGEST)  # older ones refuse more than 32 MiB, and keep what they had
        self.library.mallopt(TRIM_THRESHOLD, self.kept_bytes)
        self.state, self.wait = "trying", WARM

    def judge(self, faults, cpu_s):
        self.now = faults, cpu_s
        self.state = "kept"
        if 2 * faults > self.before[0] or cpu_s > SLOWER * self.before[1]:
            self.leave()

    def look(self):
        if self.library.mallinfo2().fordblks <= self.kept_bytes:
            self.lapses = 0
            return
        self.library.malloc_trim(0)
        self.lapses += 1
        if self.lapses >= LAPSES:
            self.leave()

    def leave(self):
        self.state = "left"
        for name, value in AS_BEFORE.items():
            self.library.mallopt(name, value)
        self.library.malloc_trim(0)


_keeper = None  # False: not here


def step_ended():
    global _keeper
    if _keeper is None:
        torch.classes.ipexrun.Training().leave_fresh_pages()  # it looks at programs without steps, and has set the same up perhaps
        library = c_library() if may_keep() else None
        _keeper = Keeper(library) if library is not None else False
    if _keeper:
        _keeper.step()


def report():
    """For ipexrun.report()["memory"]; None where nothing was to be kept."""
    return _keeper.note() if _keeper else None
