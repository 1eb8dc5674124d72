"""IPEXRUN_INHERIT: which descendants keep the preload, and that compilers and git get no allocator."""

import shutil
import sys

import pytest

from victim import HOSTS, MODEL, SHIM, Run, host

# Any library stands for the allocator: it is an entry that ipexrun added beside the shim.
ALLOCATOR = HOSTS / "torch/libfake_helper.so"
HOST = HOSTS / "shim_host"
PRINT = "import os; print(os.environ.get('LD_PRELOAD', '(unset)'))"


def preload_of(tmp_path, command, mode, preload=(ALLOCATOR, SHIM), users=()):
    env = {"IPEXRUN_INHERIT": mode, "IPEXRUN_PRELOAD": f"{ALLOCATOR}:{SHIM}"}
    run = Run(tmp_path, command, preload=(*users, *preload), env=env)
    assert run.code == 0 and run.err == "", run.err
    return run.out.strip()


BOTH = f"{ALLOCATOR}:{SHIM}"


@pytest.mark.parametrize("mode,expected", [("all", BOTH), ("python", "(unset)"), ("none", "(unset)")])
def test_own_program(tmp_path, mode, expected):
    assert preload_of(tmp_path, [HOST, "print_preload"], mode) == expected


@pytest.mark.parametrize("mode,expected", [("all", BOTH), ("python", BOTH), ("none", "(unset)")])
def test_python_sees_it_in_os_environ(tmp_path, mode, expected):
    assert preload_of(tmp_path, [sys.executable, "-S", "-c", PRINT], mode) == expected


# Starts argv[2:] with the entry argv[1] before those of the environment, where another one of the same name may stand.
ENTRY_BEFORE = """
import ctypes, os, sys
def array(words): return (ctypes.c_char_p * (len(words) + 1))(*words, None)
argv = [word.encode() for word in sys.argv[2:]]
ctypes.CDLL(None).execve(argv[0], array(argv), array([sys.argv[1].encode(), *(name + b"=" + value for name, value in os.environb.items())]))
"""


def test_of_a_variable_that_is_there_twice_the_first_counts(tmp_path):
    """As for getenv(3), by which the plugin and the crash library go too."""
    wrapper = [sys.executable, "-S", "-c", ENTRY_BEFORE]
    assert preload_of(tmp_path, [*wrapper, "IPEXRUN_INHERIT=none", HOST, "print_preload"], "all") == "(unset)"
    assert preload_of(tmp_path, [*wrapper, "IPEXRUN_INHERIT=all", HOST, "print_preload"], "python") == BOTH


@pytest.mark.parametrize("mode,expected", [("all", BOTH), ("python", BOTH), ("none", "(unset)")])
def test_python_below_wrappers(tmp_path, mode, expected):
    command = ["sh", "-c", 'env nice timeout 60 "$0" -S -c "$1"; exit $?', sys.executable, PRINT]
    assert preload_of(tmp_path, command, mode) == expected


@pytest.mark.parametrize("mode,expected", [("all", BOTH), ("python", "(unset)"), ("none", "(unset)")])
def test_python_below_another_program(tmp_path, mode, expected):
    command = [HOST, "run_by", "execv", sys.executable, "-S", "-c", PRINT]
    assert preload_of(tmp_path, command, mode) == expected


@pytest.mark.parametrize("name,keeps", [("python3.13t", True), ("pypy3", True), ("bash-5.2", True), ("mytrainer", False), ("shred", False)])
def test_python_mode_goes_by_the_name_of_the_program(tmp_path, name, keeps):
    program = shutil.copy(HOST, tmp_path / name)
    assert preload_of(tmp_path, [program, "print_preload"], "python") == (BOTH if keeps else "(unset)")


def test_only_our_own_entries_go(tmp_path):
    users = shutil.copy(ALLOCATOR, tmp_path / "libusers_own.so")
    assert preload_of(tmp_path, [HOST, "print_preload"], "none", users=(users,)) == str(users)


@pytest.mark.parametrize("mode", ["all", "python", "none"])
def test_nothing_of_ours_named_nothing_removed(tmp_path, mode):
    run = Run(tmp_path, [HOST, "print_preload"], env={"IPEXRUN_INHERIT": mode, "IPEXRUN_PRELOAD": ""})
    assert run.out.strip() == str(SHIM)


@pytest.mark.parametrize("how", ["execv", "execve", "execvp", "execvpe", "posix_spawn", "posix_spawnp"])
@pytest.mark.parametrize("name", ["git", "gcc-12", "x86_64-linux-gnu-g++", "cc1plus", "ld.bfd", "hostname", "gcovr"])
def test_build_tools_get_no_allocator(tmp_path, how, name):
    tool = tmp_path / name
    shutil.copy(HOST, tool)
    command = [HOST, "run_by", how, tool, "print_preload"]
    assert preload_of(tmp_path, command, "all") == (BOTH if name in ("hostname", "gcovr") else str(SHIM))


def test_kill_switch_leaves_every_environment_alone(tmp_path):
    tool = shutil.copy(HOST, tmp_path / "git")
    env = {"IPEXRUN_DISABLE": "1", "IPEXRUN_PRELOAD": BOTH}
    assert Run(tmp_path, [HOST, "run_by", "execve", tool, "print_preload"], preload=(ALLOCATOR, SHIM), env=env).out.strip() == BOTH


@pytest.mark.parametrize("starter", ["sh", "subprocess", "os.system", "os.posix_spawn"])
def test_build_tools_started_by_python_and_shells(tmp_path, starter):
    tool = tmp_path / "g++"
    shutil.copy(HOST, tool)
    code = {"subprocess": "import subprocess, sys; sys.exit(subprocess.call([sys.argv[1]]))",
            "os.system": "import os, sys; sys.exit(os.system(sys.argv[1]))",
            "os.posix_spawn": "import os, sys; os.waitpid(os.posix_spawn(sys.argv[1], [sys.argv[1]], os.environ), 0)"}
    command = ["sh", "-c", '"$0"', tool] if starter == "sh" else [sys.executable, "-S", "-c", code[starter], tool]
    assert preload_of(tmp_path, command, "all") == str(SHIM)


def test_the_plugin_still_starts_in_a_program_that_gives_nothing_on(tmp_path):
    run = host(tmp_path, "once", MODEL, env={"IPEXRUN_INHERIT": "none"})
    assert len(run.starts) == 1
