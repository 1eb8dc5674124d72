"""Runs the small hosts of this folder with and without the shim, and reads what the fake plugin and the event file say."""

import os
import struct
import subprocess
from pathlib import Path

BUILD = Path(os.environ["IPEXRUN_BUILD_DIR"])
SHIM = BUILD / "lib/ipexrun/libipexrun_shim.so"
HOSTS = BUILD / "tests/victims/shim"
LIB = HOSTS / "lib"
TORCH = HOSTS / "torch/libtorch_cpu.so"
MODEL = HOSTS / "torch/libmodel.so"
HELPER = HOSTS / "torch/libfake_helper.so"

# configs/contract/event.h: magic, schema, capacity, record bytes, root pid, shim state, owner pid, owner start, next, lost, reason
HEADER = struct.Struct("<QIIIiIiQQQ256s")
MAGIC, HEADER_BYTES = 0x31766E7578657069, 4096
ABSENT, LOADED, TORCH_SEEN, REFUSED, ACTIVE = range(5)


class Run:
    """One run of a command under the shim: code, out, err, the plugin's log, state and reason of the event file."""

    def __init__(self, folder, command, env=(), preload=(SHIM,), events=True, lib=LIB, sysenv=True):
        log, event_file = folder / "plugin.log", folder / "events"
        log.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("IPEXRUN_") and k != "LD_PRELOAD"} if sysenv else {}
        environment.update(FAKE_LOG=str(log), IPEXRUN_LIB_DIR=str(lib))
        if preload:
            environment.update(LD_PRELOAD=":".join(map(str, preload)), IPEXRUN_PRELOAD=":".join(map(str, preload)))
        if events:
            environment["IPEXRUN_EVENTS"] = str(event_file)
        environment.update({k: str(v) for k, v in dict(env).items()})

        def claim():  # what the launcher's child does before execve
            header = HEADER.pack(MAGIC, 1, 16, 240, os.getpid(), 0, 0, 0, 0, 0, b"")
            event_file.write_bytes(header.ljust(HEADER_BYTES, b"\0"))

        done = subprocess.run([str(c) for c in command], env=environment, capture_output=True, text=True, timeout=120, preexec_fn=claim)
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.log = log.read_text().splitlines() if log.exists() else []
        fields = HEADER.unpack_from(event_file.read_bytes())
        self.state, self.reason = fields[5], fields[10].split(b"\0")[0].decode()

    @property
    def starts(self):
        return [line for line in self.log if line.startswith("start ")]

    @property
    def steps(self):
        """The log with each start reduced to the word: the order of things."""
        return [line.split()[0] if line.startswith("start ") else line for line in self.log]


def host(folder, *arguments, **options):
    return Run(folder, [HOSTS / "shim_host", *arguments], **options)


def start_is_right(run):
    """Exactly one start, with torch complete and nobody inside it."""
    assert len(run.starts) == 1, run.log
    assert "abi=1 size=1 version=20d000000000000 state=2 inside=0" in run.starts[0]
    return True
