#!/usr/bin/env python3
"""What a step of training spends in each operator (torch.profiler), under ipexrun with its modules captured, and tuned by hand beside it.

    python bench/training_profile.py --build build/dev --model resnet

Each form has a process of its own (training_loops.py): steps until nothing changes any more, then some under the profiler. Prints, per operator, its own
milliseconds a step, its share and its calls a step; and the step's time without the profiler. A backward pass's operators count alike.
"""

import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import training_options  # noqa: E402

PROFILED = 3


def inside(model, form, warm):
    """In the process that is looked at."""
    import training_loops
    from torch.profiler import ProfilerActivity, profile

    step = training_loops.step_of(model, form)
    for _ in range(warm):
        step()
    took = []
    for _ in range(PROFILED):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(PROFILED):
            step()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_cpu_time_total)
    total = sum(row.self_cpu_time_total for row in rows)
    operators = [{"op": row.key.split("<")[0][:60], "ms": round(1e-3 * row.self_cpu_time_total / PROFILED, 2),
                  "share": round(row.self_cpu_time_total / max(total, 1e-9), 4), "calls": round(row.count / PROFILED, 1)} for row in rows[:16]]
    said = sys.modules["ipexrun"].report().get("modules", []) if "ipexrun" in sys.modules else []
    print(json.dumps({"step_ms": round(1e3 * statistics.median(took), 1), "modules": [[one["module"], one["state"], one.get("form")] for one in said],
                      "operators": operators}))


def main():
    parser = training_options.parser(__doc__)
    parser.add_argument("--model", action="append", choices=["bert", "resnet", "mlp"])
    parser.add_argument("--warm", type=int, default=24, help="steps before the profile")
    parser.add_argument("--smoke", action="store_true", help="seconds: a small model, few steps")
    parser.add_argument("--inside", nargs=2, metavar=("MODEL", "FORM"), help="(for itself)")
    options = parser.parse_args()
    if options.inside:
        return inside(*options.inside, options.warm)
    if options.smoke:
        options.model, options.warm = ["mlp"], 6
    for model in options.model or ["resnet", "bert"]:
        for name, form, launcher in (("ipexrun, captured", "plain", training_options.launcher(options, "--graph-mode", "dynamo")), ("by hand", "hand", [])):
            command = [*launcher, options.python, os.path.abspath(__file__), "--warm", str(options.warm), "--inside", model, form]
            done = subprocess.run(command, env=training_options.environment(), stdout=subprocess.PIPE, text=True, check=True)
            print(json.dumps({"model": model, "contender": name, **json.loads(done.stdout.splitlines()[-1])}), flush=True)


if __name__ == "__main__":
    main()
