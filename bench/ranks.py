"""Data-parallel training on the ranks of one host: plain torchrun beside ipexrun, pinned and not.

    python bench/ranks.py [--ranks 2] [--steps 300] [--rounds 7] [--output FILE.json]

Runs examples/ddp_train.py over gloo, the variants in turn and in reverse order every second round; steps/s as the script prints them.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import rounds as r

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "ddp_train.py"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output")
    args = parser.parse_args()
    ipexrun = shutil.which("ipexrun")
    if ipexrun is None:
        sys.exit("ranks: ipexrun is not on the PATH; start this through ./dev exec")
    program = [str(SCRIPT), "--steps", str(args.steps), "--batch-size", str(args.batch_size)]
    ranks = ["--nproc-per-node", str(args.ranks)]
    commands = {
        "stock torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", *ranks, *program],
        "ipexrun": [ipexrun, *ranks, *program],
        "ipexrun --no-optimize": [ipexrun, "--no-optimize", *ranks, *program],
        "ipexrun --no-optimize --no-pin": [ipexrun, "--no-optimize", "--no-pin", *ranks, *program],
    }

    def measure(variant):
        done = subprocess.run(commands[variant], capture_output=True, text=True)
        found = re.search(r"([\d.]+) steps/s", done.stdout)
        if done.returncode != 0 or not found:
            print(done.stderr[-2000:], file=sys.stderr)
            return None
        return float(found.group(1))

    figures = r.run_rounds(list(commands), args.rounds, measure)
    print(f"{args.ranks} ranks, batch {args.batch_size} each, {args.steps} steps\n")
    print(r.table(figures, "stock torchrun").replace("samples/s", "  steps/s"))
    if args.output:
        ratios = {variant: r.ratio(figures, variant, "stock torchrun") for variant in commands}
        Path(args.output).write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=1) + "\n")


if __name__ == "__main__":
    main()
