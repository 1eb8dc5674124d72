"""--crash-report on small programs that crash: the stack, whose code it was, and that the end of the program stays its own."""

import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ["IPEXRUN_BUILD_DIR"])
HOSTS = BUILD / "tests/victims/crash"
LIB = BUILD / "lib/ipexrun/libipexrun_crash.so"
BINARY = BUILD / "bin/ipexrun"
NOT_OURS = r"no frame of its stack \(\d+\) was ipexrun's"
NONE = "none of these {} frames is ipexrun's"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("IPEXRUN_", "LD_PRELOAD"))}
needs_launcher = pytest.mark.skipif(not BINARY.exists(), reason="no launcher in this build")


def limits():
    # No core files: a test that crashes on purpose leaves none behind. A stack that can be filled, also where it has no limit.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))


def run(argv, preload=True, env=None, **how):
    ours = {"LD_PRELOAD": str(LIB), "IPEXRUN_CRASH_REPORT": "1"} if preload else {}
    return subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        timeout=120,
        env={**CLEAN, **ours, **(env or {})},
        preexec_fn=limits,
        **how,
    )


def crash(how, host="crash_host_pie", **more):
    return run([HOSTS / host, how], **more)


def symbols(done):
    return [line.split(" ")[-1].split("+")[0] for line in done.stderr.splitlines() if re.match(r"ipexrun: +#\d", line)]


def whole(done):
    lines = done.stderr.splitlines()
    assert lines and all(line.startswith("ipexrun: ") for line in lines), done.stderr
    assert re.search(r"process \d+, thread \d+ '", lines[0])
    return lines


@pytest.mark.parametrize(
    "how, number, cause, frames",
    [
        ("null", signal.SIGSEGV, "access to 0x0, where nothing is mapped", ["write_nowhere", "main"]),
        ("thread", signal.SIGSEGV, "access to 0x0, where nothing is mapped", ["write_nowhere", "crash_in_thread"]),
        ("cancel", signal.SIGSEGV, "access to 0x0, where nothing is mapped", ["write_nowhere", "crash_while_cancelled"]),
        ("library", signal.SIGSEGV, "access to 0x0, where nothing is mapped", ["library_write", "library_work", "main"]),
        ("abort", signal.SIGABRT, "abort() or a failed assertion", ["abort", "main"]),
        ("divide", signal.SIGFPE, "integer division by zero", ["main"]),
        ("illegal", signal.SIGILL, "instruction", ["main"]),
        ("bus", signal.SIGBUS, "beyond the end of a mapped file", ["main"]),
        ("bad_call", signal.SIGSEGV, "access to 0x0, where nothing is mapped", ["main"]),
    ],
)
@pytest.mark.parametrize("host", ["crash_host_pie", "crash_host_no_pie"])
def test_stack_and_signal(how, number, cause, frames, host):
    done = crash(how, host)
    assert done.returncode == -number, done.stderr
    lines = whole(done)
    assert lines[0].startswith(f"ipexrun: {signal.Signals(number).name} in process ") and cause in lines[0]
    seen = symbols(done)
    at = [seen.index(name) for name in frames]
    assert at == sorted(at), seen
    assert lines[-1] == "ipexrun: " + NONE.format(len(lines) - 2)


def test_the_addresses_are_what_addr2line_takes():
    if shutil.which("addr2line") is None:
        pytest.skip("no addr2line")
    for host in ("crash_host_pie", "crash_host_no_pie"):
        done = crash("null", host)
        module, address = re.search(r"#0 \S+ (\S+)\+(0x[0-9a-f]+) write_nowhere", done.stderr).groups()
        told = subprocess.run(["addr2line", "-f", "-e", module, address], capture_output=True, text=True, check=True)
        assert told.stdout.splitlines()[0] == "write_nowhere"


@pytest.mark.parametrize("how", ["overflow", "overflow_thread"])
def test_a_full_stack(how):
    done = crash(how)
    assert done.returncode == -signal.SIGSEGV
    lines = whole(done)
    assert lines[0].endswith("the stack is full (endless recursion?)")
    assert any(re.fullmatch(r"ipexrun:   \.\.\. \d+ frames left out", line) for line in lines)
    assert symbols(done)[1] == "use_stack" and ("main" if how == "overflow" else "overflow_in_thread") in symbols(done)
    assert re.fullmatch(r"ipexrun: none of these \d{4,} frames is ipexrun's", lines[-1])


def test_a_broken_heap_is_aborted_by_the_c_library():
    done = crash("heap")
    assert done.returncode == -signal.SIGABRT and "main" in symbols(done)


def test_a_frame_of_ours_is_said():
    done = crash("ours")
    assert done.returncode == -signal.SIGSEGV
    assert "library_write+0x0 (ipexrun)" in done.stderr
    assert whole(done)[-1].startswith("ipexrun: 2 of these ") and "are ipexrun's, the first is #0: please report it" in done.stderr


def test_without_a_lib_dir_our_folder_is_that_of_this_library(tmp_path):
    """As for the shim. Any library that lies there is ours, by whatever path the loader found it."""
    for library in (LIB, HOSTS / "libcrash_library.so"):
        shutil.copy(library, tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    preload = {"LD_PRELOAD": f"{tmp_path}/link/{LIB.name}:{tmp_path}/libcrash_library.so"}
    ours = re.compile(r"^ipexrun: 2 of these \d+ frames are ipexrun's, the first is #0", re.M)
    assert ours.search(crash("library", env=preload).stderr)
    assert ours.search(crash("library", env={**preload, "IPEXRUN_LIB_DIR": "/" + "x" * 5000}).stderr), "a path that is too long is none"
    elsewhere = crash("library", env={**preload, "IPEXRUN_LIB_DIR": str(HOSTS / "no")})
    assert whole(elsewhere)[-1] == "ipexrun: " + NONE.format(len(whole(elsewhere)) - 2)


# Starts argv[2:] with the entry argv[1] before those of the environment, where another one of the same name may stand.
ENTRY_BEFORE = """
import ctypes, os, sys
def array(words): return (ctypes.c_char_p * (len(words) + 1))(*words, None)
argv = [word.encode() for word in sys.argv[2:]]
ctypes.CDLL(None).execve(argv[0], array(argv), array([sys.argv[1].encode(), *(name + b"=" + value for name, value in os.environb.items())]))
"""


def test_of_a_variable_that_is_there_twice_the_first_counts():
    """As for getenv(3), and so for the shim and the plugin."""
    done = run([sys.executable, "-S", "-c", ENTRY_BEFORE, "IPEXRUN_INSTANCE=3", HOSTS / "crash_host_pie", "null"], env={"IPEXRUN_INSTANCE": "4"})
    assert whole(done)[0].startswith("ipexrun: SIGSEGV in instance 3, "), done.stderr


def test_a_stack_that_leads_nowhere():
    done = crash("lost_stack")
    assert done.returncode == -signal.SIGSEGV
    assert whole(done)[-1].endswith("the stack cannot be followed further") and symbols(done)[0] == "main"


def test_a_fault_of_the_walk_itself_is_survived():
    done = crash("lost_call")
    assert done.returncode == -signal.SIGSEGV
    assert whole(done)[-1] == "ipexrun: this frame is not ipexrun's; the stack cannot be followed further"


def test_a_call_at_the_very_end_of_a_function():
    assert symbols(crash("last_call"))[:4] == ["write_nowhere", "crash_for_good", "ends_with_a_call", "main"]


def test_several_threads_at_once_make_one_report():
    done = crash("many")
    assert done.returncode == -signal.SIGSEGV
    assert sum("SIGSEGV in process" in line for line in whole(done)) == 1


def test_an_own_handler_wins():
    done = crash("own_handler")
    assert done.returncode == 7 and done.stdout.endswith("mine\n") and done.stderr == ""


def test_forked_children_and_programs_started_by_exec_report_too():
    done = crash("fork")
    child = re.search(r"child (\d+) ended by 11", done.stdout).group(1)
    assert done.returncode == 0 and f"SIGSEGV in process {child}, " in whole(done)[0]
    assert crash("exec").returncode == -signal.SIGSEGV and "write_nowhere" in symbols(crash("exec"))


def test_a_signal_from_outside():
    process = subprocess.Popen(
        [HOSTS / "crash_host_pie", "wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**CLEAN, "LD_PRELOAD": str(LIB), "IPEXRUN_CRASH_REPORT": "1"},
        preexec_fn=limits,
    )
    assert process.stdout.readline().startswith("pid ")
    os.kill(process.pid, signal.SIGSEGV)
    _, error = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGSEGV and f"sent by process {os.getpid()}" in error


def test_what_a_program_sees():
    assert crash("disposition").stdout.splitlines()[1].split() == ["handled"] * 5 + ["default"]
    assert crash("threads").stdout.splitlines()[1] == "201 with a signal stack, given back"


def test_ignored_signals_stay_ignored():
    text = "import os, signal, sys; signal.signal(signal.SIGFPE, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    done = run([sys.executable, "-c", text, HOSTS / "crash_host_pie", "disposition"])
    assert done.stdout.splitlines()[1].split()[:5] == ["handled", "handled", "handled", "ignored", "handled"]


@pytest.mark.parametrize("env", [{}, {"IPEXRUN_CRASH_REPORT": "0"}, {"IPEXRUN_CRASH_REPORT": "1", "IPEXRUN_DISABLE": "1"}])
def test_without_the_option_nothing_is_installed(env):
    done = crash("disposition", preload=False, env={"LD_PRELOAD": str(LIB), **env})
    assert done.stdout.splitlines()[1].split() == ["default"] * 6
    assert crash("null", preload=False, env={"LD_PRELOAD": str(LIB), **env}).stderr == ""


def test_a_closed_stderr_changes_nothing():
    done = run(["/bin/sh", "-c", f"exec {HOSTS / 'crash_host_pie'} null 2>&-"])
    assert done.returncode == -signal.SIGSEGV


def test_the_library_needs_only_libc_and_shows_one_function():
    for tool in ("readelf", "nm"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    needed = subprocess.run(["readelf", "-dW", LIB], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(.+)\]", needed)) <= {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
    shown = subprocess.run(["nm", "-D", "--defined-only", LIB], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in shown.splitlines()] == ["pthread_create"]


# ---- through the launcher ----


def launched(*args, **how):
    return run([BINARY, "--crash-report", *args], preload=False, **how)


@needs_launcher
@pytest.mark.parametrize("options", [(), ("--no-optimize",), ("--no-pin", "--inherit", "python")])
def test_the_summary_says_whose_code_it_was(options):
    done = launched(*options, HOSTS / "crash_host_pie", "library")
    assert done.returncode == 128 + signal.SIGSEGV
    assert re.search(r"^ipexrun: SIGSEGV in instance 0, process \d+, ", done.stderr, re.M)
    last = r"^ipexrun: instance 0 died of SIGSEGV in libcrash_library.so\+0x[0-9a-f]+ \(library_write\); no frame of its stack \(\d+\) was ipexrun's$"
    assert re.search(last, done.stderr, re.M), done.stderr


@needs_launcher
def test_the_summary_blames_us():
    done = launched(HOSTS / "crash_host_pie", "ours")
    assert re.search(r"^ipexrun: instance 0 died of SIGSEGV in libipexrun_plugin_of_a_test.so.*2 of its \d+ frames were ipexrun's: please", done.stderr, re.M)


@needs_launcher
def test_the_summary_names_a_child_that_crashed():
    done = launched(HOSTS / "crash_host_pie", "fork")
    child = re.search(r"child (\d+) ended", done.stdout).group(1)
    assert done.returncode == 0 and f"process {child} of instance 0 died of SIGSEGV in crash_host_pie" in done.stderr


@needs_launcher
def test_without_a_crash_and_without_the_option_nothing_is_said():
    assert "died" not in launched(HOSTS / "crash_host_pie").stderr
    plain = run([BINARY, HOSTS / "crash_host_pie", "null"], preload=False)
    assert plain.returncode == 139 and "#0" not in plain.stderr and "died of" not in plain.stderr


@needs_launcher
def test_a_missing_library_is_one_line(tmp_path):
    done = launched("true", env={"IPEXRUN_LIB_DIR": str(tmp_path)})
    assert done.returncode == 0 and done.stderr.count("--crash-report has no effect") == 1


PYTHON_CRASH = "import ctypes, sys\nif 'torch' in sys.argv: import torch; torch.nn.Linear(4, 4)(torch.ones(1, 4))\nctypes.string_at(0)"


@needs_launcher
def test_python():
    done = launched(sys.executable, "-c", PYTHON_CRASH)
    assert done.returncode == 139 and re.search(NOT_OURS, done.stderr) and symbols(done), done.stderr


@needs_launcher
def test_python_with_torch():
    if run([sys.executable, "-c", "import torch"], preload=False).returncode != 0:
        pytest.skip("no torch")
    if not list(LIB.parent.glob("plugins/libipexrun_plugin_torch*.so")):
        pytest.skip("no plugin in this build")
    done = launched(sys.executable, "-c", PYTHON_CRASH, "torch")
    assert done.returncode == 139 and re.search(rf"^ipexrun: instance 0 died of SIGSEGV in .*; {NOT_OURS}$", done.stderr, re.M), done.stderr
    assert re.search(r"^ipexrun: instance 0: .* torch \d.* linear call", done.stderr, re.M), "the plugin was not active\n" + done.stderr


@needs_launcher
def test_pythons_own_handler_comes_first():
    done = launched(sys.executable, "-X", "faulthandler", "-c", PYTHON_CRASH)
    assert done.returncode == 139
    python, ours = done.stderr.index("Fatal Python error: Segmentation fault"), done.stderr.index("ipexrun: SIGSEGV in instance 0")
    assert python < ours
