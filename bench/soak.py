"""Does a program under ipexrun stay right, and does it keep its memory, for an hour of whatever programs do?

Usage: soak.py [--minutes N] [--seed S] [--dtype auto|float32|bfloat16] [--threads N] [--output FILE] [--build DIR] [--limit S]
               [--slope-limit KIB] [--no-control]

One process (soak_child.py, started by ipexrun) draws rounds at random: operators of random shapes, models that are made, changed and dropped,
training steps, threads, forks, loader workers, errors. Every result is compared with stock. Beside it runs the control: the same
program without ipexrun. Records are appended to FILE as JSON lines; the same command goes on where a run stopped. Exit code 1: a wrong
result, a crash, a hang, or memory, threads or file descriptors that grow.
"""

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import soak_slope  # noqa: E402
import zoo  # noqa: E402

LEAST_MINUTES = 10  # of a leg whose memory is judged
MEMORY = {"private": "private memory (USS)", "heap": "live malloc bytes"}  # what is judged; RSS and PSS are shown
MAY_GROW = 2  # threads and descriptors, between the second and the last quarter of such a leg


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="of the whole run, all legs together")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto", help="what ipexrun's --dtype is")
    parser.add_argument("--threads", type=int, default=1, help="of torch in each process (0: ipexrun decides)")
    parser.add_argument("--output", default="soak.jsonl", help="JSON lines, appended")
    parser.add_argument("--build", default=os.environ.get("IPEXRUN_BUILD_DIR", "build/dev"), help="build tree with launcher and plugin")
    parser.add_argument("--limit", type=float, default=300, help="seconds without a new round after which the program counts as hung")
    parser.add_argument("--slope-limit", type=float, default=128, help="KiB a minute that memory may grow in the second half of a leg")
    parser.add_argument("--no-control", action="store_true", help="no second process on stock (runs below 10 minutes have none either)")
    options = parser.parse_args(arguments)
    if options.minutes <= 0 or options.limit <= 0 or options.threads < 0 or options.slope_limit <= 0:
        parser.error("--minutes, --limit, --slope-limit: above 0; --threads: not negative")
    return options


def build_of(folder):
    import torch

    major, minor = torch.__version__.split(".")[:2]
    plugin = os.path.join(folder, "lib", "ipexrun", "plugins", f"libipexrun_plugin_torch{major}_{minor}.so")
    for needed in (plugin, os.path.join(folder, "bin", "ipexrun")):
        if not os.path.exists(needed):
            sys.exit(f"soak.py: {needed} is missing: build it first (./dev build)")
    questions = sorted(glob.glob(os.path.join(HERE, "soak_c*.py")) + [os.path.join(HERE, name) for name in ("soak_life.py", "zoo_rule.py")])
    return f"{zoo.digest_of([plugin])} soak {zoo.digest_of(questions)} torch {torch.__version__}"


def key_of(options):
    return {"seed": options.seed, "dtype": options.dtype, "threads": options.threads, "build": options.build_name}


class Process:
    """The program of one leg: under ipexrun (subject) or without it (control)."""

    def __init__(self, who, leg, minutes, options, folder):
        self.who, self.leg, self.options = who, leg, options
        self.status, self.errors = os.path.join(folder, f"{who}.status"), os.path.join(folder, f"{who}.stderr")
        request = {"who": who, "leg": leg, "key": key_of(options), "seed": options.seed * 1000 + leg, "dtype": options.dtype,
                   "output": os.path.abspath(options.output), "status": self.status, "threads": options.threads, "minutes": minutes,
                   "sample_seconds": min(max(minutes / 10, 1), 5)}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("IPEXRUN_") and k != "LD_PRELOAD"}
        # oneDNN keeps up to 1024 compiled kernels of some 100 KiB, and torch's binding to it as many in each thread, with stock as well:
        # until they are full, memory grows with every new shape.
        # MKL's memory manager does not survive a fork of a process with threads: a child's first product may wait for ever, with stock.
        environment |= {"HF_HUB_OFFLINE": "1", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "4",
                        "MKL_DISABLE_FAST_MM": "1"}
        if options.threads:
            environment["OMP_NUM_THREADS"] = str(options.threads)
        command = [sys.executable, os.path.join(HERE, "soak_child.py"), json.dumps(request)]
        if who == "subject":
            cache = os.path.join(folder, "cache")
            os.makedirs(cache, mode=0o700, exist_ok=True)
            environment["IPEXRUN_CACHE"] = cache
            launcher = os.path.join(os.path.abspath(options.build), "bin", "ipexrun")
            command = [launcher, "--no-pin", "--require-shim", "--dtype", options.dtype, "--", *command]
        self.stderr = open(self.errors, "w", encoding="utf-8")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.stderr, env=environment,
                                        start_new_session=True)
        self.alive_at = time.monotonic()
        self.last = {}

    def look(self):
        """Reads the status; False when no round began for too long."""
        try:
            with open(self.status, encoding="utf-8") as file:
                seen = json.load(file)
            if seen != self.last:
                self.last, self.alive_at = seen, time.monotonic()
        except (OSError, ValueError):
            pass
        return time.monotonic() - self.alive_at < self.options.limit

    def end(self):
        for name, who in ((signal.SIGABRT, self.last.get("pid")), (signal.SIGKILL, None)):
            try:
                if who:
                    os.kill(who, name)  # faulthandler writes the stacks
                    time.sleep(1)
                elif name == signal.SIGKILL:
                    os.killpg(self.process.pid, name)
            except ProcessLookupError:
                pass
        self.process.wait()

    def failure(self, code):
        """What to record of an end that was none; None of an orderly one."""
        self.stderr.close()
        if code == 0:
            return None
        with open(self.errors, encoding="utf-8", errors="replace") as file:
            tail = file.read().strip().splitlines()[-40:]
        what = f"no new round for {self.options.limit:g} s" if code is None else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return {"kind": "crash", "who": self.who, "leg": self.leg, **key_of(self.options), "what": what, "at": self.last, "stderr": tail}


def run_leg(leg, minutes, options):
    """Both processes side by side until they end."""
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        whos = ["subject"] + ([] if options.no_control or minutes < LEAST_MINUTES else ["control"])
        running = [Process(who, leg, minutes, options, folder) for who in whos]
        try:
            while running:
                for one in list(running):
                    code, alive = one.process.poll(), one.look()
                    if code is None and alive:
                        continue
                    one.end()
                    failure = one.failure(code)
                    if failure:
                        zoo.append(options.output, failure)
                        print(f"soak: the {one.who} ended: {failure['what']} at {one.last}", *failure["stderr"][-20:], sep="\n", file=sys.stderr)
                    running.remove(one)
                shown = ", ".join(f"{one.who} {one.last['checks']} results, {one.last['wrong']} wrong" for one in running if one.last)
                at = next((one.last for one in running if one.last), {})
                if at:
                    zoo.say(f"soak: minute {at['minutes']:.1f} of {minutes:.1f}, round {at['round']} ({at['activity']}): {shown}")
                time.sleep(0.5)
        finally:
            for one in running:
                one.end()
            zoo.say("")


def of_key(records, options):
    key = key_of(options)
    return [record for record in records if all(record.get(name) == value for name, value in key.items())]


def series(records, who, leg, what):
    return [(r["minutes"], r[what]) for r in records
            if r.get("kind") == "sample" and r["who"] == who and r["leg"] == leg and r.get(what) is not None]


def minutes_of(records, leg):
    return max((r["minutes"] for r in records if r["who"] == "subject" and r["leg"] == leg and r["kind"] in ("sample", "end")), default=0)


def legs_of(records):
    return sorted({r["leg"] for r in records})


def grown(samples):
    """Least of the last quarter less that of the second: what comes and goes (a shared tensor is a descriptor) does not count."""
    first, length = samples[0][0], samples[-1][0] - samples[0][0]
    second = [v for at, v in samples if length / 4 <= at - first < length / 2]
    last = [v for at, v in samples if at - first >= 3 * length / 4]
    return min(last) - min(second) if second and last else 0


def count_table(records, out):
    sums = {}
    for record in records:
        if record["kind"] == "end" and record["who"] == "subject":
            for name, (checks, wrong, rounded, worst) in record["counts"].items():
                had = sums.setdefault(name, [0, 0, 0, 0, 0.0])
                sums[name] = [had[0] + record["rounds"].get(name, 0), had[1] + checks, had[2] + wrong, had[3] + rounded, max(had[4], worst)]
    print(f"{'activity':12} {'rounds':>8} {'results':>9} {'wrong':>6} {'as bf16':>8} {'worst error':>12}", file=out)
    for name, (rounds, checks, wrong, rounded, worst) in sums.items():
        print(f"{name:12} {rounds:8d} {checks:9d} {wrong:6d} {rounded:8d} {worst:12.1e}", file=out)
    return sum(one[1] for one in sums.values())


def memory_table(records, leg, options, out):
    """Prints it; the verdict of each judged kind of memory."""
    verdicts, results = {}, {}
    print(f"\n{'memory, KiB':22} {'process':8} {'first':>9} {'at half':>9} {'last':>9} {'KiB/min':>9}   95% interval", file=out)
    for what in ("rss", "pss", "private", "heap"):
        lines = {}
        for who in ("subject", "control"):
            samples = series(records, who, leg, what)
            if len(samples) < 2:
                continue
            line = lines[who] = soak_slope.slope(samples)
            half = soak_slope.second_half(samples)[0][1]
            shown = f"{line['slope']:9.1f}   {line['low']:.1f} to {line['high']:.1f}" if line else f"{'':9}   too few samples"
            print(f"{MEMORY.get(what, what.upper()):22} {who:8} {samples[0][1]:9d} {half:9d} {samples[-1][1]:9d} {shown}", file=out)
        results[what] = lines
        if what in MEMORY:
            long = minutes_of(records, leg) >= LEAST_MINUTES
            verdicts[what] = soak_slope.judge(lines.get("subject") if long else None, lines.get("control"), options.slope_limit)
    return verdicts, results


def report(records, options, out=sys.stdout):
    """The table and the verdict of all that is recorded; a list of what is wrong."""
    problems = [f"{sum(r['kind'] == 'wrong' and r['who'] == 'subject' for r in records)} wrong results"]
    problems = [] if problems[0].startswith("0 ") else problems
    problems += [f"{r['who']}: {r['what']} at {r['at']}" for r in records if r["kind"] == "crash"]
    checks = count_table(records, out)
    leg = max(legs_of(records), key=lambda one: minutes_of(records, one))
    verdicts, slopes = memory_table(records, leg, options, out)
    problems += [f"{MEMORY[what]} grows" for what, verdict in verdicts.items() if verdict == "leak"]
    counted = []
    for what, name in (("tasks", "threads"), ("fds", "file descriptors"), ("pack_kib", "KiB of packs"), ("weights", "weights"), ("sites", "sites")):
        samples = series(records, "subject", leg, what)
        if samples:
            values = [value for _, value in samples]
            counted.append(f"{name} {values[0]} to {values[-1]} (most {max(values)})")
            if what in ("tasks", "fds") and minutes_of(records, leg) >= LEAST_MINUTES and grown(samples) > MAY_GROW:
                problems.append(f"{name} grow: at least {grown(samples):g} more in the last quarter than in the second")
    print("\n" + "; ".join(counted), file=out)
    for line in soak_slope.plot(series(records, "subject", leg, "private")):
        print(line, file=out)
    ends = [r for r in records if r["kind"] == "end" and r["who"] == "subject"]
    if any(not r["active"] for r in ends):
        problems.append("the op tier was not active")
    calls, taken = (sum(one[what] for r in ends for one in r["ops"]) for what in ("calls", "taken"))
    minutes = sum(minutes_of(records, one) for one in legs_of(records))
    notes = sum(r["kind"] == "note" for r in records)
    print(f"\n{minutes:.1f} minutes in {len(legs_of(records))} processes: {checks} results compared, "
          f"{sum(r['kind'] == 'wrong' and r['who'] == 'subject' for r in records)} wrong; {taken} of {calls} calls taken; "
          f"{sum(r['changes_seen'] for r in ends)} weight changes that a stale pack could not hide"
          + (f"; {notes} notes in {options.output}" if notes else ""), file=out)
    print("memory: " + ", ".join(f"{MEMORY[what]}: {verdict}" for what, verdict in verdicts.items())
          + f" (limit {options.slope_limit:g} KiB a minute over the second half)", file=out)
    print("verdict: " + ("; ".join(problems) if problems else "no wrong result, no crash, no leak"), file=out)
    summary = {"kind": "verdict", "who": "subject", "leg": leg, **key_of(options), "minutes": minutes, "results": checks, "problems": problems,
               "memory": verdicts, "slopes": slopes}
    return problems, summary


def main():
    options = parse()
    options.build_name = build_of(options.build)
    records = of_key(zoo.recorded(options.output), options)
    done = sum(minutes_of(records, leg) for leg in legs_of(records))
    left = options.minutes - done
    if left > 0.05:
        run_leg(max(legs_of(records), default=-1) + 1, left, options)
        records = of_key(zoo.recorded(options.output), options)
    if not any(r["kind"] == "sample" for r in records):
        print("soak: the program ended before its first sample; its stderr is above", file=sys.stderr)
        return 1
    problems, summary = report(records, options)
    zoo.append(options.output, summary)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
