"""What the *_vs_torch.py benches of attention share: options, threads of both sides, and the race itself."""

import argparse
import ctypes
import time

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def options(doc, seconds, dtypes=DTYPES):
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--seconds", type=float, default=seconds, help="a row")
    parser.add_argument("--level", help="cap ours at this instruction level, for example avx2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=dtypes, help="default: all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="small sizes, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.seconds = 0.01
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    return args


def sides(args, lib):
    """(level, pool, clock): what the library wants to know of each call, and the clock that times both sides."""
    lib.ipexrun_bench_pool.restype = ctypes.c_void_p
    level = args.level.encode() if args.level else None
    pool = lib.ipexrun_bench_pool(args.threads) if args.threads > 1 else None
    return level, pool, time.thread_time if args.threads == 1 else time.perf_counter


def numbers(values):
    return (ctypes.c_int64 * len(values))(*values)


def fastest(table, seconds, clock, least=9):
    """The fastest call of each in microseconds, called in turn for so long, at least so many times; a clock that stood still counts as 10 ns."""
    best = {name: float("inf") for name in table}
    for fn in table.values():
        fn()
    end = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < end or rounds < least:
        rounds += 1
        for name, fn in table.items():
            start = clock()
            fn()
            best[name] = min(best[name], max((clock() - start) * 1e6, 0.01))
    return best
