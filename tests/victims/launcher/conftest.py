"""How the launcher's victims are started and watched. Nothing here sleeps: tests wait for bytes and for the end of pipes."""
import contextlib
import os
import pathlib
import select
import shutil
import subprocess
import sys

import pytest

BUILD = pathlib.Path(os.environ.get("IPEXRUN_BUILD_DIR", pathlib.Path(__file__).parents[3] / "build/dev"))
PATIENCE_S = 20  # of a wait that should end at once; reached only by a failure


class Witness:
    """A pipe whose writing end every descendant inherits: what they write is read here, and its end means that all are gone."""

    def __init__(self):
        self.read_end, self.write_end = os.pipe()
        os.set_inheritable(self.write_end, True)
        self.text = b""

    def close_own_end(self):
        if self.write_end is not None:
            os.close(self.write_end)
            self.write_end = None

    def _read(self):
        ready, _, _ = select.select([self.read_end], [], [], PATIENCE_S)
        assert ready, f"nothing came within {PATIENCE_S} s, after {self.text!r}"
        data = os.read(self.read_end, 65536)
        self.text += data
        return data

    def wait_for(self, text, times=1):
        while self.text.count(text) < times:
            assert self._read(), f"all are gone before {text!r}; they wrote {self.text!r}"

    def wait_for_end(self):
        while self._read():
            pass
        return self.text


@pytest.fixture
def witness():
    one = Witness()
    yield one
    one.close_own_end()
    os.close(one.read_end)


@pytest.fixture
def start(witness):
    """start([...]) -> Popen, with the witness's descriptor as $WITNESS in the program; killed at the end of the test."""
    started = []

    def run(argv, env=None, **how):
        environment = {**os.environ, "WITNESS": str(witness.write_end), **(env or {})}
        process = subprocess.Popen([str(word) for word in argv], env=environment, pass_fds=[witness.write_end], **how)
        started.append(process)
        witness.close_own_end()
        return process

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def children_of(parent):
    """{process: its state, a letter}"""
    out = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state, its_parent = pathlib.Path("/proc", entry, "stat").read_text().rpartition(") ")[2].split()[:2]
            except OSError:
                continue
            if int(its_parent) == parent:
                out[int(entry)] = state
    return out


def inner_launcher(launcher):
    """The process below the one that the shell knows."""
    if not os.path.exists("/proc/self/task"):
        pytest.skip("needs /proc")
    for child in children_of(launcher.pid):
        if pathlib.Path(f"/proc/{child}/comm").read_text().strip() != "witness":
            return child
    pytest.fail("the launcher has no inner process")


def tool(name):
    for folder in ("bin", "tests/victims/launcher"):
        path = BUILD / folder / name
        if path.exists():
            return str(path)
    pytest.fail(f"{name} is not built below {BUILD}")


@pytest.fixture(scope="session")
def run_plan():
    return tool("run_plan")


@pytest.fixture(scope="session")
def ipexrun():
    return tool("ipexrun")


@pytest.fixture(scope="session")
def python():
    return sys.executable


@pytest.fixture(scope="session")
def sh():
    return shutil.which("sh")


@pytest.fixture(scope="session")
def filtered():
    """filtered("eperm") -> the words before a command that runs it under a filter of the memory policy calls."""

    def words(answer):
        tried = subprocess.run([tool("without_mempolicy"), answer, "/bin/true"], capture_output=True, text=True)
        if tried.returncode == 3:
            pytest.skip("seccomp filters are not allowed here: " + tried.stderr)
        return [tool("without_mempolicy"), answer]

    return words
