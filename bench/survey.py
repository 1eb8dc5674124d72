"""How near to its limit is stock on operators that the op tier might take over?

Usage: survey.py [--smoke] [--rounds N] [--threads N,N] [--only WORDS]
An operator's limit is a copy of as many bytes as it has to read and write once (into new memory, as its result is; both made in turn, round by round,
so that the machine is the same for both), or its multiply-adds at the rate of a 1024^3 product where that takes longer. Prints a table: the share of the limit that
stock reaches, as the median over the rounds, for each number of threads. Compared with stock only: no plugin is loaded.
"""

import argparse
import statistics
import sys
import time

import torch
import torch.nn.functional as F

ENOUGH = 0.7  # of the limit: left to stock
FLOAT = 4


def image(shape, last=False):
    x = torch.randn(shape)
    return x.to(memory_format=torch.channels_last) if last else x


def case(name, call, moved, flops=0, in_place=False):
    """`moved`: bytes read once and written once. `in_place`: the result is no new memory."""
    return {"name": name, "call": call, "bytes": moved, "flops": flops, "in_place": in_place}


def bytes_of(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def over_image(op, shape, function, last=False, note=""):
    x = image(shape, last)
    y = function(x)
    label = f"{op} {'x'.join(map(str, shape))}{' ' + note if note else ''}{' channels last' if last else ''}"
    return case(label, lambda: function(x), bytes_of(x, *(y if isinstance(y, tuple) else (y,))))


def norms():
    for shape, last in (((1, 64, 112, 112), False), ((8, 64, 56, 56), False), ((8, 256, 14, 14), False), ((8, 64, 56, 56), True)):
        layer = torch.nn.BatchNorm2d(shape[1]).eval()
        yield over_image("batch_norm", shape, layer, last)
    for shape, last in (((1, 320, 64, 64), False), ((2, 128, 32, 32), False), ((1, 1280, 16, 16), False), ((1, 320, 64, 64), True)):
        layer = torch.nn.GroupNorm(32, shape[1])
        yield over_image("group_norm", shape, layer, last, "32 groups")
    for shape in ((1, 4096), (128, 2048), (512, 4096)):
        weight = torch.randn(shape[-1])
        yield over_image("rms_norm", shape, lambda x, w=weight: F.rms_norm(x, w.shape, w))


def lookups():
    for rows, columns, count in ((30522, 768, 128), (30522, 768, 4096), (32000, 2048, 1)):
        table, ids = torch.randn(rows, columns), torch.randint(rows, (count,))
        yield case(f"embedding {count} of {rows}x{columns}", lambda t=table, i=ids: F.embedding(i, t), 2 * count * columns * FLOAT)
    for mode, rows, columns, bags, each in (("sum", 100000, 64, 128, 20), ("sum", 1000000, 16, 2048, 1), ("mean", 100000, 64, 128, 20), ("sum", 100000, 128, 512, 50)):
        table, ids, offsets = torch.randn(rows, columns), torch.randint(rows, (bags * each,)), torch.arange(0, bags * each, each)
        yield case(f"embedding_bag {mode} {bags} bags of {each} from {rows}x{columns}",
                   lambda t=table, i=ids, o=offsets, m=mode: F.embedding_bag(i, t, o, mode=m), (bags * each + bags) * columns * FLOAT)


def recurrent():
    for steps, batch, inputs, hidden in ((20, 1, 256, 256), (50, 8, 128, 256), (100, 32, 256, 512)):
        layer, x = torch.nn.GRU(inputs, hidden).eval(), torch.randn(steps, batch, inputs)
        flops = 2 * steps * batch * 3 * hidden * (inputs + hidden)
        yield case(f"GRU {steps} steps of {batch}x{inputs}, hidden {hidden}", lambda m=layer, x=x: m(x), 3 * hidden * (steps * hidden + inputs) * FLOAT, flops)


def pools():
    for shape, last in (((1, 64, 112, 112), False), ((8, 64, 112, 112), False), ((8, 64, 112, 112), True)):
        yield over_image("max_pool2d", shape, lambda x: F.max_pool2d(x, 3, 2, 1), last, "3 by 3, stride 2")
    for shape in ((1, 64, 224, 224), (8, 256, 28, 28)):
        yield over_image("max_pool2d", shape, lambda x: F.max_pool2d(x, 2, 2), note="2 by 2")
    for size, stride, pad, shape, last in ((2, 2, 0, (8, 128, 56, 56), False), (3, 1, 1, (8, 192, 28, 28), False), (2, 2, 0, (8, 128, 56, 56), True)):
        yield over_image("avg_pool2d", shape, lambda x, a=(size, stride, pad): F.avg_pool2d(x, *a), last, f"{size} by {size}, stride {stride}")
    for out, shape, last in ((1, (8, 2048, 7, 7), False), (7, (8, 512, 14, 14), False), (1, (8, 2048, 7, 7), True), (6, (1, 512, 32, 32), False)):
        yield over_image("adaptive_avg_pool2d", shape, lambda x, o=out: F.adaptive_avg_pool2d(x, o), last, f"to {out}")


def resizes():
    for mode, shape, size, last in (
        ("bilinear", (1, 64, 64, 64), 128, False), ("bilinear", (1, 21, 65, 65), 513, False), ("bilinear", (1, 256, 32, 32), 128, True),
        ("nearest", (1, 320, 32, 32), 64, False), ("nearest", (1, 128, 64, 64), 128, False), ("nearest", (1, 320, 32, 32), 64, True),
        ("bicubic", (1, 3, 224, 224), 384, False), ("bicubic", (1, 768, 14, 14), 24, False), ("bicubic", (1, 3, 224, 224), 384, True)):
        align = {} if mode == "nearest" else {"align_corners": False}
        yield over_image(mode, shape, lambda x, s=size, m=mode, a=align: F.interpolate(x, size=(s, s), mode=m, **a), last, f"to {size}x{size}")


def joins():
    for shapes, dim in (([(1, 320, 32, 32)] * 2, 1), ([(1, 32, 512, 64), (1, 32, 1, 64)], 2), ([(128, 64)] * 8, 1), ([(1, 64, 56, 56)] + [(1, 32, 56, 56)] * 4, 1), ([(4, 128, 768)] * 2, 0)):
        parts = [torch.randn(s) for s in shapes]
        label = " ".join(f"{shapes.count(s)} of {'x'.join(map(str, s))}" for s in dict.fromkeys(shapes))
        yield case(f"cat {label} dim {dim}", lambda p=parts, d=dim: torch.cat(p, d), 2 * bytes_of(*parts))


def orders():
    for shape in ((1, 32000), (64, 1000), (1, 1000000), (512, 64)):
        x = torch.randn(shape)
        yield case(f"sort {'x'.join(map(str, shape))}", lambda x=x: torch.sort(x), 4 * bytes_of(x))
    for shape, k in (((1, 32000), 50), ((1, 32000), 1), ((1, 128256), 50), ((1, 672000), 300), ((64, 1000), 5), ((4096, 8), 2), ((8, 8400), 300)):
        x = torch.randn(shape)
        yield case(f"topk {'x'.join(map(str, shape))} k {k}", lambda x=x, k=k: torch.topk(x, k), bytes_of(x) + 3 * shape[0] * k * FLOAT)


def steps():
    for count, shape in ((8, (1024, 1024)), (150, (768,))):
        p, g, m, v = ([torch.rand(shape) for _ in range(count)] for _ in range(4))
        done = [torch.tensor(1.0) for _ in range(count)]
        for name in ("_fused_adam_", "_fused_adamw_"):
            def step(op=getattr(torch, name), p=p, g=g, m=m, v=v, done=done):
                op(p, g, m, v, [], done, lr=1e-6, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False)

            yield case(f"{name} {count} of {'x'.join(map(str, shape))}", step, 7 * bytes_of(*p), in_place=True)

        def sgd(p=p, g=g, m=m):
            torch._fused_sgd_(p, g, m, weight_decay=0.0, momentum=0.9, lr=1e-6, dampening=0.0, nesterov=False, maximize=False, is_first_step=False)

        yield case(f"_fused_sgd_ {count} of {'x'.join(map(str, shape))}", sgd, 5 * bytes_of(*p), in_place=True)


GROUPS = (norms, lookups, recurrent, pools, resizes, joins, orders, steps)


def timed(call, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def measure(one, rounds, threads, product):
    torch.set_num_threads(threads)
    source = torch.ones(max(1, one["bytes"] // (2 * FLOAT)))
    target = torch.empty_like(source)
    limit = (lambda: target.copy_(source)) if one["in_place"] else source.clone
    for call in (one["call"], limit):
        timed(call, 3)
    repeats = [max(1, int(0.004 / timed(call, 3))) for call in (one["call"], limit)]
    shares, times, bounds = [], [], []
    for _ in range(rounds):
        took, copied = timed(one["call"], repeats[0]), timed(limit, repeats[1])
        bound = max(copied, one["flops"] / product[threads])
        shares.append(bound / took)
        times.append(took)
        bounds.append(bound)
    return statistics.median(shares), min(times) * 1e6, min(bounds) * 1e6


def product_rate(threads):
    torch.set_num_threads(threads)
    a = torch.randn(1024, 1024)
    return 2 * 1024**3 / min(timed(lambda: a @ a, 1) for _ in range(9))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one round of one operator of each kind")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", default="1,2", help="numbers of threads, comma separated")
    parser.add_argument("--only", default="", help="operators whose line has this in it")
    options = parser.parse_args()
    threads = [int(n) for n in options.threads.split(",")]
    rounds = 1 if options.smoke else options.rounds
    torch.manual_seed(0)
    product = {n: product_rate(n) for n in threads}
    print("| operator | " + " | ".join(f"{n} thread{'s' * (n > 1)}: stock, us | limit, us | share" for n in threads) + " |")
    print("|---|" + "---|" * 3 * len(threads))
    with torch.no_grad():
        for group in GROUPS:
            for one in group():
                if options.only and options.only not in one["name"]:
                    continue
                cells = []
                for n in threads:
                    share, took, bound = measure(one, rounds, n, product)
                    cells.append(f"{took:.1f} | {bound:.1f} | {share:.2f}{' (enough)' if share >= ENOUGH else ''}")
                print(f"| {one['name']} | " + " | ".join(cells) + " |")
                sys.stdout.flush()
                if options.smoke:
                    break


if __name__ == "__main__":
    main()
