"""Faults around hypertune, for faults.py: kills, full disks, hanging and crashing trials, two workers on one study.

The program that is tuned is a small script that notes each of its ends, so that what was lost or run twice can be counted.
"""

import json
import os
import signal
import subprocess
import sys
import time

from faults_run import Skip

PROGRAM = """
import os, sys, time
n, hang, crash, pause = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
time.sleep(pause)
if n == hang:
    time.sleep(600)
if n == crash:
    os.abort()
print("@hypertune {'name': 'rate', 'higher_is_better': True}")
print(100 * n)
with open(os.path.join(os.path.dirname(__file__), "ran.txt"), "a") as ran:
    ran.write(f"{n}\\n")
"""
TRIALS = 5  # n = 1 is the default's launch


class Tuner:
    """One study in the folder of a drawn fault."""

    def __init__(self, bench, hang=0, crash=0):
        self.bench, self.folder, self.hang, self.crash = bench, bench.folder, hang, crash
        with open(os.path.join(self.folder, "program.py"), "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        self.study = os.path.join(self.folder, "study")

    def start(self, before=None):
        argv = [os.path.join(os.path.abspath(self.bench.options.build), "bin", "hypertune"), "--warmup", "0", "--repeats", "1", "--leader-rounds", "0",
                "--claim-pairs", "2", "--trial-timeout", "4", "--output-dir", self.study, "--set", "args.n=1..5", sys.executable,
                os.path.join(self.folder, "program.py"), "{n}", str(self.hang), str(self.crash), str(0.05 + 0.3 * (self.bench.seed % 7) / 7)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("IPEXRUN_") and k != "LD_PRELOAD"} | {
            "IPEXRUN_CACHE": "off", "XDG_RUNTIME_DIR": os.path.join(self.folder, "run"), "TMPDIR": os.path.join(self.folder, "run")}
        return subprocess.Popen(argv, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                                env=environment, start_new_session=True, preexec_fn=before)

    def end(self, process, codes=(0,)):
        try:
            _, errors = process.communicate(timeout=self.bench.options.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return [f"no end within {self.bench.options.limit:g} s"]
        if process.returncode in codes:
            return []
        return [f"exit code {process.returncode} instead of {codes}"] + [f"stderr: {line}" for line in errors.splitlines()[-6:]]

    def records(self):
        out = []
        try:
            with open(os.path.join(self.study, "journal.jsonl"), encoding="utf-8", errors="replace") as file:
                for line in file:
                    try:
                        out.append(json.loads(line)["r"])
                    except (ValueError, KeyError, TypeError):
                        pass
        except OSError:
            pass
        return out

    def lost_or_doubled(self, kills):
        """One end and one run a trial; the program ended as often as is written down, and at most once more for each kill."""
        found = []
        records = self.records()
        ends = sorted(one["trial"] for one in records if one["kind"] == "end")
        if ends != list(range(TRIALS)):
            found.append(f"ends of trials: {ends}")
        runs = [one for one in records if one["kind"] in ("run", "round")]
        if len([one for one in runs if one["kind"] == "run"]) != TRIALS:
            found.append(f"{len(runs)} runs are written down")
        good = len([one for one in runs if one["state"] == "complete"])
        try:
            with open(os.path.join(self.folder, "ran.txt"), encoding="utf-8") as file:
                ran = len(file.readlines())
        except OSError:
            ran = 0
        if not good <= ran <= good + kills:
            found.append(f"the program ended {ran} times, {good} are written down, {kills} kills")
        if not os.path.exists(os.path.join(self.study, "best.yaml")):
            found.append("no best.yaml")
        return found + self.left_over()

    def left_over(self):
        until = time.monotonic() + 20
        while True:
            listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
            left = [line for line in listed.splitlines() if os.path.join(self.folder, "program.py") in line]
            if not left or time.monotonic() > until:
                return [f"left over: {line[:100]}" for line in left]
            time.sleep(0.1)


def killed(bench):
    tuner, kills = Tuner(bench), 0
    for _ in range(bench.rng.randrange(1, 5)):
        process = tuner.start()
        bench.moment(2.5)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
    return tuner.end(tuner.start()) + tuner.lost_or_doubled(kills)


def disk_full(bench):
    """The journal lies on a disk of a few pages, which is full in the middle of a record; then there is room again."""
    tuner, disk = Tuner(bench), os.path.join(bench.folder, "disk")
    os.makedirs(disk)
    os.makedirs(tuner.study)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12k", "tmpfs", disk], capture_output=True, check=False).returncode != 0:
        raise Skip("no file system can be mounted")
    try:
        with open(os.path.join(disk, "filler"), "wb") as file:
            file.write(b"x" * 4096 * bench.rng.choice((1, 2)))
        os.symlink(os.path.join(disk, "journal.jsonl"), os.path.join(tuner.study, "journal.jsonl"))
        found = tuner.end(tuner.start(), (0, 1))
        os.unlink(os.path.join(disk, "filler"))
        subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
        return found + tuner.end(tuner.start()) + tuner.lost_or_doubled(1)
    finally:
        subprocess.run(["umount", disk], check=False)


def hanging_trial(bench):
    tuner = Tuner(bench, hang=bench.rng.randrange(2, 5))
    return tuner.end(tuner.start()) + tuner.lost_or_doubled(0)


def crashing_trial(bench):
    tuner = Tuner(bench, crash=bench.rng.randrange(2, 5))
    return tuner.end(tuner.start()) + tuner.lost_or_doubled(0)


def two_workers(bench):
    """One of them is killed."""
    tuner = Tuner(bench)
    first, second = tuner.start(), tuner.start()
    bench.moment(2.5)
    kills = int(first.poll() is None)
    first.kill()
    first.communicate()
    return tuner.end(second) + tuner.end(tuner.start()) + tuner.lost_or_doubled(kills)


FAULTS = {"tuner killed": killed, "tuner disk full": disk_full, "tuner hanging trial": hanging_trial, "tuner crashing trial": crashing_trial,
          "two tuners": two_workers}
