"""Does hypertune find what an exhaustive search finds? The whole grid of the default space against strategies that may try a quarter of it.

First the grid is searched in full, then each strategy with a share of as many trials. What each of them wrote into best.yaml, the launcher's automatic choices (`ipexrun`,
`ipexrun --ninstances auto`) and stock python then run in fresh processes, in turn, every second round backwards; only these runs are compared.

    python bench/tuner_search.py [options] [-- PROGRAM args]

Unattended on a larger machine, with BERT-base, batch 1 (16 cores: about an hour, 64 cores: about two):
    ./dev exec python bench/tuner_search.py --output search.json
    ./dev exec python bench/tuner_search.py --objective latency --output latency.json
    ./dev exec python bench/tuner_search.py --p99-times 1.5 --output limit.json
An interrupted search or comparison goes on with the same command (--folder). `within 2%` is asked of the paired ratios of the last runs; on a busy machine their interval says how much is known.
"""

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import rounds as r

TOP = Path(__file__).resolve().parents[1]
BERT = [sys.executable, str(TOP / "examples" / "bert_encoder.py"), "--batch-size", "1", "--calls", "700"]
SMALL = ["--layers", "2", "--hidden", "128", "--length", "16"]


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objective", choices=["throughput", "latency"], default="throughput")
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument("--p99-ms", type=float, help="a limit on the 99th percentile of a call's time (it needs 662 calls)")
    limits.add_argument("--p99-times", type=float, help="the same, as a multiple of what the default configuration has")
    parser.add_argument("--strategies", nargs="+", default=["climb", "halving"], help="also tpe and others, where Optuna is installed")
    parser.add_argument("--share", type=float, default=0.25, help="of the grid's trials")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15, help="of the last comparison")
    parser.add_argument("--claim-pairs", type=int, default=6, help="pairs of fresh runs that each search ends with")
    parser.add_argument("--leader-rounds", type=int, help="of the leaders beside the default (default: as hypertune)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUES", help="as of hypertune: one value fixes a parameter, several are a space of their own")
    parser.add_argument("--kernels", action="store_true", help="with kernels of ours; without it placement and variables only")
    parser.add_argument("--python", help="interpreter that has Optuna")
    parser.add_argument("--folder", default="tuner_search", help="where the studies go")
    parser.add_argument("--output", help="FILE.json")
    parser.add_argument("--smoke", action="store_true", help="a small model and space, one round: does it still run")
    parser.add_argument("program", nargs="*")
    args = parser.parse_args()
    args.program = args.program or BERT
    if args.smoke:
        args.program, args.rounds, args.repeats, args.share, args.claim_pairs, args.leader_rounds = [*BERT[:-1], "30", *SMALL], 1, 1, 0.5, 1, 1
        args.strategies, args.set, args.folder = ["climb"], ["ninstances=1", "thp=off,on"], tempfile.mkdtemp()
    args.fixed = [] if args.kernels else ["--no-optimize"]
    return args


class Search:
    """One study, and what it found."""

    def __init__(self, args, strategy, limit, trials=None):
        self.folder = Path(args.folder, f"{args.objective}-{strategy}" + ("" if limit is None else "-limit"))
        command = ["hypertune", "--strategy", strategy, "--objective", args.objective, "--repeats", str(args.repeats), "--seed", str(args.seed),
                   "--max-trials", str(trials or 100000), "--output-dir", str(self.folder)]
        for one in [*args.set, *([] if args.kernels else ["no-optimize=true"])]:
            command += ["--set", one]
        command += ["--constraint", f"p99_ms < {limit:.4g}"] if limit is not None else []
        command += ["--python", args.python] if args.python else []
        command += ["--claim-pairs", str(args.claim_pairs)] + (["--leader-rounds", str(args.leader_rounds)] if args.leader_rounds else [])
        done = subprocess.run([*command, *args.program], stdout=subprocess.PIPE, text=True)
        if not (self.folder / "record.csv").exists() or done.returncode not in (0, 1):
            sys.exit(f"tuner_search: hypertune ended with {done.returncode}")
        with open(self.folder / "record.csv", newline="") as file:
            self.rows = list(csv.DictReader(file))
        self.trials = len(self.rows) - 1
        self.seconds = sum(float(row["seconds"]) for row in self.rows)  # of the trials; a search that went on has them all
        self.verdict = [line for line in done.stdout.splitlines() if line and not line.startswith("run it: ")][-1]
        best = self.folder / "best.yaml"
        self.config = best if best.exists() else None

    def text(self):
        """The options, without comments: equal texts are equal launches."""
        return "\n".join(line for line in self.config.read_text().splitlines() if not line.startswith("#"))

    def result(self):
        return {"trials": self.trials, "seconds": round(self.seconds, 1), "said": self.verdict, "best": self.text() if self.config else None}


class Judge:
    """Fresh runs: samples/s, or 1000/ms for latency, so that more is better. What was measured is kept, for a comparison that goes on."""

    def __init__(self, args, kept):
        self.args, self.p99 = args, {}
        self.kept, self.old = kept, {}
        if kept.exists():
            for line in kept.read_text().splitlines():
                run = json.loads(line)
                self.old.setdefault(run["command"], []).append(run)

    def rows(self, command):
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            done = subprocess.run(["ipexrun", *command, "--bench", "--bench-output", str(report), *self.args.program], capture_output=True, text=True)
            if done.returncode != 0 or not report.exists():
                print(done.stderr[-2000:], file=sys.stderr)
                return {}
            out = {}
            for one in json.loads(report.read_text())["rows"]:
                if one["instance"] == "all" or one["variant"] not in out:
                    out[one["variant"]] = one
            return out

    def measure(self, name, command):
        rows = self.rows([*command, *(["--bench-compare", "stock", "--bench-pairs", "1"] if name == "stock" else [])])
        row = rows.get("stock" if name == "stock" else "ipexrun") or {}
        value = row.get("p50_ms") if self.args.objective == "latency" else row.get("samples_per_s") or row.get("calls_per_s")
        if not value:
            return None
        if row.get("p99_ms"):
            self.p99.setdefault(name, []).append(row["p99_ms"])
        return 1000 / value if self.args.objective == "latency" else value

    def measure_once(self, name, command):
        """The figure that an interrupted comparison already has of this run, else a new one."""
        key = " ".join([name, *command])
        if self.old.get(key):
            run = self.old[key].pop(0)
            if run["p99_ms"]:
                self.p99.setdefault(name, []).append(run["p99_ms"])
            return run["figure"]
        before = len(self.p99.get(name, []))
        figure = self.measure(name, command)
        if figure is not None:
            p99 = self.p99.get(name, [])[before:]
            with open(self.kept, "a") as file:
                file.write(json.dumps({"command": key, "figure": figure, "p99_ms": p99[0] if p99 else None}) + "\n")
        return figure


def main():
    args = options()
    for name in ("ipexrun", "hypertune"):
        if shutil.which(name) is None:
            sys.exit(f"tuner_search: {name} is not on the PATH; start this through ./dev exec")
    os.makedirs(args.folder, exist_ok=True)
    judge = Judge(args, Path(args.folder, f"{args.objective}-runs.jsonl"))
    limit = args.p99_ms
    kept = Path(args.folder, f"{args.objective}-limit.txt")  # a search that goes on keeps its limit
    if args.p99_times:
        if not kept.exists():
            judge.measure("default", args.fixed)
            if "default" not in judge.p99:
                sys.exit("tuner_search: the program makes too few calls for a 99th percentile (662)")
            kept.write_text(f"{args.p99_times * judge.p99['default'][0]:.4g}")
        limit = float(kept.read_text())
    grid = Search(args, "grid", limit)
    if grid.config is None:
        sys.exit(f"tuner_search: no point of the grid will do: {grid.verdict}")
    trials = max(1, int(args.share * grid.trials))
    searches = {"grid": grid} | {name: Search(args, name, limit, trials) for name in args.strategies}

    same, runs = {}, {"stock": args.fixed, "default": args.fixed, "automatic": [*args.fixed, "--ninstances", "auto"]}
    for name, one in searches.items():
        if one.config is None:
            continue
        same[name] = next((other for other in same.values() if searches[other].text() == one.text()), name)
        if same[name] == name:
            runs[name] = ["--config", str(one.config)]
    figures = r.run_rounds(list(runs), args.rounds, lambda name: judge.measure_once(name, runs[name]))
    unit = "samples/s" if args.objective == "throughput" else "1/s (of the median call)"
    print(f"\n{args.objective}{'' if limit is None else f', p99 below {limit:.4g} ms'}: {unit} in fresh runs, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n")
    print(r.table(figures, "grid", 24))
    out = {"objective": args.objective, "limit_ms": limit, "program": args.program, "cpus": os.cpu_count(), "grid_trials": grid.trials, "figures": figures, "searches": {},
           "p99_ms": {name: round(statistics.median(seen), 2) for name, seen in judge.p99.items()},
           "ratios_to_grid": {name: r.ratio(figures, name, "grid") for name in figures}, "ratios_to_stock": {name: r.ratio(figures, name, "stock") for name in figures}}
    print()
    for name, one in searches.items():
        ratio = out["ratios_to_grid"].get(same.get(name))
        row = one.result() | {"share": round(one.trials / grid.trials, 3), "same_launch_as": same.get(name), "ratio_to_grid": ratio}
        if name != "grid" and ratio:
            row["within_2_percent"] = "yes" if same[name] == "grid" or ratio["interval_95"][0] >= 0.98 else "no" if ratio["interval_95"][1] < 0.98 else "not known"
        out["searches"][name] = row
        found = "no configuration" if one.config is None else "the launch of " + same[name] if same[name] != name else "a launch of its own" if name != "grid" else "the reference"
        print(f"{name:10} {one.trials:5} trials ({100 * row['share']:3.0f}%) in {one.seconds:6.0f} s: {found}; within 2%: {row.get('within_2_percent', '-')}; {one.verdict}")
    if args.output:
        Path(args.output).write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
