"""Every plan of tests/golden/plans is as it was agreed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import golden  # noqa: E402

CASES = sorted(golden.PLANS.glob("*.txt"))
CORPUS = sorted(golden.MACHINES.glob("*.txt"))


def test_there_are_enough_machines():
    machines = {golden.read_case(path)[1]["machine"] for path in CASES}
    assert len(machines) >= 14, machines
    assert len(CORPUS) >= 40, len(CORPUS)


def test_every_machine_says_why_it_is_kept():
    whys = {path.stem: next(line for line in golden.read_machine(path) if line.startswith("why: ")) for path in CORPUS}
    assert len(set(whys.values())) == len(whys), whys


@pytest.mark.parametrize("path", CASES + CORPUS, ids=lambda path: path.stem)
def test_plan_is_as_agreed(path):
    diff = golden.difference(path)
    assert not diff, f"{diff}\n(python tests/golden/golden.py --update accepts it)"


EXAMPLES = golden.documented_examples(golden.HERE.parents[1] / "docs" / "placement.md")


def test_there_are_examples():
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize(("command", "lines"), EXAMPLES, ids=[command[-40:] for command, _ in EXAMPLES])
def test_documented_example_is_current(command, lines):
    assert golden.example_now(command) == lines
