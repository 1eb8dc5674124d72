"""Is decoding over a cache of keys and values faster than what stock torch has for it, and how near to reading the cache once?

One new token a sequence, every sequence of the batch as long as the other. Rivals: _scaled_dot_product_flash_attention_for_cpu, which
scaled_dot_product_attention calls, over a cache of [batch, kv_heads, tokens, depth] (its best layout), and the three operations matmul,
softmax, matmul over the same, the heads that share K and V as rows of one product. Both get the cache contiguous; gathering pages comes
on top and is not counted. Ours reads [batch, tokens, kv_heads, depth], and pages of 16 tokens in random order. Contenders are called in
turn, over several caches where one is smaller than 64 MiB, so that caches are cold; the fastest call of each counts, by the thread's CPU time, with --threads 2 by the
clock. GB/s is the cache's bytes over our time; beside it what a loop of loads reaches over 256 MiB. Before the race all are held against
torch in doubles. Prints a table, or JSON with --json.

Run it in the Python that has torch: python bench/decode_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import ctypes
import json
import sys

import torch
from contest import DTYPES, fastest, options, sides

# heads, heads of K and V, depth
MODELS = [(32, 8, 128), (12, 12, 64)]
BATCHES = [1, 8]
LENGTHS = [128, 512, 2048, 8192]
PAGE = 16
COLD_BYTES = 64 << 20


def load(path):
    lib = ctypes.CDLL(path)
    void, i32, f32 = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    lib.ipexrun_bench_decode.argtypes = [i32, i32, ctypes.POINTER(ctypes.c_int64), void, void, void, void, void, f32, void, i32, void, ctypes.c_char_p]
    return lib


class Case:
    """Caches of one shape, in both layouts and in pages."""

    def __init__(self, lib, heads, kv_heads, depth, batch, length, dtype, level, threads, pool):
        self.lib, self.heads, self.kv_heads, self.depth, self.batch, self.length, self.dtype = lib, heads, kv_heads, depth, batch, length, dtype
        self.level, self.threads, self.pool = level, threads, pool
        self.bytes = 2 * batch * length * kv_heads * depth * dtype.itemsize
        self.copies = max(1, min(16, COLD_BYTES // self.bytes))
        self.q = torch.randn(batch, heads, 1, depth).to(dtype)
        # cache[0] is K, cache[1] is V
        self.caches = [torch.randn(2, batch, length, kv_heads, depth).to(dtype) for _ in range(self.copies)]
        self.by_head = [cache.transpose(2, 3).contiguous() for cache in self.caches]
        self.lengths = torch.full((batch,), length, dtype=torch.int32)
        blocks = batch * -(-length // PAGE)
        self.table = torch.randperm(blocks).to(torch.int32)
        self.pages = []
        for cache in self.caches:
            pages = torch.empty(2, blocks, PAGE, kv_heads, depth, dtype=dtype)
            pages[:, self.table.long()] = cache.view(2, blocks, PAGE, kv_heads, depth)
            self.pages.append(pages)
        self.turn = dict.fromkeys(("ours", "paged", "stock", "matmul"), 0)

    def next(self, name, caches):
        self.turn[name] = (self.turn[name] + 1) % self.copies
        return caches[self.turn[name]]

    def call(self, cache, blocks, block_rows, table):
        out = torch.empty_like(self.q)
        sizes = (ctypes.c_int64 * 8)(self.batch, self.heads, 1, self.depth, self.kv_heads, blocks, block_rows, 0 if table is None else len(table) // self.batch)
        bf16 = int(self.dtype == torch.bfloat16)
        done = self.lib.ipexrun_bench_decode(bf16, bf16, sizes, self.q.data_ptr(), cache[0].data_ptr(), cache[1].data_ptr(),
                                             None if table is None else table.data_ptr(), self.lengths.data_ptr(), self.depth**-0.5, out.data_ptr(),
                                             self.threads, self.pool, self.level)
        assert done == 1
        return out

    def ours(self):
        return self.call(self.next("ours", self.caches), self.batch, self.length, None)

    def paged(self):
        return self.call(self.next("paged", self.pages), len(self.table), PAGE, self.table)

    def stock(self):
        k, v = self.next("stock", self.by_head)
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(self.q, k, v)[0]

    def matmul(self):
        k, v = self.next("matmul", self.by_head)
        q = self.q.view(self.batch, self.kv_heads, self.heads // self.kv_heads, self.depth)
        weights = torch.softmax(q @ k.transpose(-1, -2) * self.depth**-0.5, -1)
        return (weights @ v).view(self.q.shape)

    def errors(self):
        """Of each, after all were called equally often."""
        results = {}
        for name in self.turn:
            self.turn[name] = 0
            results[name] = getattr(self, name)()
        k, v = (x.double().repeat_interleave(self.heads // self.kv_heads, 1) for x in self.by_head[1 % self.copies])
        truth = torch.softmax(self.q.double() @ k.transpose(-1, -2) * self.depth**-0.5, -1) @ v
        return {name: ((y.double() - truth).norm() / truth.norm()).item() for name, y in results.items()}


def main():
    args = options(__doc__, 0.6)
    cases = [(model, batch, length) for model in MODELS for batch in BATCHES for length in LENGTHS]
    if args.smoke:
        cases = [((4, 2, 24), 2, 48), ((2, 2, 24), 1, 320)]
    torch.set_grad_enabled(False)
    lib = load(args.library)
    level, pool, clock = sides(args, lib)
    memory = torch.zeros((1 if args.smoke else 256) << 18)
    read = memory.numel() * 4e-3 / fastest({"read": memory.sum}, args.seconds, clock, least=5)["read"]
    del memory
    table = []
    if not args.json:
        print(f"torch {torch.__version__}, {args.threads} threads, fastest calls; a sum of 256 MiB reads {read:.1f} GB/s")
        print("dtype heads kv depth batch length |    ours us  GB/s | pages us / ours  stock / ours  matmuls / ours | error: ours    stock  matmuls")
    for dtype_name in [args.dtype] if args.dtype else DTYPES:
        dtype = DTYPES[dtype_name]
        for (heads, kv_heads, depth), batch, length in cases:
            case = Case(lib, heads, kv_heads, depth, batch, length, dtype, level, args.threads, pool)
            errors = case.errors()
            for name in ("ours", "paged"):
                if errors[name] > 2 * errors["stock"] + (1e-6 if dtype == torch.float32 else 8e-3):
                    sys.exit(f"{name} of {dtype_name} {heads} {kv_heads} {depth} {batch} {length} is wrong: {errors}")
            us = fastest({name: getattr(case, name) for name in case.turn}, args.seconds, clock, least=5)
            row = {"dtype": dtype_name, "heads": heads, "kv_heads": kv_heads, "depth": depth, "batch": batch, "length": length, "us": us,
                   "gb_per_s": case.bytes / us["ours"] * 1e-3, "read_gb_per_s": read, "error": errors}
            table.append(row)
            if not args.json:
                print(f"{dtype_name:>5} {heads:5} {kv_heads:2} {depth:5} {batch:5} {length:6} | {us['ours']:10.1f} {row['gb_per_s']:5.1f} | "
                      f"{us['paged'] / us['ours']:15.2f} {us['stock'] / us['ours']:13.2f} {us['matmul'] / us['ours']:15.2f} | "
                      f"{errors['ours']:11.2g} {errors['stock']:8.2g} {errors['matmul']:8.2g}", flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "threads": args.threads, "rows": table}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
