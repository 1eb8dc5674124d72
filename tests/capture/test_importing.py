"""What importing TorchDynamo is predicted to take: nothing where the program has it, more where its files have no bytecode or lie on a slow disk."""

import importlib.util
import itertools
import os
import sys

import pytest

sys.path.insert(0, f"{os.environ['IPEXRUN_BUILD_DIR']}/lib/ipexrun/python")

from ipexrun.capture import importing, python_speed  # noqa: E402

FILES = sum(map(len, importing.SAMPLE.values()))


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch):
    monkeypatch.setattr(python_speed, "slowness", lambda: 2.0)
    importing._read_once_s.cache_clear()
    for name in [name for name in sys.modules if name == importing.WHOLE or name.startswith(("torch._dynamo.", "torch._inductor.", "sympy.", "mpmath."))]:
        monkeypatch.delitem(sys.modules, name)
    yield
    importing._read_once_s.cache_clear()


def test_the_files_of_the_sample_are_there():
    for package, files in importing.SAMPLE.items():
        (folder,) = importlib.util.find_spec(package).submodule_search_locations
        missing = [file for file in files if not os.path.exists(os.path.join(folder, file))]
        assert missing == []


def test_each_file_of_the_sample_is_read_and_nothing_is_imported():
    before, ticks = set(sys.modules), itertools.count()
    assert importing.read_s(lambda: float(next(ticks))) == FILES
    assert set(sys.modules) - before == set()


def test_no_bytecode_is_left_behind(monkeypatch, tmp_path):
    (tmp_path / "one.py").write_text("x = 1\n")
    (tmp_path / "two.py").write_text("x = 1\n")
    (tmp_path / "three.py").write_bytes(b"\0")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(importing, "folders_of", lambda package: [str(tmp_path)])
    monkeypatch.setattr(importing, "SAMPLE", {"a": ("one.py", "two.py", "three.py")})
    ticks = itertools.count()
    assert importing.read_s(lambda: float(next(ticks))) == 2
    assert sorted(os.listdir(tmp_path)) == ["one.py", "three.py", "two.py"]


def test_a_finder_that_raises_says_nothing(monkeypatch):
    def raises(name, path=None, target=None):
        raise RuntimeError("a finder of the program's own")

    finder = type("Finder", (), {"find_spec": staticmethod(raises)})
    monkeypatch.setattr(sys, "meta_path", [finder])
    monkeypatch.setattr(importing, "SAMPLE", {"no_such_package": ("a.py",)})
    assert importing.read_s() == 0


def test_files_that_are_not_there_and_packages_that_are_loaded_do_not_count(monkeypatch):
    monkeypatch.setattr(importing, "SAMPLE", {"torch": ("_dynamo/no_such_file.py", "_dynamo/codegen.py"), "no_such_package": ("a.py",)})
    ticks = itertools.count()
    assert importing.read_s(lambda: float(next(ticks))) == 1
    monkeypatch.setitem(sys.modules, "torch._dynamo.codegen", object())
    assert importing.read_s(lambda: float(next(ticks))) == 0


def test_a_file_that_waited_for_a_core_counts_as_little_as_others():
    times = iter([0.1, 0.2, 5.0, 0.1] + [0.1] * FILES)
    now = 0.0

    def clock():
        nonlocal now, ends
        ends = not ends
        now += 0.0 if ends else next(times)
        return now

    ends = False
    assert importing.read_s(clock) == pytest.approx(0.1 * (FILES - 2) + 0.2 + importing.UNUSUAL * 0.1)


@pytest.mark.parametrize("read_s, seconds", [(0.0, 1.2), (0.7 / importing.TIMES, 1.2), (7.0 / importing.TIMES, 7.5)])
def test_what_reading_takes_longer_than_usual_is_added(monkeypatch, read_s, seconds):
    monkeypatch.setattr(importing, "read_s", lambda: read_s)
    assert importing.remaining_s() == pytest.approx(seconds)


def test_what_the_program_has_imported_costs_nothing(monkeypatch):
    monkeypatch.setattr(importing, "read_s", lambda: pytest.fail("nothing is to be read"))
    monkeypatch.setitem(sys.modules, importing.WHOLE, object())
    assert importing.remaining_s() == 0 and importing.import_now(clock=lambda: pytest.fail("nothing is to be timed")) == 0
