#!/usr/bin/env python3
"""Is a program that runs only for a while slower for what ipexrun tries? Calls that an unedited program has made after 2, 5, 10 ... seconds, beside
stock's, for families of the zoo (models/zoo):

    python bench/short_runs.py --build build/release --families vit,resnet,bert --seconds 30 --threads 1 --jobs 2

Each family runs in processes of its own, on stock and under ipexrun in turn (`--rounds` times), the first time with an empty cache of decisions
("cold") and then with what the first left ("warm"). Clocks start at the first call: what capture costs is counted. With --csv FILE a line a family, form
and moment. A machine on which something else runs says little.
"""

import argparse
import concurrent.futures
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

MOMENTS = (1, 2, 5, 10, 20, 30, 60, 120)


def program(family, size, seconds, threads):
    """What a user would write; says the moment of each call's end."""
    import warnings

    import torch
    from models.zoo import FAMILIES, SIZES

    warnings.simplefilter("ignore")
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, inputs = FAMILIES[family].build(SIZES[size])
    model.eval()
    ends = []
    with torch.no_grad():
        start = time.perf_counter()
        while not ends or ends[-1] < seconds:
            model(**inputs)
            ends.append(time.perf_counter() - start)
    print(json.dumps(ends))


def calls_by(ends, moment):
    """Calls done after so many seconds, with the share of the one that was under way."""
    done = sum(end <= moment for end in ends)
    if done == len(ends):
        return float(done)
    before = ends[done - 1] if done else 0.0
    return done + (moment - before) / (ends[done] - before)


def run(family, options, cpus, launcher, cache):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("IPEXRUN_")} | {"HF_HUB_OFFLINE": "1", "IPEXRUN_CACHE": cache}
    command = [*launcher, sys.executable, os.path.abspath(__file__), "--child", family, "--size", options.size, "--seconds", str(options.seconds),
               "--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=20 * options.seconds + 300,
                          preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    if done.returncode:
        raise RuntimeError(f"{family}: exit code {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(family, options, cpus):
    """{form: {moment: ratio to stock}}, and milliseconds of a call of stock's at the end."""
    launcher = [os.path.join(options.build, "bin", "ipexrun"), "--dtype", options.dtype]
    found = {"cold": {}, "warm": {}}
    stocks = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="short_runs") as cache:
            stock = run(family, options, cpus, [], cache)
            stocks.append(stock[-1] / len(stock))
            for form in found:
                ends = run(family, options, cpus, launcher, cache)
                for moment in [*(m for m in MOMENTS if m < options.seconds), options.seconds]:
                    found[form].setdefault(moment, []).append(calls_by(ends, moment) / calls_by(stock, moment))
    return {form: {moment: statistics.median(ratios) for moment, ratios in one.items()} for form, one in found.items()}, 1e3 * statistics.median(stocks)


def table(results, out=sys.stdout):
    moments = sorted({m for found, _ in results.values() for m in found["cold"]})
    print(f"{'calls beside stock after':42} {'stock ms':>9}" + "".join(f"{m:>7g}s" for m in moments), file=out)
    for family in sorted(results):
        found, ms = results[family]
        for form, one in found.items():
            print(f"{family + ', ' + form:42} {ms:9.1f}" + "".join(f"{one[m]:8.2f}" for m in moments), file=out)
    for form in ("cold", "warm"):
        for what, pick in (("least", min), ("median", statistics.median)):
            print(f"{what + ', ' + form:42} {'':9}" + "".join(f"{pick([found[form][m] for found, _ in results.values()]):8.2f}" for m in moments), file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--families", default="vit,resnet,bert,gpt2", help="of the zoo, comma-separated; NAME_ for all that begin so (default: %(default)s)")
    parser.add_argument("--size", default="full", choices=["small", "full"])
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="of each process (0: torch's default)")
    parser.add_argument("--jobs", type=int, default=1, help="families at a time, each on CPUs of its own")
    parser.add_argument("--csv")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return program(options.child, options.size, options.seconds, options.threads)
    import zoo
    from models.zoo import FAMILIES

    names, unknown = zoo.chosen(FAMILIES, options.families)
    if unknown:
        parser.error(f"--families: {', '.join(unknown)} is unknown (./dev zoo --list)")
    free, results = zoo.shares(options.jobs), {}

    def one(family):
        cpus = free.get()
        try:
            results[family] = measure(family, options, cpus)
        except (RuntimeError, subprocess.TimeoutExpired) as problem:
            print(f"short_runs.py: {problem}", file=sys.stderr)
        finally:
            free.put(cpus)
        if sys.stderr.isatty():
            print(f"\r\033[Kshort_runs: {len(results)} of {len(names)} families done", end="", file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, names))
    if not results:
        return 1
    table(results)
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["family", "form", "seconds", "calls_beside_stock"])
            for family, (found, _) in sorted(results.items()):
                lines.writerows([family, form, moment, f"{ratio:.4f}"] for form, one in found.items() for moment, ratio in one.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
