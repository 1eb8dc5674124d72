"""What do two OpenMP runtimes in one process cost? The question behind the line "more than one OpenMP runtime in a process".

    python bench/omp_two_runtimes.py --rounds 8 llvm=/usr/lib/llvm-14/lib/libomp.so.5 intel=.../libiomp5.so

One process takes turns between a torch operation and scikit-learn's KMeans, whose wheel brings a libgomp of its own. `own` leaves both as
they are; each library named is preloaded and serves both; `passive` is own with OMP_WAIT_POLICY=passive, where waiting threads sleep. The
order of the processes alternates. Printed as JSON: wall and CPU time of a turn divided by that of `own` in the same round: median, smallest,
largest. See docs/openmp.md.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def child(turns):
    import numpy as np
    import torch
    from sklearn.cluster import KMeans

    x = np.random.default_rng(0).random((4000, 16), dtype=np.float32)
    a = torch.randn(64, 512)
    layer = torch.nn.Linear(512, 512)
    wall, cpu = [], []
    with torch.inference_mode():
        for _ in range(turns):
            start, start_cpu = time.perf_counter(), time.process_time()
            for _ in range(20):
                torch.softmax(layer(a), 1)
            KMeans(8, n_init=1, max_iter=20, random_state=0, tol=0).fit(x)
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - start_cpu)
    print(json.dumps({"wall": statistics.median(wall[3:]), "cpu": statistics.median(cpu[3:])}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runtimes", nargs="*", help="name=path of a library")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--child", action="store_true")
    args = parser.parse_args()
    if args.child:
        return child(args.turns)
    variants = {"own": {}, "passive": {"OMP_WAIT_POLICY": "passive"}}
    variants.update((name, {"LD_PRELOAD": path}) for name, path in (one.split("=", 1) for one in args.runtimes))
    runs = {name: [] for name in variants}
    for r in range(args.rounds):
        order = list(variants)
        order = order[r % len(order):] + order[:r % len(order)]
        for name in order if r % 2 else order[::-1]:
            env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
            env.update({"OMP_NUM_THREADS": args.threads, "OPENBLAS_NUM_THREADS": "1"}, **variants[name])
            out = subprocess.run([sys.executable, __file__, "--child", "--turns", str(args.turns)], env=env, check=True, capture_output=True,
                                 text=True).stdout
            runs[name].append(json.loads(out))
            print(r, name, out.strip(), file=sys.stderr, flush=True)
    report = {}
    for name, own in runs.items():
        report[name] = {"ms": round(1e3 * statistics.median(one["wall"] for one in own), 2)}
        for what in ("wall", "cpu"):
            ratios = sorted(one[what] / base[what] for one, base in zip(own, runs["own"]))
            report[name][what] = [round(v, 3) for v in (statistics.median(ratios), ratios[0], ratios[-1])]
    print(json.dumps({"rounds": args.rounds, "threads": args.threads, "against": "own", "variants": report}, indent=1))


if __name__ == "__main__":
    main()
