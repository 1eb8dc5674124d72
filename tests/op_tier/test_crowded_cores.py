"""Others on the cores: OpenMP threads that wait sleep instead of looping (preload/plugin/crowded_cores.h).

Risk covered: a team of threads that is never ended, a fork or an exit beside it, results that differ, a thread where nobody wants one.
"""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
PROGRAM = """
    import json, os, sys, time, torch, ipexrun
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(8)])
    x = torch.randn(64, 256)
    threads = lambda: len(os.listdir("/proc/self/task"))
    with torch.no_grad():
        first = model(x)
        same = all(torch.equal(model(x), first) for _ in range(16))
        before, until = threads(), time.monotonic() + float(sys.argv[1])
        while time.monotonic() < until and not ipexrun.report()["crowded"].get("times"):
            same = same and torch.equal(model(x), first)
        said = ipexrun.report()["crowded"]
    pid = os.fork()
    if pid == 0:
        torch.set_num_threads(1)
        os._exit(0 if ipexrun.report()["crowded"] == {} and threads() == 1 else 1)
    print(json.dumps({"said": said, "child": os.waitpid(pid, 0)[1], "same": same, "threads": [before, threads()]}))
"""


def run(seconds, **environment):
    command = [f"{BUILD}/bin/ipexrun", "--require-shim", sys.executable, "-c", textwrap.dedent(PROGRAM), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": f"{BUILD}/lib/ipexrun/python", "IPEXRUN_CACHE": "off", "IPEXRUN_SELECT": "off", **environment}
    for name in ("IPEXRUN_FORCE", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):  # threads that sleep at once are kept from nothing
        environment.pop(name, None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def others():
    """A process that wants each of two CPUs."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    busy = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    processes = [subprocess.Popen([sys.executable, "-c", busy, str(cpu)], start_new_session=True) for cpu in cpus]
    yield cpus
    for process in processes:
        process.kill()
        process.wait()


needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
needs_waits = pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="this kernel does not tell how long threads waited")
needs_gnu = pytest.mark.skipif("GNU" not in torch.__config__.parallel_info() and "libgomp" not in open("/proc/self/maps").read(), reason="another OpenMP runtime")


@needs_two
@needs_waits
@needs_gnu
def test_others_are_seen(others):
    found = run(60, OMP_NUM_THREADS="2")
    assert found["said"]["times"] >= 1 and found["same"] and found["child"] == 0


@needs_two
@needs_waits
@needs_gnu
def test_nobody_watches_where_it_is_switched_off(others):
    found = run(0.5, OMP_NUM_THREADS="2", IPEXRUN_WAITING="off")
    assert found["said"] == {} and found["same"] and found["child"] == 0


@needs_waits
def test_one_thread_needs_no_watch():
    found = run(0.2, OMP_NUM_THREADS="1")
    assert found["said"] == {} and found["child"] == 0 and found["threads"] == [1, 1]
