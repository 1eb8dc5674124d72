"""Risk: a fault around a program becomes a wrong result, a hang, a lost exit code, or a next start that fails. A sample of bench/faults.py, and
proofs that it can fail. No time is judged."""

import json
import os

import pytest
from bench_drivers import BUILD, minutes, needs_launcher, run_driver  # first: it lets bench/ be imported

import faults
import faults_run
import soak

SEED = int(os.environ.get("FAULTS_SEED", "0"))
pytestmark = needs_launcher


def test_half_a_minute_of_faults(tmp_path):
    output = tmp_path / "faults.jsonl"
    result = run_driver("faults", "--minutes", minutes(0.5), "--seed", str(SEED), "--jobs", "2", "--output", str(output))
    assert result.returncode == 0, result.stdout + result.stderr
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert records and [record for record in records if "skipped" not in record], result.stdout


def test_each_fault_comes_once_a_turn_and_a_seed_gives_the_same_ones():
    options, other = faults.parse(["--seed", "4"]), faults.parse(["--seed", "5"])
    count = len(faults.FAULTS)
    drawn = [faults.name_of(options, number) for number in range(2 * count)]
    assert sorted(drawn[:count]) == sorted(drawn[count:]) == sorted(faults.FAULTS)
    assert drawn == [faults.name_of(options, number) for number in range(2 * count)]
    assert drawn != [faults.name_of(other, number) for number in range(2 * count)]


@pytest.fixture
def victim(tmp_path, monkeypatch):
    """victim(text): problems of a run whose program is `text`; 0 is the right exit code."""
    monkeypatch.setattr(faults_run, "HERE", str(tmp_path))
    options = faults.parse(["--build", BUILD, "--limit", "60"])

    def run(text, limit=60.0, codes=(0,)):
        options.limit = limit
        (tmp_path / "faults_child.py").write_text("import os, signal, sys, time\nprint('ready', os.getpid(), flush=True)\n" + text + "\n")
        folder = tmp_path / "folder"
        folder.mkdir(exist_ok=True)
        if not (folder / "run").exists():
            bench = faults_run.Bench(options, 0, str(folder))
            run.bench = bench
        return faults_run.Run(run.bench).problems(list(codes))

    return run


def test_what_goes_wrong_is_found(victim):
    assert victim("print('ok 1')") == []
    assert victim("sys.exit(7)", codes=[7]) == []
    assert victim("pass")[0] == "no word of the end"
    assert victim("sys.stderr.write('why\\n'); sys.exit(3)")[0] == "exit code 3 instead of 0"
    assert "stderr: why" in victim("sys.stderr.write('why\\n'); sys.exit(3)")
    assert "wrong: linear: off" in victim("print('wrong: linear: off', flush=True); os._exit(3)")
    assert victim("os.kill(os.getpid(), signal.SIGSEGV)")[0] == "exit code 139 instead of 0"
    assert victim("time.sleep(1000)", limit=3.0)[0] == "no end within 3 s"


def test_what_is_recorded_is_not_run_again_and_still_counts(tmp_path):
    output = tmp_path / "faults.jsonl"
    record = {"fault": "sys exit", "number": 0, "seed": 3, "faults": 1, "build": soak.build_of(BUILD), "problems": ["exit code 9 instead of 8"], "seconds": 1.0}
    output.write_text(json.dumps(record) + "\n" + '{"fault": "te')
    result = run_driver("faults", "--faults", "sys exit", "--count", "1", "--seed", "3", "--output", str(output))
    assert result.returncode == 1
    assert "exit code 9 instead of 8" in result.stdout and "1 faults struck, 1 failed, 0 skipped" in result.stdout
    assert len(output.read_text().splitlines()) == 2
