"""`--loader-cores`: workers of DataLoaders run on cores that the plan keeps for them.

Risk covered: workers that stay on the cores that compute, other forked children that leave them, and a program that sees another order of
batches or random numbers.
"""

import json
import os
import subprocess
import sys

import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")

PROGRAM = """
import json, multiprocessing, os, sys, torch
from torch.utils.data import DataLoader, Dataset
class Where(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.tensor([*sorted(os.sched_getaffinity(0))][:1] + [len(os.sched_getaffinity(0)), i, int(torch.randint(1000, ()))])
def child(queue): queue.put(sorted(os.sched_getaffinity(0)))
def main():
    torch.manual_seed(0)
    rows = torch.cat(list(DataLoader(Where(), batch_size=2, num_workers=2, shuffle=True))).tolist()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    other = context.Process(target=child, args=(queue,))
    other.start(); seen = queue.get(); other.join()
    print(json.dumps({"rows": rows, "main": sorted(os.sched_getaffinity(0)), "other": seen, "threads": torch.get_num_threads(),
                      "loader": os.environ.get("IPEXRUN_LOADER_CPUS", "")}))
main()
"""


def run(*options):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([*options, sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300,
                          env={**environment, "IPEXRUN_CACHE": "off"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_workers_move_and_nobody_else():
    stock = run()
    mine = run(f"{BUILD}/bin/ipexrun", "--loader-cores", "1")
    (cpu,) = map(int, mine["loader"].split(","))
    assert cpu not in mine["main"] and mine["other"] == mine["main"]
    assert mine["threads"] == len(mine["main"])
    assert all(row[:2] == [cpu, 1] for row in mine["rows"])
    assert [row[2:] for row in mine["rows"]] == [row[2:] for row in stock["rows"]]  # the same samples, the same random numbers


def test_without_the_option_workers_stay():
    found = run(f"{BUILD}/bin/ipexrun")
    assert found["loader"] == "" and all(row[1] == len(found["main"]) for row in found["rows"])


def test_all_cores_for_the_loader_are_refused():
    done = subprocess.run([f"{BUILD}/bin/ipexrun", "--loader-cores", "4096", "true"], capture_output=True, text=True)
    assert done.returncode == 2 and "at least one has to be left to compute" in done.stderr
