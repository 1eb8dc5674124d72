"""Loops of libraries and of several parts (loops.py): unedited, with every module captured at its first call, they show stock's losses.

Risk covered: a training module whose losses or random numbers differ because of who drives its steps, or whose ranks do.
"""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from conftest import has_bf16
import torch

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
IPEXRUN = f"{BUILD}/bin/ipexrun"
LOOPS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "loops.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]


NEEDED = {"trainer": ["transformers", "accelerate"], "accelerate": ["accelerate"]}
ALL = ["trainer", "accelerate", "lightning", "averaged", "rivals"]
HERE = [name for name in ALL if all(importlib.util.find_spec(package) for package in NEEDED.get(name, []))]


def run(*command):
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python", "PYTHONWARNINGS": "ignore", "PATH": path}
    for _ in range(4):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        # Stock's ranks do so now and then, alone and under ipexrun, when gloo's threads end; what they compute is wanted here.
        if "terminate called without an active exception" not in done.stderr:
            break
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return {(one["name"], one["rank"]): one for one in map(json.loads, filter(lambda line: line.startswith("{"), done.stdout.splitlines()))}


@pytest.fixture(scope="module")
def stock():
    return run(sys.executable, LOOPS, *HERE)


@pytest.fixture(scope="module")
def captured():
    return run(IPEXRUN, "--graph-mode", "dynamo", sys.executable, LOOPS, *HERE)


@pytest.fixture(scope="module")
def exact():
    return run(IPEXRUN, "--dtype", "float32", "--graph-mode", "dynamo", sys.executable, LOOPS, "lightning", "averaged", "rivals")


def alike(mine, stock, rel):
    assert mine["losses"] == pytest.approx(stock["losses"], rel=rel)
    assert mine["random"] == stock["random"]


@pytest.mark.parametrize("name", ALL)
def test_losses_are_stocks(name, stock, captured):
    if name not in HERE:
        pytest.skip(f"{NEEDED[name][-1]} is not installed")
    alike(captured[name, 0], stock[name, 0], 3e-2)
    assert captured[name, 0]["modules"] or not has_bf16(), "nothing of it was looked at"


@pytest.mark.parametrize("name", ["lightning", "averaged", "rivals"])
def test_so_they_are_in_float32(name, stock, exact):
    alike(exact[name, 0], stock[name, 0], 1e-3)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_sharded_ranks_give_what_stock_ranks_give():
    stock = run(*TORCHRUN, LOOPS, "fsdp")
    mine = run(IPEXRUN, "--nproc-per-node", "2", "--dtype", "float32", "--graph-mode", "dynamo", LOOPS, "fsdp")
    assert len(stock) == 2 and mine.keys() == stock.keys()
    for rank, seen in stock.items():
        alike(mine[rank], seen, 1e-5)
