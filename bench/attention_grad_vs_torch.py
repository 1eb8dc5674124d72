"""Is the backward pass of our attention faster than stock torch's?

The rival is _scaled_dot_product_flash_attention_for_cpu_backward. Q, K, V and the gradient are views of [batch, rows, heads, depth]; the
result and logsumexp come from stock's forward. Contenders are called in turn; the fastest call of each counts, by the thread's CPU
time, with --threads 2 by the clock. "of matmul" is our rate of multiply-adds, five products, over that of a product of two 1024 x 1024
matrices of the same dtype and threads (under causal half of the products count). Both allocate their gradients with torch. Before the race both are held
against autograd in doubles. Prints a table, or JSON with --json.

Run it in the Python that has torch: python bench/attention_grad_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import ctypes
import json
import sys

import torch
from attention_vs_torch import error
from contest import DTYPES, fastest, numbers, options, sides

# batch, heads, rows, keys, depth, causal, mask
CASES = [
    (1, 12, 16, 16, 64, 0, 0), (1, 12, 64, 64, 64, 0, 0), (1, 12, 128, 128, 64, 0, 0), (8, 12, 128, 128, 64, 0, 1), (1, 12, 197, 197, 64, 0, 0),
    (4, 12, 197, 197, 64, 0, 0), (1, 12, 512, 512, 32, 0, 0), (1, 12, 512, 512, 64, 0, 0), (1, 12, 512, 512, 64, 0, 1), (1, 12, 512, 512, 64, 1, 0),
    (1, 8, 512, 512, 128, 1, 0), (1, 4, 512, 512, 256, 0, 0), (2, 8, 1024, 77, 40, 0, 0), (1, 12, 2048, 2048, 64, 0, 0), (1, 12, 2048, 2048, 64, 1, 0),
]


def load(path):
    lib = ctypes.CDLL(path)
    void, i32, f32 = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    sizes = ctypes.POINTER(ctypes.c_int64)
    lib.ipexrun_bench_attention_grad.argtypes = [i32, sizes, ctypes.POINTER(void), sizes, void, i32, sizes, f32, i32, void, i32, void, ctypes.c_char_p]
    return lib


def contenders(lib, case, dtype, level, threads, pool):
    """(ours, stock, truth)"""
    batch, heads, rows, keys, depth, causal, masked = case
    q, k, v, grad = (torch.randn(batch, n, heads, depth).to(dtype).transpose(1, 2) for n in (rows, keys, keys, rows))
    mask = torch.where(torch.rand(batch, 1, 1, keys) < 0.8, 0.0, -1e4).to(dtype).expand(batch, 1, rows, keys) if masked else None
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, bool(causal), attn_mask=mask)
    assert lse.stride() == (rows * heads, 1, heads)
    sizes = numbers((batch, heads, rows, keys, depth, heads))
    mask_strides = None if mask is None else numbers([0 if mask.size(i) == 1 else mask.stride(i) for i in range(4)])
    bf16 = int(dtype == torch.bfloat16)

    def ours():
        grads = [torch.empty_like(x) for x in (q, k, v)]
        all_heads = (q, k, v, out, grad, *grads)
        pointers = (ctypes.c_void_p * 8)(*(x.data_ptr() for x in all_heads))
        strides = numbers([x.stride(i) for x in all_heads for i in range(3)])
        done = lib.ipexrun_bench_attention_grad(bf16, sizes, pointers, strides, None if mask is None else mask.data_ptr(), bf16, mask_strides, depth**-0.5,
                                                causal, lse.data_ptr(), threads, pool, level)
        assert done == 1
        return grads

    def stock():
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, lse, 0.0, bool(causal), attn_mask=mask)

    wide = [x.double().requires_grad_() for x in (q, k, v)]
    scores = wide[0] @ wide[1].transpose(-1, -2) * depth**-0.5
    if mask is not None:
        scores = scores + mask.double()
    if causal:
        scores = scores.masked_fill(torch.ones(rows, keys, dtype=torch.bool).triu(1), float("-inf"))
    return ours, stock, torch.autograd.grad(torch.softmax(scores, -1) @ wide[2], wide, grad.double())


def main():
    args = options(__doc__, 0.4)
    cases = [(1, 2, 19, 37, 24, 0, 1), (1, 2, 70, 70, 24, 1, 0)] if args.smoke else CASES
    lib = load(args.library)
    level, pool, clock = sides(args, lib)
    table = []
    if not args.json:
        print(f"torch {torch.__version__}, {args.threads} threads, fastest calls; stock/ours above 1 means ours is faster")
        print("dtype batch heads rows keys depth           |    ours us   stock us | stock/ours  of matmul | worst error: ours     stock")
    for dtype_name in [args.dtype] if args.dtype else DTYPES:
        dtype = DTYPES[dtype_name]
        size = 64 if args.smoke else 1024
        a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
        rate = size**3 / fastest({"matmul": lambda: a @ b}, args.seconds, clock)["matmul"]
        for case in cases:
            ours, stock, truth = contenders(lib, case, dtype, level, args.threads, pool)
            of_ours, of_stock = ([error(y, t) for y, t in zip(fn(), truth)] for fn in (ours, stock))
            if any(a > 2 * b + (1e-6 if dtype == torch.float32 else 8e-3) for a, b in zip(of_ours, of_stock)):
                sys.exit(f"{case} in {dtype_name} is wrong: relative errors {of_ours}, stock {of_stock}")
            with torch.no_grad():
                us = fastest({"ours": ours, "stock": stock}, args.seconds, clock)
            batch, heads, rows, keys, depth, causal, masked = case
            products = 5 * batch * heads * rows * keys * depth / (2 if causal else 1)
            row = {"dtype": dtype_name, "case": case, "us": us, "ratio": us["stock"] / us["ours"], "of_matmul": products / us["ours"] / rate,
                   "error": [max(of_ours), max(of_stock)]}
            table.append(row)
            if not args.json:
                print(f"{dtype_name:>5} {batch:5} {heads:5} {rows:4} {keys:4} {depth:5} {'causal' if causal else 'masked' if masked else '':9} | "
                      f"{us['ours']:10.1f} {us['stock']:10.1f} | {row['ratio']:10.2f} {row['of_matmul']:10.2f} | {max(of_ours):17.2g} {max(of_stock):9.2g}",
                      flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "threads": args.threads, "rows": table}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
