"""Does a preloaded allocator make torch's CPU inference faster? The question behind `--memory-allocator auto`.

    python bench/allocator_choice.py --rounds 8 jemalloc=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 ...

Each round runs every workload once under each allocator, in its own process, in an order that alternates; the figure of a process is
the median CPU time of its calls on one thread, which other work on the machine disturbs least and which holds the page faults that an
allocator causes or saves. Printed as JSON: per workload and allocator the median over the rounds of time / time under glibc of the same
round (below 1 is faster), its smallest and largest value, and the peak RSS. See docs/decisions/0002-allocator.md.
"""
import argparse
import json
import resource
import statistics
import time

import child_rounds

WORKLOADS = ("mlp", "encoder", "encoder_ragged", "minilm")


def build(workload):
    import torch
    import torch.nn as nn

    torch.manual_seed(0)
    if workload == "mlp":
        model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(1024, 1024), nn.ReLU())]).eval()
        inputs = [torch.randn(64, 1024)]
    elif workload == "minilm":
        model = child_rounds.minilm()
        inputs = [torch.randint(1000, (32, length)) for length in (24, 48, 32, 64)]
    else:
        layer = nn.TransformerEncoderLayer(384, 12, 1536, activation="gelu", batch_first=True)
        model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval()
        lengths = (128,) if workload == "encoder" else (17, 96, 40, 128, 63, 25, 110, 8)
        inputs = [torch.randn(16, length, 384) for length in lengths]
    return torch, model, inputs


def child(workload, seconds):
    torch, model, inputs = build(workload)
    # The fused fast path of nn.TransformerEncoder would hide the intermediate tensors that eager models allocate.
    torch.backends.mha.set_fastpath_enabled(False)
    torch.set_num_threads(1)
    times = []
    with torch.inference_mode():
        for x in inputs:
            model(x)
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.process_time()
            for x in inputs:
                model(x)
            times.append(time.process_time() - start)
    print(json.dumps({"seconds": statistics.median(times), "calls": len(times),
                      "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("allocators", nargs="*", help="name=path of a library")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, choices=WORKLOADS)
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        return child(args.child, args.seconds)
    libraries = {"glibc": {}, **{name: {"LD_PRELOAD": path} for name, path in (a.split("=", 1) for a in args.allocators)}}
    results = child_rounds.run_children(__file__, args.workloads, libraries, args.rounds, ("--seconds", str(args.seconds)))
    report = {}
    for workload, by_name in results.items():
        report[workload] = {}
        for name, runs in by_name.items():
            report[workload][name] = {**child_rounds.ratio_of_seconds(runs, by_name["glibc"]),
                                      "ms": round(1e3 * statistics.median(run["seconds"] for run in runs), 2),
                                      "rss_mib": round(statistics.median(run["rss_mib"] for run in runs))}
    print(json.dumps({"rounds": args.rounds, "unit": "CPU ms a call, 1 thread", "workloads": report}, indent=1))


if __name__ == "__main__":
    main()
