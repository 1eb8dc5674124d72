"""Are our activations faster than stock torch's, and how near to a copy?

Elementwise, fp32 and bf16. "copy" is clone() of the input: no activation can be faster. Contenders are called in turn; the fastest
call of each counts, by the thread's CPU time, so that a busy machine counts for nobody. Ours allocates its output with torch, as stock
does. Before the race both are held against torch in doubles. Prints a table, or JSON with --json.

Run it in the Python that has torch: python bench/activation_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import argparse
import ctypes
import json
import sys

import torch
import torch.nn.functional as F

from reorder_vs_torch import fastest

KINDS = {"gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "tanh": torch.tanh, "sigmoid": torch.sigmoid, "silu": F.silu}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def load(path):
    call = ctypes.CDLL(path).ipexrun_bench_activation
    void, i64, i32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    call.argtypes = [i32, i32, void, void, i64, i32, void, ctypes.c_char_p]
    return call


def error(y, truth):
    return ((y.double() - truth).norm() / truth.norm()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--seconds", type=float, default=0.3, help="a row")
    parser.add_argument("--level", help="cap ours at this instruction level, for example avx2")
    parser.add_argument("--sizes", type=lambda s: [int(v) for v in s.split(",")], default=[768, 8192, 98304, 393216, 3145728])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="one small size, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.sizes, args.seconds = [1001], 0.01
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    call = load(args.library)
    level = args.level.encode() if args.level else None
    rows = []
    if not args.json:
        print(f"torch {torch.__version__}, 1 thread, fastest calls; stock/ours above 1 means ours is faster, ours/copy 1 is the memory's limit")
        print("kind       dtype        n    ours us     GB/s | stock/ours  ours/copy | error: ours     stock")
    for index, (kind, stock) in enumerate(KINDS.items()):
        for dtype_name, dtype in DTYPES.items():
            for n in args.sizes:
                x = torch.randn(n).to(dtype)

                def ours():
                    out = torch.empty_like(x)
                    call(index, dtype_name == "bf16", x.data_ptr(), out.data_ptr(), n, 1, None, level)
                    return out

                truth = stock(x.double())
                errors = error(ours(), truth), error(stock(x), truth)
                if errors[0] > 2 * errors[1] + (1e-6 if dtype == torch.float32 else 8e-3):
                    sys.exit(f"{kind} in {dtype_name} is wrong: relative error {errors[0]:.2g}, stock {errors[1]:.2g}")
                us = fastest({"ours": ours, "stock": lambda: stock(x), "copy": x.clone}, args.seconds)
                row = {"kind": kind, "dtype": dtype_name, "n": n, "us": us, "gbs": 2 * n * dtype.itemsize / us["ours"] / 1e3,
                       "ratio": us["stock"] / us["ours"], "of_copy": us["ours"] / us["copy"], "error": errors}
                rows.append(row)
                if not args.json:
                    print(f"{kind:10} {dtype_name:>5} {n:8} {us['ours']:10.1f} {row['gbs']:8.1f} | {row['ratio']:10.2f} {row['of_copy']:10.2f} | "
                          f"{errors[0]:11.2g} {errors[1]:9.2g}", flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "rows": rows}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
