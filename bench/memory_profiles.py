"""What do the memory profiles cost and save? The question behind `--memory bounded|throughput|default`.

    python bench/memory_profiles.py --ipexrun build/dev/bin/ipexrun --rounds 5
    python bench/memory_profiles.py --variant cap64:ONEDNN_PRIMITIVE_CACHE_CAPACITY=64 --variant two_arenas:MALLOC_ARENA_MAX=2

Each round runs every workload once under each profile, in its own process, in an order that alternates. The variables of a profile are
those that `ipexrun --memory NAME --dry-run` plans; --variant gives others. Per process: CPU time of all calls, and how much the resident
memory grew after the first calls. Printed as JSON: per workload and profile the median over the rounds of CPU time / CPU time under
`default` of the same round, its smallest and largest value, and the growth in MiB. See docs/allocators.md.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import time

import child_rounds

# name: number of distinct shapes, how often the list is gone through
WORKLOADS = {"convnet_new": (100, 1), "convnet_recurring": (40, 4), "convnet_large": (6, 2), "minilm_new": (60, 1), "minilm_recurring": (30, 3)}


def build(workload):
    import torch
    import torch.nn as nn

    torch.manual_seed(0)
    rng = random.Random(0)
    count = WORKLOADS[workload][0]
    if workload.startswith("convnet"):
        layers, channels = [], 3
        for width, stride in ((32, 2), (32, 1), (64, 2), (64, 1), (128, 2), (128, 1), (128, 1), (256, 2)):
            layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100))
        batch, low, high = (16, 160, 256) if workload == "convnet_large" else (1, 48, 224)
        sizes = sorted({(rng.randrange(low, high), rng.randrange(low, high)) for _ in range(2 * count)}, key=lambda s: s[0] * s[1])
        sizes = sorted(rng.sample(sizes, count), key=lambda s: s[0] * s[1])  # growing: no freed block fits the next call
        return torch, model.eval(), [torch.randn(batch, 3, h, w) for h, w in sizes]
    shapes = rng.sample([(batch, length) for batch in (1, 2) for length in range(8, 96)], count)
    return torch, child_rounds.minilm(), [torch.randint(1000, shape) for shape in shapes]


def rss_mib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def child(workload):
    torch, model, inputs = build(workload)
    torch.set_num_threads(1)
    warm = 2
    with torch.inference_mode():
        for x in inputs[:warm]:
            model(x)
        before = rss_mib()
        peak = before
        start = time.process_time()
        for _ in range(WORKLOADS[workload][1]):
            for x in inputs:
                model(x)
                peak = max(peak, rss_mib())
        spent = time.process_time() - start
    print(json.dumps({"seconds": spent, "growth_mib": rss_mib() - before, "peak_mib": peak}))


def planned(ipexrun, profile, allocator):
    """The variables that differ from those of a plan without a profile, and the preload."""

    def env(memory, malloc):
        out = subprocess.run([ipexrun, "--dry-run", "--json", "--no-optimize", "--memory", memory, "--memory-allocator", malloc, "true"],
                             check=True, capture_output=True, text=True).stdout
        return json.loads(out)["instances"][0]["env"]

    plain = env("default", "default")
    return {name: value for name, value in env(profile, allocator).items() if plain.get(name) != value and not name.startswith("IPEXRUN_")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ipexrun", help="binary whose profiles are measured")
    parser.add_argument("--profiles", nargs="+", default=["bounded", "throughput"])
    parser.add_argument("--allocators", nargs="+", default=["default"], help="each profile is measured under each of these")
    parser.add_argument("--variant", action="append", default=[], help="NAME:VARIABLE=VALUE[,VARIABLE=VALUE...]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        return child(args.child)
    variants = {"default": {}}
    if args.ipexrun:
        for allocator in args.allocators:
            for profile in args.profiles + (["default"] if allocator != "default" else []):
                name = profile if allocator == "default" else f"{profile}, {allocator}"
                variants[name] = planned(args.ipexrun, profile, allocator)
    for text in args.variant:
        name, _, variables = text.partition(":")
        variants[name] = dict(one.split("=", 1) for one in re.split(r",(?=[A-Za-z_]+=)", variables) if one)
    results = child_rounds.run_children(__file__, args.workloads, variants, args.rounds, say=True)
    report = {}
    for workload, by_name in results.items():
        report[workload] = {}
        for name, runs in by_name.items():
            report[workload][name] = {**child_rounds.ratio_of_seconds(runs, by_name["default"]),
                                      "growth_mib": round(statistics.median(run["growth_mib"] for run in runs)),
                                      "peak_mib": round(statistics.median(run["peak_mib"] for run in runs)),
                                      "seconds": round(statistics.median(run["seconds"] for run in runs), 2)}
    print(json.dumps({"rounds": args.rounds, "unit": "CPU time against default, 1 thread", "variants": variants, "workloads": report},
                     indent=1))


if __name__ == "__main__":
    main()
