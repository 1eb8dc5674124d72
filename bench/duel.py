#!/usr/bin/env python3
"""How much slower is a program while ipexrun tries to make it faster, and for good? Two processes of one program, on stock and under ipexrun, take
turns on one core; CPU time over stock's, of all calls so far at several moments, and of the last fifth:

    taskset -c 1 python bench/duel.py --build build/release --programs tree,branches --seconds 30

With more threads (`--threads 16`, without taskset) it is wall-clock time, and the process whose turn it is not is stopped, so that what ours does
beside its calls is paid for in its own turns.

A user whose program ends after so many seconds of stock's time sees the figure of that moment. `--cache cold` (default) begins with an empty cache
of decisions, `warm` with what a first run of as long left. The programs stand in duel_programs.py, or are files that define make(), which returns
what is called again and again. The CPU clocks count every thread of a process and its children.
"""

import argparse
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MOMENTS = (2, 5, 10, 20, 40, 60, 120)
BLOCK_S = 0.25  # of stock's calls, in turn with as many of ours


def made(name):
    import torch

    torch.manual_seed(0)
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location("program", name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.make()
    sys.path.insert(0, HERE)
    from duel_programs import PROGRAMS

    return PROGRAMS[name]()


def spent():
    if int(os.environ["OMP_NUM_THREADS"]) > 1:
        return time.perf_counter()
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def child(name, reads, writes):
    """Runs as many calls as each line that it reads says, and answers with the seconds that these took."""
    step = made(name)
    with os.fdopen(reads) as orders, os.fdopen(writes, "w") as answers:
        print("ready", file=answers, flush=True)
        for order in orders:
            before = spent()
            for _ in range(int(order)):
                step()
            print(spent() - before, file=answers, flush=True)


class Process:
    def __init__(self, name, command, environment):
        self.orders, self.answers = os.pipe(), os.pipe()
        words = [*command, sys.executable, os.path.abspath(__file__), "--child", name, str(self.orders[0]), str(self.answers[1])]
        self.said = tempfile.TemporaryFile("w+")  # the launcher's summary would stand in the table
        fds = self.orders[0], self.answers[1]
        self.process = subprocess.Popen(words, env=environment, pass_fds=fds, stdin=subprocess.DEVNULL, stderr=self.said, start_new_session=True)
        self.rests = int(environment["OMP_NUM_THREADS"]) > 1
        os.close(self.orders[0]), os.close(self.answers[1])
        self.write, self.read = os.fdopen(self.orders[1], "w"), os.fdopen(self.answers[0])
        if self.read.readline() != "ready\n":
            self.failed(f"{name} did not start")
        self.rest(signal.SIGSTOP)

    def rest(self, order):
        if self.rests:
            os.killpg(self.process.pid, order)

    def run(self, calls):
        self.rest(signal.SIGCONT)
        print(calls, file=self.write, flush=True)
        line = self.read.readline()
        if not line:
            self.failed(f"a process ended with {self.process.wait()}")
        self.rest(signal.SIGSTOP)
        return float(line)

    def stop(self):
        """Where something went wrong: one that rests would do so for ever."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def failed(self, what):
        self.said.seek(0)
        sys.exit(f"{self.said.read()}duel.py: {what}")

    def end(self):
        self.rest(signal.SIGCONT)
        self.write.close()
        return self.process.wait()


def duel(name, options, launcher, cache):
    """Blocks of (stock, ours) in seconds."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("IPEXRUN_") and key != "LD_PRELOAD"}
    environment["OMP_NUM_THREADS"] = str(options.threads)
    mine = {**environment, "XDG_CACHE_HOME": cache, **dict(one.split("=", 1) for one in options.environment)}
    processes = []
    try:
        for command, variables in (([], environment), (launcher, mine)):
            processes.append(Process(name, command, variables))
        return turns(*processes, options.seconds)
    finally:
        for one in processes:
            one.stop()


def turns(stock, ours, seconds):
    calls, blocks, total = 1, [], 0.0
    while total < seconds:
        first, second = (stock, ours) if len(blocks) % 2 == 0 else (ours, stock)
        times = {first: first.run(calls), second: second.run(calls)}
        blocks.append((times[stock], times[ours], calls))
        total += times[stock]
        if times[stock] < BLOCK_S / 2:
            calls = max(calls + 1, int(calls * min(BLOCK_S / max(times[stock], 1e-6), 4)))
        elif times[stock] > 1.5 * BLOCK_S:
            calls = max(1, calls // 2)
    stock.end(), ours.end()
    return blocks


def summary(blocks):
    """Ratio of all calls so far at each moment, the worst of these after 1 s of stock's, of the last fifth; milliseconds of a call of stock's."""
    stock = ours = 0.0
    moments, worst = {}, 0.0
    for one, other, _ in blocks:
        stock, ours = stock + one, ours + other
        worst = max(worst, ours / stock if stock >= 1 else 0.0)
        for moment in MOMENTS:
            if stock >= moment and moment not in moments:
                moments[moment] = ours / stock
    last = blocks[-max(1, len(blocks) // 5):]
    ratios = sorted(other / one for one, other, _ in last if one > 0)
    return {"stock_ms": 1e3 * stock / sum(calls for _, _, calls in blocks), "by": moments, "all": ours / stock, "worst": worst,
            "last": ratios[len(ratios) // 2]}


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", help="comma-separated names or files (default: all)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of stock's calls (default 20)")
    parser.add_argument("--cache", choices=("cold", "warm"), default="cold", help="what ours knows at its start (default cold)")
    parser.add_argument("--build", default=os.environ.get("IPEXRUN_BUILD_DIR", "build/release"), help="build tree (default build/release)")
    parser.add_argument("--option", action="append", default=[], help="a word for ipexrun, may be repeated: --option=--dtype=float32")
    parser.add_argument("--environment", action="append", default=[], metavar="NAME=VALUE", help="for ours alone, may be repeated")
    parser.add_argument("--threads", type=int, default=1, help="of each process; more than 1: wall-clock time (default 1: CPU time)")
    parser.add_argument("--smoke", action="store_true", help="half a second of one program: does it run")
    parser.add_argument("--json", action="store_true", help="one JSON object a program instead of a table")
    options = parser.parse_args()
    sys.path.insert(0, HERE)
    from duel_programs import PROGRAMS

    if options.smoke:
        options.programs, options.seconds = "tiny_training", 0.5
    names = options.programs.split(",") if options.programs else list(PROGRAMS)
    unknown = [name for name in names if name not in PROGRAMS and not name.endswith(".py")]
    if unknown:
        parser.error(f"no program {unknown[0]!r}: there are {', '.join(PROGRAMS)}")
    launcher = os.path.join(os.path.abspath(options.build), "bin", "ipexrun")
    if not os.path.exists(launcher):
        sys.exit(f"duel.py: {launcher} is missing: build it first (./dev build)")
    command = [launcher, *options.option]
    moments = [moment for moment in MOMENTS if moment <= options.seconds]
    if not options.json:
        print(f"{'':30}{'stock, ms':>10}" + "".join(f"{f'{moment} s':>7}" for moment in moments) + f"{'all':>7}{'worst':>7}{'last':>7}", flush=True)
    for name in names:
        with tempfile.TemporaryDirectory() as cache:
            for _ in range(2 if options.cache == "warm" else 1):
                started = time.perf_counter()
                found = summary(duel(name, options, command, cache))
                found["wall_s"] = time.perf_counter() - started
        if options.json:
            print(json.dumps({"program": name, **found}), flush=True)
            continue
        figures = [found["by"].get(moment) for moment in moments] + [found["all"], found["worst"], found["last"]]
        print(f"{os.path.basename(name):30}{found['stock_ms']:10.3f}" + "".join(f"{'' if one is None else f'{one:.2f}':>7}" for one in figures), flush=True)


if __name__ == "__main__":
    main()
