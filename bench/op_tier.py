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
CANDIDATES = ["own_bf16", "onednn_bf16_packed", "onednn_f32_packed"]


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


def measure(torch, hook, shape, seconds):
    m, n, k = shape
    x, layer = torch.randn(m, k), torch.nn.Linear(k, n)

    def call():
        layer(x)

    def use(name):
        hook.set_enabled(name != "stock")
        hook.force("" if name in ("stock", "selected") else name)

    modes = ["stock", *CANDIDATES, "selected"]
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
    out = {"m": m, "n": n, "k": k, "stock_us": round(statistics.median(times["stock"]) * 1e6, 2)}
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
        shapes = [measure(torch, hook, shape, seconds) for shape in (SMOKE_SHAPES if options.smoke else SHAPES)]
        declined = declined_cost(torch, hook, 3 if options.smoke else 31)
    sites = json.loads(hook.report())["sites"]
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "shapes": shapes, "declined": declined,
                      "decisions": {site["site"]: f'{site["choice"]} ({site["reason"]})' for site in sites}}, indent=1))


if __name__ == "__main__":
    main()
