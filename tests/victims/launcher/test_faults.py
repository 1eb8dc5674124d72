"""The whole launcher where the system refuses something: it works, or says in one clear line what is wrong."""
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import pytest

ECHO = shutil.which("echo")


def run(argv, env=None, **how):
    how.setdefault("capture_output", True)
    return subprocess.run([str(word) for word in argv], env={**os.environ, **(env or {})}, text=True, timeout=120, **how)


def plain(done, stdout):
    assert (done.returncode, done.stdout, done.stderr) == (0, stdout, "")


@pytest.mark.parametrize("answer", ["eperm", "enosys", "kill"])
def test_memory_policy_refused_where_it_is_not_needed(ipexrun, filtered, answer):
    """On a machine with one memory node nothing is bound, so nothing is refused; a program's own use of the calls is its own affair."""
    done = run([*filtered(answer), ipexrun, ECHO, "x"])
    assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr
    assert done.stderr.count("\n") <= 1


def test_torch_runs_pinned_under_a_filter_of_memory_policy(ipexrun, filtered):
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0:
        pytest.skip("needs torch")
    text = "import torch; print(float(torch.nn.functional.linear(torch.ones(4, 4), torch.ones(4, 4)).sum()))"
    done = run([*filtered("eperm"), ipexrun, sys.executable, "-c", text])
    assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr


def test_an_empty_path(ipexrun):
    plain(run([ipexrun, ECHO, "x"], env={"PATH": ""}), "x\n")
    environment = {name: value for name, value in os.environ.items() if name != "PATH"}
    done = subprocess.run([ipexrun, ECHO, "x"], env=environment, capture_output=True, text=True, timeout=60)
    plain(done, "x\n")


def test_no_environment_at_all(ipexrun):
    done = subprocess.run([ipexrun, ECHO, "x"], env={}, capture_output=True, text=True, timeout=60)
    plain(done, "x\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors(ipexrun, sh, tmp_path, closed):
    """The program finds closed what its caller closed, and its exit code arrives; nothing of ours lands in a file that it opens."""
    text = f"for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] || list=x$list; done; printf %s $list > {tmp_path / 'closed'}; exit 9"
    done = run([sh, "-c", f'exec "$0" "$1" -c "$2" {closed}', ipexrun, sh, text])
    assert done.returncode == 9, done.stderr
    assert (tmp_path / "closed").read_text() == "x" * len(closed.split())


@pytest.mark.parametrize("named", ["./app", "../{folder}/app", "{whole}/app"])
def test_a_script_is_called_what_it_was_called(ipexrun, tmp_path, named):
    (tmp_path / "app").write_text("#!/bin/sh\necho $0\n")
    (tmp_path / "app").chmod(0o755)
    named = named.format(folder=tmp_path.name, whole=tmp_path)
    plain(run([ipexrun, named], cwd=tmp_path), named + "\n")


def test_a_stdout_that_breaks_loses_no_exit_code(ipexrun, sh, tmp_path):
    read_end, write_end = os.pipe()
    os.close(read_end)
    for options in ([], ["--log-dir", tmp_path]):
        done = run([ipexrun, *options, sh, "-c", "trap '' PIPE; echo x; exit 9"], stdout=write_end, capture_output=False, stderr=subprocess.PIPE)
        assert done.returncode == 9, done.stderr
    os.close(write_end)


def test_a_full_stdout(ipexrun, sh):
    """/dev/full: an error of the program's own write, its exit code counts."""
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = run([ipexrun, sh, "-c", "echo x 2>/dev/null; exit 9"], stdout=full, stderr=full, capture_output=False)
    assert done.returncode == 9


@pytest.fixture
def read_only(tmp_path):
    """read_only(command) runs it where every file system is read-only."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs the right to mount")
    text = """
mount --make-rprivate / 2>/dev/null
awk '{print $5}' /proc/self/mountinfo | sort -r | while read -r point; do mount -o remount,bind,ro "$point" 2>/dev/null; done
if (: > "$PROBE") 2>/dev/null; then echo "still writable" >&2; exit 77; fi
exec "$@"
"""

    def start(argv, env=None):
        done = run(["unshare", "-m", "sh", "-c", text, "sh", *argv], env={"PROBE": str(tmp_path / "probe"), **(env or {})})
        if done.returncode == 77 or "unshare" in done.stderr:
            pytest.skip("no read-only file system can be made here: " + done.stderr)
        return done

    return start


def test_a_read_only_file_system(ipexrun, read_only):
    done = read_only([ipexrun, ECHO, "x"])
    assert (done.returncode, done.stdout) == (0, "x\n"), done.stderr
    assert "there will be no summary" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_a_read_only_log_folder_is_one_line(ipexrun, read_only, tmp_path):
    done = read_only([ipexrun, "--log-dir", tmp_path, ECHO, "never"])
    assert (done.returncode, done.stdout) == (1, "")
    lines = [line for line in done.stderr.splitlines() if "log" in line]
    assert len(lines) == 1 and "Read-only file system" in lines[0], done.stderr


def test_several_instances_on_a_read_only_file_system(ipexrun, read_only):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    done = read_only([ipexrun, "--ninstances", "2", ECHO, "x"])
    assert (done.returncode, done.stdout) == (0, "x\nx\n"), done.stderr


@pytest.fixture
def no_more_processes(ipexrun):
    """no_more_processes(argv) runs it as a user who may start no process; root, who is not limited, becomes one."""
    other = 65534

    def become():
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(other)
            os.setuid(other)

    def limited():
        become()
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

    try:
        run([ipexrun, "--version"], preexec_fn=become)
    except (PermissionError, subprocess.SubprocessError) as problem:
        pytest.skip(f"user {other} cannot run {ipexrun}: {problem}")
    return lambda argv: run(argv, preexec_fn=limited)


@pytest.mark.parametrize("options", [(), ("--max-restarts", "2")])
def test_no_more_processes_for_this_user(ipexrun, no_more_processes, options):
    done = no_more_processes([ipexrun, *options, ECHO, "never"])
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    lines = done.stderr.splitlines()
    assert all(line.startswith("ipexrun: ") for line in lines), lines
    assert lines[-1] == "ipexrun: cannot start a process: Resource temporarily unavailable", lines
    assert len(lines) == 2 and "ulimit -u" in lines[0], lines


def test_the_log_of_a_killed_program_has_what_it_printed(ipexrun, python, tmp_path):
    text = "import os, signal; print('step 1'); os.kill(os.getpid(), signal.SIGKILL)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run([ipexrun, "--no-optimize", "--log-dir", tmp_path, python, "-c", text], env=environment, capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stdout) == (137, "step 1\n"), done.stderr
    assert next(tmp_path.iterdir()).read_text() == "step 1\n"


@pytest.fixture
def few_files():
    """few_files(argv) runs it where 14 descriptors may be open unless it asks for more."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if 0 <= most < 64:
        pytest.skip("the hard limit is small, too")
    return lambda argv: run(argv, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (14, most)))


def test_the_soft_limit_of_descriptors_is_the_programs_and_not_the_launchers(ipexrun, few_files, sh, tmp_path):
    """256 instances with logs need more than the 1024 that shells set; two need more than 14."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs 2 CPUs")
    done = few_files([ipexrun, "--pin", "--ninstances", "2", "--ncores-per-instance", "1", "--use-logical-cores", "--log-dir", tmp_path, sh, "-c", "ulimit -Sn"])
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] 14", "[1] 14"]), done.stderr


def test_restarts_and_the_time_limit_from_the_command_line(ipexrun, sh, tmp_path):
    done = run([ipexrun, "--max-restarts", "1", sh, "-c", f"[ -e {tmp_path / 'ran'} ] && exit 0; touch {tmp_path / 'ran'}; exit 3"])
    assert done.returncode == 0 and "starting it again in 1.0 s (1 of 1)" in done.stderr, done.stderr
    assert "instance 0 was started again 1 time" in done.stderr
    assert run([ipexrun, "--timeout", "0.2", "sleep", "600"]).returncode == 124
    assert run([ipexrun, "--timeout", "0.2", "--bench", "sleep", "600"]).returncode == 124
    done = run([ipexrun, "--max-restarts", "1", "--bench", ECHO])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_old_logs_go_and_nothing_else(ipexrun, tmp_path):
    old = [f"run_2020010{day}T101500_instance_{i}_cores_0-1.log" for day in range(1, 6) for i in (0, 1)]
    others = ["run_20200101T101500_instance_0_cores_0-1.log.gz", "run_20200101T101500.log", "mine_20200101T101500_instance_0_cores_0-1.log",
              "run_x_20200101T101500_instance_0_cores_0-1.log", "run_2020_instance_0_cores_0.log", "notes.log"]
    for name in old + others:
        (tmp_path / name).write_text(name)
    done = run([ipexrun, "--log-dir", tmp_path, "--log-keep", "3", ECHO, "x"])
    plain(done, "x\n")
    left = {path.name for path in tmp_path.iterdir()}
    assert left >= set(others) | set(old[-4:])
    new = left - set(others) - set(old[-4:])
    assert len(new) == 1 and (tmp_path / new.pop()).read_text() == "x\n"


def test_log_keep_needs_a_log_folder(ipexrun):
    done = run([ipexrun, "--log-keep", "3", ECHO, "x"])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_crash_is_described(ipexrun, python, tmp_path):
    text = "import os, signal; print('step 1'); print('step 2', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    done = run([ipexrun, "--log-dir", tmp_path, python, "-c", text])
    assert done.returncode == 139
    lines = [line for line in done.stderr.splitlines()]
    assert "was ended by SIGSEGV (Segmentation fault) after" in lines[0] and lines[0].endswith("; its last lines:"), lines
    assert lines[1:3] == ["ipexrun:   | step 1", "ipexrun:   | step 2"]
    done = run([ipexrun, python, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert done.returncode == 137
    assert "was ended by SIGKILL (Killed) after" in done.stderr and "not sent by ipexrun" in done.stderr, done.stderr


def test_kill_9_of_the_launcher_leaves_nobody(ipexrun, python, witness, start, tmp_path):
    """test_orphans.py has every case for the runner; this is the whole launcher once, which also removes its folder of event files."""
    family = pathlib.Path(__file__).with_name("family.py")
    launcher = start([ipexrun, python, family, "all"], env={"XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)})
    for name, times in ((b"worker ", 2), (b"orphan ", 1), (b"shell ", 1), (b"daemon ", 1), (b"main ", 1)):
        witness.wait_for(name, times)
    assert len(list(tmp_path.glob("ipexrun-*"))) == 1
    launcher.kill()
    witness.wait_for_end()
    deadline = time.monotonic() + 20
    while list(tmp_path.glob("ipexrun-*")) and time.monotonic() < deadline:  # it is no child of ours: there is nothing to wait on
        time.sleep(0.01)
    assert list(tmp_path.glob("ipexrun-*")) == []


@pytest.fixture
def small_memory(tmp_path):
    """small_memory(argv) runs it in a memory cgroup of 96 MiB (version 1, where the folder can be written)."""
    top = pathlib.Path("/sys/fs/cgroup/memory")
    own = next((line.split(":", 2)[2] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line), None)
    group = top / str(own).lstrip("/") / f"ipexrun-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(96 << 20))
    except OSError as problem:
        pytest.skip(f"no memory cgroup can be made here: {problem}")
    yield lambda argv: run(argv, preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
    group.rmdir()


def test_the_oom_killer_is_named(ipexrun, small_memory, python):
    done = small_memory([ipexrun, python, "-c", "held = [bytes(range(256)) * 4096 * 4 for _ in range(200)]"])
    assert done.returncode == 137, done.stderr
    assert "was ended by SIGKILL" in done.stderr and "the kernel ran out of memory" in done.stderr and "the limit is 101 MB" in done.stderr, done.stderr
