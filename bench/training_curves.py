#!/usr/bin/env python3
"""Loss curves of unedited trainings (training_tasks.py): stock float32, stock bf16 autocast, and under ipexrun, beside the band of five seeds of
stock float32.

    python bench/training_curves.py --build build/dev --task digits --task sentences --task docstrings --plot /tmp/curves

A curve is the mean loss of each 20 steps. Said of each: the share of its points within the band (least to greatest of stock's five seeds), how far
the furthest lies outside in units of the band's width there, and the loss on held-out data beside its band. (Times of steps are no part of it: runs follow
one another. training_speed.py has them.) Plots want matplotlib.
"""

import json
import os
import statistics
import subprocess
import tempfile

import training_options

HERE = os.path.dirname(os.path.abspath(__file__))
POINT = 20  # steps of one point of a curve


def run(options, folder, task, form, seed):
    launcher = training_options.launcher(options) if form.startswith("ipexrun") else []
    if form == "ipexrun float32":
        launcher += ["--dtype", "float32"]
    out = os.path.join(folder, f"{task}-{form}-{seed}.json".replace(" ", "_"))
    command = [*launcher, options.python, os.path.join(HERE, "training_tasks.py"), task, "--seed", str(seed), "--steps", str(options.steps), "--out", out]
    if form == "autocast":
        command.append("--autocast")
    done = subprocess.run(command, capture_output=True, text=True, env=training_options.environment())
    if done.returncode:
        raise SystemExit(done.stderr)
    with open(out) as file:
        found = json.load(file)
    found["said"] = [line for line in done.stderr.splitlines() if line.startswith("ipexrun: instance 0: cores")]
    return found


def curve(found):
    losses = found["losses"]
    return [statistics.fmean(losses[i : i + POINT]) for i in range(0, len(losses) - POINT + 1, POINT)]


def beside(points, low, high):
    """Share within the band and the furthest point outside, in widths of the band there."""
    outside = [max(lo - point, point - hi, 0) / max(hi - lo, 1e-9) for point, lo, hi in zip(points, low, high)]
    return {"inside": round(sum(one == 0 for one in outside) / len(outside), 2), "furthest_outside": round(max(outside), 2)}


def can_plot():
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    return True


def plot(path, task, low, high, curves):
    from matplotlib import pyplot

    steps = [POINT * (i + 1) for i in range(len(low))]
    figure, axes = pyplot.subplots(figsize=(8, 5))
    axes.fill_between(steps, low, high, color="0.85", label="stock float32, 5 seeds")
    for form, colour in (("stock", "0.4"), ("autocast", "tab:orange"), ("ipexrun", "tab:blue"), ("ipexrun float32", "tab:green")):
        for number, points in enumerate(curves.get(form, [])):
            axes.plot(steps, points, color=colour, linewidth=1, label=form if number == 0 else None)
    axes.set(xlabel="step", ylabel=f"loss, mean of {POINT} steps", title=task)
    axes.legend()
    os.makedirs(path, exist_ok=True)
    figure.savefig(os.path.join(path, f"{task}.png"), dpi=90)


def main():
    parser = training_options.parser(__doc__)
    parser.add_argument("--task", action="append", choices=["digits", "sentences", "docstrings"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--band", type=int, default=5, help="seeds of stock behind the band")
    parser.add_argument("--plot", help="folder for plots")
    parser.add_argument("--smoke", action="store_true", help="seconds: one task, few steps")
    options = parser.parse_args()
    if options.plot and not can_plot():
        parser.error("--plot needs matplotlib, which this Python does not have (pip install matplotlib); without --plot the figures are printed")
    if options.smoke:
        options.task, options.steps, options.seeds, options.band = ["digits"], 2 * POINT, 1, 2
    with tempfile.TemporaryDirectory() as folder:
        for task in options.task or ["digits", "sentences", "docstrings"]:
            stock = [run(options, folder, task, "stock", seed) for seed in range(options.band)]
            curves = {"stock": [curve(one) for one in stock]}
            low, high = ([pick(points) for points in zip(*curves["stock"])] for pick in (min, max))
            held = [one["held_out"] for one in stock]
            for form in ("autocast", "ipexrun", "ipexrun float32"):
                found = [run(options, folder, task, form, seed) for seed in range(options.seeds)]
                curves[form] = [curve(one) for one in found]
                for seed, one in enumerate(found):
                    row = {"task": task, "form": form, "seed": seed, **beside(curves[form][seed], low, high),
                           "held_out": round(one["held_out"], 4), "held_out_band": [round(min(held), 4), round(max(held), 4)],
                           "last": round(curves[form][seed][-1], 4), "last_of_stock": round(curves["stock"][seed][-1], 4)}
                    if one["said"]:
                        row["said"] = one["said"][-1]
                    print(json.dumps(row), flush=True)
            if options.plot:
                plot(options.plot, task, low, high, curves)


if __name__ == "__main__":
    main()
