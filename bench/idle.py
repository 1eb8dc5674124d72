"""What does ipexrun cost a program that has nothing to gain? Start-up, a call of an operator that it does not own, and one that it owns and
declines; in Python also calls of a tiny module and steps of training it; Python and C++, whole processes with and without `ipexrun`, interleaved.

Usage: idle.py [--rounds N] [--build DIR] [--smoke]

Prints a table and one JSON object: medians over processes of each process's least (quiet) figure, and of the paired differences with a
bootstrap interval of 95%. Start-up is the whole process: `python -c "import torch"`, and the C++ host with one round of calls.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import rounds as paired  # noqa: E402

CHILD = """
import json, time, torch
torch.set_num_threads(1)
def least(call, rounds):
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(2000): call()
        best = min(best, (time.perf_counter_ns() - start) / 2000)
    return best
x, a = torch.ones(16), torch.ones(2, 2, dtype=torch.float64)
with torch.inference_mode():
    found = {"add": least(lambda: torch.add(x, x), ROUNDS), "view": least(lambda: x.view(4, 4), ROUNDS),
             "mm float64 (declined)": least(lambda: torch.mm(a, a), ROUNDS)}
layer, rows = torch.nn.Linear(10, 1), torch.randn(64, 10)
optimizer = torch.optim.SGD(layer.parameters(), lr=1e-6)
def train():
    optimizer.zero_grad()
    layer(rows).square().mean().backward()
    optimizer.step()
train()
with torch.no_grad():
    found["Linear(10, 1), 64 rows"] = least(lambda: layer(rows), ROUNDS)
found["SGD's step of it"] = least(optimizer.step, max(ROUNDS // 4, 1))
found["training step of it"] = least(train, max(ROUNDS // 4, 1))
print(json.dumps(found))
"""


def bootstrap(differences):
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(differences, k=len(differences))) for _ in range(2000))
    return [medians[49], medians[1949]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="processes of each kind, with and without (default 15)")
    parser.add_argument("--build", default=os.environ.get("IPEXRUN_BUILD_DIR", "build/release"), help="build tree (default build/release)")
    parser.add_argument("--smoke", action="store_true", help="two rounds: does it run")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    launcher, host = os.path.join(build, "bin", "ipexrun"), os.path.join(build, "bin", "idle_host")
    for needed in (launcher, host):
        if not os.path.exists(needed):
            sys.exit(f"idle.py: {needed} is missing: build it first (cmake --build {options.build})")
    count, calls = (2, 2) if options.smoke else (options.rounds, 50)
    python = sys.executable
    commands = {"python start-up, ms": [python, "-c", "import torch"], "python": [python, "-c", CHILD.replace("ROUNDS", str(calls))],
                "C++ start-up, ms": [host, "1"], "C++": [host, str(calls)]}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("IPEXRUN_") and name != "LD_PRELOAD"}
    environment["OMP_NUM_THREADS"] = "1"
    found = {}  # {question: {variant: [figures]}}

    def measure(variant):
        for name, command in commands.items():
            start = time.perf_counter()
            words = [launcher, *command] if variant == "ipexrun" else command
            ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            if ended.returncode != 0:
                sys.exit(f"idle.py: {words[0]} ended with {ended.returncode}: {ended.stderr[-500:]}")
            figures = {name: (time.perf_counter() - start) * 1e3}
            if "start-up" not in name:
                figures = {f"{name}: {call}, ns": value for call, value in json.loads(ended.stdout).items()}
            for question, value in figures.items():
                found.setdefault(question, {}).setdefault(variant, []).append(value)
        return 1.0

    paired.run_rounds(["stock", "ipexrun"], count, measure)
    print(f"{'':40} {'stock':>10} {'ipexrun':>10}  difference (95%)")
    result = {}
    for question, seen in found.items():
        differences = [mine - other for mine, other in zip(seen["ipexrun"], seen["stock"])]
        low, high = bootstrap(differences)
        result[question] = {"stock": round(statistics.median(seen["stock"]), 2), "ipexrun": round(statistics.median(seen["ipexrun"]), 2),
                            "difference": round(statistics.median(differences), 2), "interval_95": [round(low, 2), round(high, 2)]}
        one = result[question]
        print(f"{question:40} {one['stock']:10.1f} {one['ipexrun']:10.1f}  {one['difference']:+.1f} ({low:+.1f} to {high:+.1f})")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
