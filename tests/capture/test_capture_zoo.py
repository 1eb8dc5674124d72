"""Risk: a whole model, unedited and captured, computes something else than stock, prints, or raises. A sample of bench/zoo.py --graphs. No time is
judged."""

import importlib.util
import json
import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "op_tier"))
from bench_drivers import minutes, needs_launcher, run_driver  # noqa: E402

# One graph; a text written with a cache; graphs that break; rounding that adds up, so the op tier's checks of whole passes matter; two towers.
FAMILIES = "bert,gpt2,mixtral,mobilenet_v1,clip,dlrm"


@needs_launcher
@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_a_sample_of_captured_families_is_equal(tmp_path):
    output = tmp_path / "zoo.jsonl"
    result = run_driver("zoo", "--graphs", "auto", "--minutes", minutes(1), "--seed", os.environ.get("ZOO_SEED", "0"), "--size", "small", "--threads", "1",
                        "--dtypes", "auto", "--families", FAMILIES, "--output", str(output), timeout=560)
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert result.returncode == 0 and records and all(record["equal"] for record in records), result.stdout + result.stderr
    assert any(record["graphs"] for record in records), "stock was compared with stock"
