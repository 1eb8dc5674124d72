"""How much does the launch configuration alone give on this machine? Instances of BERT-base against one stock process.

Each round runs one stock process (nothing of ours but the observer that times its calls), then 1, 2, 4, ... instances, `--throughput-mode`, `--latency-mode` and `--ninstances auto`, in order
and in reverse order by turns; every configuration is measured for the same time, and the samples/s of its instances are summed.

    python bench/instances.py [--rounds 3] [--seconds 4] [--batch-size 1] [--kernels] [--only NAME ...] [--output FILE.json]

--kernels also runs each configuration with kernels of ours; without it `--no-optimize`: placement and variables only.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import rounds as r

TOP = Path(__file__).resolve().parents[1]
SCRIPT = TOP / "examples" / "bert_encoder.py"


def physical_cores():
    seen = set()
    for cpu in os.sched_getaffinity(0):
        try:
            seen.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            seen.add(str(cpu))
    return len(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--only", nargs="+", help="these configurations (and stock)")
    parser.add_argument("--output")
    parser.add_argument("--smoke", action="store_true", help="two layers, one round, half a second each: does it still run")
    args = parser.parse_args()
    if args.smoke:
        args.rounds, args.seconds, args.layers, args.only = 1, 0.5, 2, ["1"]
    ipexrun = shutil.which("ipexrun")
    if ipexrun is None:
        sys.exit("instances: ipexrun is not on the PATH; start this through ./dev exec")
    program = [sys.executable, str(SCRIPT), "--batch-size", str(args.batch_size), "--layers", str(args.layers)]
    cores = physical_cores()
    layouts = {str(n): ["--ninstances", str(n)] for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores}
    layouts |= {"throughput-mode": ["--throughput-mode"], "latency-mode": ["--latency-mode"], "auto": ["--ninstances", "auto"]}
    configurations = {"stock": None}
    for name, options in layouts.items():
        if args.only and name not in args.only:
            continue
        configurations[name] = ["--no-optimize", *options]
        if args.kernels:
            configurations[name + ", kernels"] = options
    latency = {}

    def measure(name):
        options = configurations[name] or ["--no-optimize", "--bench-compare", "stock", "--bench-pairs", "1"]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.json")
            command = [ipexrun, *options, "--bench", "--bench-warmup", "10", "--bench-seconds", str(args.seconds), "--bench-stop",
                       "--bench-output", str(report), *program, "--calls", "1000000"]
            done = subprocess.run(command, capture_output=True, text=True)
            if not report.exists():
                print(done.stderr[-2000:], file=sys.stderr)
                return None
            rows = json.loads(report.read_text())["rows"]
            wanted = "stock" if configurations[name] is None else rows[-1]["variant"]
            rows = [one for one in rows if one["variant"] == wanted]
            row = next((one for one in rows if one["instance"] == "all"), rows[0])
            latency.setdefault(name, []).append(row["p50_ms"])
            return row["samples_per_s"]

    figures = r.run_rounds(list(configurations), args.rounds, measure)
    print(f"\nBERT, {args.layers} layers, batch {args.batch_size}, {cores} cores: samples/s of all instances together\n")
    print(r.table(figures, "stock", 24))
    plan = subprocess.run([ipexrun, "--ninstances", "auto", "--dry-run", "--explain", *program], capture_output=True, text=True).stdout
    print("\n".join(line for line in plan.splitlines() if "instances" in line or "auto" in line))
    if args.output:
        ratios = {name: r.ratio(figures, name, "stock") for name in figures}
        Path(args.output).write_text(json.dumps({"cores": cores, "figures": figures, "ratios": ratios, "p50_ms": latency}, indent=1) + "\n")


if __name__ == "__main__":
    main()
