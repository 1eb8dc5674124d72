"""Bad input, and places where little is allowed: one clear line, the right exit code, nothing half started."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest


def run(argv, env=None, **how):
    return subprocess.run([str(word) for word in argv], env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=60, **how)


def one_line(done, code, *words):
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("ipexrun: "), done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_a_missing_program(ipexrun):
    one_line(run([ipexrun, "no-such-program"]), 127, "not found", "no-such-program")
    one_line(run([ipexrun, "./no-such-program"]), 127, "not found")
    one_line(run([ipexrun, "no-such-script.py"]), 127, "not found", "no-such-script.py")


def test_a_program_that_cannot_be_executed(ipexrun, tmp_path):
    (tmp_path / "plain").write_text("text")
    one_line(run([ipexrun, tmp_path / "plain"]), 126, "not executable")
    one_line(run([ipexrun, tmp_path]), 126, "directory")
    one_line(run([ipexrun, "plain"], env={"PATH": str(tmp_path)}), 126, "not executable")


def test_an_empty_path(ipexrun, tmp_path):
    script = tmp_path / "a.py"
    script.write_text("print(1)")
    one_line(run([ipexrun, "true"], env={"PATH": ""}), 127, "PATH is empty")
    one_line(run([ipexrun, script], env={"PATH": ""}), 127, "python", "PATH is empty")
    assert run([ipexrun, shutil.which("echo"), "x"], env={"PATH": ""}).stdout == "x\n"


def test_scripts_run_under_python_else_python3(ipexrun, tmp_path, sh):
    for name in ("python", "python3"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text(f"#!{sh}\necho {name} $1\n")
        (folder / name).chmod(0o755)
    script = tmp_path / "a.py"
    script.write_text("")
    both = f"{tmp_path / 'python3'}:{tmp_path / 'python'}"
    assert run([ipexrun, script], env={"PATH": both}).stdout.startswith("python ")
    assert run([ipexrun, script], env={"PATH": str(tmp_path / "python3")}).stdout.startswith("python3 ")


def test_a_log_folder_that_cannot_be_made(ipexrun, tmp_path):
    (tmp_path / "file").write_text("")
    one_line(run([ipexrun, "--log-dir", tmp_path / "file" / "x", "echo", "never"]), 1, "cannot create log folder")


def test_what_is_asked_for_by_name_and_is_not_there(ipexrun, tmp_path):
    done = run([ipexrun, "--omp-runtime", "intel", "true"], env={"VIRTUAL_ENV": str(tmp_path), "HOME": str(tmp_path)})
    if done.returncode != 0:  # else this machine has it
        one_line(done, 2, "libiomp5", "intel-openmp", str(tmp_path))
    one_line(run([ipexrun, "--memory-allocator", "dlmalloc", "true"]), 2, "dlmalloc")


def test_an_allocator_that_crashes_is_not_preloaded(ipexrun, tmp_path, python):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path / "lib" / "libmimalloc.so.99"
    library.parent.mkdir()
    source = tmp_path / "bad.c"
    source.write_text("#include <stdlib.h>\n__attribute__((constructor)) static void die(void) { abort(); }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    done = run([ipexrun, "--memory-allocator", "mimalloc", "sh", "-c", "echo $LD_PRELOAD"], env={"VIRTUAL_ENV": str(tmp_path)})
    assert f"'{library}' is not used" in done.stderr and done.stderr.count("is not used") == 1, done.stderr
    assert str(library) not in done.stdout
    if done.returncode != 0:  # no other one on this machine
        assert done.returncode == 2


def test_run_folders_go_where_they_can_and_leave_nothing(ipexrun, tmp_path):
    done = run([ipexrun, "sh", "-c", "echo $IPEXRUN_EVENTS"], env={"XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)})
    assert done.stdout.startswith(str(tmp_path) + "/ipexrun-"), done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_killed_launchers_run_folder_is_removed_by_the_next(ipexrun, tmp_path, witness, start, sh):
    launcher = start([ipexrun, sh, "-c", "echo up >/dev/fd/$WITNESS; exec sleep 60"], env={"XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)})
    witness.wait_for(b"up\n")
    assert run([ipexrun, "true"], env={"XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)}).returncode == 0
    assert len(list(tmp_path.iterdir())) == 1  # one that is in use stays
    launcher.kill()
    witness.wait_for_end()
    assert run([ipexrun, "true"], env={"XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)}).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_the_users_own_with_such_a_name_stays(ipexrun, tmp_path):
    own = tmp_path / "ipexrun-models"
    own.mkdir(mode=0o700)
    (own / "weights").write_text("precious")
    assert run([ipexrun, "true"], env={"XDG_RUNTIME_DIR": "", "TMPDIR": str(tmp_path)}).returncode == 0
    assert (own / "weights").read_text() == "precious"


def test_read_only_places_cost_the_summary_only(ipexrun):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs the right to mount")
    text = 'mount -t tmpfs -o ro tmpfs /tmp && exec "$0" /bin/echo x'
    if "/tmp/" in ipexrun:  # the build itself lives below /tmp here: hide nothing, point elsewhere instead
        done = run([ipexrun, "/bin/echo", "x"], env={"XDG_RUNTIME_DIR": "/proc", "TMPDIR": "/sys"})
        assert (done.returncode, done.stdout) == (0, "x\n")
        return
    done = run(["unshare", "-m", "sh", "-c", text, ipexrun], env={"XDG_RUNTIME_DIR": "", "TMPDIR": ""})
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("needs the right to mount")
    assert (done.returncode, done.stdout) == (0, "x\n")
    assert "there will be no summary" in done.stderr and done.stderr.count("\n") == 1


def test_a_static_program_is_launched_without_preload(ipexrun, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    source = tmp_path / "static.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("static"); return 4; }\n')
    if compiler is None or subprocess.run([compiler, "-static", "-o", tmp_path / "static", source], capture_output=True).returncode != 0:
        pytest.skip("needs a C compiler and a static libc")
    done = run([ipexrun, tmp_path / "static"])
    assert (done.returncode, done.stdout) == (4, "static\n"), done.stderr
    refused = run([ipexrun, "--require-shim", tmp_path / "static"])
    assert refused.returncode == 1 and "statically linked" in refused.stderr and refused.stdout == "", refused.stderr


def test_require_shim_fails_when_the_program_has_no_torch(ipexrun):
    done = run([ipexrun, "--require-shim", "true"])
    assert done.returncode == 1 and "--require-shim" in done.stderr and "never loaded torch" in done.stderr, done.stderr
    assert run([ipexrun, "--require-shim", "sh", "-c", "exit 9"]).returncode == 9


def test_doctor_and_env_answer(ipexrun):
    done = run([ipexrun, "env"])
    assert done.returncode == 0 and "glibc" in done.stdout and "isa of process" in done.stdout
    done = run([ipexrun, "doctor"])
    assert "shim" in done.stdout and "allocator" in done.stdout
    assert done.returncode == (1 if "\nfail " in "\n" + done.stdout else 0)
    assert "switched off" not in done.stdout and "\nok    bf16 " in done.stdout
    assert "\nwarn  switched off " in run([ipexrun, "doctor"], env={"IPEXRUN_DISABLE": "1"}).stdout


def test_doctor_survives_a_plugin_folder_that_cannot_be_looked_at(ipexrun, tmp_path):
    """As HOME of another user in a container; a link to itself is refused to root too. Looked at only where device xpu is not built."""
    whole = pathlib.Path(ipexrun).resolve().parents[1] / "lib" / "ipexrun"
    lib = tmp_path / "lib"
    (lib / "plugins").mkdir(parents=True)
    for entry in [*whole.iterdir(), *(whole / "plugins").iterdir()]:
        if entry.name != "plugins" and "xpu_torch" not in entry.name:
            (lib / entry.relative_to(whole)).symlink_to(entry)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    done = run([ipexrun, "doctor"], env={"IPEXRUN_LIB_DIR": str(lib), "IPEXRUN_PLUGIN_DIR": str(loop)})
    assert done.returncode in (0, 1) and "terminate" not in done.stderr, done.stderr
    assert "instruction sets" in done.stdout


def test_doctor_names_the_state_of_the_cache_folder(ipexrun, tmp_path):
    def cache(**env):
        (line,) = re.findall(r"^(\w+) +cache +(.*)$", run([ipexrun, "doctor"], env=env).stdout, re.M)
        return line

    folder = tmp_path / "cache"
    assert cache(IPEXRUN_CACHE="off")[1].startswith("off ")
    assert cache(IPEXRUN_CACHE=str(folder))[0] == "ok" and not folder.exists()
    folder.mkdir(mode=0o700)
    assert cache(IPEXRUN_CACHE=str(folder)) == ("ok", f"'{folder}', mode 700, writable")
    folder.chmod(0o777)
    level, text = cache(IPEXRUN_CACHE=str(folder))
    assert level == "warn" and "others may write to it" in text


@pytest.mark.parametrize("words", [["env"], ["doctor"], ["--help"], ["topology"], ["--dry-run", "--json", "true"]])
def test_a_full_disk_is_said_and_a_reader_that_went_away_is_not(ipexrun, words):
    env = {"OMP_LONG": "x" * 100_000}  # more than a pipe or a buffer takes
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run([ipexrun, *words], env={**os.environ, **env}, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 1 and "cannot write to stdout: No space left on device" in done.stderr, done.stderr
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run([ipexrun, *words], env={**os.environ, **env}, stdout=write_end, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write_end)
    assert done.returncode in (0, 1) and "stdout" not in done.stderr and "terminate" not in done.stderr, done.stderr


def test_secrets_are_not_reported(ipexrun):
    assert "hunter2" not in run([ipexrun, "env"], env={"AWS_SECRET_ACCESS_KEY": "hunter2", "TOKEN": "hunter2"}).stdout
