"""How long planning takes: the whole process `ipexrun --dry-run`, and the planner alone, on machines of up to 2048 PUs.

    python bench/planning.py [--build build/dev] [--repeats 20] [--smoke]

The limit is 50 ms for 2048 PUs. Four sources of one machine: hwloc's synthetic text, an XML file that lstopo writes, a sparse /sys tree
(tests/machines/sysfs.py: facts of a package or a cache stand at its first CPU only), and a full one with the files of topology and
caches that a kernel shows for each CPU. Times of the whole process are CPU time (user and system,
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


def write_full(root):
    """The same machine with all that a kernel shows of each CPU: four caches, and masks as wide as the machine."""
    cpu_root, cores = root / "sys/devices/system/cpu", 1024

    def mask(numbers):
        words = sysfs.mask(numbers).split(",")
        return ",".join(["00000000"] * (2 * cores // 32 - len(words)) + words)

    def threads(first, count):
        return mask([core + cores * thread for core in range(first, first + count) for thread in (0, 1)])

    for cpu in range(2 * cores):
        core = cpu % cores
        own, l3, package = threads(core, 1), threads(core // 16 * 16, 16), threads(core // 128 * 128, 128)
        sets = {"core_cpus": own, "cluster_cpus": own, "die_cpus": package, "package_cpus": package}
        numbers = {"core_id": core, "cluster_id": core, "die_id": 0, "physical_package_id": core // 128}
        for name, text in {**sets, **numbers}.items():
            sysfs.write(cpu_root / f"cpu{cpu}/topology/{name}", str(text))
        caches = ((1, "Data", "48K", own), (1, "Instruction", "32K", own), (2, "Unified", "2048K", own), (3, "Unified", "32768K", l3))
        for index, (level, kind, size, shared) in enumerate(caches):
            facts = {"level": level, "type": kind, "size": size, "id": core, "shared_cpu_map": shared}
            facts.update({"coherency_line_size": 64, "number_of_sets": 64, "physical_line_partition": 1})
            for name, text in facts.items():
                sysfs.write(cpu_root / f"cpu{cpu}/cache/index{index}/{name}", str(text))
        for name in ("cpuinfo_max_freq", "base_frequency"):
            sysfs.write(cpu_root / f"cpu{cpu}/cpufreq/{name}", "2000000")


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
        sources["sparse /sys tree"] = ["--sysroot", str(root)]
        if not args.smoke:  # 87,000 files
            full = Path(folder) / "full"
            sysfs.build(full, TREE)
            write_full(full)
            sources["full /sys tree"] = ["--sysroot", str(full)]
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
