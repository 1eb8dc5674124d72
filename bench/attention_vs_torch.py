"""Is our attention faster than stock torch's, and how near to the rate of a matrix product?

The rival is the kernel that stock's scaled_dot_product_attention calls on the CPU, _scaled_dot_product_flash_attention_for_cpu. Q, K
and V are views of [batch, rows, heads, depth], as a linear layer leaves them. Contenders are called in turn; the fastest call of each
counts, by the thread's CPU time, so that a busy machine counts for nobody; with --threads 2 by the clock, where the machine should be
idle. "of matmul" is our rate of multiply-adds over that of a product of two 1024 x 1024 matrices of the same dtype and threads
(under causal half of the products count). "inside" are fp32 operands that we multiply in bf16: the rival is stock's fp32 kernel, and "casts"
is stock's bf16 kernel between casts of Q, K, V and the result. Both allocate their output with torch. Before the race both are held against torch in doubles. Prints a table,
or JSON with --json.

Run it in the Python that has torch: python bench/attention_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import ctypes
import json
import sys

import torch
from contest import DTYPES, fastest, numbers, options, sides

# batch, heads, rows, keys, depth, causal, mask, and how many heads share one of K and V
CASES = [
    (1, 12, 16, 16, 64, 0, 0), (1, 12, 64, 64, 64, 0, 0), (1, 12, 128, 128, 64, 0, 0), (8, 12, 128, 128, 64, 0, 1), (1, 12, 197, 197, 64, 0, 0),
    (4, 12, 197, 197, 64, 0, 0), (1, 12, 384, 384, 32, 0, 0), (1, 12, 384, 384, 64, 0, 1), (1, 12, 384, 384, 80, 0, 0),
    (1, 12, 384, 384, 96, 0, 0), (1, 12, 384, 384, 128, 0, 0), (1, 12, 512, 512, 64, 0, 0), (8, 12, 512, 512, 64, 0, 0),
    (1, 12, 512, 512, 64, 1, 0), (1, 12, 2048, 2048, 64, 0, 0),
    (1, 12, 2048, 2048, 64, 1, 0), (2, 8, 1024, 77, 40, 0, 0), (1, 32, 1, 512, 128, 0, 0), (1, 12, 1, 2048, 64, 0, 0), (1, 12, 8, 512, 64, 0, 0),
    (1, 32, 1, 1024, 128, 0, 0, 4),
]
INSIDE = [(batch, 12, rows, rows, 64, 0, 0) for rows in (128, 197, 512) for batch in (1, 8)] + [
    (1, 12, 512, 512, 64, 1, 0), (8, 12, 128, 128, 64, 0, 1), (1, 12, 384, 384, 128, 0, 0)]
KINDS = {**DTYPES, "inside": torch.float32}


def load(path):
    lib = ctypes.CDLL(path)
    void, i32, f32 = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    sizes = ctypes.POINTER(ctypes.c_int64)
    lib.ipexrun_bench_attention.argtypes = [i32, sizes, void, sizes, void, sizes, void, sizes, void, i32, sizes, f32, i32, void, sizes, void, i32,
                                            void, ctypes.c_char_p]
    return lib


def contenders(lib, case, kind, level, threads, pool):
    """({ours, stock and, for fp32 with bf16 inside, stock in bf16 between casts}, truth)"""
    dtype = KINDS[kind]
    number = {"f32": 0, "bf16": 1, "inside": 2}[kind]
    batch, heads, rows, keys, depth, causal, masked, *shared = case
    kv_heads = heads // (shared or [1])[0]
    q, k, v = (torch.randn(batch, n, h, depth).to(dtype).transpose(1, 2) for n, h in ((rows, heads), (keys, kv_heads), (keys, kv_heads)))
    mask = torch.where(torch.rand(batch, 1, 1, keys) < 0.8, 0.0, -1e4).to(dtype).expand(batch, 1, rows, keys) if masked else None
    sizes = numbers((batch, heads, rows, keys, depth, kv_heads))
    strides = [numbers(t.stride()[:3]) for t in (q, k, v)]
    mask_strides = None if mask is None else numbers([0 if mask.size(i) == 1 else mask.stride(i) for i in range(4)])

    def ours():
        out = torch.empty(batch, rows, heads, depth, dtype=dtype)
        lse = torch.empty(batch, rows, heads)
        lib.ipexrun_bench_attention(
            number, sizes, q.data_ptr(), strides[0], k.data_ptr(), strides[1], v.data_ptr(), strides[2],
            None if mask is None else mask.data_ptr(), int(dtype == torch.bfloat16), mask_strides, depth**-0.5, causal, out.data_ptr(),
            numbers((rows * heads * depth, depth, heads * depth)), lse.data_ptr(), threads, pool, level)
        return out.transpose(1, 2)

    def stock():
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, bool(causal), attn_mask=mask)[0]

    k64, v64 = (x.double().repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    scores = q.double() @ k64.transpose(-1, -2) * depth**-0.5
    if mask is not None:
        scores = scores + mask.double()
    if causal:
        scores = scores.masked_fill(torch.ones(rows, keys, dtype=torch.bool).triu(1), float("-inf"))
    def casts():
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *(x.bfloat16() for x in (q, k, v)), 0.0, bool(causal), attn_mask=None if mask is None else mask.bfloat16())[0].float()

    table = {"ours": ours, "stock": stock}
    if kind == "inside":
        table["casts"] = casts
    return table, torch.softmax(scores, -1) @ v64


def error(y, truth):
    return ((y.double() - truth).norm() / truth.norm()).item()


def main():
    args = options(__doc__, 0.4, KINDS)
    smoke = [(1, 2, 19, 37, 24, 0, 1), (1, 2, 19, 37, 24, 1, 0), (1, 4, 3, 37, 24, 0, 0, 2)]
    torch.set_grad_enabled(False)
    lib = load(args.library)
    level, pool, clock = sides(args, lib)
    table = []
    if not args.json:
        print(f"torch {torch.__version__}, {args.threads} threads, fastest calls; stock/ours above 1 means ours is faster")
        print(" dtype batch heads rows keys depth           |    ours us   stock us | stock/ours  of matmul | error: ours     stock")
    for kind in [args.dtype] if args.dtype else KINDS:
        dtype = KINDS[kind]
        size = 64 if args.smoke else 1024
        a, b = (torch.randn(size, size).to(torch.bfloat16 if kind == "inside" else dtype) for _ in range(2))
        rate = size**3 / fastest({"matmul": lambda: a @ b}, args.seconds, clock)["matmul"]
        for case in smoke if args.smoke else INSIDE if kind == "inside" else CASES:
            race, truth = contenders(lib, case, kind, level, args.threads, pool)
            errors = {name: error(run(), truth) for name, run in race.items()}
            if errors["ours"] > 2 * errors["stock"] + (1e-6 if kind == "f32" else 8e-3):
                sys.exit(f"{case} in {kind} is wrong: relative error {errors['ours']:.2g}, stock {errors['stock']:.2g}")
            us = fastest(race, args.seconds, clock)
            batch, heads, rows, keys, depth, causal, masked, *shared = case
            products = 2 * batch * heads * rows * keys * depth / (2 if causal else 1)
            row = {"dtype": kind, "case": case, "us": us, "ratio": us["stock"] / us["ours"], "of_matmul": products / us["ours"] / rate,
                   "error": errors}
            table.append(row)
            if not args.json:
                casts = f" | casts {us['casts']:8.1f} us, {us['casts'] / us['ours']:.2f}" if "casts" in us else ""
                print(f"{kind:>6} {batch:5} {heads:5} {rows:4} {keys:4} {depth:5} {'causal' if causal else 'masked' if masked else 'shared' if shared else '':9} | "
                      f"{us['ours']:10.1f} {us['stock']:10.1f} | {row['ratio']:10.2f} {row['of_matmul']:10.2f} | {errors['ours']:11.2g} {errors['stock']:9.2g}{casts}",
                      flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "threads": args.threads, "rows": table}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
