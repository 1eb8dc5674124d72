"""Are our softmax, layer norm and rms norm faster than stock torch's, and how near to a copy?

Over the last dimension, fp32 and bf16, rows * columns elements in all. "copy" is clone() of the input. Contenders are called in turn;
the fastest call of each counts, by the thread's CPU time, so that a busy machine counts for nobody. Ours allocates its outputs with
torch, as stock does. Before the race both are held against torch in doubles. Prints a table, or JSON with --json.

Run it in the Python that has torch: python bench/normalize_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import argparse
import ctypes
import json
import sys

import torch
import torch.nn.functional as F

from reorder_vs_torch import fastest

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
EPS = 1e-5


def load(path):
    lib = ctypes.CDLL(path)
    void, i64, i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    lib.ipexrun_bench_softmax.argtypes = [i32, void, void, i64, i64, i32, void, ctypes.c_char_p]
    lib.ipexrun_bench_norm.argtypes = [i32, void, void, i64, i64, void, void, ctypes.c_double, void, void, i32, void, ctypes.c_char_p]
    return lib


def error(y, truth):
    return ((y.double() - truth).norm() / truth.norm()).item()


def contenders(lib, kind, x, weight, bias, level):
    """(ours, stock, truth)"""
    rows, n = x.shape
    is_bf16 = int(x.dtype == torch.bfloat16)

    def softmax():
        out = torch.empty_like(x)
        lib.ipexrun_bench_softmax(is_bf16, x.data_ptr(), out.data_ptr(), rows, n, 1, None, level)
        return out

    def layer():
        out, mean, rstd = torch.empty_like(x), torch.empty(rows, 1, dtype=x.dtype), torch.empty(rows, 1, dtype=x.dtype)
        lib.ipexrun_bench_norm(is_bf16, x.data_ptr(), out.data_ptr(), rows, n, weight.data_ptr(), bias.data_ptr(), EPS, mean.data_ptr(),
                               rstd.data_ptr(), 1, None, level)
        return out

    def rms():
        out = torch.empty_like(x)
        lib.ipexrun_bench_norm(is_bf16, x.data_ptr(), out.data_ptr(), rows, n, weight.data_ptr(), None, EPS, None, None, 1, None, level)
        return out

    xd, wd, bd = x.double(), weight.double(), bias.double()
    return {
        "softmax": (softmax, lambda: torch.softmax(x, -1), torch.softmax(xd, -1)),
        "layer_norm": (layer, lambda: torch.native_layer_norm(x, (n,), weight, bias, EPS)[0], F.layer_norm(xd, (n,), wd, bd, EPS)),
        "rms_norm": (rms, lambda: F.rms_norm(x, (n,), weight, EPS), F.rms_norm(xd, (n,), wd, EPS)),
    }[kind]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--seconds", type=float, default=0.3, help="a row")
    parser.add_argument("--level", help="cap ours at this instruction level, for example avx2")
    parser.add_argument("--columns", type=lambda s: [int(v) for v in s.split(",")], default=[128, 197, 384, 768, 1024, 4096])
    parser.add_argument("--elements", type=int, default=393216)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="one small size, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.columns, args.elements, args.seconds = [37], 400, 0.01
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    lib = load(args.library)
    level = args.level.encode() if args.level else None
    table = []
    if not args.json:
        print(f"torch {torch.__version__}, 1 thread, fastest calls; stock/ours above 1 means ours is faster, ours/copy 1 is the memory's limit")
        print("kind       dtype   rows  columns    ours us     GB/s | stock/ours  ours/copy | error: ours     stock")
    for kind in ("softmax", "layer_norm", "rms_norm"):
        for dtype_name, dtype in DTYPES.items():
            for n in args.columns:
                x, weight, bias = (torch.randn(s).to(dtype) for s in ((args.elements // n, n), (n,), (n,)))
                ours, stock, truth = contenders(lib, kind, x, weight, bias, level)
                errors = error(ours(), truth), error(stock(), truth)
                if errors[0] > 2 * errors[1] + (1e-6 if dtype == torch.float32 else 8e-3):
                    sys.exit(f"{kind} in {dtype_name} is wrong: relative error {errors[0]:.2g}, stock {errors[1]:.2g}")
                us = fastest({"ours": ours, "stock": stock, "copy": x.clone}, args.seconds)
                row = {"kind": kind, "dtype": dtype_name, "rows": x.shape[0], "columns": n, "us": us,
                       "gbs": 2 * x.numel() * dtype.itemsize / us["ours"] / 1e3, "ratio": us["stock"] / us["ours"],
                       "of_copy": us["ours"] / us["copy"], "error": errors}
                table.append(row)
                if not args.json:
                    print(f"{kind:10} {dtype_name:>5} {x.shape[0]:6} {n:8} {us['ours']:10.1f} {row['gbs']:8.1f} | {row['ratio']:10.2f} "
                          f"{row['of_copy']:10.2f} | {errors[0]:11.2g} {errors[1]:9.2g}", flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "rows": table}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
