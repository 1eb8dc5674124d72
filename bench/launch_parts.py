"""Which part of a launch makes a program faster or slower than stock python? Each part alone, fresh processes in turn, every second round backwards.

    python bench/launch_parts.py [--rounds 8] [-- PROGRAM args]

PROGRAM prints a line with "samples/s" (default: a small BERT, one sentence a call, about 2 ms on 16 cores). What stock takes is printed first: threads of its
own choice. Attention: on a machine that drifts only paired ratios mean something, and eight rounds show no less than a tenth.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import rounds as r

TOP = Path(__file__).resolve().parents[1]
SMALL = [sys.executable, str(TOP / "examples" / "bert_encoder.py"), "--layers", "3", "--hidden", "384", "--batch-size", "1", "--length", "32", "--calls", "1500"]
ASK = "import os, torch; print(torch.get_num_threads(), 'threads of', len(os.sched_getaffinity(0)), 'CPUs; torch', torch.__version__)"
FIGURE = re.compile(r"([\d.]+) samples/s")


def ways(cpus):
    """{name: (what comes before the program, variables)}"""
    masked = ["taskset", "-c", ",".join(map(str, cpus))]
    threads = {"OMP_NUM_THREADS": str(len(cpus))}
    return {
        "stock": ([], {}),
        "stock again": ([], {}),
        "threads": ([], threads),
        "mask": (masked, {}),
        "threads, mask": (masked, threads),
        "ipexrun --no-optimize --no-pin": (["ipexrun", "--no-optimize", "--no-pin"], {}),
        "ipexrun --no-optimize": (["ipexrun", "--no-optimize"], {}),
        "ipexrun": (["ipexrun"], {}),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--smoke", action="store_true", help="one round of a tiny model: does it still run")
    parser.add_argument("program", nargs="*", default=SMALL)
    args = parser.parse_args()
    if args.smoke:
        args.rounds, args.program = 1, [*SMALL[:2], "--layers", "1", "--hidden", "64", "--length", "8", "--batch-size", "1", "--calls", "5"]
    for needed in ("ipexrun", "taskset"):
        if shutil.which(needed) is None:
            sys.exit(f"launch_parts: {needed} is not on the PATH; start this through ./dev exec")
    every = ways(sorted(os.sched_getaffinity(0)))

    if args.smoke:
        every = {name: every[name] for name in ("stock", "threads, mask", "ipexrun")}

    def measure(name):
        before, variables = every[name]
        done = subprocess.run([*before, *args.program], env=os.environ | variables, capture_output=True, text=True)
        seen = FIGURE.findall(done.stdout)
        if done.returncode != 0 or not seen:
            print(done.stderr[-1000:], file=sys.stderr)
            return None
        return float(seen[-1])

    print("stock:", subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True).stdout.strip())
    print(r.table(r.run_rounds(list(every), args.rounds, measure), "stock"))


if __name__ == "__main__":
    main()
