"""How long planning takes: the whole process `ipexrun --dry-run`, and the planner alone, on machines of up to 2048 PUs.

    python bench/planning.py [--build build/dev] [--repeats 20] [--smoke]

The limit is 50 ms for 2048 PUs. Three sources of one machine: hwloc's synthetic text, an XML file that lstopo writes, a /sys tree
of small files (what a real machine has; tests/machines/sysfs.py makes it). Times of the whole process are CPU time (user and system,
which other work on the machine does not change much) and wall time, each the least and the median of the repeats. Prints JSON.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests" / "machines"))
import sysfs  # noqa: E402

SYNTHETIC = "pack:8 node:2(memory=64GB) l3:4 core:16 pu:2"
TREE = [
    "cpus: " + "{a}-{b}/{c}-{d} pkg={pkg} node={node} l3={l3}".format(a=16 * i, b=16 * i + 15, c=1024 + 16 * i, d=1039 + 16 * i, pkg=i // 8, node=i // 4, l3=i)
    for i in range(64)
] + [f"node: {n} memory=64G" for n in range(16)]
WAYS = [[], ["--ninstances", "auto"], ["--ninstances", "37"], ["--throughput-mode"], ["--json", "--ncores-per-instance", "1"]]


def timed(command, repeats):
    wall, cpu = [], []
    for _ in range(repeats):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    def ms(values):
        return {"least_ms": round(1e3 * min(values), 1), "median_ms": round(1e3 * statistics.median(values), 1)}

    return {"cpu": ms(cpu), "wall": ms(wall)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(TOP / "build" / "dev"))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    repeats = 1 if args.smoke else args.repeats
    binary = str(Path(args.build) / "bin" / "ipexrun")
    planner = str(Path(args.build) / "bin" / "ipexrun_planning")
    out = {"pus": 2048, "cpus_here": os.cpu_count(), "load": os.getloadavg()[0], "process": [], "planner": []}
    with tempfile.TemporaryDirectory() as folder:
        sources = {"synthetic": ["--topology", SYNTHETIC]}
        if shutil.which("lstopo-no-graphics"):
            xml = str(Path(folder) / "machine.xml")
            subprocess.run(["lstopo-no-graphics", "-i", SYNTHETIC, "--of", "xml", xml], check=True)
            sources["xml"] = ["--topology", xml]
        root = Path(folder) / "root"
        sysfs.build(root, TREE)
        sources["sys tree"] = ["--sysroot", str(root)]
        for source, options in sources.items():
            for way in WAYS[:1] if args.smoke else WAYS:
                row = {"source": source, "options": " ".join(way) or "(default)"}
                row.update(timed([binary, "--dry-run", "--no-optimize", *options, *way, "true"], repeats))
                out["process"].append(row)
    if Path(planner).exists():
        done = subprocess.run([planner, SYNTHETIC, str(repeats * 5)], check=True, capture_output=True, text=True)
        out["planner"] = [json.loads(line) for line in done.stdout.splitlines()]
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
