"""Is our reorder (NCHW <-> NHWC with fp32 <-> bf16 on the way) faster than what stock torch offers, and how near to a copy?

Stock has no single op for both steps, so each of its forms is a rival, the fastest counts: cast then reorder, reorder then cast, and
Tensor.to with dtype and memory format. "copy" is the time of clone() of as many bytes as ours reads and writes. Contenders are called
in turn; the fastest call of each counts, by the thread's CPU time, so that a busy machine counts for nobody. Ours allocates its
output with torch, as stock does. Prints a table, or JSON with --json.

Run it in the Python that has torch: python bench/reorder_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import argparse
import ctypes
import json
import sys
import time

import torch

LAST = torch.channels_last
PLANAR = torch.contiguous_format
SHAPES = ["1x3x224x224", "1x64x112x112", "1x256x56x56", "1x512x28x28", "1x1024x14x14", "1x2048x7x7", "8x256x14x14", "1x100x31x33"]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
CASES = [("f32", "bf16", "last"), ("bf16", "f32", "planar"), ("f32", "f32", "last"), ("f32", "f32", "planar"), ("bf16", "bf16", "last"),
         ("bf16", "bf16", "planar"), ("bf16", "f32", "last"), ("f32", "bf16", "planar")]


def fastest(table, seconds):
    """Microseconds of the fastest call of each function of the table, called in turn until the time is over."""
    best = {name: float("inf") for name in table}
    for fn in table.values():
        fn()
    end = time.perf_counter() + seconds
    rounds = 0
    while time.perf_counter() < end or rounds < 5:
        rounds += 1
        for name, fn in table.items():
            start = time.thread_time()
            fn()
            best[name] = min(best[name], max((time.thread_time() - start) * 1e6, 0.01))
    return best


def load(path):
    call = ctypes.CDLL(path).ipexrun_bench_reorder
    void, i64, i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    call.argtypes = [void, i32, void, i32, i64, i64, i64, i32, i32, void, ctypes.c_char_p]
    return call


def contenders(call, shape, from_dtype, to_dtype, target, level):
    n, c, h, w = shape
    source, dtype = DTYPES[from_dtype], DTYPES[to_dtype]
    to_format, from_format = (LAST, PLANAR) if target == "last" else (PLANAR, LAST)
    x = torch.randn(shape).to(source).contiguous(memory_format=from_format)
    flat = torch.empty(x.numel() * (source.itemsize + dtype.itemsize) // 2, dtype=torch.uint8)

    def ours():
        out = torch.empty(shape, dtype=dtype, memory_format=to_format)
        call(x.data_ptr(), from_dtype == "bf16", out.data_ptr(), to_dtype == "bf16", n, c, h * w, target == "planar", 1, None, level)
        return out

    table = {"ours": ours, "copy": flat.clone, "reorder_cast": lambda: x.contiguous(memory_format=to_format).to(dtype)}
    if source != dtype:
        table["cast_reorder"] = lambda: x.to(dtype).contiguous(memory_format=to_format)
        table["to"] = lambda: x.to(dtype=dtype, memory_format=to_format)
    if not torch.equal(ours(), table["reorder_cast"]()):
        sys.exit(f"ours differs at {shape} {from_dtype} -> {to_dtype} {target}")
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--seconds", type=float, default=0.3, help="a row")
    parser.add_argument("--level", help="cap ours at this instruction level, for example avx2")
    parser.add_argument("--shapes", type=lambda s: s.split(","), default=SHAPES, help="NxCxHxW,...")
    parser.add_argument("--cases", type=int, default=len(CASES), help="how many of the dtype and direction pairs")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="small shapes, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.shapes, args.seconds = ["2x33x5x7"], 0.01
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    call = load(args.library)
    level = args.level.encode() if args.level else None
    rows = []
    if not args.json:
        print(f"torch {torch.__version__}, 1 thread, fastest calls; stock/ours above 1 means ours is faster, ours/copy 1 is the memory's limit")
        print("shape            from -> to            ours us     GB/s | stock/ours  ours/copy  stock's best")
    for name in args.shapes:
        shape = [int(v) for v in name.split("x")]
        for from_dtype, to_dtype, target in CASES[: args.cases]:
            table = contenders(call, shape, from_dtype, to_dtype, target, level)
            us = fastest(table, args.seconds)
            stock = min((k for k in us if k not in ("ours", "copy")), key=us.get)
            moved = shape[0] * shape[1] * shape[2] * shape[3] * (DTYPES[from_dtype].itemsize + DTYPES[to_dtype].itemsize)
            row = {"shape": name, "from": from_dtype, "to": to_dtype, "target": target, "us": us, "gbs": moved / us["ours"] / 1e3,
                   "stock": stock, "ratio": us[stock] / us["ours"], "of_copy": us["ours"] / us["copy"]}
            rows.append(row)
            if not args.json:
                print(f"{name:16} {from_dtype:>4} -> {to_dtype:4} {target:7} {us['ours']:10.1f} {row['gbs']:8.1f} | {row['ratio']:10.2f} "
                      f"{row['of_copy']:10.2f}  {stock}", flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "rows": rows}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
