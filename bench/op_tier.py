"""How much do the op tier's candidates and its selection gain on single products, and what does a declined call cost?

Usage: op_tier.py [--smoke] [--seconds S] [--build DIR]
Interleaves stock and each candidate round by round in one process and prints JSON: the median of the per-round ratios time / stock
with its quartiles. Absolute times are of this machine at this moment; only the ratios travel.
"""

import argparse
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
    ((4, 256, 400), 256, 5, {"padding": 2}),
]
ACTIVATIONS = ["gelu", "gelu tanh", "tanh", "sigmoid", "silu"]  # of 128 x 3072 elements
ATTENTIONS = [  # batch, heads, rows, keys, depth, causal: BERT, ViT, a prompt, a token against a cache
    (1, 12, 128, 128, 64, False), (8, 12, 128, 128, 64, False), (4, 12, 197, 197, 64, False), (1, 12, 512, 512, 64, True), (1, 32, 1, 512, 128, False),
]
SMOKE_ATTENTIONS = [(1, 2, 16, 16, 32, False)]
SMOKE_CONVOLUTIONS = [((1, 16, 14, 14), 16, 3, {})]
LINEAR_CANDIDATES = ["own_bf16", "onednn_bf16_packed", "onednn_f32_packed"]
CONVOLUTION_CANDIDATES = ["onednn_bf16_packed", "onednn_f32_packed"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="one tiny shape, a few rounds: does it still run")
    parser.add_argument("--seconds", type=float, default=3.0, help="per shape")
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
    seconds = 0.1 if options.smoke else options.seconds
    with torch.no_grad():
        shapes = [measure_linear(torch, hook, shape, seconds) for shape in (SMOKE_SHAPES if options.smoke else SHAPES)]
        cases = [(case, last) for case in (SMOKE_CONVOLUTIONS if options.smoke else CONVOLUTIONS) for last in (False, True)
                 if not last or len(case[0]) == 4]
        shapes += [measure_convolution(torch, hook, case, last, seconds) for case, last in cases]
        shapes += [measure_activation(torch, hook, name, dtype, (8, 1024) if options.smoke else (128, 3072), seconds)
                   for name in ACTIVATIONS[: 1 if options.smoke else None] for dtype in (torch.float32, torch.bfloat16)]
        shapes += [measure_attention(torch, hook, case, dtype, seconds) for case in (SMOKE_ATTENTIONS if options.smoke else ATTENTIONS)
                   for dtype in (torch.float32, torch.bfloat16)]
        declined = declined_cost(torch, hook, 3 if options.smoke else 31)
    sites = json.loads(hook.report())["sites"]
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "shapes": shapes, "declined": declined,
                      "decisions": {site["site"]: f'{site["choice"]} ({site["reason"]})' for site in sites}}, indent=1))


if __name__ == "__main__":
    main()
