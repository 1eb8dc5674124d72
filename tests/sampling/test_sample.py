"""Risk: `./dev test` leaves out more cases than it says (tests/conftest.py), or pytest by itself leaves out any."""

import os
import subprocess
import sys

import pytest

CASES = """
import pytest
@pytest.mark.sampled(3)
@pytest.mark.parametrize("i", range(9))
def test_many(i): pass
@pytest.mark.sampled(3)
@pytest.mark.parametrize("i", range(2))
def test_few(i): pass
@pytest.mark.parametrize("i", range(4))
def test_unmarked(i): pass
"""


@pytest.mark.parametrize("asked, many", [("sample", [0, 4, 8]), ("", list(range(9)))])
def test_what_is_run(asked, many, tmp_path):
    (tmp_path / "conftest.py").write_text(open(os.path.join(os.path.dirname(__file__), "..", "conftest.py"), encoding="utf-8").read())
    (tmp_path / "test_cases.py").write_text(CASES)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "--strict-markers", "test_cases.py"],
                          cwd=tmp_path, env={**os.environ, "IPEXRUN_TESTS": asked}, capture_output=True, text=True)
    found = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert found == [f"test_many[{i}]" for i in many] + ["test_few[0]", "test_few[1]"] + [f"test_unmarked[{i}]" for i in range(4)], done.stdout
