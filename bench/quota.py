"""What does a CPU quota do to stock PyTorch, to torch's own launcher and to ipexrun?

One program (bench/models/encoder_service.py: MiniLM with trained weights, or BERT-base) is started once a quota and variant, each in a
real cgroup of its own:

    stock, N threads        OMP_NUM_THREADS=N: what a host of N cores gives it, because torch counts the host's cores, not the quota;
                            with MKL_DYNAMIC=FALSE, without which MKL, and torch with it, take no more threads than there are cores
    stock                   torch's own choice on this host; left out where that is N
    run_cpu                 torch.backends.xeon.run_cpu --ninstances 1
    ipexrun --no-optimize   launch only
    ipexrun                 nothing remembered from earlier runs

The quota holds while a launcher plans; it is lifted while the programs load torch and the model, which is not measured, and put back.
Then each variant makes --warmup calls (selection of kernels is part of that; the first --first of them are reported separately), and
they work in turn, never together, for --seconds each, in --rounds rounds, every second round in reverse order (ABBA). Before anyone
works, all groups must be quiet; what the waiting ones burn meanwhile is reported.

    python bench/quota.py [--quota 0.5 1 1.5] [--rounds 15] [--model minilm|bert] [--threads 16] [--output FILE.json]

Needs a writable cpu controller (cgroup v1 or v2). Figures are samples/s. A line a round, the JSON after each round, a table after each
quota, and of what is there when SIGTERM or SIGINT comes.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import rounds as r
from cgroup import Group

SERVICE = Path(__file__).resolve().parent / "models" / "encoder_service.py"
LAUNCH_ONLY, OURS = "ipexrun --no-optimize", "ipexrun"
NOT_SLOWER = 1.02  # rules.md: slower only if the whole interval of time / time of the other lies above
QUIET_S = 0.05  # how long nobody may work before someone is measured
QUIET_SHARE = 0.02  # CPUs that all groups together may burn and still be called quiet
PATIENCE_S = 300


class Failed(Exception):
    pass


class Variant:
    """A running program in a cgroup of its own, and the connection to it."""

    def __init__(self, number, name, command, env, cpus, folder):
        self.name = name
        self.folder = Path(folder, str(number))
        self.folder.mkdir()
        self.log = self.folder / "log"
        self.threads = self.weights = self.warmup = self.connection = self.process = None
        self.periods = self.throttled = 0
        self.group = Group(f"quota-{number}", cpus)
        path = str(self.folder / "socket")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.listener.settimeout(1)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, path], env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=self.group.enter
            )

    def failed(self, what):
        return Failed(f"{self.name}: {what} (exit status {self.process.poll()})\n{self.log.read_text()[-2000:]}")

    def connect(self):
        until = time.monotonic() + PATIENCE_S
        while self.connection is None:
            try:
                self.connection = self.listener.accept()[0]
            except TimeoutError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise self.failed("did not start") from None
        self.connection.settimeout(PATIENCE_S)
        self.lines = self.connection.makefile("r")

    def ask(self, request):
        self.connection.sendall(request.encode() + b"\n")

    def answer(self, word):
        """The words after `word`, which must be the next answer's first."""
        try:
            words = self.lines.readline().split()
        except TimeoutError:
            words = ["nothing", "in", "time"]
        if not words or words[0] != word:
            raise self.failed(f"answered {words}, expected {word}")
        return words[1:]

    def run(self, calls, seconds):
        """Calls a second."""
        before = self.group.periods()
        self.ask(f"run {calls} {seconds}")
        done, taken = self.answer("ran")
        after = self.group.periods()
        self.periods += after[0] - before[0]
        self.throttled += after[1] - before[1]
        return int(done) / float(taken)

    def hang_up(self):
        self.group.lift()
        self.listener.close()
        if self.connection:
            self.connection.shutdown(socket.SHUT_RDWR)  # the program reads an end of file and ends

    def stop(self, patience_s):
        for end in (self.process.terminate, self.process.kill):
            try:
                self.process.wait(patience_s)
                break
            except subprocess.TimeoutExpired:
                end()
        self.process.wait()
        for pid in self.group.processes():  # of a launcher that was ended
            os.kill(pid, signal.SIGKILL)
        self.group.remove()


class Field:
    """All variants under one quota."""

    def __init__(self, args, cpus, commands, folder):
        self.args, self.cpus = args, cpus
        self.commands = commands
        self.folder = folder
        self.variants = {}
        self.figures = {}
        self.busy_while_waiting = []
        self.noisy = 0  # times that the groups did not become quiet

    def start(self):
        for number, (name, (command, extra)) in enumerate(self.commands.items()):
            env = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "MKL_DYNAMIC")}
            env |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "IPEXRUN_CACHE": "off"} | extra
            self.variants[name] = Variant(number, name, command, env, self.cpus, self.folder)
        for variant in self.variants.values():
            variant.connect()
            variant.answer("started")  # the launcher has planned
            variant.group.lift()
            variant.ask("load")
        for variant in self.variants.values():
            threads, variant.weights = variant.answer("loaded")
            variant.threads = int(threads)
        for variant in self.variants.values():
            variant.group.limit()

    def wait_until_quiet(self):
        until = time.monotonic() + 5
        while True:
            before, start = self.cpu_ns(), time.monotonic_ns()
            time.sleep(QUIET_S)
            if self.cpu_ns() - before < QUIET_SHARE * (time.monotonic_ns() - start):
                return
            if time.monotonic() > until:
                self.noisy += 1
                return

    def cpu_ns(self, but=None):
        return sum(variant.group.cpu_ns() for variant in self.variants.values() if variant is not but)

    def warm_up(self):
        for name, variant in self.variants.items():
            self.wait_until_quiet()
            first = variant.run(self.args.first, 0)
            rest = variant.run(self.args.warmup - self.args.first, 0)
            variant.warmup = {"first_samples_per_s": round(first * self.args.batch_size, 2), "rest_samples_per_s": round(rest * self.args.batch_size, 2)}
            variant.periods = variant.throttled = 0
            say(f"quota {self.cpus:g}: {name}: {variant.threads} threads; warm-up: first {self.args.first} calls {first * self.args.batch_size:.1f},"
                f" next {self.args.warmup - self.args.first} calls {rest * self.args.batch_size:.1f} samples/s")

    def measure(self, name):
        variant = self.variants[name]
        self.wait_until_quiet()
        before, start = self.cpu_ns(but=variant), time.monotonic_ns()
        rate = variant.run(1, self.args.seconds)
        self.busy_while_waiting.append((self.cpu_ns(but=variant) - before) / (time.monotonic_ns() - start))
        return rate * self.args.batch_size

    def ratio(self, variant, base):
        """Throughput against throughput, with the verdict of the rule "not slower"."""
        found = r.ratio(self.figures, variant, base) if self.figures.get(base) and variant in self.figures else None
        return found and found | {"slower": found["interval_95"][1] < 1 / NOT_SLOWER}

    def bases(self):
        return [name for name in self.commands if name not in (LAUNCH_ONLY, OURS)]

    def report(self):
        throttled = {name: round(v.throttled / v.periods, 2) if v.periods else 0.0 for name, v in self.variants.items()}
        return {
            "quota": self.cpus, "cpus": os.cpu_count(), "model": self.args.model, "weights": next(iter(self.variants.values())).weights,
            "batch_size": self.args.batch_size, "length": self.args.length, "seconds": self.args.seconds, "warmup_calls": self.args.warmup,
            "first_calls": self.args.first, "threads": {name: v.threads for name, v in self.variants.items()},
            "warmup": {name: v.warmup for name, v in self.variants.items()}, "figures": self.figures, "throttled": throttled,
            "ratios": {ours: {base: self.ratio(ours, base) for base in self.bases()} for ours in (LAUNCH_ONLY, OURS)},
            "cpus_burnt_by_waiting": round(max(self.busy_while_waiting, default=0), 4), "not_quiet": self.noisy,
        }

    def table(self):
        args, one = self.args, next(iter(self.variants.values()))
        forced = next(iter(self.commands))
        lines = [f"\nquota of {self.cpus:g} CPUs on {os.cpu_count()}; {args.model}, {one.weights} weights, {args.batch_size} x {args.length} tokens a call\n"]
        lines.append(r.table(self.figures, forced))
        for ours in (LAUNCH_ONLY, OURS):
            for base in self.bases():
                if not (found := self.ratio(ours, base)):
                    continue
                many = self.variants[base].threads > 4 * self.cpus and not base.startswith("run_cpu")
                aim = "" if not many or ours != OURS else f"; at least 2x: {'yes' if found['ratio'] >= 2 else 'no'}"
                low, high = found["interval_95"]
                lines.append(f"{ours} against {base}: {found['ratio']:.2f} ({low:.2f} to {high:.2f}), {found['pairs']} pairs, "
                             f"{'SLOWER' if found['slower'] else 'not slower'}{aim}")
        report = self.report()
        for title, cell in (
            ("threads", lambda name, v: v.threads),
            ("periods throttled", lambda name, v: f"{report['throttled'][name]:.0%}"),
            (f"first {args.first} calls, samples/s", lambda name, v: v.warmup and v.warmup["first_samples_per_s"]),
        ):
            lines.append(f"{title}: " + ", ".join(f"{name} {cell(name, v)}" for name, v in self.variants.items()))
        lines.append(f"CPUs burnt by those who wait: at most {report['cpus_burnt_by_waiting']:.3f}; not quiet before a measurement: {self.noisy} times")
        return "\n".join(lines)

    def stop(self):
        for variant in self.variants.values():
            variant.hang_up()
        for variant in self.variants.values():
            variant.stop(patience_s=5)


def say(text):
    print(text, file=sys.stderr, flush=True)


def commands(args, ipexrun):
    """{name: (command line without the FIFOs, variables)}; the first one is what the others are compared with."""
    program = [str(SERVICE), "--model", args.model, "--batch-size", str(args.batch_size), "--length", str(args.length)]
    python = [sys.executable]
    found = {f"stock, {args.threads} threads": (python + program, {"OMP_NUM_THREADS": str(args.threads), "MKL_DYNAMIC": "FALSE"})}
    own = int(subprocess.run([*python, "-c", "import torch; print(torch.get_num_threads())"], capture_output=True, text=True, check=True).stdout)
    if own != args.threads:
        found["stock"] = (python + program, {})
    found["run_cpu"] = ([*python, "-m", "torch.backends.xeon.run_cpu", "--ninstances", "1", *program], {})
    found[LAUNCH_ONLY] = ([ipexrun, "--no-optimize", *python, *program], {})
    found[OURS] = ([ipexrun, *python, *program], {})
    return {name: one for name, one in found.items() if not args.only or name in args.only or name.startswith("stock, ")}


def cut_off(number, _):
    raise KeyboardInterrupt(signal.Signals(number).name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quota", type=float, nargs="+", default=[0.5, 1.0, 1.5])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.8, help="how long each variant works in a round")
    parser.add_argument("--model", choices=["minilm", "bert"], default="minilm")
    parser.add_argument("--batch-size", type=int, help="default: 8 for minilm, 1 for bert")
    parser.add_argument("--length", type=int, help="tokens of each sample; default: 32 for minilm, 128 for bert")
    parser.add_argument("--threads", type=int, default=16, help="threads of the forced stock run")
    parser.add_argument("--warmup", type=int, default=60, help="calls of each variant before the rounds")
    parser.add_argument("--first", type=int, default=20, help="calls at the start that are reported separately")
    parser.add_argument("--only", nargs="+", help="these variants, by name, and the forced stock run")
    parser.add_argument("--output", help="JSON, rewritten after each round")
    parser.add_argument("--smoke", action="store_true", help="one quota, one round, few calls: does it still run")
    args = parser.parse_args()
    args.batch_size = args.batch_size or {"minilm": 8, "bert": 1}[args.model]
    args.length = args.length or {"minilm": 32, "bert": 128}[args.model]
    if args.smoke:
        args.quota, args.rounds, args.seconds, args.warmup, args.first, args.length = [1.0], 1, 0.1, 4, 2, 8
    ipexrun = shutil.which("ipexrun")
    if ipexrun is None:
        sys.exit("quota: ipexrun is not on the PATH; start this through ./dev exec")
    try:
        Group("probe", 1).remove()
    except OSError as error:
        say(f"quota: no cgroup with a quota can be made here: {error}")
        sys.exit(0 if args.smoke else 1)
    if args.smoke and subprocess.run([sys.executable, "-c", "import transformers"], capture_output=True).returncode != 0:
        say("quota: skipped: transformers is missing")
        sys.exit(0)
    signal.signal(signal.SIGTERM, cut_off)

    finished = []
    all_commands = commands(args, ipexrun)
    for cpus in args.quota:
        cut = None
        with tempfile.TemporaryDirectory() as folder:
            field = Field(args, cpus, all_commands, folder)

            def after(number, found, figures):
                field.figures = figures
                forced, last = list(figures)[0], list(figures)[-1]
                ratio = statistics.median(mine / other for mine, other in zip(figures[last], figures[forced]))
                say(f"quota {cpus:g}: round {number + 1} of {args.rounds}: " + "  ".join(f"{name} {figure:.1f}" for name, figure in found.items())
                    + f" samples/s; {last} / {forced} so far {ratio:.2f}")
                if args.output:
                    waiting = Path(args.output + ".new")
                    waiting.write_text(json.dumps([*finished, field.report()], indent=1) + "\n")
                    waiting.replace(args.output)

            try:
                field.start()
                field.warm_up()
                r.run_rounds(list(all_commands), args.rounds, field.measure, after=after)
            except KeyboardInterrupt as signalled:
                cut = f"cut off ({signalled})"
            except Failed as problem:
                cut = f"failed: {problem}\n"
            finally:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                try:
                    if field.figures:
                        print(field.table(), flush=True)
                        finished.append(field.report())
                finally:
                    field.stop()
                signal.signal(signal.SIGTERM, cut_off)
        if cut:
            sys.exit(f"quota: {cut} at a quota of {cpus:g} after {len(next(iter(field.figures.values()), []))} rounds")


if __name__ == "__main__":
    main()
