"""Risk: a kill, a full disk, a hang or a crash around hypertune loses a trial or runs one twice. One of each fault of bench/faults_tuner.py, and a
proof that a lost trial would be found. ./dev faults strikes at more moments."""

import argparse
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import faults_tuner  # noqa: E402
from faults_run import Bench, Skip  # noqa: E402

OPTIONS = argparse.Namespace(seed=int(os.environ.get("FAULTS_SEED", "0")), build=os.environ["IPEXRUN_BUILD_DIR"], limit=120)


@pytest.mark.parametrize("number, name", list(enumerate(faults_tuner.FAULTS)))
def test_a_fault_loses_nothing(tmp_path, number, name):
    try:
        assert faults_tuner.FAULTS[name](Bench(OPTIONS, number, str(tmp_path))) == []
    except Skip as why:
        pytest.skip(str(why))


def test_a_lost_trial_is_found(tmp_path):
    tuner = faults_tuner.Tuner(Bench(OPTIONS, 99, str(tmp_path)))
    assert tuner.end(tuner.start()) == []
    journal = Path(tuner.study, "journal.jsonl")
    lines = journal.read_text().splitlines(True)
    journal.write_text("".join(line for line in lines if '"kind":"end","trial":3' not in line))
    assert any("ends of trials" in text for text in tuner.lost_or_doubled(0))
    journal.write_text("".join(line for line in lines if '"kind":"run","trial":3' not in line))
    assert any("runs are written down" in text for text in tuner.lost_or_doubled(0))
