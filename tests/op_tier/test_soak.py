"""Risk: what single tests cannot see, because it needs many calls: a stale pack once in thousands, memory that grows. A sample of bench/soak.py,
and proofs that its rules and its driver can fail. No time is judged; memory is, from ten minutes on, by ./dev soak only."""

import json
import os
import random

import pytest
import torch
from bench_drivers import BUILD, minutes, needs_launcher, run_driver  # first: it lets bench/ be imported

import soak
import soak_slope
from soak_check import Checker

SEED = int(os.environ.get("SOAK_SEED", "0"))
pytestmark = needs_launcher


def test_a_minute_without_a_wrong_result(tmp_path):
    output = tmp_path / "soak.jsonl"
    result = run_driver("soak", "--minutes", minutes(1), "--seed", str(SEED), "--output", str(output))
    assert result.returncode == 0, result.stdout + result.stderr
    records = [json.loads(line) for line in output.read_text().splitlines()]
    (end,) = [record for record in records if record["kind"] == "end"]
    assert end["active"] and all(end["rounds"].get(name) for name in ("operators", "models", "training", "threads", "forks", "loader", "spawn"))
    assert sum(one["taken"] for one in end["ops"]) > 0, "stock was compared with stock"
    assert records[-1]["kind"] == "verdict" and not records[-1]["problems"]


def noted(result, stock, module=False, dtype="auto", **more):
    told = []
    checker = Checker(dtype, told.append)
    good = checker.judge("a call", result, stock, module, **more)
    assert good == (not told)
    return told


def test_the_checker_finds_what_is_wrong():
    torch.manual_seed(SEED)
    stock = torch.randn(4, 128)
    assert not noted(stock.clone(), stock) and not noted(stock * 1.005, stock)
    assert noted(stock * 1.02, stock) and not noted(stock * 1.02, stock, module=True)
    assert noted(stock * 1.005, stock, dtype="float32")
    assert noted(stock.double(), stock) and noted(stock[:2], stock) and noted([stock, stock], [stock])
    hole = stock.clone()
    hole[0, 0] = float("nan")
    assert noted(hole, stock)
    one_row = stock.clone()
    one_row[3] *= 1.1
    assert noted(one_row, stock)


def test_what_is_off_stock_may_be_nearer_to_the_truth():
    truth = torch.randn(4, 128, dtype=torch.float64)
    stock = (truth * 1.02).float()
    assert noted(truth.float(), stock)
    assert not noted(truth.float(), stock, truth=lambda: truth)


def test_rounding_of_bf16_is_told_from_a_stale_pack():
    stock = torch.randn(4, 128)
    rough = stock * 1.1
    assert not noted(rough, stock, module=True, bf16=lambda: stock * 0.9)
    (told,) = noted(rough, stock, module=True, bf16=lambda: stock * 1.01, fresh=lambda: stock)
    assert "away from the op tier on a copy by 1.0e-01" in told["wrong"]["output"]


def samples(slope, noise, count=400, minutes=60.0):
    rng = random.Random(SEED)
    return [(minutes * i / count, 500_000 + slope * minutes * i / count + rng.gauss(0, noise)) for i in range(count)]


def test_a_slope_and_how_sure_it_is():
    line = soak_slope.slope(samples(400, 2000))
    assert line["low"] < 400 < line["high"] and 0 < line["error"] < 100
    assert soak_slope.slope(samples(400, 2000, count=30)) is None
    warm_up = [(at, value - 1e5 * max(0, 20 - at)) for at, value in samples(0, 100)]
    assert abs(soak_slope.slope(warm_up)["slope"]) < 20  # the first half does not count


def test_a_leak_is_told_from_noise_and_from_what_stock_does_too():
    flat, leak, wild = (soak_slope.slope(samples(*one)) for one in ((0, 1000), (1000, 1000), (0, 300_000)))
    assert soak_slope.judge(flat, None, 128) == "flat"
    assert soak_slope.judge(leak, None, 128) == soak_slope.judge(leak, flat, 128) == "leak"
    assert soak_slope.judge(leak, leak, 128) == "flat"
    assert soak_slope.judge(wild, None, 128) == "undecided"
    assert soak_slope.judge(None, None, 128) == "not judged"
    assert len(soak_slope.plot(samples(100, 10))) == 10


def records(key, kind="sample", **more):
    common = {"who": "subject", "leg": 0, **key, "kind": kind}
    if kind == "sample":
        return [common | {"minutes": i / 10, "rss": 900, "pss": 800, "private": 700, "heap": 600, "tasks": 1, "fds": 4, "pack_kib": 1, "weights": 1,
                          "sites": 1} | {name: value(i) for name, value in more.items()} for i in range(201)]
    return [common | more]


@pytest.fixture
def recorded(tmp_path):
    """Runs the driver on what an earlier run of 20 minutes recorded: nothing is left to run."""
    options = soak.parse(["--minutes", "20", "--build", BUILD])
    options.build_name = soak.build_of(BUILD)
    key = soak.key_of(options)

    def run(*more, **series):
        output = tmp_path / "soak.jsonl"
        end = records(key, "end", minutes=20.0, active=True, rounds={"models": 3}, counts={"models": [9, 0, 0, 1e-3]}, changes_seen=2, ops=[])
        lines = [json.dumps(one) for one in [*records(key, **series), *end, *(key | one for one in more)]]
        output.write_text("\n".join(lines) + '\n{"half a li')
        return run_driver("soak", "--minutes", "20", "--output", str(output))

    return run


def test_a_run_that_is_recorded_is_not_run_again(recorded):
    result = recorded()
    assert result.returncode == 0, result.stdout + result.stderr
    assert "20.0 minutes in 1 processes: 9 results compared, 0 wrong" in result.stdout
    assert "no wrong result, no crash, no leak" in result.stdout


@pytest.mark.parametrize("what, more, series", [
    ("1 wrong results", [{"kind": "wrong", "who": "subject", "leg": 0, "what": "x", "wrong": {}}], {}),
    ("killed by signal 11", [{"kind": "crash", "who": "subject", "leg": 0, "what": "killed by signal 11", "at": {}}], {}),
    ("live malloc bytes grow", [], {"heap": lambda i: 600 + 100 * i}),
    ("file descriptors grow", [], {"fds": lambda i: 4 + i // 20}),
])
def test_a_recorded_problem_still_counts(recorded, what, more, series):
    result = recorded(*more, **series)
    assert result.returncode == 1 and what in result.stdout.splitlines()[-1], result.stdout + result.stderr


def test_a_crash_and_a_hang_are_records(tmp_path, monkeypatch):
    options = soak.parse(["--build", BUILD, "--output", str(tmp_path / "soak.jsonl"), "--limit", "30"])
    options.build_name = "test"
    (tmp_path / "soak_child.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setattr(soak, "HERE", str(tmp_path))
    soak.run_leg(0, 1, options)
    options.limit = 3.0
    (tmp_path / "soak_child.py").write_text("import time\ntime.sleep(1000)\n")
    soak.run_leg(1, 1, options)
    crash, hang = [json.loads(line) for line in (tmp_path / "soak.jsonl").read_text().splitlines()]
    assert crash["kind"] == hang["kind"] == "crash"
    assert crash["what"] == "exit code 139" and hang["what"] == "no new round for 3 s"
