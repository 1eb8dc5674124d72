"""Memory that steps give back and take again (python/ipexrun/training/kept_memory.py).

Risk covered: a process that grows without bound, or keeps what brings nothing; another malloc, or settings of the user's own, that are overruled.
"""

import os
import resource
import subprocess
import sys

import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
sys.path.insert(0, f"{BUILD}/lib/ipexrun/python")
from ipexrun.training import kept_memory as memory  # noqa: E402


class Library:
    """A C library's malloc of which a step takes `faults` pages anew while it gives memory back."""

    def __init__(self, faults, kept_faults=0):
        self.faults, self.kept_faults = faults, kept_faults
        self.set, self.trimmed, self.free_bytes = {}, 0, 0

    def mallopt(self, name, value):
        self.set[name] = value

    def malloc_trim(self, _):
        self.trimmed += 1

    def mallinfo2(self):
        return memory.Mallinfo2(fordblks=self.free_bytes)

    def keeps(self):
        return self.set.get(memory.MMAP_THRESHOLD) == memory.LARGEST


def steps(library, count, keeper=None, cpu_s=0.1, slower=1.0, free_bytes=1 << 36):
    seen = [0, 0.0]

    def read():
        seen[0] += library.kept_faults if library.keeps() else library.faults
        seen[1] += cpu_s * (slower if library.keeps() else 1)
        return tuple(seen)

    keeper = keeper or memory.Keeper(library, read, lambda: free_bytes)
    for _ in range(count):
        keeper.step()
    return keeper


ENOUGH = 2 * (memory.WARM + memory.STEPS) + 2
PAGES = 100_000


def test_it_is_kept_where_steps_take_it_again():
    library = Library(PAGES)
    assert steps(library, ENOUGH).state == "kept" and library.keeps()
    assert library.set[memory.TRIM_THRESHOLD] == 2 * PAGES * memory.PAGE + memory.SLACK_BYTES[1]


def test_small_steps_keep_little():
    """A step of 10 ms that takes 600 pages anew: 3% of it."""
    library = Library(600)
    assert steps(library, ENOUGH, cpu_s=0.01).state == "kept"
    assert library.set[memory.TRIM_THRESHOLD] == 2 * 600 * memory.PAGE + memory.SLACK_BYTES[0]


@pytest.mark.parametrize("library, how", [
    (Library(1000), {}), (Library(200), {"cpu_s": 0.001}), (Library(PAGES), {"cpu_s": 1000.0}), (Library(PAGES), {"free_bytes": 1 << 30}),
])
def test_it_is_not_where_that_is_not_worth_it(library, how):
    assert steps(library, 500, **how).state == "watching" and library.set == {}


@pytest.mark.parametrize("library, how", [(Library(PAGES, kept_faults=PAGES), {}), (Library(PAGES), {"slower": 1.2})])
def test_it_is_taken_back_where_nothing_is_won(library, how):
    keeper = steps(library, ENOUGH, **how)
    assert keeper.state == "left" and library.set == memory.AS_BEFORE and library.trimmed == 1
    steps(library, 500, keeper)
    assert keeper.state == "left" and library.set == memory.AS_BEFORE, "for good"


def test_what_is_kept_is_bounded():
    library = Library(PAGES)
    keeper = steps(library, ENOUGH)
    library.free_bytes = keeper.kept_bytes + 1
    steps(library, memory.CHECK, keeper)
    assert library.trimmed == 1 and keeper.state == "kept"
    library.free_bytes = 0
    steps(library, memory.CHECK, keeper)
    library.free_bytes = keeper.kept_bytes + 1
    steps(library, (memory.LAPSES - 1) * memory.CHECK, keeper)
    assert keeper.state == "kept" and library.trimmed == memory.LAPSES
    steps(library, memory.CHECK, keeper)
    assert keeper.state == "left" and library.set == memory.AS_BEFORE


def test_faults_are_counted():
    before = memory.read()[0]
    block = bytearray(64 * memory.PAGE * 64)
    block[:: memory.PAGE] = bytes(len(block[:: memory.PAGE]))
    assert 0 <= resource.getrusage(resource.RUSAGE_SELF).ru_minflt - memory.read()[0] < 500 and memory.read()[0] > before


def test_a_file_of_the_programs_is_not_imported(tmp_path):
    (tmp_path / "resource.py").write_text("print('run in a step')")
    (tmp_path / "train.py").write_text(LOOP.replace("import resource, sys, torch", "import sys, torch\n").split("x, faults")[0] + """
for step in range(3):
    net(torch.ones(4, 3072)).square().mean().backward()
    optimizer.step()
print("ipexrun.training.kept_memory" in sys.modules)
""")
    command = [f"{BUILD}/bin/ipexrun", sys.executable, "-W", "ignore", str(tmp_path / "train.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off"})
    assert done.stdout == "True\n", (done.stdout, done.stderr)


def test_lists_of_cpus_are_read():
    assert list(memory.numbers("0-3,8,10-11\n")) == [0, 1, 2, 3, 8, 10, 11] and list(memory.numbers("\n")) == []


LOOP = """
import resource, sys, torch
net = torch.nn.Linear(3072, 3072)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
x, faults = torch.ones(4, 3072), []
for step in range(40):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(sorted(faults[5:10])[2], sorted(faults[-5:])[2], sys.modules["ipexrun"].report().get("memory") if "ipexrun" in sys.modules else None)
"""


def loop(*options, **more):
    command = [f"{BUILD}/bin/ipexrun", *options, sys.executable, "-W", "ignore", "-c", LOOP]
    environment = {name: value for name, value in os.environ.items() if name not in memory.SETTINGS}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**environment, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", **more})
    assert done.returncode == 0, done.stderr
    before, after, said = done.stdout.split(" ", 2)
    return int(before), int(after), said.strip()


@pytest.mark.skipif(memory.c_library() is None or memory.nodes() > 1, reason="another malloc, or several NUMA nodes")
def test_a_loop_stops_faulting():
    before, after, said = loop()
    assert before > 5000 and after < before / 10 and "'kept'" in said, (before, after, said)


@pytest.mark.parametrize("options, more", [(("--select", "off"), {}), ((), {"MALLOC_TRIM_THRESHOLD_": "131072"}), (("--no-optimize",), {})])
def test_it_is_left_alone(options, more):
    _, after, said = loop(*options, **more)
    gradient = 4 * 3072 * 3072 // os.sysconf("SC_PAGE_SIZE")  # pages that come and go with each step
    assert said == "None" and after > gradient / 2, (after, gradient, said)
