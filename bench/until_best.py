#!/usr/bin/env python3
"""How long a program runs until its calls are as fast as they get: second by second, calls and their time. An unedited program, to be run with and
without ipexrun:

    ipexrun python bench/until_best.py --model resnet50_b16 --seconds 40

The last line says after how many seconds and calls the rest of the calls had a median within a tenth of the best second's.
"""

import argparse
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import workload_models  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50_b1", choices=sorted(workload_models.WORKLOADS), help="of bench/workload_models.py (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--quiet", action="store_true", help="the last line alone")
    options = parser.parse_args()
    model, inputs, _ = workload_models.build(options.model)
    seconds = []  # of each: calls so far, times of its calls in ms
    calls, times = 0, []
    with torch.no_grad():
        began = tick = time.perf_counter()
        while time.perf_counter() - began < options.seconds:
            start = time.perf_counter()
            model(**inputs)
            end = time.perf_counter()
            calls += 1
            times.append(1e3 * (end - start))
            if end - tick >= 1:
                seconds.append((end - began, calls, times))
                if not options.quiet:
                    print(f"{end - began:6.1f} s  {calls:5d} calls  median {statistics.median(times):8.2f} ms  most {max(times):8.1f}", flush=True)
                tick, times = end, []
    if not seconds:
        sys.exit(f"--seconds {options.seconds}: shorter than a second")
    best = min(statistics.median(times) for _, _, times in seconds)
    since, before = 0.0, 0
    for end, calls, times in seconds:
        if statistics.median(times) > 1.1 * best:
            since, before = end, calls
    print(f"{options.model}: {best:.2f} ms a call; so from {since:.1f} s and {before} calls on")


if __name__ == "__main__":
    main()
