"""Is our linear faster than what stock torch offers for the same product?

Compares, per shape, F.linear in fp32, F.linear in bf16, the prepacked mkldnn linear in bf16 and the cast of fp32 to bf16 and back
around it, with ours from bf16 to bf16 and from fp32 to fp32. Two are raced at a time, in turn (interleaved): with more, each finds
in the caches what its neighbour in the round left there. Ours allocates its output with torch, as stock does. "cold" rotates over
weights larger than L2 (64 MiB by default), "hot" is one weight. Prints a table, or JSON with --json.

Run it in the Python that has torch: python bench/linear_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import argparse
import ctypes
import itertools
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

SHAPES = [(384, 384), (384, 1536), (1536, 384), (768, 768), (768, 2304), (768, 3072), (3072, 768), (2048, 5632)]
PAIRS = [("stock_f32", "ours_f32"), ("stock_bf16", "ours_bf16"), ("mkldnn_bf16", "ours_bf16"), ("cast_mkldnn_cast", "ours_f32"),
         ("mkldnn_gelu", "ours_gelu"), ("mkldnn_add", "ours_add")]
ROWS = [1, 4, 16, 128, 512, 1024, 4096]


class Kernels:
    """The C library; addresses are passed as integers, so a call costs about a microsecond."""

    def __init__(self, path, threads, level):
        self.lib = ctypes.CDLL(path)
        self.lib.ipexrun_bench_packed_bytes.restype = ctypes.c_size_t
        self.lib.ipexrun_bench_packed_bytes.argtypes = [ctypes.c_int64] * 2
        self.lib.ipexrun_bench_pack.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
        self.lib.ipexrun_bench_pool.restype = ctypes.c_void_p
        i64, void = ctypes.c_int64, ctypes.c_void_p
        self.call = self.lib.ipexrun_bench_linear
        self.call.argtypes = [void, ctypes.c_int, void, void, ctypes.c_int, void, void, ctypes.c_int, i64, i64, i64, ctypes.c_int, void, ctypes.c_char_p]
        self.threads = threads
        self.pool = self.lib.ipexrun_bench_pool(threads) if threads > 1 else None
        self.level = level.encode() if level else None

    def pack(self, weight):
        n, k = weight.shape
        size = self.lib.ipexrun_bench_packed_bytes(k, n)
        raw = torch.empty(size + 64, dtype=torch.uint8)
        start = -raw.data_ptr() % 64
        view = raw[start:start + size]
        self.lib.ipexrun_bench_pack(weight.data_ptr(), k, n, view.data_ptr())
        return view

    def bind(self, x, packs, bias, unary=0, addend=None):
        """A function of the copy index that returns unary(x * w.t() + bias) + addend in the dtype of x; 2 is gelu."""
        (m, k), n = x.shape, bias.shape[0]
        dtype, is_bf16 = x.dtype, int(x.dtype == torch.bfloat16)
        pointers = [p.data_ptr() for p in packs]
        other = addend.data_ptr() if addend is not None else None

        def linear(i):
            out = torch.empty(m, n, dtype=dtype)
            if self.call(x.data_ptr(), is_bf16, pointers[i], bias.data_ptr(), unary, other, out.data_ptr(), is_bf16, m, n, k,
                         self.threads, self.pool, self.level) != 1:
                sys.exit("the kernel reports failure")
            return out

        return linear


def stock_packs(dtype):
    """Whether oneDNN in stock torch has weights of `dtype` on this CPU (no bf16 or fp16 below AVX-512, or AVX-NE-CONVERT)."""
    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.ones(32, 32, dtype=dtype), 1)
        return True
    except RuntimeError:
        return False


def candidates(kernels, m, k, n, copies):
    weights = [torch.randn(n, k) / k**0.5 for _ in range(copies)]
    halves = [w.bfloat16() for w in weights]
    reordered = [torch.ops.mkldnn._reorder_linear_weight(w, m) for w in halves] if stock_packs(torch.bfloat16) else []
    packs = [kernels.pack(w) for w in weights]
    bias = torch.randn(n)
    half_bias = bias.bfloat16()
    x = torch.randn(m, k)
    half_x = x.bfloat16()
    addend = torch.randn(m, n).bfloat16()
    pointwise = torch.ops.mkldnn._linear_pointwise.default
    table = {
        "stock_f32": lambda i: F.linear(x, weights[i], bias),
        "stock_bf16": lambda i: F.linear(half_x, halves[i], half_bias),
        "mkldnn_bf16": lambda i: pointwise(half_x, reordered[i], half_bias, "none", [], None),
        "cast_mkldnn_cast": lambda i: pointwise(x.bfloat16(), reordered[i], half_bias, "none", [], None).float(),
        "ours_bf16": kernels.bind(half_x, packs, bias),
        "ours_f32": kernels.bind(x, packs, bias),
        "mkldnn_gelu": lambda i: pointwise(half_x, reordered[i], half_bias, "gelu", [], "none"),
        "ours_gelu": kernels.bind(half_x, packs, bias, unary=2),
        "mkldnn_add": lambda i: torch.ops.mkldnn._linear_pointwise.binary(half_x, addend, reordered[i], half_bias, "add"),
        "ours_add": kernels.bind(half_x, packs, bias, addend=addend),
    }
    truth = F.linear(x.bfloat16().double(), halves[0].double(), bias.double())
    truths = {"ours_bf16": truth, "ours_f32": truth, "ours_gelu": F.gelu(truth), "ours_add": truth + addend.double()}
    for name, truth in truths.items():
        error = ((table[name](0).double() - truth).norm() / truth.norm()).item()
        if error > 4e-3:
            sys.exit(f"{name} is wrong at m {m} k {k} n {n}: relative error {error:.2g}")
    keep = (weights, halves, reordered, packs, bias, half_bias, x, half_x, addend)
    return table, keep


def race(pair, copies, seconds, clock, quantile=0.5):
    """Median microseconds (or another quantile) a call of each of the pair: rounds of `batch` calls each, until the time is over (at least 7).

    With one thread the clock is the thread's CPU time, so that being descheduled on a busy machine counts for nobody.
    """
    turns = itertools.cycle(range(copies))
    for fn in pair:
        fn(next(turns))
    start = time.perf_counter()
    for fn in pair:
        fn(next(turns))
    once = (time.perf_counter() - start) / len(pair)
    batch = max(1, int(0.0005 / once))
    samples = [[] for _ in pair]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples[0]) < 7:
        for fn, times in zip(pair, samples):
            order = [next(turns) for _ in range(batch)]
            start = clock()
            for i in order:
                fn(i)
            times.append((clock() - start) / batch * 1e6)
    return [statistics.median(times) if quantile == 0.5 else sorted(times)[int(quantile * len(times))] for times in samples]


def packing(kernels, shapes, seconds):
    """What the first use of a weight costs: fp32 to packed bf16 beside torch's rounding and reordering, one thread, and how fast 6 bytes an element go by."""
    print(f"torch {torch.__version__}, 1 thread, medians\n    K     N     ours us  ns/element   GB/s   torch / ours")
    for k, n in shapes:
        weights = [torch.randn(n, k) for _ in range(max(2, (64 << 20) // (4 * k * n)))]
        views = [kernels.pack(weight) for weight in weights]

        def ours(i):
            kernels.lib.ipexrun_bench_pack(weights[i].data_ptr(), k, n, views[i].data_ptr())

        torch_us, ours_us = race((lambda i: torch.ops.mkldnn._reorder_linear_weight(weights[i].bfloat16(), 128), ours), len(weights), seconds, time.thread_time)
        print(f"{k:5} {n:5} {ours_us:11.1f} {1e3 * ours_us / k / n:11.2f} {6e-3 * k * n / ours_us:6.1f} {torch_us / ours_us:14.2f}", flush=True)


def keep_freed_memory():
    """Both sides return a new tensor a call. As with the allocators that `ipexrun` preloads, its pages stay with the process: faulting in
    19 MiB a call takes as long as the product."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--threads", type=int, default=1, help="of torch's pool, and of ours, which is the same (default 1)")
    parser.add_argument("--seconds", type=float, default=0.3, help="a shape")
    parser.add_argument("--level", help="cap ours at this instruction level, for example avx512_bf16")
    parser.add_argument("--rows", type=lambda s: [int(v) for v in s.split(",")], default=ROWS)
    parser.add_argument("--shapes", type=lambda s: [tuple(int(v) for v in p.split("x")) for p in s.split(",")], default=SHAPES, help="KxN,...")
    parser.add_argument("--memory", choices=["hot", "cold"], default=None, help="default: both")
    parser.add_argument("--cold-mib", type=int, default=64, help="bf16 weights in rotation when cold (each exists four times)")
    parser.add_argument("--rivals", type=lambda s: s.split(","), default=[rival for rival, _ in PAIRS[:4]], help="of " + ",".join(r for r, _ in PAIRS))
    parser.add_argument("--pack", action="store_true", help="what packing a weight takes, instead of products")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="one small shape, to see that it runs")
    args = parser.parse_args()
    keep_freed_memory()
    if args.smoke:
        args.rows, args.shapes, args.seconds, args.cold_mib = [1, 32], [(64, 96)], 0.01, 1
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    kernels = Kernels(args.library, args.threads, args.level)
    if not stock_packs(torch.bfloat16):
        if args.pack:
            sys.exit("nothing to compare packing with: stock packs no bf16 weights on this CPU")
        args.rivals = [rival for rival in args.rivals if "mkldnn" not in rival]
        if not args.rivals:
            sys.exit("no rival is left: stock packs no bf16 weights on this CPU")
        print("mkldnn's rivals are left out: stock packs no bf16 weights on this CPU", file=sys.stderr)
    if args.pack:
        packing(kernels, args.shapes, args.seconds)
        return
    rows = []
    pairs = [pair for pair in PAIRS if pair[0] in args.rivals]
    if not args.json:
        print(f"torch {torch.__version__}, {args.threads} thread(s), medians; a ratio above 1 means ours is faster")
        print(f"memory     K     N     M        ours us  TFLOP/s | {'  '.join(f'{rival:>16}' for rival, _ in pairs)}")
    for memory in [args.memory] if args.memory else ["hot", "cold"]:
        for k, n in args.shapes:
            copies = 1 if memory == "hot" else max(2, args.cold_mib * (1 << 20) // (k * n * 2))
            for m in args.rows:
                table, keep = candidates(kernels, m, k, n, copies)
                clock = time.thread_time if args.threads == 1 else time.perf_counter
                row = {"memory": memory, "k": k, "n": n, "m": m, "threads": args.threads}
                for rival, ours in pairs:
                    us = race((table[rival], table[ours]), copies, args.seconds / len(pairs), clock)
                    row[rival] = {"us": us[0], "ours": ours, "ours_us": us[1], "ratio": us[0] / us[1]}
                ours_us = row[pairs[-1][0]]["ours_us"]
                row["tflops"] = 2e-6 * m * n * k / ours_us
                del table, keep
                rows.append(row)
                if not args.json:
                    print(f"{memory:6} {k:5} {n:5} {m:5} {ours_us:14.1f} {row['tflops']:8.2f} | "
                          + "  ".join(f"{row[rival]['ratio']:16.2f}" for rival, _ in pairs), flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "threads": args.threads, "rows": rows}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
