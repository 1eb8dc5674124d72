"""Are our products of bytes, fp32 and fp16, and those with small weights, faster than what stock torch offers?

Int8: onednn.qlinear_pointwise with a prepacked weight (to bytes, fp32 or bf16) and torch._int_mm. fp32 and fp16: F.linear and the
prepacked mkldnn linear. w8: _weight_int8pack_mm in bf16 and fp32. w4: _weight_int4pack_mm_for_cpu, groups of 128. bf16: F.linear and the
prepacked mkldnn linear. Batched: torch.bmm, whose right operands lie by rows ("c") or by columns ("t"), one set of them. Two are raced at
a time, in turn (interleaved), with ours allocating its output as stock does. The weights of a shape rotate over more memory than L2
(--cold-mib), or are one with --memory hot. With --read a third runs with them: the same threads add up the weights that ours reads, in
plain vectors. Prints a table, or JSON with --json; a ratio above 1 means ours is faster, "x read" is our time divided by the time of
reading.

Run it in the Python that has torch: python bench/gemm_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import argparse
import ctypes
import json
import sys
import time

import torch
import torch.nn.functional as F

import linear_vs_torch
from linear_vs_torch import race

SHAPES = [(768, 768), (768, 3072), (3072, 768), (2048, 5632)]
ROWS = [1, 4, 16, 128, 1024]
BATCHES = ["12x128x64x128", "96x128x64x128", "12x128x128x64", "12x197x64x197", "96x197x197x64", "12x512x64x512", "48x512x512x64",
           "12x1x64x512", "96x1x512x64", "96x4x64x512", "8x32x1024x4096", "8x512x1024x4096", "256x16x16x16", "1000x3x3x3"]
I64, VOID, INT, FLOAT = ctypes.c_int64, ctypes.c_void_p, ctypes.c_int, ctypes.c_float
OUTPUTS = {torch.int32: 0, torch.float32: 1, torch.bfloat16: 2, torch.uint8: 3, torch.int8: 4}


def aligned(size):
    raw = torch.empty(size + 64, dtype=torch.uint8)
    start = -raw.data_ptr() % 64
    return raw[start:start + size]


class Kernels:
    """The C library; addresses are passed as integers, so a call costs about a microsecond."""

    def __init__(self, path, threads, level):
        self.lib = ctypes.CDLL(path)
        self.lib.ipexrun_bench_pool.restype = VOID
        self.pool = self.lib.ipexrun_bench_pool(threads) if threads > 1 else None
        self.tail = (threads, self.pool, level.encode() if level else None)
        self.path, self.asked = path, (threads, level)
        self.sum = self.function("read", VOID, I64, INT, VOID, result=I64)

    def reading(self, packs):
        pieces = [(p.data_ptr(), p.numel() * p.element_size()) for p in packs]
        return lambda i: self.sum(*pieces[i], *self.tail[:2])

    def function(self, name, *types, result=INT):
        call = getattr(self.lib, "ipexrun_bench_" + name)
        call.argtypes, call.restype = types, result
        return call


class Int8:
    """x u8 with a zero point (s8 without one for _int_mm), a scale a column."""

    def __init__(self, kernels):
        self.tail = kernels.tail
        self.bytes = kernels.function("s8_bytes", I64, I64, result=ctypes.c_size_t)
        self.pack = kernels.function("s8_pack", VOID, I64, I64, VOID, result=None)
        self.call = kernels.function("s8", VOID, INT, INT, VOID, VOID, VOID, VOID, INT, VOID, INT, FLOAT, INT, I64, I64, I64, INT, VOID,
                                     ctypes.c_char_p)

    def packed(self, weight):
        n, k = weight.shape
        to = aligned(self.bytes(k, n))
        self.pack(weight.data_ptr(), k, n, to.data_ptr())
        return to

    def pairs(self, m, k, n, copies):
        weights = [torch.randint(-128, 128, (n, k), dtype=torch.int8) for _ in range(copies)]
        stock_packs = [torch.ops.onednn.qlinear_prepack(w, [m, k]) for w in weights]
        packs = [self.packed(w) for w in weights]
        pointers = [p.data_ptr() for p in packs]
        x = torch.randint(0, 256, (m, k), dtype=torch.uint8)
        signed = torch.randint(-128, 128, (m, k), dtype=torch.int8)
        scales, zeros = torch.rand(n) * 0.01 + 0.01, torch.zeros(n, dtype=torch.int64)
        bias, a_scale = torch.randn(n), torch.tensor([0.02])
        c_scale = 0.02 * 0.015 * 74 * 74 * k**0.5 / 40
        qlinear = torch.ops.onednn.qlinear_pointwise.default

        def stock(dtype):
            scale, zero = (c_scale, 100) if dtype == torch.uint8 else (1.0, 0)
            return lambda i: qlinear(x, 0.02, 113, stock_packs[i], scales, zeros, bias, scale, zero, dtype, "none", [], "")

        def ours(dtype):
            code = OUTPUTS[dtype]

            def run(i):
                out = torch.empty(m, n, dtype=dtype)
                if self.call(x.data_ptr(), 0, 113, a_scale.data_ptr(), pointers[i], scales.data_ptr(), bias.data_ptr(), 0, out.data_ptr(),
                             code, 1 / c_scale, 100, m, n, k, *self.tail) != 1:
                    sys.exit("the kernel reports failure")
                return out

            return run

        def ours_int(i):
            out = torch.empty(m, n, dtype=torch.int32)
            if self.call(signed.data_ptr(), 1, 0, None, pointers[i], None, None, 0, out.data_ptr(), 0, 1.0, 0, m, n, k, *self.tail) != 1:
                sys.exit("the kernel reports failure")
            return out

        table = {f"int8_{str(d)[6:]}": (stock(d), ours(d)) for d in (torch.uint8, torch.float32, torch.bfloat16)}
        table["int_mm"] = (lambda i: torch._int_mm(signed, weights[i].t()), ours_int)
        # Beside exact sums: without VNNI stock's products of bytes saturate at 16 bits.
        exact = (x.double() - 113) @ weights[0].double().t() * 0.02 * scales.double() + bias
        truths = {"int8_uint8": (exact / c_scale).round().add(100).clamp(0, 255), "int8_float32": exact, "int8_bfloat16": exact,
                  "int_mm": signed.double() @ weights[0].double().t()}
        for name, (_, own) in table.items():
            own, truth = own(0), truths[name]
            most = {torch.uint8: 1, torch.int32: 0, torch.float32: 1e-2, torch.bfloat16: truth.abs().max().item() * 2**-8}[own.dtype]
            far = (own.double() - truth).abs().max().item()
            if far > most:
                sys.exit(f"{name} is wrong at m {m} k {k} n {n}: off by {far}")
        return table, packs


class Float:
    """F.linear and the prepacked mkldnn linear in fp32 or fp16, with a bias."""

    dtype = torch.float32

    def __init__(self, kernels):
        self.tail = kernels.tail
        self.half = int(self.dtype == torch.float16)
        self.bytes = kernels.function("f32_bytes", I64, I64, INT, result=ctypes.c_size_t)
        self.pack = kernels.function("f32_pack", VOID, INT, I64, I64, VOID, result=None)
        self.call = kernels.function("f32", INT, VOID, VOID, VOID, VOID, I64, I64, I64, INT, VOID, ctypes.c_char_p)

    def packed(self, weight):
        n, k = weight.shape
        to = aligned(self.bytes(k, n, self.half))
        self.pack(weight.data_ptr(), self.half, k, n, to.data_ptr())
        return to

    def pairs(self, m, k, n, copies):
        weights = [(torch.randn(n, k) / k**0.5).to(self.dtype) for _ in range(copies)]
        reordered = [torch.ops.mkldnn._reorder_linear_weight(w, m) for w in weights]
        packs = [self.packed(w) for w in weights]
        pointers = [p.data_ptr() for p in packs]
        x, bias = torch.randn(m, k).to(self.dtype), torch.randn(n).to(self.dtype)
        pointwise = torch.ops.mkldnn._linear_pointwise.default

        def ours(i):
            out = torch.empty(m, n, dtype=self.dtype)
            if self.call(self.half, x.data_ptr(), pointers[i], bias.data_ptr(), out.data_ptr(), m, n, k, *self.tail) != 1:
                sys.exit("the kernel reports failure")
            return out

        truth = F.linear(x.double(), weights[0].double(), bias.double())
        error = ((ours(0).double() - truth).norm() / truth.norm()).item()
        if error > (1e-3 if self.half else 5e-6):
            sys.exit(f"wrong at m {m} k {k} n {n}: relative error {error:.2g}")
        return {"F.linear": (lambda i: F.linear(x, weights[i], bias), ours),
                "mkldnn": (lambda i: pointwise(x, reordered[i], bias, "none", [], None), ours)}, packs


class Half(Float):
    dtype = torch.float16


class Batched:
    """Batch x M x K x N against torch.bmm: in bf16, in fp32, and in fp32 with bf16 inside, that also against casts around a bf16 bmm."""

    def __init__(self, kernels):
        self.tail = kernels.tail
        self.call = kernels.function("batched", VOID, VOID, VOID, VOID, INT, INT, VOID, FLOAT, FLOAT, INT, VOID, ctypes.c_char_p)

    def ours(self, x, w, inside):
        (b, m, k), n = x.shape, w.shape[2]
        sizes = torch.tensor([b, m, n, k, *x.stride(), *w.stride(), 0, 0, 0])
        dtype, bf16 = x.dtype, int(x.dtype == torch.bfloat16)

        def run(_):
            out = torch.empty(b, m, n, dtype=dtype)
            state = self.call(x.data_ptr(), w.data_ptr(), None, out.data_ptr(), bf16, inside, sizes.data_ptr(), 1, 0, *self.tail)
            if state == 0:
                sys.exit("the kernel reports failure")
            return out

        return run

    def pairs(self, b, m, k, n, transposed):
        x = torch.randn(b, m, k)
        w = torch.randn(b, n, k).transpose(1, 2) if transposed else torch.randn(b, k, n)
        half_x, half_w = x.bfloat16(), w.bfloat16()
        inside = self.ours(x, w, 1)
        table = {"bf16": (lambda _: torch.bmm(half_x, half_w), self.ours(half_x, half_w, 0)),
                 "f32": (lambda _: torch.bmm(x, w), self.ours(x, w, 0)),
                 "f32, bf16 in": (lambda _: torch.bmm(x, w), inside),
                 "casts": (lambda _: torch.bmm(x.bfloat16(), w.bfloat16()).float(), inside)}
        for name, (theirs, own) in table.items():
            truth = theirs(0).double()
            error = ((own(0).double() - truth).norm() / truth.norm()).item()
            if error > (5e-6 if name == "f32" else 8e-3):
                sys.exit(f"{name} is wrong at {b} x {m} x {k} x {n}: relative error {error:.2g}")
        return table


def batches(kernels, args, clock):
    rows = []
    for shape in args.batches:
        b, m, k, n = (int(v) for v in shape.split("x"))
        for layout in "ct":
            table = Batched(kernels).pairs(b, m, k, n, layout == "t")
            row = {"kind": "batched", "batch": b, "m": m, "k": k, "n": n, "layout": layout, "threads": args.threads}
            for rival, pair in table.items():
                us = race(pair, 1, args.seconds, clock)
                row[rival] = {"us": us[0], "ours_us": us[1], "ratio": us[0] / us[1]}
            if not args.json:
                if not rows:
                    print("            batch M K N   | " + " ".join(f"{rival:>12}     ours us" for rival in table))
                print(f"{shape:>20} {layout} | " + " ".join(f"{row[r]['ratio']:12.2f} {row[r]['ours_us']:11.1f}" for r in table), flush=True)
            rows.append(row)
    return rows


class Bf16:
    """F.linear and the prepacked mkldnn linear in bf16, with a bias."""

    def __init__(self, kernels):
        self.kernels = linear_vs_torch.Kernels(kernels.path, *kernels.asked)

    def pairs(self, m, k, n, copies):
        weights = [torch.randn(n, k) / k**0.5 for _ in range(copies)]
        packs = [self.kernels.pack(w) for w in weights]
        weights = [w.bfloat16() for w in weights]
        reordered = [torch.ops.mkldnn._reorder_linear_weight(w, m) for w in weights]
        x, bias = torch.randn(m, k).bfloat16(), torch.randn(n)
        half_bias = bias.bfloat16()
        pointwise = torch.ops.mkldnn._linear_pointwise.default
        ours = self.kernels.bind(x, packs, bias)
        check(ours(0), F.linear(x.double(), weights[0].double(), bias.double()), 4e-3, (m, k, n))
        return {"F.linear": (lambda i: F.linear(x, weights[i], half_bias), ours),
                "mkldnn": (lambda i: pointwise(x, reordered[i], half_bias, "none", [], None), ours)}, packs


class WeightInt8:
    """Weights of int8 with a scale a column, read where they lie."""

    def __init__(self, kernels):
        self.tail = kernels.tail
        self.call = kernels.function("weight_int8", VOID, INT, VOID, VOID, VOID, I64, I64, I64, INT, VOID, ctypes.c_char_p)

    def pairs(self, m, k, n, copies):
        weights = [torch.randint(-128, 128, (n, k), dtype=torch.int8) for _ in range(copies)]
        pointers = [w.data_ptr() for w in weights]
        table = {}
        for dtype in (torch.bfloat16, torch.float32):
            x, scales = torch.randn(m, k).to(dtype), (torch.rand(n) / 100 + 0.01).to(dtype)

            def ours(i, x=x, scales=scales, dtype=dtype):
                out = torch.empty(m, n, dtype=dtype)
                if self.call(x.data_ptr(), int(dtype == torch.bfloat16), pointers[i], scales.data_ptr(), out.data_ptr(), m, n, k, *self.tail) != 1:
                    sys.exit("the kernel reports failure")
                return out

            check(ours(0), (x.double() @ weights[0].double().t()) * scales.double(), 4e-3 if dtype == torch.bfloat16 else 5e-6, (m, k, n))
            table[f"w8_{str(dtype)[6:]}"] = (lambda i, x=x, scales=scales: torch._weight_int8pack_mm(x, weights[i], scales), ours)
        return table, weights


class WeightInt4:
    """Weights of 4 bits in stock's own packing, with a scale and a zero a group."""

    group = 128

    def __init__(self, kernels):
        self.tail = kernels.tail
        self.call = kernels.function("weight_int4", VOID, VOID, VOID, VOID, I64, I64, I64, I64, INT, VOID, ctypes.c_char_p)

    def pairs(self, m, k, n, copies):
        numbers = torch.randint(0, 16, (n, k), dtype=torch.int32)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 2)
        weights = [packed.clone() for _ in range(copies)]
        pairs = torch.stack([torch.rand(k // self.group, n) / 100 + 0.01, torch.randn(k // self.group, n) / 100], dim=2).bfloat16()
        scales = [pairs.clone() for _ in range(copies)]
        pointers = [(w.data_ptr(), s.data_ptr()) for w, s in zip(weights, scales)]
        x = torch.randn(m, k).bfloat16()
        product = torch.ops.aten._weight_int4pack_mm_for_cpu.default

        def ours(i):
            out = torch.empty(m, n, dtype=torch.bfloat16)
            if self.call(x.data_ptr(), *pointers[i], out.data_ptr(), m, n, k, self.group, *self.tail) != 1:
                sys.exit("the kernel reports failure")
            return out

        wide = pairs.double().repeat_interleave(self.group, 0)
        check(ours(0), x.double() @ ((numbers.t().double() - 8) * wide[..., 0] + wide[..., 1]), 5e-3, (m, k, n))
        return {"w4_bfloat16": (lambda i: product(x, weights[i], self.group, scales[i]), ours)}, weights


def check(result, truth, most, shape):
    error = ((result.double() - truth).norm() / truth.norm()).item()
    if not error <= most:
        sys.exit(f"wrong at m, k, n {shape}: relative error {error:.2g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--kind", choices=[*KINDS, "batched"], action="append", help="default: all")
    parser.add_argument("--threads", type=int, default=1, help="of torch's pool, and of ours, which is the same (default 1)")
    parser.add_argument("--seconds", type=float, default=0.3, help="a pair")
    parser.add_argument("--level", help="cap ours at this instruction level, for example avx512_vnni")
    parser.add_argument("--rows", type=lambda s: [int(v) for v in s.split(",")], default=ROWS)
    parser.add_argument("--shapes", type=lambda s: [tuple(int(v) for v in p.split("x")) for p in s.split(",")], default=SHAPES, help="KxN,...")
    parser.add_argument("--batches", type=lambda s: s.split(","), default=BATCHES, help="of --kind batched: BATCHxMxKxN,...")
    parser.add_argument("--memory", choices=["hot", "cold"], default="cold")
    parser.add_argument("--cold-mib", type=int, default=64, help="weights in rotation when cold, in our packs")
    parser.add_argument("--quantile", type=float, default=0.5, help="of the rounds; less than the median on a busy machine, where threads wait for each other (default 0.5)")
    parser.add_argument("--read", action="store_true", help="compare with the time of reading the weights once, too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="one small shape, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.rows, args.shapes, args.seconds, args.cold_mib = [2, 32], [(128, 192)], 0.01, 1
        args.batches = ["3x40x33x50", "20x3x3x3"]
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    kernels = Kernels(args.library, args.threads, args.level)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    rows = []
    for name in args.kind or [*KINDS, "batched"]:
        if name == "batched":
            rows += batches(kernels, args, clock)
            continue
        if name in PACKED and not linear_vs_torch.stock_packs(PACKED[name]):
            print(f"{name} is left out: stock packs no such weights on this CPU", file=sys.stderr)
            continue
        if name == "w4" and torch.backends.cpu.get_cpu_capability() != "AVX512":
            print("w4 is left out: stock packs for another instruction set here, and calls are left to it", file=sys.stderr)
            continue
        kind, element = KINDS[name]
        kind = kind(kernels)
        heading = None
        for k, n in args.shapes:
            copies = 1 if args.memory == "hot" else max(2, int(args.cold_mib * (1 << 20) / (k * n * element)))
            for m in args.rows:
                table, keep = kind.pairs(m, k, n, copies)
                row = {"kind": name, "memory": args.memory, "k": k, "n": n, "m": m, "threads": args.threads}
                for rival, pair in table.items():
                    us = race(pair + ((kernels.reading(keep),) if args.read else ()), copies, args.seconds, clock, args.quantile)
                    row[rival] = {"us": us[0], "ours_us": us[1], "ratio": us[0] / us[1]}
                    if args.read:
                        row[rival] |= {"read_us": us[2], "times_read": us[1] / us[2]}
                del keep, pair
                rows.append(row)
                if args.json:
                    continue
                if heading is None:
                    heading = "    K     N     M | " + " ".join(f"{rival:>14}     ours us" + "  x read" * args.read for rival in table)
                    print(f"torch {torch.__version__}, {args.threads} thread(s), {args.memory}\n{heading}")
                print(f"{k:5} {n:5} {m:5} | " + " ".join(f"{row[r]['ratio']:14.2f} {row[r]['ours_us']:11.1f}" + (f"{row[r]['times_read']:8.2f}" if args.read else "") for r in table), flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "rows": rows}, sys.stdout, indent=1)
        print()


PACKED = {"f16": torch.float16, "bf16": torch.bfloat16}
KINDS = {"int8": (Int8, 1), "f32": (Float, 4), "f16": (Half, 2), "bf16": (Bf16, 2), "w8": (WeightInt8, 1), "w4": (WeightInt4, 0.5)}

if __name__ == "__main__":
    main()
