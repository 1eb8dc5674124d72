"""Workloads in processes of their own, each under each variant of the environment, round by round in an order that alternates."""

import json
import os
import statistics
import subprocess
import sys

# A caller's own choices would be measured instead of the variants'.
LEFT_OUT = ("LD_PRELOAD", "MALLOC_CONF", "GLIBC_TUNABLES")


def minilm():
    """A model of MiniLM's shape; random weights: only the shapes matter here."""
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)).eval()


def run_children(script, workloads, variants, rounds, words=(), say=False):
    """{workload: {variant: [what `script --child WORKLOAD words` printed (JSON) in round 0, 1, ...]}}; variants: {name: environment}."""
    results = {workload: {name: [] for name in variants} for workload in workloads}
    for number in range(rounds):
        order = list(variants)
        order = order[number % len(order):] + order[:number % len(order)]
        if number % 2:
            order.reverse()
        for workload in workloads:
            for name in order:
                env = {key: value for key, value in os.environ.items() if key not in LEFT_OUT}
                out = subprocess.run([sys.executable, script, "--child", workload, *words], env={**env, **variants[name]}, check=True,
                                     capture_output=True, text=True).stdout
                results[workload][name].append(json.loads(out))
                if say:
                    print(number, workload, name, out.strip(), file=sys.stderr, flush=True)  # a long run may be stopped and still be read
    return results


def ratio_of_seconds(runs, base_runs):
    """Median, smallest and largest of the rounds' ratios."""
    ratios = sorted(run["seconds"] / base["seconds"] for run, base in zip(runs, base_runs))
    return {"ratio": round(statistics.median(ratios), 3), "min": round(ratios[0], 3), "max": round(ratios[-1], 3)}
