"""One program under ipexrun for faults.py, in folders of its own, and what is asked of how it ended."""

import glob
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Skip(Exception):
    """This fault cannot be brought about here."""


class Run:
    """One victim under ipexrun, in folders of its own."""

    def __init__(self, bench, do="plain", seconds=1.0, before=None, command=(), places=None):
        self.bench = bench
        places = places or bench.folder
        request = {"seed": bench.seed, "seconds": seconds, "do": do, "moment": bench.rng.random(), "needs_tier": True}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("IPEXRUN_") and k != "LD_PRELOAD"} | {
            "IPEXRUN_CACHE": os.path.join(places, "cache"), "XDG_RUNTIME_DIR": os.path.join(places, "run"), "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": os.path.join(places, "run")}
        argv = [*command, os.path.join(os.path.abspath(bench.options.build), "bin", "ipexrun"), "--no-pin", "--",
                sys.executable, os.path.join(HERE, "faults_child.py"), json.dumps(request)]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        errors="replace", env=environment, start_new_session=True, preexec_fn=before)
        self.lines, self.errors, self.seen = [], [], threading.Condition()
        self.readers = [threading.Thread(target=work, daemon=True) for work in (self.read, self.read_errors)]
        for reader in self.readers:
            reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.seen:
                self.lines.append(line.strip())
                self.seen.notify_all()
        with self.seen:
            self.lines.append("")
            self.seen.notify_all()

    def read_errors(self):
        for line in self.process.stderr:
            self.errors.append(line.rstrip()[:200])

    def ready(self):
        """The program's own process number, once it computes; None when it ended before."""
        with self.seen:
            self.seen.wait_for(lambda: any(line.startswith("ready") or line == "" for line in self.lines), self.bench.options.limit)
            return next((int(line.split()[1]) for line in self.lines if line.startswith("ready ")), None)

    def end(self):
        """Exit code as a shell sees it, None after a hang; nothing of it is left."""
        try:
            code = self.process.wait(self.bench.options.limit)
        except subprocess.TimeoutExpired:
            code = None
        if code is not None and any(line.startswith("ready ") for line in self.lines):
            self.left_over = self.still_there(self.ready())
        else:
            self.left_over = False
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for reader in self.readers:
            reader.join(10)
        return 128 - code if code is not None and code < 0 else code

    @staticmethod
    def still_there(pid):
        """Given some seconds to go: the kernel tells a killed parent's children after its end."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        return False
            except OSError:
                return False
            time.sleep(0.1)
        return True

    def problems(self, codes):
        """What is wrong with how it ended; `codes`: the right ones."""
        code = self.end()
        found = []
        if code is None:
            found.append(f"no end within {self.bench.options.limit:g} s")
        elif code not in codes:
            found.append(f"exit code {code} instead of {' or '.join(map(str, codes))}")
        found += [line for line in self.lines if line.startswith("wrong")]
        if self.left_over:
            found.append("the program outlived the launcher")
        if code == 0 and not any(line.startswith("ok ") for line in self.lines):
            found.append("no word of the end")
        return found + [f"stderr: {line}" for line in self.errors if line][-12:] if found else []


class Bench:
    """One drawn fault: its folders, its random numbers."""

    def __init__(self, options, number, folder):
        self.options, self.folder, self.seed = options, folder, options.seed * 100003 + number
        self.rng = random.Random(self.seed)
        for name in ("cache", "run"):
            os.makedirs(os.path.join(folder, name), mode=0o700)

    def moment(self, most=2.0):
        time.sleep(self.rng.random() * most)

    @property
    def cache(self):
        return os.path.join(self.folder, "cache")

    def cache_file(self):
        """What an earlier process remembered."""
        found = Run(self, seconds=1.0).problems([0])
        files = glob.glob(os.path.join(self.cache, "decisions-*"))
        if found or not files:
            raise Skip(f"no cache was made: {found}")
        return files[0]

    def next_start(self):
        """The same folders once more."""
        return [f"next start: {text}" for text in Run(self, seconds=0.3).problems([0])]
