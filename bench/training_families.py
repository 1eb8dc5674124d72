#!/usr/bin/env python3
"""Ten training steps of model families (models/zoo, small sizes, random weights, dropout and batch norms as they are) under ipexrun, beside the band
of five seeds of stock float32.

    python bench/training_families.py --build build/dev [--family NAME ...] [--families 25] [--dtype bfloat16] [--graph-mode dynamo]

--dtype bfloat16, the default here, uses bf16 wherever it is accurate, so that ten steps are enough to meet it. A family passes when each step's loss
lies within the band, or as near to stock's of the same seed as a hundredth of it (seeds differ in their initial weights, and where the first seed is
itself the edge of the band, rounding alone crosses it), or is no further from it than twice what stock's own bf16 autocast is at its furthest (batch
norms over few pixels magnify any rounding). Prints a line of JSON a family and a summary.
"""

import argparse
import json
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import training_options  # noqa: E402

NEAR = 1e-2


def losses(name, seed, steps, autocast=False):
    import torch
    from models.zoo import FAMILIES, SIZES
    from zoo_rule import tensors_of

    torch.manual_seed(seed)
    random.seed(seed)
    model, inputs = FAMILIES[name].build(SIZES["small"])
    inputs = {key: value.detach() if isinstance(value, torch.Tensor) else value for key, value in inputs.items()}
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    targets, found = {}, []
    for step in range(steps):
        torch.manual_seed(1000 * seed + step)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            results = model(**inputs)
        outputs = {path: value for path, value in tensors_of(results).items() if value.is_floating_point() and value.requires_grad}
        for path, value in outputs.items():
            if path not in targets:
                targets[path] = torch.randn(value.shape)
        parts = [(value.float() - targets[path]).square().mean() for path, value in outputs.items() if value.shape == targets[path].shape]
        loss = torch.stack(parts).mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def child(name, seeds, steps, autocast):
    found = {"losses": [losses(name, seed, steps, autocast) for seed in range(seeds)]}
    if "_ipexrun_hook" in sys.modules:
        report = json.loads(sys.modules["_ipexrun_hook"].report())
        sites = [site for site in report["sites"] if "training=1" in site["site"] or site["site"].startswith("convolution_backward")]
        found["calls"], found["taken"] = sum(site["calls"] for site in sites), sum(site["taken"] for site in sites)
        modules = [one for one in sys.modules["ipexrun"].report().get("modules", []) if one.get("training")] if "ipexrun" in sys.modules else []
        found["captured"] = [one.get("form", one["state"]) for one in modules]
    print(json.dumps(found))


def run(options, launcher, name, seeds, *more):
    command = [*launcher, options.python, os.path.abspath(__file__), "--child", name, "--seeds", str(seeds), "--steps", str(options.steps), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=training_options.environment())
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        return {"problem": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return {**json.loads(lines[-1]), "said": [line for line in done.stderr.splitlines() if "training:" in line]}


def judge(name, stock, mine, autocast):
    if "problem" in stock or "problem" in mine:
        return {"family": name, "passed": None, "problem": stock.get("problem") or mine["problem"]}
    (ours,) = mine["losses"]
    band = [(min(step), max(step)) for step in zip(*stock["losses"])]
    outside = [not low <= loss <= high for loss, (low, high) in zip(ours, band)]
    apart = [abs(loss - same) / max(abs(same), 1e-12) for loss, same in zip(ours, stock["losses"][0])]
    of_autocast = None
    if "problem" not in autocast:
        of_autocast = max(abs(loss - same) / max(abs(same), 1e-12) for loss, same in zip(autocast["losses"][0], stock["losses"][0]))
    bound = max(NEAR, 2 * (of_autocast or 0))
    passed = all(not out or near <= bound for out, near in zip(outside, apart))
    return {"family": name, "passed": passed, "outside": sum(outside), "furthest_from_stock": round(max(apart), 5),
            "autocast_from_stock": None if of_autocast is None else round(of_autocast, 5), "calls": mine.get("calls", 0),
            "taken": mine.get("taken", 0), "captured": mine.get("captured", []), "said": mine["said"]}


def main():
    parser = training_options.parser(__doc__)
    parser.add_argument("--family", action="append")
    parser.add_argument("--families", type=int, default=25, help="how many, spread over all of them")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--graph-mode", default="auto", help="dynamo: every module is captured at its first call, in the first form that is right")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--autocast", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child, options.seeds, options.steps, options.autocast)
    from models.zoo import FAMILIES

    names = options.family or list(FAMILIES)[:: max(1, len(FAMILIES) // options.families)]
    launcher = training_options.launcher(options, "--dtype", options.dtype, "--graph-mode", options.graph_mode)
    rows = []
    for name in names:
        rows.append(judge(name, run(options, [], name, options.seeds), run(options, launcher, name, 1),
                          run(options, [], name, 1, "--autocast")))
        print(json.dumps(rows[-1]), flush=True)
    print(json.dumps({"passed": sum(row["passed"] is True for row in rows), "failed": sum(row["passed"] is False for row in rows),
                      "could_not_train": sum(row["passed"] is None for row in rows)}))


if __name__ == "__main__":
    main()
