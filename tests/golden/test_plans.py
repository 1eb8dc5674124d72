"""Every plan of tests/golden/plans is as it was agreed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import golden  # noqa: E402

CASES = sorted(golden.PLANS.glob("*.txt"))


def test_there_are_enough_machines():
    machines = {golden.read_case(path)[1]["machine"] for path in CASES}
    assert len(machines) >= 14, machines


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_plan_is_as_agreed(path):
    diff = golden.difference(path)
    assert not diff, f"{golden.read_case(path)[1]['why']}\n{diff}\n(python tests/golden/golden.py --update accepts it)"
