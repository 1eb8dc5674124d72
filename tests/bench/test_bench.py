"""--bench on unedited programs, through launcher, shim, plugin and hook. The risk: a report about something that did not happen.
No time is checked here, only what was counted, who did it and where it was written."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("IPEXRUN_BUILD_DIR", Path(__file__).resolve().parents[2] / "build" / "dev"))
IPEXRUN = BUILD / "bin" / "ipexrun"

MODEL = """
    import sys, torch
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
    loss = torch.nn.MSELoss()
    x = torch.randn(8, 64)
    with torch.no_grad():
        for _ in range(int(sys.argv[1])):
            y = model(input=x)
            loss(y, x)
    print("sum", round(float(y.sum()), 3))
"""


@pytest.fixture
def script(tmp_path):
    def write(text, name="app.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write


def bench(tmp_path, *args):
    report = tmp_path / "report.json"
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    result = subprocess.run(
        [str(IPEXRUN), "--bench", "--bench-output", str(report), *args], capture_output=True, text=True, env=environment, timeout=200
    )
    return result, json.loads(report.read_text()) if report.exists() else None


def test_unedited_script_is_timed(tmp_path, script):
    result, report = bench(tmp_path, script(MODEL), "300")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("sum ") and "ipexrun" not in result.stdout
    row = report["rows"][0]
    assert report["headline"] == "p50 of Sequential"
    assert row["calls"] + row["warmup_calls"] + row["explored_calls"] == 300
    assert (row["batch"], row["batch_min"], row["batch_max"], row["failed_calls"]) == (8, 8, 8, 0)
    assert row["samples_per_s"] > 0 and row["p50_ms"] > 0 and row["p99_ms"] is None
    assert sorted(one["module"] for one in report["modules"]) == ["MSELoss", "Sequential"]
    assert report["environment"]["torch"].startswith("2.") and report["environment"]["isa_used"]
    assert row["ops_taken"] + row["ops_declined"] >= 600
    assert "p99 needs n >= 662" in result.stderr


def test_instances_are_summed(tmp_path, script):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    result, report = bench(tmp_path, "--ninstances", "2", "--ncores-per-instance", "1", script(MODEL), "60")
    assert result.returncode == 0, result.stderr
    everything, first, second = report["rows"]
    assert [everything["instance"], first["instance"], second["instance"]] == ["all", "0", "1"]
    assert everything["calls"] == first["calls"] + second["calls"]
    assert everything["samples_per_s"] == pytest.approx(first["samples_per_s"] + second["samples_per_s"])
    assert first["cpus"] != second["cpus"]


def test_comparison_with_stock(tmp_path, script):
    result, report = bench(tmp_path, "--bench-compare", "stock", "--bench-pairs", "2", script(MODEL), "60")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("sum ") == 1
    assert [row["variant"] for row in report["rows"]] == ["stock", "ipexrun"]
    stock, ours = report["rows"]
    assert stock["calls"] == 2 * 50 and stock["ops_taken"] in (None, 0) and stock["cpus"] is None
    assert ours["calls"] > 0 and ours["cpus"]
    (comparison,) = report["comparisons"]
    assert len(comparison["pair_ratios"]) == 2 and comparison["speedup"] > 0
    assert any("same output" in note for note in report["notes"])


def test_stop_ends_an_endless_program(tmp_path, script):
    endless = """
        import torch
        model = torch.nn.Linear(16, 16)
        while True:
            model(torch.zeros(4, 16))
            __import__("time").sleep(0.001)
    """
    result, report = bench(tmp_path, "--bench-iters", "30", "--bench-warmup", "5", "--bench-stop", script(endless))
    assert result.returncode == 0, result.stderr
    assert report["rows"][0]["calls"] == 30 and report["rows"][0]["warmup_calls"] == 5


def test_training_is_told_apart_and_failures_pass_through(tmp_path, script):
    fails = """
        import torch
        model = torch.nn.Linear(16, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(40):
            optimizer.zero_grad()
            model(torch.ones(4, 16)).sum().backward()
            optimizer.step()
        model(torch.ones(4, 5))
    """
    result, report = bench(tmp_path, "--bench-warmup", "0", script(fails))
    assert result.returncode == 1 and "RuntimeError" in result.stderr
    row = report["rows"][0]
    assert row["failed_calls"] == 1 and row["training_calls"] == row["calls"] > 0


def test_program_with_a_metric_line_and_without(tmp_path, script):
    result, report = bench(tmp_path, script("print('throughput: 125.5 samples/s')"))
    assert result.stdout == "throughput: 125.5 samples/s\n"
    assert (report["rows"][0]["measured"], report["rows"][0]["metric"]) == ("metric line", 125.5)
    result, report = bench(tmp_path, "/bin/true")
    assert result.returncode == 0 and report["rows"][0]["measured"] == "whole program"


@pytest.mark.parametrize("name", ["absent/report.json", "report.txt"])
def test_bad_output_starts_nothing(tmp_path, script, name):
    mark = tmp_path / "started"
    result = subprocess.run([str(IPEXRUN), "--bench-output", name, "touch", str(mark)], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode in (1, 2) and not mark.exists()
    assert len(result.stderr.splitlines()) == 1 and result.stderr.startswith("ipexrun: ")


def test_explain_last_shows_a_measured_run(tmp_path, script, monkeypatch):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    monkeypatch.setenv("IPEXRUN_CACHE", str(cache))
    result, _ = bench(tmp_path, "--bench-compare", "stock", "--bench-pairs", "1", script(MODEL), "61")
    assert result.returncode == 0, result.stderr
    done = subprocess.run([str(IPEXRUN), "explain-last"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and " 61\n" in done.stdout and "lets kernels of ours join" in done.stdout, done.stdout + done.stderr
