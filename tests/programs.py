"""Programs of tests, forked from processes that have imported torch already, in the sample of `./dev test`: torch's import takes 1.4 s, TorchDynamo's as much.

    done = programs.run([launcher, option, sys.executable, "-W", "ignore", "-c", code, argument], env=environment)

has the shape of subprocess.run(command, env=environment, capture_output=True, text=True), and is that where IPEXRUN_TESTS=sample is not set: `./dev test --all`
and pytest by itself start every program anew. In the sample, programs with the same launcher, options, flags of the interpreter and environment are forked
one after the other from one process (programs_server.py), which ends with the tests. Under the launcher that process has the launcher's environment and
nothing else of ours: each child loads the plugin itself, as the shim would have done during torch's import, and explores, packs and remembers as any process.

For programs that are judged by what they print, not for those
- whose test looks at what the launcher says, or at what happens when a process starts or torch or TorchDynamo is imported;
- that need what is changed before torch is imported, or look for objects of torch's among those of the collector: these are frozen;
- that are alone with their environment: nothing is gained; or with OMP_NUM_THREADS other than 1: torch's import may start threads, and those are started anew anyway.
"""

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs_server.py")
LATE = {"IPEXRUN_CACHE", "IPEXRUN_CAPTURE", "IPEXRUN_DECISIONS", "IPEXRUN_FORCE", "IPEXRUN_GRAPH_WAIT"}  # do not change how the launcher starts a program
KEPT = 4  # servers at a time, 0.3 GB each
_servers = {}  # of (command, imports, environment), the one used last at the end


def forks():
    return os.environ.get("IPEXRUN_TESTS") == "sample"


def run(command, *, env=None, timeout=300, cwd=None, imports="torch", late=()):
    """`imports` is what the server imports: "torch" or "torch torch._dynamo". `late` are variables that the program alone reads. The program itself is given as
    -c CODE or as a file."""
    command = [os.fspath(one) for one in command]
    env = dict(os.environ if env is None else env)
    if not forks() or env.get("OMP_NUM_THREADS") != "1" or "IPEXRUN_DISABLE" in env:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=cwd, env=env)
    start, code, arguments = parts(command)
    env.pop("PYTEST_CURRENT_TEST", None)
    launched = start[0] != sys.executable
    if launched:
        at = start.index(sys.executable)
        start[at:at] = ["/usr/bin/env", "IPEXRUN_DISABLE=1"]  # of the shim, until a child takes it back
    known = {name: value for name, value in env.items() if name not in late and name not in LATE and (launched or not name.startswith("IPEXRUN_"))}
    key = (tuple(start), imports, frozenset(known.items()))
    server = _servers.pop(key, None)
    if server is None or not server.lives():
        while len(_servers) >= KEPT:
            _servers.pop(next(iter(_servers))).end()
        server = Server(start, imports, known)
    _servers[key] = server
    order = {"code": code, "arguments": arguments, "cwd": os.fspath(cwd or os.getcwd()), "env": {"IPEXRUN_CACHE": None, **{name: env[name] for name in env if name not in known}}}
    returncode, stdout, stderr = server.run(order, command, timeout)
    return subprocess.CompletedProcess(command, returncode, stdout, stderr)


def parts(command):
    """The command that starts the interpreter, with its flags; the program, as -c gives it or None; sys.argv."""
    at = command.index(sys.executable) + 1
    while command[at].startswith("-") and command[at] != "-c":
        at += 2 if command[at] in ("-W", "-X") else 1
    if command[at] == "-c":
        return command[:at], command[at + 1], ["-c", *command[at + 2 :]]
    return command[:at], None, command[at:]


class Server:
    def __init__(self, start, imports, env):
        self.folder = tempfile.mkdtemp(prefix="programs")
        self.said = open(os.path.join(self.folder, "said"), "w+", encoding="utf-8")
        with socket.socket(socket.AF_UNIX) as listening:
            address = os.path.join(self.folder, "socket")
            listening.bind(address)
            listening.listen(1)
            listening.settimeout(0.2)
            self.process = subprocess.Popen([*start, SERVER, address, imports], env={**env, "IPEXRUN_CACHE": "off"}, stdin=subprocess.DEVNULL, stdout=self.said, stderr=self.said)
            until = time.monotonic() + 120
            while True:
                try:
                    self.connection = listening.accept()[0]
                    break
                except TimeoutError:
                    if self.process.poll() is None and time.monotonic() < until:
                        continue
                    self.connection = None
                    self.process.kill()
                    self.end()
                    raise RuntimeError(f"no server of programs started: {start}\n{self.text('said')}") from None
        self.answers = self.connection.makefile("r", encoding="utf-8")

    def text(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def lives(self):
        return self.process.poll() is None

    def answer(self, timeout):
        self.connection.settimeout(timeout)
        line = self.answers.readline()
        if not line:
            raise RuntimeError(f"the server of programs ended: {self.text('said')}")
        return json.loads(line)

    def run(self, order, command, timeout):
        outputs = [os.path.join(self.folder, name) for name in ("stdout", "stderr")]
        for one in outputs:
            open(one, "w").close()
        self.connection.sendall((json.dumps({**order, "outputs": outputs}) + "\n").encode())
        child = self.answer(60)
        try:
            ended = self.answer(timeout)
        except TimeoutError:
            os.kill(child, 9)
            self.connection.close()
            self.end()  # a reader that ran into a timeout reads no more
            raise subprocess.TimeoutExpired(command, timeout) from None
        return ended, self.text("stdout"), self.text("stderr")

    def end(self):
        if self.connection is not None:
            self.connection.close()
            self.answers.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.said.close()
        if os.path.isdir(self.folder) and self.connection is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


@atexit.register
def end():
    """Of all servers; those of a test session that was killed find their connection closed."""
    while _servers:
        _servers.popitem()[1].end()
