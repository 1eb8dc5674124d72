"""The shim in small hosts with a fake torch and a fake plugin: when it starts the plugin, when it refuses, and that nothing else changes."""

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import pytest

from victim import ABSENT, ACTIVE, HELPER, HOSTS, LIB, LOADED, MODEL, REFUSED, SHIM, TORCH, TORCH_SEEN, Run, host, start_is_right

QUIET = {"IPEXRUN_LOG": "warn"}


def tool_output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# ---- the library itself ----


def test_needs_only_libc_and_exports_only_its_hooks():
    needed = [line.split("[")[1].rstrip("]") for line in tool_output("readelf", "-dW", SHIM).splitlines() if "NEEDED" in line]
    assert set(needed) <= {"libc.so.6", "libdl.so.2", "libpthread.so.0"} and "libc.so.6" in needed
    exported = {line.split()[-1] for line in tool_output("nm", "-D", "--defined-only", SHIM).splitlines()}
    hooks = {"__libc_start_main", "dlopen", "dlsym", "pthread_create"}
    assert exported == hooks | {"execv", "execve", "execvp", "execvpe", "posix_spawn", "posix_spawnp"}
    assert os.path.getsize(SHIM) < 200_000


def test_is_hardened():
    dynamic = tool_output("readelf", "-dW", SHIM)
    assert "BIND_NOW" in dynamic and "TEXTREL" not in dynamic
    segments = tool_output("readelf", "-lW", SHIM)
    assert "GNU_RELRO" in segments and "RWE" not in segments
    code = tool_output("objdump", "-d", "--no-show-raw-insn", SHIM)
    for stub in ("dlopen", "dlsym", "pthread_create"):
        assert re.search(rf"<{stub}>:\n\s+\w+:\s+endbr64", code), f"{stub} is reached by pointers and must start with endbr64"


# ---- when the plugin starts ----


def test_one_dlopen_of_a_model_library(tmp_path):
    run = host(tmp_path, "once", MODEL)
    assert (run.code, run.out, run.err, run.state) == (0, "model says 2\n", "", ACTIVE)
    assert start_is_right(run) and run.steps == ["opened", "start", "asked"]


def test_one_dlopen_and_no_dlsym_starts_at_the_next_thread(tmp_path):
    run = host(tmp_path, "once_then_thread", MODEL)
    assert start_is_right(run) and run.steps == ["opened", "start", "thread"]


def test_a_thread_is_no_moment_when_several_threads_load(tmp_path):
    run = host(tmp_path, "many_loaders", MODEL)
    assert start_is_right(run) and run.steps == ["opened", "thread", "start", "second dlopen"]


@pytest.mark.parametrize("slow_ms", [0, 30])
@pytest.mark.parametrize("_", range(3))
def test_one_thread_loads_torch_while_others_open(tmp_path, slow_ms, _):
    run = host(tmp_path, "race", TORCH, HELPER, env={"FAKE_TORCH_SLOW_MS": slow_ms})
    assert (run.code, run.out, run.state) == (0, "raced\n", ACTIVE) and start_is_right(run)


def test_not_while_torch_is_on_the_stack(tmp_path):
    run = host(tmp_path, "callback", TORCH, env={"FAKE_PLUGIN_ANSWERS": "2,0"})
    # "not yet" at dlsym; nothing inside; then again.
    assert run.steps == ["start", "asked", "inside", "out again", "start"] and run.state == ACTIVE
    assert all("state=2 inside=0" in start for start in run.starts)


def test_not_yet_until_the_end_leaves_torch_seen(tmp_path):
    run = host(tmp_path, "once", MODEL, env={"FAKE_PLUGIN_ANSWERS": "2"})
    assert (run.code, run.out, run.err, run.state) == (0, "model says 2\n", "", TORCH_SEEN)


@pytest.mark.parametrize("variant", ["pie", "no_pie"])
def test_linked_program_starts_before_main(tmp_path, variant):
    run = Run(tmp_path, [HOSTS / f"shim_linked_{variant}", "word"])
    assert (run.code, run.out, run.err) == (42, "2 word 1 constructed torch 2\n", "")
    assert start_is_right(run) and run.steps == ["start", "main"] and run.state == ACTIVE


def test_program_with_its_own_init(tmp_path):
    run = Run(tmp_path, [HOSTS / "shim_old_start"])
    assert (run.code, run.out, run.err, run.state) == (5, "1 named init 1 torch 2\n", "", ACTIVE) and start_is_right(run)


def test_program_under_address_sanitizer(tmp_path):
    # ASan wants to be first in the list of libraries; with any preload it has to be told that this is all right.
    run = Run(tmp_path, [HOSTS / "shim_linked_asan"], env={"ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0"})
    assert (run.code, run.out, run.err, run.state) == (41, "1  1 constructed torch 2\n", "", ACTIVE) and start_is_right(run)


# ---- what must not change ----


def test_answers_of_the_loader_are_the_same(tmp_path):
    with_shim, without = host(tmp_path, "answers"), host(tmp_path, "answers", preload=())
    assert (with_shim.code, with_shim.out, with_shim.err) == (without.code, without.out, without.err)
    assert "by runpath: found" in with_shim.out and "missing: 1 libthere-is-none.so.5: cannot open" in with_shim.out


def test_deepbind(tmp_path):
    run = host(tmp_path, "deepbind", TORCH)
    assert (run.code, run.out, run.err) == (0, "done\n", "") and start_is_right(run)


def test_fork_before_torch(tmp_path):
    run = host(tmp_path, "fork_before", MODEL)
    assert (run.code, run.out, run.state) == (0, "model says 2\n", ACTIVE) and start_is_right(run)


def test_fork_after_torch(tmp_path):
    run = host(tmp_path, "fork_after", MODEL)
    assert run.code == 3 and start_is_right(run) and run.steps[-1] == "child"


def test_exec_from_a_shell_wrapper(tmp_path):
    run = Run(tmp_path, ["sh", "-c", f"exec {HOSTS}/shim_host once {MODEL}"])
    assert run.state == ACTIVE and start_is_right(run)


def test_program_started_by_naming_the_loader(tmp_path):
    loader = re.search(r"interpreter: (\S+)\]", tool_output("readelf", "-lW", HOSTS / "shim_host")).group(1)
    run = Run(tmp_path, [loader, HOSTS / "shim_host", "once", MODEL])
    assert (run.code, run.out, run.err, run.state) == (0, "model says 2\n", "", ACTIVE) and start_is_right(run)


def test_gives_up_after_many_looks(tmp_path):
    run = host(tmp_path, "many_looks", MODEL, env={"FAKE_PLUGIN_ANSWERS": "2", "FAKE_LOG": "/dev/null"})
    assert (run.code, run.state) == (0, REFUSED) and run.err == f"ipexrun: {run.reason}; stock PyTorch runs\n" and "no safe moment" in run.reason


def test_child_of_a_shell_reports_for_the_instance(tmp_path):
    run = Run(tmp_path, ["sh", "-c", f"{HOSTS}/shim_host once {MODEL}; exit 4"])
    assert run.code == 4 and run.state == ACTIVE and start_is_right(run)


def test_signals_while_loading(tmp_path):
    run = host(tmp_path, "signals", MODEL, HELPER)
    assert (run.code, run.out, run.err) == (0, "model says 2\n", "") and start_is_right(run)


def test_static_program(tmp_path):
    run = Run(tmp_path, [HOSTS / "shim_host_static"])
    assert (run.code, run.out, run.err, run.state) == (6, "static\n", "", ABSENT)


# ---- the gate ----


def test_kill_switch(tmp_path):
    run = host(tmp_path, "once", MODEL, env={"IPEXRUN_DISABLE": "1", "IPEXRUN_INHERIT": "none"})
    assert (run.code, run.out, run.err, run.log, run.state) == (0, "model says 2\n", "", ["opened", "asked"], ABSENT)
    assert host(tmp_path, "print_preload", env={"IPEXRUN_DISABLE": "1", "IPEXRUN_INHERIT": "none"}).out.strip() == str(SHIM)


def refused(run, text):
    assert run.code == 0 and not run.starts and run.state == REFUSED
    assert text in run.reason and run.err == f"ipexrun: {run.reason}; stock PyTorch runs\n"
    return True


def test_no_plugin_for_this_torch(tmp_path):
    run = host(tmp_path, "callback", HOSTS / "torch_other/libtorch_cpu.so")
    assert refused(run, "no plugin for torch 9.9 in ") and run.steps == ["asked", "inside", "out again"]


def test_torch_that_does_not_tell_its_version(tmp_path):
    assert refused(host(tmp_path, "callback", HOSTS / "torch_mute/libtorch_cpu.so"), "does not tell its version")


def test_two_torches(tmp_path):
    torches = (TORCH, HOSTS / "torch_copy/libtorch_cpu.so")
    assert refused(host(tmp_path, "print_preload", preload=(SHIM, *torches)), "2 copies of libtorch_cpu.so are mapped")


@pytest.mark.parametrize("mode,who,text", [(0o702, "plugin", "can be written by every user"), (0o777, "plugins", "can be written by every user")])
def test_plugin_that_others_can_write(tmp_path, mode, who, text):
    lib = tmp_path / "lib"
    shutil.copytree(LIB, lib)
    (lib / "plugins" if who == "plugins" else next((lib / "plugins").iterdir())).chmod(mode)
    assert refused(host(tmp_path, "once", MODEL, lib=lib), text)


def built_here(tmp_path):
    """An installation without a plugin, and the folder where the user had one built."""
    lib, own = tmp_path / "lib", tmp_path / "own"
    shutil.copytree(LIB, lib)
    (lib / "plugins").rename(own)
    (lib / "plugins").mkdir()
    return lib, own


def test_plugin_that_was_built_for_this_user(tmp_path):
    lib, own = built_here(tmp_path)
    assert refused(host(tmp_path, "once", MODEL, lib=lib), "no plugin for torch 2.13 in ")
    run = host(tmp_path, "once", MODEL, lib=lib, env={"IPEXRUN_PLUGIN_DIR": own})
    assert run.state == ACTIVE and start_is_right(run)
    assert refused(host(tmp_path, "once", MODEL, lib=lib, env={"IPEXRUN_PLUGIN_DIR": "own"}), "no plugin for torch")
    assert refused(host(tmp_path, "once", MODEL, lib=lib, env={"IPEXRUN_PLUGIN_DIR": tmp_path / "none"}), "no plugin for torch")


def test_plugin_of_the_installation_comes_first(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own/libipexrun_plugin_torch2_13.so").write_text("no library\n")
    assert host(tmp_path, "once", MODEL, env={"IPEXRUN_PLUGIN_DIR": tmp_path / "own"}).state == ACTIVE


@pytest.mark.parametrize("what", ["folder", "file"])
def test_plugin_that_was_built_where_others_can_write(tmp_path, what):
    lib, own = built_here(tmp_path)
    (own if what == "folder" else next(own.iterdir())).chmod(0o777)
    assert refused(host(tmp_path, "once", MODEL, lib=lib, env={"IPEXRUN_PLUGIN_DIR": own}), "can be written by every user")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_plugin_of_another_user(tmp_path):
    lib = tmp_path / "lib"
    shutil.copytree(LIB, lib)
    os.chown(next((lib / "plugins").iterdir()), 12345, 12345)
    assert refused(host(tmp_path, "once", MODEL, lib=lib), "belongs to user 12345")


def test_plugin_that_does_not_load(tmp_path):
    (tmp_path / "lib/plugins").mkdir(parents=True)
    plugin = tmp_path / "lib/plugins/libipexrun_plugin_torch2_13.so"
    plugin.write_text("no library\n")
    assert refused(host(tmp_path, "once", MODEL, lib=tmp_path / "lib"), "does not load")
    shutil.copy(HELPER, plugin)
    assert refused(host(tmp_path, "once", MODEL, lib=tmp_path / "lib"), "has no ipexrun_plugin_start")


def test_relative_library_folder(tmp_path):
    assert refused(host(tmp_path, "once", MODEL, lib="here"), "is not an absolute path")


def test_plugin_that_refuses(tmp_path):
    run = host(tmp_path, "once", MODEL, env={"FAKE_PLUGIN_ANSWERS": "1"})
    assert (run.code, run.out, run.state) == (0, "model says 2\n", REFUSED)
    assert run.err == "ipexrun: the fake plugin answers 1; stock PyTorch runs\n" and run.reason == "the fake plugin answers 1"


def test_refusal_is_silent_when_only_errors_are_wanted(tmp_path):
    run = host(tmp_path, "once", MODEL, lib="/nowhere", env={"IPEXRUN_LOG": "error"})
    assert (run.code, run.err, run.state) == (0, "", REFUSED)


def test_library_folder_defaults_to_the_shims_own(tmp_path):
    lib = tmp_path / "lib"
    shutil.copytree(LIB, lib)
    shutil.copy(SHIM, lib)
    run = host(tmp_path, "once", MODEL, lib="", preload=(lib / SHIM.name,))
    assert run.state == ACTIVE and start_is_right(run)


def test_require_shim_stops_the_program(tmp_path):
    run = host(tmp_path, "once", MODEL, lib="/nowhere", env={"IPEXRUN_REQUIRE_SHIM": "1"})
    assert (run.code, run.out, run.state) == (1, "", REFUSED) and run.steps == ["opened"]
    assert run.err.startswith("ipexrun: no plugin for torch 2.13 in /nowhere/plugins") and "--require-shim" in run.err
    assert host(tmp_path, "once", MODEL, env={"IPEXRUN_REQUIRE_SHIM": "1"}).code == 0
    assert host(tmp_path, "print_preload", env={"IPEXRUN_REQUIRE_SHIM": "1"}).code == 0


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 8192])
def test_event_file_that_is_none(tmp_path, content):
    other = tmp_path / "other"
    other.write_bytes(content)
    run = host(tmp_path, "once", MODEL, env={"IPEXRUN_EVENTS": other})
    assert (run.code, run.out, run.err) == (0, "model says 2\n", "") and start_is_right(run) and other.read_bytes() == content


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_set_user_id_program(tmp_path):
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folder is closed to other users
        os.chmod(folder, 0o755)
        program = shutil.copy(HOSTS / "shim_host", folder)
        os.chmod(program, 0o4755)
        run = Run(tmp_path, ["setpriv", "--reuid=12345", "--clear-groups", program, "print_preload"])
    # The loader drops LD_PRELOAD for such a program: it runs as if we were not there.
    assert (run.code, run.out) == (0, "(unset)\n")


# ---- programs that never see torch ----


@pytest.mark.parametrize("command", [["ls", "-la", "/usr"], ["git", "--version"], ["git", "nonsense"], [sys.executable, "-S", "-c", "print(1)"],
                                     [sys.executable, "-c", "import ctypes, sys; sys.exit(3)"], ["sh", "-c", "kill -9 $$"]])
def test_ordinary_programs_are_unchanged(tmp_path, command):
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not here")
    with_shim, without = Run(tmp_path, command), Run(tmp_path, command, preload=())
    assert (with_shim.code, with_shim.out, with_shim.err) == (without.code, without.out, without.err)
    assert (with_shim.state, without.state, with_shim.reason) == (LOADED, ABSENT, "")


def test_start_costs_far_less_than_20_ms():
    """The promise is 20 ms; the bound here is wide because the machine is shared. docs/limits-shim.md has measured numbers."""
    environment = dict(os.environ)
    times = {"": [], str(SHIM): []}
    for _ in range(60):
        for preload, samples in times.items():
            environment["LD_PRELOAD"] = preload
            begin = time.perf_counter()
            subprocess.run(["/bin/true"], env=environment, check=True)
            samples.append(time.perf_counter() - begin)
    without, with_shim = (statistics.median(samples) for samples in times.values())
    assert with_shim - without < 0.010
