"""What does a CPU quota do to stock PyTorch, to torch's own launcher and to ipexrun?

Runs MiniLM sentence embeddings (examples/embed_sentences.py, trained weights) inside real cgroups with a CFS quota. `stock` gets 16
threads, as it would on any host with 16 cores or more: torch counts the host's cores, not the quota. `stock, 2 threads` is torch's
choice on a host of the size of this one. `run_cpu` is torch.backends.xeon.run_cpu.

    python bench/quota.py [--quota 0.5 1 1.5] [--rounds 7] [--sentences 128] [--threads 16] [--output FILE.json]

Needs a writable cpu controller (cgroup v1, or v2 where it is delegated). Figures are sentences/s; ratios are of rounds, interleaved.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import rounds as r

TOP = Path(__file__).resolve().parents[1]
SCRIPT = TOP / "examples" / "embed_sentences.py"
PERIOD_US = 100_000


class Quota:
    """A cgroup with a CFS quota, removed at the end."""

    def __init__(self, cpus):
        v1 = Path("/sys/fs/cgroup/cpu")
        self.v1 = (v1 / "cpu.cfs_quota_us").exists() or v1.is_dir()
        root = v1 if self.v1 else Path("/sys/fs/cgroup")
        self.folder = root / f"ipexrun-quota-{os.getpid()}"
        self.folder.mkdir()
        quota = str(int(cpus * PERIOD_US))
        if self.v1:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(quota)
        else:
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def throttled_share(self):
        words = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        periods = int(words.get("nr_periods", 0))
        return int(words["nr_throttled"]) / periods if periods else 0.0

    def remove(self):
        self.folder.rmdir()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quota", type=float, nargs="+", default=[0.5, 1.0, 1.5])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--threads", type=int, default=16, help="threads of the forced stock run")
    parser.add_argument("--bert", action="store_true", help="BERT-base with random weights, batch 1, instead of MiniLM; 40 calls")
    parser.add_argument("--output")
    parser.add_argument("--smoke", action="store_true", help="one quota, one round, few sentences: does it still run")
    args = parser.parse_args()
    if args.smoke:
        args.quota, args.rounds, args.sentences = [1.0], 1, 32
    ipexrun = shutil.which("ipexrun")
    if ipexrun is None:
        sys.exit("quota: ipexrun is not on the PATH; start this through ./dev exec")
    try:
        Quota(1).remove()
    except OSError as error:
        print(f"quota: no cgroup can be made here: {error}", file=sys.stderr)
        sys.exit(0 if args.smoke else 1)

    program = [sys.executable, str(SCRIPT), "--sentences", str(args.sentences)]
    if args.bert:
        program = [sys.executable, str(TOP / "examples" / "bert_encoder.py"), "--batch-size", "1", "--calls", "40"]
    forced = f"stock, {args.threads} threads"
    own = f"stock, {os.cpu_count()} threads"
    commands = {
        forced: (program, {"OMP_NUM_THREADS": str(args.threads)}),
        own: (program, {}),
        "run_cpu": ([sys.executable, "-m", "torch.backends.xeon.run_cpu", "--ninstances", "1", *program[1:]], {}),
        "ipexrun --no-optimize": ([ipexrun, "--no-optimize", *program], {}),
        "ipexrun": ([ipexrun, *program], {}),
    }
    what = "BERT-base, batch 1" if args.bert else f"MiniLM, {args.sentences} sentences"
    report = []
    for cpus in args.quota:
        quota_share = {}

        def measure(variant):
            command, extra = commands[variant]
            quota = Quota(cpus)
            try:
                env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | {"TOKENIZERS_PARALLELISM": "false"} | extra
                with tempfile.TemporaryDirectory() as folder:
                    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, preexec_fn=quota.enter)
                quota_share.setdefault(variant, []).append(quota.throttled_share())
            finally:
                quota.remove()
            found = re.search(r"([\d.]+) (?:sentences|samples)/s", done.stdout + done.stderr)
            if done.returncode != 0 or not found:
                print(done.stderr[-2000:], file=sys.stderr)
                return None
            return float(found.group(1))

        figures = r.run_rounds(list(commands), args.rounds, measure)
        print(f"\nquota of {cpus:g} CPUs on a host of {os.cpu_count()}, {what}\n")
        print(r.table(figures, forced))
        for base in (own, "run_cpu"):
            both = r.ratio(figures, "ipexrun --no-optimize", base), r.ratio(figures, "ipexrun", base)
            if all(both):
                print(f"against {base}: launch only {both[0]['ratio']:.2f} {both[0]['interval_95']}, ipexrun {both[1]['ratio']:.2f} {both[1]['interval_95']}")
        shares = ", ".join(f"{variant} {sum(seen) / len(seen):.0%}" for variant, seen in quota_share.items())
        print(f"periods throttled: {shares}", flush=True)
        report.append({"quota": cpus, "figures": figures, "throttled": quota_share,
                       "to_stock": {variant: r.ratio(figures, variant, forced) for variant in commands}})
    if args.output:
        Path(args.output).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
