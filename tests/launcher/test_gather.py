"""`ipexrun gather` on the machine that runs the tests, and its replay with --sysroot: the same machine, the same plan."""

import getpass
import json
import os
import re
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest

BINARY = Path(os.environ["IPEXRUN_BUILD_DIR"]) / "bin" / "ipexrun"
ENV = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}


def ipexrun(*args, code=0, **kwargs):
    done = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=120, env=ENV, **kwargs)
    assert done.returncode == code, done.stderr
    return done


def machine(*args):
    """What `topology` says, without what changes from one moment to the next."""
    out = json.loads(ipexrun("topology", "--json", *args).stdout)
    for name in ("memory_available_bytes", "max_threads"):
        out.pop(name)
    for node in out["nodes"]:
        node.pop("memory_bytes")  # memory may be added to a guest while it runs
    out["notes"] = [re.sub(r"at most \d+ more threads", "at most N more threads", note.split(" (/")[0]) for note in out["notes"]]
    return out


def plan(*args):
    return json.loads(ipexrun("--dry-run", "--json", *args, "true").stdout)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("gather") / "machine.tar.gz"
    said = ipexrun("gather", path).stderr
    assert "gathered" in said and "left out" in said
    return path


def test_the_archive_replays_to_the_same_machine_and_plan(archive, tmp_path):
    here = machine()
    assert machine("--sysroot", archive) == here
    assert plan("--sysroot", archive)["instances"][0]["cpus"] == plan()["instances"][0]["cpus"]
    assert plan("--sysroot", archive)["instances"][0]["threads"] == plan()["instances"][0]["threads"]
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path)
    assert machine("--sysroot", tmp_path) == here, "the folder around the unpacked one"
    assert machine("--sysroot", tmp_path / "ipexrun-machine") == here


def test_a_folder_replays_too(tmp_path):
    ipexrun("gather", f"{tmp_path}/copy/")
    assert machine("--sysroot", tmp_path / "copy") == machine()


def test_the_archive_replays_under_the_affinity_it_was_gathered_with(tmp_path):
    last = max(os.sched_getaffinity(0))
    ipexrun("gather", tmp_path / "one.tar.gz", preexec_fn=lambda: os.sched_setaffinity(0, {last}))
    assert plan("--sysroot", tmp_path / "one.tar.gz")["instances"][0]["cpus"] == [last]


def test_nothing_private_is_in_it(archive):
    words = {socket.gethostname(), getpass.getuser(), Path.home().name}
    words |= {part for line in Path("/proc/self/cgroup").read_text().split() for part in re.findall(r"[0-9a-f]{12,}", line)}
    words |= {m.group(0) for path in Path("/sys/class/net").glob("*/address") for m in [re.search(r"..(:..){5}", path.read_text())]
              if m and m.group(0) != "00:00:00:00:00:00"}
    with tarfile.open(archive) as tar:
        text = {member.name: tar.extractfile(member).read().decode(errors="replace") if member.isfile() else "" for member in tar}
        assert {(member.uid, member.gid, member.uname, member.gname, member.mtime) for member in tar} == {(0, 0, "", "", 0)}
    for word in words:
        if len(word) < 5:
            continue  # "root" and "vm" are parts of other words
        assert not [name for name, content in text.items() if word in name or word in content], word
    assert not any("cmdline" in name or "environ" in name.split("/")[-1] and name != "ipexrun-machine/ipexrun/environment.txt" for name in text)


def test_an_archive_is_not_overwritten_and_bad_ones_are_one_line(archive, tmp_path):
    again = ipexrun("gather", archive, code=1)
    assert "File exists" in again.stderr and again.stderr.count("\n") == 1
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(archive.read_bytes()[:200])
    for path in (broken, tmp_path / "missing", BINARY):
        done = ipexrun("topology", "--sysroot", path, code=2)
        assert done.stderr.startswith("ipexrun: ") and done.stderr.count("\n") == 1
    assert ipexrun("gather", tmp_path / "no" / "folder.tar.gz", code=1).stderr.count("\n") == 1
    assert "takes one file" in ipexrun("gather", "a", "b", code=2).stderr


def test_the_default_name_has_no_host_in_it(tmp_path):
    ipexrun("gather", cwd=tmp_path)
    (made,) = tmp_path.iterdir()
    assert re.fullmatch(r"ipexrun-machine-\d{8}T\d{6}\.tar\.gz", made.name)


def test_temporary_files_are_removed(archive, tmp_path):
    subprocess.run([BINARY, "topology", "--sysroot", archive], check=True, capture_output=True, timeout=60, env=ENV | {"TMPDIR": str(tmp_path)})
    assert not list(tmp_path.iterdir())
