"""Memory that programs without steps of training give back and take again (preload/plugin/kept_pages.cpp).

Risk covered: a process that grows without bound; another malloc, or settings of the user's own, that are overruled; steps of training that are looked at twice.
"""

import json
import os
import subprocess
import sys

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")

# 160 MiB in blocks that malloc takes from its heap, whose end it gives back each time.
LOOP = """
import json, resource, sys, time, torch, ipexrun
SETUP
def state(): return ipexrun.report().get("memory", {}).get("state", "")
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    before = faults()
    for _ in range(16): blocks = [torch.ones(5 << 20) for _ in range(8)]; del blocks
    return faults() - before
first, seen = step(), []
until = time.process_time() + 6
while state() in ("watching", "trying") and time.process_time() < until: step()
print(json.dumps({"first": first, "last": min(step() for _ in range(3)), "state": state()}))
"""


def loop(*options, setup="", **more):
    command = [f"{BUILD}/bin/ipexrun", *options, sys.executable, "-W", "ignore", "-c", LOOP.replace("SETUP", setup)]
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment.update(OMP_NUM_THREADS="1", IPEXRUN_CACHE="off", IPEXRUN_SELECT="on", PYTHONPATH=f"{BUILD}/lib/ipexrun/python", **more)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_is_kept():
    """Or malloc keeps it by itself: small blocks that lie above, in this process."""
    found = loop()
    assert found["state"] in ("kept", "watching"), found
    assert found["last"] < 1000, found


def test_settings_of_the_users_stay():
    assert loop(MALLOC_TRIM_THRESHOLD_="1000000")["state"] == ""


def test_without_selection_nothing_is_looked_at():
    assert loop("--select", "off")["state"] == ""


def test_steps_of_training_are_looked_at_by_themselves():
    """What they keep was measured for them; of the process at large nothing is kept from the first step on."""
    step = "w = torch.nn.Parameter(torch.ones(4)); o = torch.optim.SGD([w], 0.1); w.sum().backward(); o.step()"
    assert loop(setup=step)["state"] in ("watching", "")
