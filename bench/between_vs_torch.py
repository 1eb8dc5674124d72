"""Is what lies between the products of a transformer faster than stock torch's operations for the same work, and how near to a copy?

Gated activations (act(a) * b), rotary embedding, norms of a sum, cross entropy and dropout with
their gradients, conversions. "copy" is clone() of a tensor with as many bytes read and written as
the operation must move. Contenders are called in turn; the fastest call of each counts, by the thread's CPU time, so that a busy machine
counts for nobody. Ours allocates its outputs with torch, as stock does. Before the race both are held against torch in doubles.
Prints a table, or JSON with --json.

Run it in the Python that has torch: python bench/between_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import argparse
import ctypes
import json
import sys

import torch
import torch.nn.functional as F

from reorder_vs_torch import fastest

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
VOID, I64, I32, F32, F64, TEXT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float, ctypes.c_double, ctypes.c_char_p


def numbers(*values):
    return (I64 * len(values))(*values)


def is_bf16(x):
    return int(x.dtype == torch.bfloat16)


class Case:
    """One row: `ours` and `stock` (or a list, of which the fastest counts) return a tensor or a tuple of them, `truth` the same in
    doubles, or is None where it was checked elsewhere; `moved` in bytes."""

    def __init__(self, name, ours, stock, truth, moved):
        self.name, self.ours, self.truth, self.moved = name, ours, truth, moved
        self.stock = stock if isinstance(stock, list) else [stock]


def gated(lib, dtype, level, smoke):
    """silu(a) * b of two tensors, and gelu of the second half of a row times the first, as GeGLU has it."""
    call = lib.ipexrun_bench_gated
    call.argtypes = [I32, I32, VOID, VOID, VOID, I64, I64, VOID, I32, VOID, TEXT]
    for rows, n in [(3, 37)] if smoke else [(1, 11008), (32, 5632), (128, 11008), (512, 11008)]:
        a, b = torch.randn(rows, n).to(dtype), torch.randn(rows, n).to(dtype)
        both = torch.cat([a, b], -1)

        def silu(a=a, b=b, rows=rows, n=n):
            out = torch.empty_like(a)
            call(4, is_bf16(a), a.data_ptr(), b.data_ptr(), out.data_ptr(), rows, n, numbers(n, n, n), 1, None, level)
            return out

        def geglu(x=both, rows=rows, n=n, kind=0):
            out = torch.empty(rows, n, dtype=x.dtype)
            half = n * x.itemsize
            call(kind, is_bf16(x), x.data_ptr() + half, x.data_ptr(), out.data_ptr(), rows, n, numbers(2 * n, 2 * n, n), 1, None, level)
            return out

        moved = 3 * a.numel() * a.itemsize
        yield Case(f"silu_mul {rows}x{n}", silu, lambda a=a, b=b: F.silu(a) * b, F.silu(a.double()) * b.double(), moved)

        def stock_geglu(x=both, approximate="none"):
            value, gate = x.chunk(2, -1)
            return value * F.gelu(gate, approximate=approximate)

        yield Case(f"geglu {rows}x{n}", geglu, stock_geglu, stock_geglu(both.double()), moved)
        yield Case(f"geglu_tanh {rows}x{n}", lambda: geglu(kind=1), lambda: stock_geglu(approximate="tanh"),
                   stock_geglu(both.double(), "tanh"), moved)


def rotary(lib, dtype, level, smoke):
    """Queries in [batch, positions, heads, depth] and [batch, heads, positions, depth], tables in their dtype, as transformers has them."""
    call = lib.ipexrun_bench_rotary
    call.argtypes = [I32, VOID, VOID, VOID, VOID, VOID, VOID, I32, I32, VOID, TEXT]
    shapes = [(2, 3, 2, 12, 8)] if smoke else [(1, 1, 32, 128, 128), (1, 128, 32, 128, 128), (1, 1024, 32, 128, 128), (8, 128, 16, 64, 64),
                                              (4, 512, 12, 80, 32)]
    for batch, positions, heads, depth, rotated in shapes:
        angle = torch.outer(torch.arange(positions) + 1.0, 10000.0 ** -(torch.arange(0, rotated, 2) / rotated))
        cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        twice = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
        repeated = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
        turns = torch.polar(torch.ones_like(angle), angle)
        x = torch.randn(batch, positions, heads, depth).to(dtype)
        for name, q, axis in (("bshd", x, 1), ("bhsd", x.transpose(1, 2).contiguous(), 2)):

            def placed(table, q=q, axis=axis):
                return table[None, :, None] if axis == 1 else table[None, None]

            def ours(pairs, inplace=False, q=q, axis=axis, cos=cos, sin=sin, sizes=(batch, positions, heads, depth, rotated)):
                out = q if inplace else torch.empty_like(q)
                strides = [q.stride(0), q.stride(axis), q.stride(3 - axis)]
                half = sizes[-1] // 2
                call(is_bf16(q), q.data_ptr(), out.data_ptr(), numbers(*sizes, pairs, 0), numbers(*strides, *strides, 0, half),
                     cos.data_ptr(), sin.data_ptr(), is_bf16(cos), 1, None, level)
                return out

            def whole(part, q=q, rotated=rotated):
                return part if rotated == q.shape[-1] else torch.cat([part, q[..., rotated:]], -1)

            def halves(q=q, tables=twice, rotated=rotated, placed=placed):
                part = q[..., :rotated]
                cos, sin = (placed(t.to(q.dtype)) for t in tables)
                a, b = part.chunk(2, -1)
                turned = part * cos + torch.cat([-b, a], -1) * sin
                return turned if rotated == q.shape[-1] else torch.cat([turned, q[..., rotated:]], -1)

            def interleaved(q=q, tables=repeated, rotated=rotated, placed=placed):
                part = q[..., :rotated]
                cos, sin = (placed(t.to(q.dtype)) for t in tables)
                turned = part * cos + torch.stack([-part[..., 1::2], part[..., ::2]], -1).flatten(-2) * sin
                return turned if rotated == q.shape[-1] else torch.cat([turned, q[..., rotated:]], -1)

            def as_complex(q=q, turns=turns, rotated=rotated, placed=placed, whole=whole):
                part = torch.view_as_complex(q[..., :rotated].float().unflatten(-1, (-1, 2)))
                return whole(torch.view_as_real(part * placed(turns)).flatten(-2).to(q.dtype))

            moved = 2 * q.numel() * q.itemsize
            of = "" if rotated == depth else f"/{rotated}"
            size = f"{name} " + "x".join(map(str, q.shape)) + of
            yield Case(f"halves {size}", lambda ours=ours: ours(0), halves, halves(q.double()), moved)
            yield Case(f"interleaved {size}", lambda ours=ours: ours(1), [interleaved, as_complex], interleaved(q.double()), moved)
            if name == "bshd":
                yield Case(f"halves in place {size}", lambda ours=ours: ours(0, True), halves, None, moved)


def residual(lib, dtype, level, smoke):
    """Layer norm and rms norm of x + r, the sum kept for the next layer; stock adds, then normalizes."""
    call = lib.ipexrun_bench_residual_norm
    call.argtypes = [I32, I32, VOID, VOID, VOID, VOID, I64, I64, VOID, VOID, F64, I32, VOID, TEXT]
    for rows, n in [(3, 37)] if smoke else [(1, 4096), (128, 768), (512, 768), (128, 4096), (1024, 4096)]:
        x, r, weight, bias = (torch.randn(size).to(dtype) for size in ((rows, n), (rows, n), (n,), (n,)))

        def ours(centered, x=x, r=r, weight=weight, bias=bias):
            out, total = torch.empty_like(x), torch.empty_like(x)
            call(centered, is_bf16(x), x.data_ptr(), r.data_ptr(), out.data_ptr(), total.data_ptr(), *x.shape, weight.data_ptr(),
                 bias.data_ptr() if centered else None, 1e-5, 1, None, level)
            return out, total

        def layer(x=x, r=r, weight=weight, bias=bias):
            total = x + r
            return F.layer_norm(total, total.shape[-1:], weight, bias, 1e-5), total

        def rms(x=x, r=r, weight=weight):
            total = x + r
            return F.rms_norm(total, total.shape[-1:], weight, 1e-5), total

        doubles = x.double(), r.double(), weight.double(), bias.double()
        moved = 4 * x.numel() * x.itemsize
        yield Case(f"layer_norm {rows}x{n}", lambda ours=ours: ours(1), layer, layer(*doubles), moved)
        yield Case(f"rms_norm {rows}x{n}", lambda ours=ours: ours(0), rms, rms(*doubles[:3]), moved)


def cross_entropy(lib, dtype, level, smoke):
    """The mean loss over a large vocabulary, alone and with the gradient of the logits."""
    call = lib.ipexrun_bench_cross_entropy
    call.argtypes = [I32, VOID, VOID, I64, I64, F64, VOID, VOID, VOID, I32, VOID, TEXT]
    for rows, n in [(3, 37)] if smoke else [(8, 32000), (128, 32000), (512, 32000), (64, 128256)]:
        x, targets = (3 * torch.randn(rows, n)).to(dtype), torch.randint(n, (rows,))
        for smoothing in (0.0, 0.1) if rows in (3, 128) else (0.0,):

            def ours(backward, x=x, targets=targets, smoothing=smoothing):
                loss, lse = torch.empty(()), torch.empty(x.shape[0])
                grad = torch.empty_like(x) if backward else None
                call(is_bf16(x), x.data_ptr(), targets.data_ptr(), *x.shape, smoothing, loss.data_ptr(), lse.data_ptr(),
                     grad.data_ptr() if backward else None, 1, None, level)
                return (loss, grad) if backward else loss

            def forward(x=x, targets=targets, smoothing=smoothing):
                return F.cross_entropy(x, targets, label_smoothing=smoothing)

            def both(x=x, targets=targets, smoothing=smoothing):
                with torch.enable_grad():
                    leaf = x.detach().requires_grad_()
                    loss = F.cross_entropy(leaf, targets, label_smoothing=smoothing)
                return loss.detach(), torch.autograd.grad(loss, leaf)[0]

            size = x.numel() * x.itemsize
            truth = both(x.double())
            what = f"{rows}x{n}" + (" smooth" if smoothing else "")
            yield Case(f"loss {what}", lambda ours=ours: ours(False), forward, truth[0], size)
            yield Case(f"loss, grad {what}", lambda ours=ours: ours(True), both, truth, 3 * size)


def dropout(lib, dtype, level, smoke):
    """p = 0.1 with the mask kept, against native_dropout, which keeps it too, and F.dropout; and the gradient."""
    call, back = lib.ipexrun_bench_dropout, lib.ipexrun_bench_dropout_grad
    call.argtypes = [I32, VOID, VOID, VOID, I64, F64, I64, I64, I32, VOID, TEXT]
    back.argtypes = [I32, VOID, VOID, VOID, I64, F64, I32, VOID, TEXT]
    p = 0.1
    for n in [111] if smoke else [8192, 98304, 393216, 3145728]:
        x, grad = torch.randn(n).to(dtype), torch.randn(n).to(dtype)
        mask = torch.rand(n) >= p

        def ours(x=x, n=n):
            out, kept = torch.empty_like(x), torch.empty(n, dtype=torch.bool)
            call(is_bf16(x), x.data_ptr(), out.data_ptr(), kept.data_ptr(), n, p, 1, 0, 1, None, level)
            return out, kept

        def ours_back(grad=grad, mask=mask, n=n):
            out = torch.empty_like(grad)
            back(is_bf16(grad), grad.data_ptr(), out.data_ptr(), mask.data_ptr(), n, p, 1, None, level)
            return out

        out, kept = ours()
        if not torch.allclose(out.double(), x.double() * kept / (1 - p), rtol=1e-2) or abs(kept.double().mean() - 1 + p) > 1 / n ** 0.5:
            sys.exit(f"dropout in {dtype} is wrong")
        moved = n * (2 * x.itemsize + 1)
        yield Case(f"dropout {n}", ours, [lambda x=x: torch.native_dropout(x, p, True), lambda x=x: F.dropout(x, p)], None, moved)

        def stock_back(grad=grad, mask=mask):
            return torch.ops.aten.native_dropout_backward(grad, mask, 1 / (1 - p))

        yield Case(f"dropout grad {n}", ours_back, stock_back, grad.double() * mask / (1 - p), moved)


def convert(lib, dtype, level, smoke):
    """Tensor.to between fp32, bf16 and fp16; the names of the rows have both, the column of the dtype says nothing."""
    call = lib.ipexrun_bench_convert
    call.argtypes = [VOID, I32, VOID, I32, I64, I32, VOID, TEXT]
    formats = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
    names = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
    # Of the two runs of the table one has what fp32 is a part of, the other bf16 and fp16.
    pairs = [(a, b) for a in formats for b in formats if a != b and (torch.float32 in (a, b)) == (dtype == torch.float32)]
    for n in [111] if smoke else [8192, 98304, 393216, 3145728, 16777216]:
        for source, target in pairs:
            x = torch.randn(n).to(source)

            def ours(x=x, target=target, n=n):
                out = torch.empty(n, dtype=target)
                call(x.data_ptr(), formats[x.dtype], out.data_ptr(), formats[target], n, 1, None, level)
                return out

            def stock(x=x, target=target):
                return x.to(target)

            if not torch.equal(ours(), stock()):
                sys.exit(f"{source} to {target} is wrong")
            yield Case(f"{names[source]}-{names[target]} {n}", ours, stock, None, n * (source.itemsize + target.itemsize))


OPS = {"gated": gated, "rotary": rotary, "residual": residual, "cross_entropy": cross_entropy, "dropout": dropout, "convert": convert}


def error(y, truth):
    y, truth = (t if isinstance(t, tuple) else (t,) for t in (y, truth))
    return max(((a.double() - b).norm() / b.norm()).item() for a, b in zip(y, truth))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--seconds", type=float, default=0.5, help="a row")
    parser.add_argument("--level", help="cap ours at this instruction level, for example avx2")
    parser.add_argument("--ops", type=lambda s: s.split(","), default=list(OPS), help=",".join(OPS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="small sizes, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.seconds = 0.01
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    lib = ctypes.CDLL(args.library)
    level = args.level.encode() if args.level else None
    table = []
    if not args.json:
        print(f"torch {torch.__version__}, 1 thread, fastest calls; stock/ours above 1 means ours is faster, ours/copy 1 is the memory's limit")
        print(f"{'what':34} dtype     ours us     GB/s  copy GB/s | stock/ours  ours/copy | error: ours     stock")
    for op in args.ops:
        for dtype_name, dtype in DTYPES.items():
            for case in OPS[op](lib, dtype, level, args.smoke):
                flat = torch.empty(case.moved // 2, dtype=torch.uint8)
                errors = None
                if case.truth is not None:
                    errors = error(case.ours(), case.truth), error(case.stock[0](), case.truth)
                    if not errors[0] <= 2 * errors[1] + (1e-6 if dtype == torch.float32 else 8e-3):
                        sys.exit(f"{case.name} in {dtype_name} is wrong: relative error {errors[0]:.2g}, stock {errors[1]:.2g}")
                us = fastest({"ours": case.ours, "copy": flat.clone, **{f"stock{i}": fn for i, fn in enumerate(case.stock)}}, args.seconds)
                us["stock"] = min(us[f"stock{i}"] for i in range(len(case.stock)))
                row = {"what": case.name, "dtype": dtype_name, "us": us, "gbs": case.moved / us["ours"] / 1e3,
                       "copy_gbs": case.moved / us["copy"] / 1e3, "ratio": us["stock"] / us["ours"], "of_copy": us["ours"] / us["copy"],
                       "error": errors}
                table.append(row)
                if not args.json:
                    said = f"{errors[0]:11.2g} {errors[1]:9.2g}" if errors else ""
                    print(f"{case.name:34} {dtype_name:>5} {us['ours']:11.1f} {row['gbs']:8.1f} {row['copy_gbs']:10.1f} | {row['ratio']:10.2f} "
                          f"{row['of_copy']:10.2f} | {said}", flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "rows": table}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
