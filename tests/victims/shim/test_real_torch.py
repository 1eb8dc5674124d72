"""The shim under the configured Python with its real torch, and a recording plugin in place of ours."""

import importlib.util
import re
import shutil
import sys

import pytest

from victim import ACTIVE, LIB, LOADED, SHIM, Run

spec = importlib.util.find_spec("torch")
pytestmark = pytest.mark.skipif(spec is None, reason="this Python has no torch")


@pytest.fixture(scope="module")
def lib(tmp_path_factory):
    """The recording plugin under the name that belongs to this torch."""
    with open(f"{spec.submodule_search_locations[0]}/version.py", encoding="utf-8") as text:
        major, minor = re.search(r"__version__ = '(\d+)\.(\d+)", text.read()).groups()
    folder = tmp_path_factory.mktemp("lib")
    (folder / "plugins").mkdir()
    shutil.copy(next((LIB / "plugins").iterdir()), folder / f"plugins/libipexrun_plugin_torch{major}_{minor}.so")
    return folder


def python(tmp_path, lib, code, **env):
    return Run(tmp_path, [sys.executable, "-c", code], lib=lib, env=env)


def test_import_starts_the_plugin_once(tmp_path, lib):
    run = python(tmp_path, lib, "import torch; print(torch.ones(3).sum().item())")
    assert (run.code, run.out, run.err, run.state) == (0, "3.0\n", "", ACTIVE) and len(run.starts) == 1


def test_import_in_a_thread_while_another_loads(tmp_path, lib):
    code = """
import threading
def load(): import torch
def others():
    while thread.is_alive():
        import _decimal, _lzma, _sqlite3
thread = threading.Thread(target=load)
thread.start(); others(); thread.join()
import torch; print(torch.ones(3).sum().item())
"""
    run = python(tmp_path, lib, code)
    assert (run.code, run.out, run.state) == (0, "3.0\n", ACTIVE) and len(run.starts) == 1


@pytest.mark.parametrize("allocator", ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"])
def test_beside_a_preloaded_allocator(tmp_path, lib, allocator):
    if Run(tmp_path, ["true"], preload=(allocator,)).err != "":  # the loader says so when it cannot preload something
        pytest.skip(f"{allocator} is not here")
    code = "import torch; print(torch.ones(3).sum().item())"
    # jemalloc's own threads: it calls pthread_create from within malloc, wherever that is.
    run = Run(tmp_path, [sys.executable, "-c", code], lib=lib, preload=(allocator, SHIM), env={"MALLOC_CONF": "background_thread:true"})
    assert (run.code, run.out, run.state) == (0, "3.0\n", ACTIVE) and len(run.starts) == 1


def test_workers_by_fork_and_spawn(tmp_path, lib):
    program = tmp_path / "program.py"
    program.write_text("""
import torch
from torch.utils.data import DataLoader
if __name__ == "__main__":
    for start in ("fork", "spawn"):
        loader = DataLoader(list(range(8)), batch_size=4, num_workers=2, multiprocessing_context=start)
        print(start, [batch.tolist() for batch in loader])
""")
    run = Run(tmp_path, [sys.executable, program], lib=lib)
    assert run.code == 0 and run.out == "fork [[0, 1, 2, 3], [4, 5, 6, 7]]\nspawn [[0, 1, 2, 3], [4, 5, 6, 7]]\n"
    pids = re.findall(r"pid=(\d+)", "\n".join(run.starts))
    assert run.state == ACTIVE and len(pids) == len(set(pids)) == 3  # the program and the two spawned workers
    assert "ipexrun" not in run.err  # Python's own resource tracker may warn about a semaphore there when workers end late


def test_python_without_torch(tmp_path, lib):
    run = python(tmp_path, lib, "import ctypes, threading; t = threading.Thread(target=print); t.start(); t.join()")
    assert (run.code, run.out, run.err, run.state, run.log) == (0, "\n", "", LOADED, [])


def test_require_shim_stops_the_import(tmp_path):
    run = python(tmp_path, "/nowhere", "import torch; print('went on')", IPEXRUN_REQUIRE_SHIM="1")
    assert (run.code, run.out) == (1, "") and "ipexrun: no plugin for torch" in run.err
