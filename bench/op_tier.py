"""How much do the op tier's candidates and its selection gain on single products, and what does a declined call cost?

Usage: op_tier.py [--smoke] [--seconds S] [--only WORDS] [--threads N] [--build DIR]
Interleaves stock and each candidate round by round in one process and prints JSON: the median of the per-round ratios time / stock
with its quartiles. Absolute times are of this machine at this moment; only the ratios travel.
"""

import argparse
import functools
import itertools
import json
import os
import statistics
import sys
import time

SHAPES = [  # (M, N, K): decode, a sentence, a batch of sentences, a wide layer
    (1, 768, 768), (4, 3072, 768), (16, 1024, 1024), (128, 768, 768), (128, 3072, 768), (512, 384, 1536), (788, 768, 3072),
]
SMOKE_SHAPES = [(16, 256, 256)]
CONVOLUTIONS = [  # input shape, out channels, kernel, keywords: layers of ResNet-50, MobileNet, a 1d and a transposed one
    ((1, 3, 224, 224), 64, 7, {"stride": 2, "padding": 3}), ((1, 64, 56, 56), 64, 3, {"padding": 1}), ((1, 256, 56, 56), 64, 1, {}),
    ((1, 512, 7, 7), 512, 3, {"padding": 1}), ((8, 256, 14, 14), 256, 3, {"padding": 1}), ((1, 96, 56, 56), 96, 3, {"groups": 96, "padding": 1}),
    ((4, 256, 400), 256, 5, {"padding": 2}), ((1, 960, 7, 7), 960, 3, {"groups": 960, "padding": 1}), ((1, 192, 28, 28), 192, 7, {"groups": 192, "padding": 3}),
]
ACTIVATIONS = ["gelu", "gelu tanh", "tanh", "sigmoid", "silu"]  # of 128 x 3072 elements
ATTENTIONS = [  # batch, heads, rows, keys, depth, causal: BERT, ViT, a prompt, a token against a cache
    (1, 12, 128, 128, 64, False), (8, 12, 128, 128, 64, False), (4, 12, 197, 197, 64, False), (1, 12, 512, 512, 64, True), (1, 32, 1, 512, 128, False),
]
SMOKE_ATTENTIONS = [(1, 2, 16, 16, 32, False)]
ATTENTION_GRADS = [case for case in ATTENTIONS if case[2] > 1]  # the backward pass of the same


@functools.cache
def some_bags(rows, count, each):
    import torch

    return torch.randint(rows, (count * each,)), torch.arange(0, count * each, each)


def bags(F, table, count, each, **keywords):
    indices, offsets = some_bags(len(table), count, each)
    return F.embedding_bag(indices, table, offsets, **keywords)


@functools.cache
def some_int8_weights(n, k, dtype):
    """More than a cache holds, in turn: a decoder reads each weight once a token."""
    import torch

    count = max(1, (64 << 20) // (n * k))
    return itertools.cycle([(torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n).div(100).to(dtype)) for _ in range(count)])


def int8_product(x, n):
    import torch

    return torch.ops.aten._weight_int8pack_mm(x, *next(some_int8_weights(n, x.shape[1], x.dtype)))


@functools.cache
def some_int4_weights(n, k):
    import torch

    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(torch.randint(0, 16, (n, k), dtype=torch.int32), 2)
    count = max(1, (64 << 20) // packed.numel())
    return itertools.cycle([(packed.clone(), 128, torch.rand(k // 128, n, 2).div(100).bfloat16()) for _ in range(count)])


def int4_product(x, n):
    import torch

    return torch.ops.aten._weight_int4pack_mm_for_cpu(x, *next(some_int4_weights(n, x.shape[1])))


@functools.cache
def some_bytes(m, n, k):
    import torch

    count = max(1, (64 << 20) // (n * k))
    x = torch.randint(-128, 128, (m, k), dtype=torch.int8)
    return itertools.cycle([(x, torch.randint(-128, 128, (n, k), dtype=torch.int8).t()) for _ in range(count)])


def bytes_product(x, n):
    import torch

    return torch._int_mm(*next(some_bytes(x.shape[0], n, x.shape[1])))


CALLS = {  # functions of one tensor, with its shape: each is also measured with channels last where that is said
    "max_pool2d 3 by 3, stride 2": (lambda F, x: F.max_pool2d(x, 3, 2, 1), [(1, 64, 112, 112), (8, 64, 112, 112)], False),
    "max_pool2d 2 by 2": (lambda F, x: F.max_pool2d(x, 2, 2), [(8, 256, 28, 28)], False),
    "max_pool2d 5 by 5, stride 1": (lambda F, x: F.max_pool2d(x, 5, 1, 2), [(1, 256, 20, 20)], False),
    "avg_pool2d 2 by 2": (lambda F, x: F.avg_pool2d(x, 2, 2), [(8, 128, 56, 56)], False),
    "avg_pool2d 3 by 3, stride 1": (lambda F, x: F.avg_pool2d(x, 3, 1, 1), [(8, 192, 28, 28)], False),
    "batch_norm": (lambda F, x: F.batch_norm(x, x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])), [(1, 64, 112, 112), (8, 256, 14, 14), (8, 64, 56, 56)], True),
    "group_norm, 32 groups": (lambda F, x: F.group_norm(x, 32), [(1, 320, 64, 64), (1, 1280, 16, 16), (2, 128, 32, 32)], False),
    "interpolate nearest, twice": (lambda F, x: F.interpolate(x, scale_factor=2), [(1, 320, 32, 32), (1, 128, 64, 64)], False),
    "interpolate bilinear, twice": (lambda F, x: F.interpolate(x, scale_factor=2, mode="bilinear"), [(1, 64, 64, 64)], False),
    "interpolate bilinear to 513": (lambda F, x: F.interpolate(x, size=513, mode="bilinear"), [(1, 21, 65, 65)], False),
    "interpolate bicubic to 384": (lambda F, x: F.interpolate(x, size=384, mode="bicubic"), [(1, 3, 224, 224)], False),
    "interpolate bicubic to 24": (lambda F, x: F.interpolate(x, size=24, mode="bicubic"), [(1, 768, 14, 14)], False),
    "topk 50": (lambda F, x: x.topk(50), [(1, 32000), (1, 128256)], False),
    "topk 300": (lambda F, x: x.topk(300), [(8, 8400), (1, 672000)], False),
    "topk 5": (lambda F, x: x.topk(5), [(64, 1000)], False),
    "embedding_bag sum, 1 bag of 20": (lambda F, x: bags(F, x, 1, 20, mode="sum"), [(1000, 64)], False),
    "embedding_bag sum, 128 bags of 1": (lambda F, x: bags(F, x, 128, 1, mode="sum"), [(1000, 64)], False),
    "embedding_bag sum, 64 bags of 20": (lambda F, x: bags(F, x, 64, 20, mode="sum"), [(30000, 768)], False),
    "embedding_bag sum, 128 bags of 20, padding": (lambda F, x: bags(F, x, 128, 20, mode="sum", padding_idx=0), [(100000, 64)], False),
    "embedding_bag mean, 128 bags of 20": (lambda F, x: bags(F, x, 128, 20, mode="mean"), [(100000, 64)], False),
    "embedding_bag mean, 512 bags of 50": (lambda F, x: bags(F, x, 512, 50, mode="mean"), [(100000, 128)], False),
    "embedding_bag max, 128 bags of 20": (lambda F, x: bags(F, x, 128, 20, mode="max"), [(100000, 64)], False),
    "int8 weights to 768": (lambda F, x: int8_product(x, 768), [(1, 768), (4, 768), (16, 768), (128, 768), (1, 3072)], False),
    "int8 weights to 4096": (lambda F, x: int8_product(x, 4096), [(1, 4096), (4, 4096), (16, 4096)], False),
    "int8 weights to 5632": (lambda F, x: int8_product(x, 5632), [(1, 2048), (16, 2048), (128, 2048)], False),
    "int4 weights to 768": (lambda F, x: int4_product(x.bfloat16(), 768), [(1, 768), (4, 768), (16, 768), (128, 768), (1, 3072)], False),
    "int4 weights to 4096": (lambda F, x: int4_product(x.bfloat16(), 4096), [(1, 4096), (4, 4096), (16, 4096)], False),
    "int4 weights to 5632": (lambda F, x: int4_product(x.bfloat16(), 5632), [(1, 2048), (16, 2048), (128, 2048)], False),
    "int_mm to 768": (lambda F, x: bytes_product(x, 768), [(1, 768), (16, 768), (128, 768), (16, 3072)], False),
    "int_mm to 5632": (lambda F, x: bytes_product(x, 5632), [(1, 2048), (16, 2048), (128, 2048)], False),
    "adaptive_avg_pool2d to 7": (lambda F, x: F.adaptive_avg_pool2d(x, 7), [(8, 512, 14, 14)], False),
    "adaptive_avg_pool2d to 6": (lambda F, x: F.adaptive_avg_pool2d(x, 6), [(1, 512, 32, 32)], False),
}
SMOKE_CONVOLUTIONS = [((1, 16, 14, 14), 16, 3, {})]
LINEAR_CANDIDATES = ["own_bf16", "onednn_bf16_packed", "onednn_f32_packed", "mkl_f32_packed"]
CONVOLUTION_CANDIDATES = ["own_f32", "own_bf16", "onednn_bf16_packed", "onednn_f32_packed"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one tiny shape, a few rounds: does it still run")
    parser.add_argument("--seconds", type=float, default=3.0, help="per shape")
    parser.add_argument("--only", default="", help="of the calls, those whose name has this in it, and no products or activations")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--build", default=os.environ.get("IPEXRUN_BUILD_DIR", "build/dev"), help="build tree with the plugin")
    return parser.parse_args()


def timed(call, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def ratios(stock_times, times):
    pairs = sorted(t / s for t, s in zip(times, stock_times))
    n = len(pairs)
    return {"ratio": round(statistics.median(pairs), 4), "quartiles": [round(pairs[n // 4], 4), round(pairs[(3 * n) // 4], 4)], "rounds": n}


def measure_linear(torch, hook, shape, seconds):
    m, n, k = shape
    x, layer = torch.randn(m, k), torch.nn.Linear(k, n)
    return {"m": m, "n": n, "k": k} | measure(hook, lambda: layer(x), LINEAR_CANDIDATES, seconds)


def measure_convolution(torch, hook, case, last, seconds):
    shape, channels, kernel, keywords = case
    dims = len(shape) - 2
    x, layer = torch.randn(shape), getattr(torch.nn, f"Conv{dims}d")(shape[1], channels, kernel, **keywords)
    if last:
        x, layer = x.to(memory_format=torch.channels_last), layer.to(memory_format=torch.channels_last)
    name = f"{'x'.join(map(str, shape))} -> {channels}, kernel {kernel} {keywords or ''}{' channels last' if last else ''}"
    return {"convolution": name} | measure(hook, lambda: layer(x), CONVOLUTION_CANDIDATES, seconds)


def measure_activation(torch, hook, name, dtype, shape, seconds):
    x = torch.randn(shape).to(dtype)
    function = {"gelu tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "tanh": torch.tanh, "sigmoid": torch.sigmoid}.get(name)
    function = function or getattr(torch.nn.functional, name)
    return {"activation": f"{name} {str(dtype)[6:]}"} | measure(hook, lambda: function(x), ["own_f32"], seconds)


def measure_attention(torch, hook, case, dtype, seconds):
    batch, heads, rows, keys, depth, causal = case
    q, k, v = (torch.randn(batch, n, heads, depth).to(dtype).transpose(1, 2) for n in (rows, keys, keys))
    name = f"{batch} x {heads} heads, {rows} rows, {keys} keys, depth {depth}{', causal' if causal else ''}, {str(dtype)[6:]}"
    call = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)  # noqa: E731
    return {"attention": name} | measure(hook, call, ["own_f32"], seconds)


def measure_attention_grad(torch, hook, case, dtype, seconds):
    batch, heads, rows, keys, depth, causal = case
    q, k, v, grad = (torch.randn(batch, n, heads, depth).to(dtype).transpose(1, 2) for n in (rows, keys, keys, rows))
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal)
    name = f"{batch} x {heads} heads, {rows} rows, {keys} keys, depth {depth}{', causal' if causal else ''}, {str(dtype)[6:]}"
    call = lambda: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, out, lse, 0.0, causal)  # noqa: E731
    return {"attention grad": name} | measure(hook, call, ["own_f32"], seconds)


def measure_call(torch, hook, name, shape, dtype, last, seconds):
    x = torch.randn(shape).to(dtype)
    if last:
        x = x.to(memory_format=torch.channels_last)
    function = CALLS[name][0]
    words = f"{name}, {'x'.join(map(str, shape))} {str(dtype)[6:]}{' channels last' if last else ''}"
    return {"call": words} | measure(hook, lambda: function(torch.nn.functional, x), ["own_f32"], seconds)


def measure(hook, call, candidates, seconds):
    def use(name):
        hook.set_enabled(name != "stock")
        hook.force("" if name in ("stock", "selected") else name)

    modes = ["stock", *candidates, "selected"]
    times = {mode: [] for mode in modes}
    use("selected")
    explore_until = time.perf_counter() + seconds
    while time.perf_counter() < explore_until:  # selection decides on ordinary calls before anything is compared
        timed(call, 10)
    repeats = max(1, int(0.002 / max(timed(call, 3), 1e-6)))
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times["stock"]) < 5:
        for mode in modes:
            use(mode)
            call()
            times[mode].append(timed(call, repeats))
        modes.append(modes.pop(0))  # nobody always runs after the same neighbour
    use("selected")
    out = {"stock_us": round(statistics.median(times["stock"]) * 1e6, 2)}
    out.update({mode: ratios(times["stock"], times[mode]) for mode in times if mode != "stock"})
    return out


def declined_cost(torch, hook, rounds):
    """A float64 product too small to matter: the adapter says no and stock answers. Against the tier switched off, and a no-op."""
    x, w = torch.randn(2, 2, dtype=torch.float64), torch.randn(2, 2, dtype=torch.float64)
    extra, base = [], []
    for _ in range(rounds):
        hook.set_enabled(False)
        off = timed(lambda: torch.mm(x, w), 2000)
        hook.set_enabled(True)
        extra.append((timed(lambda: torch.mm(x, w), 2000) - off) * 1e9)
        base.append(off * 1e9)
    return {"extra_ns": round(statistics.median(extra), 1), "call_ns": round(statistics.median(base), 1), "rounds": rounds}


def main():
    options = parse()
    os.environ["IPEXRUN_BUILD_DIR"] = os.path.abspath(options.build)
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "op_tier"))
    import plugin_loader
    import torch

    result, reason = plugin_loader.start()
    if result != 0:
        sys.exit(f"op_tier.py: the plugin did not start: {reason}")
    hook = sys.modules["_ipexrun_hook"]
    if options.threads:
        torch.set_num_threads(options.threads)
    seconds = 0.1 if options.smoke else options.seconds
    with torch.no_grad():
        shapes = [] if options.only else [measure_linear(torch, hook, shape, seconds) for shape in (SMOKE_SHAPES if options.smoke else SHAPES)]
        cases = [(case, last) for case in (SMOKE_CONVOLUTIONS if options.smoke else CONVOLUTIONS) for last in (False, True)
                 if not last or len(case[0]) == 4]
        shapes += [measure_convolution(torch, hook, case, last, seconds) for case, last in cases if not options.only]
        shapes += [] if options.only else [measure_activation(torch, hook, name, dtype, (8, 1024) if options.smoke else (128, 3072), seconds)
                   for name in ACTIVATIONS[: 1 if options.smoke else None] for dtype in (torch.float32, torch.bfloat16)]
        shapes += [] if options.only else [measure_attention(torch, hook, case, dtype, seconds) for case in (SMOKE_ATTENTIONS if options.smoke else ATTENTIONS)
                   for dtype in (torch.float32, torch.bfloat16)]
        cases = [] if options.only not in ("", "attention grad") else SMOKE_ATTENTIONS if options.smoke else ATTENTION_GRADS
        shapes += [measure_attention_grad(torch, hook, case, dtype, seconds) for case in cases for dtype in (torch.float32, torch.bfloat16)]
        calls = [(name, shape, dtype, last) for name, (_, found, lasts) in CALLS.items() for shape in found for last in ([False, True] if lasts else [False])
                 for dtype in (torch.float32, torch.bfloat16)]
        calls = [call for call in calls if options.only in call[0]]
        shapes += [measure_call(torch, hook, *call, seconds) for call in calls[: 1 if options.smoke else None]]
        declined = declined_cost(torch, hook, 3 if options.smoke else 31)
    sites = json.loads(hook.report())["sites"]
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "shapes": shapes, "declined": declined,
                      "decisions": {site["site"]: f'{site["choice"]} ({site["reason"]})' for site in sites}}, indent=1))


if __name__ == "__main__":
    main()
