#!/usr/bin/env python3
"""Rows of element-wise operators as backend "ipex" computes them, in one pass, beside torch's operators one by one and torch.compile.

    OMP_NUM_THREADS=1 python bench/rows_vs_torch.py --build build/dev

All in one process, called in turn; the fastest call of each counts. The clock is the thread's CPU time on one thread, else the wall's. "errors"
are relative RMS beside float64, ours and stock's.
"""

import argparse
import contextlib
import os
import sys

import torch
import torch.nn.functional as F
from contest import fastest


def gated(x, y):
    return x * torch.sigmoid(y) + F.softplus(x).clamp(max=2) * 0.1


def scaled_and_shifted(x, y):
    return F.silu(x * (y[..., :1] + 1) + y[..., 1:2]) * 0.5


def loss_terms(x, y):
    return torch.where((x - y).abs() < 1, 0.5 * (x - y) ** 2, (x - y).abs() - 0.5)


def mixed(x, y):
    return torch.tanh(x * y) + torch.exp(-x * x) * y - F.elu(y)


ROWS = [gated, scaled_and_shifted, loss_terms, mixed]
SIZES = [(64, 256), (512, 1024), (2048, 2048)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/dev")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="a row")
    parser.add_argument("--smoke", action="store_true", help="small sizes, without torch.compile, to see that it runs")
    args = parser.parse_args()
    sys.path.insert(0, os.path.join(args.build, "lib", "ipexrun", "python"))
    os.environ["IPEXRUN_CACHE"] = "off"
    import time

    from graph_vs_hand import compiled
    from ipexrun import plugin
    from ipexrun.graphs import compiler

    assert plugin.ready()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    quiet = open(os.devnull, "w")
    print(f"{'row':20}{'sizes':>12}{'stock us':>10}{'ours us':>10}{'times stock':>12}{'inductor us':>12}{'errors':>20}")
    for row in ROWS:
        for sizes in SIZES[:1] if args.smoke else SIZES:
            x, y = torch.randn(sizes), torch.randn(sizes)
            torch._dynamo.reset()
            ours = compiled(row, compiler)
            forms = {"stock": lambda: row(x, y), "ours": lambda: ours(x, y)}
            if not args.smoke:
                other = torch.compile(row, dynamic=False)
                forms["inductor"] = lambda: other(x, y)
            with torch.no_grad():
                with contextlib.redirect_stdout(quiet):  # what was fused
                    ours(x, y)
                best = fastest(forms, 0.02 if args.smoke else args.seconds, clock)
                truth = row(x.double(), y.double())
                errors = [((form(x, y) - truth).norm() / truth.norm()).item() for form in (ours, row)]
            print(f"{row.__name__:20}{sizes[0]:>6} x{sizes[1]:>4}{best['stock']:10.1f}{best['ours']:10.1f}{best['stock'] / best['ours']:12.2f}"
                  f"{best.get('inductor', float('nan')):12.1f}{errors[0]:10.1e}{errors[1]:10.1e}", flush=True)


if __name__ == "__main__":
    main()
