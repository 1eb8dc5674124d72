"""A /sys and /proc tree of a machine that is not there, from a few lines of text; `ipexrun --sysroot` reads it as a real one.

    cpus: 0-3/8-11 pkg=0 node=0 l3=0 [type=core|atom] [capacity=N]   cores; lists joined by '/' are the first, second, ... hardware
                                                                     threads of the same cores (0 and 8 are one core here)
    cpus: 0-14:2/1-15:2 ...                                          steps: CPUs 0 and 1 are one core
    node: 0 memory=64G [cpuless]                                     a NUMA node; without any there is no /sys/devices/system/node
    offline: 12-15                                                   CPUs that exist and are switched off
    limits: cpus=LIST mems=LIST quota_v1=US/PERIOD quota_v2=US/PERIOD memory_v1=SIZE memory_v2=SIZE pids_v1=N pids_v2=N
            nproc=N used=N total=SIZE available=SIZE policy=TEXT affinity=LIST amx_refused=yes     of the process, two groups below the mount
    file: PATH TEXT                                                  any further file (\\n in the text is a new line)

    build(root, lines) writes the tree.
"""

import re
from pathlib import Path

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(text):
    """Bytes of "64G"."""
    return int(float(text[:-1]) * UNITS[text[-1]]) if text[-1] in UNITS else int(text)


def numbers(text):
    """[0, 1, 2, 8] of "0-2,8"; "0-6:2" steps by 2."""
    out = []
    for part in text.split(","):
        first, last, step = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", part).groups()
        out += range(int(first), int(last or first) + 1, int(step or 1))
    return out


def ranges(values):
    """"0-2,8" of [0, 1, 2, 8]."""
    out, values = [], sorted(values)
    for i, value in enumerate(values):
        if i and value == values[i - 1] + 1:
            out[-1][1] = value
        else:
            out.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def mask(values):
    """The kernel's "00000000,0000000f" of a list."""
    bits = sum(1 << value for value in values)
    words = [f"{bits >> 32 * i & 0xFFFFFFFF:08x}" for i in range(max(values, default=0) // 32 + 1)]
    return ",".join(reversed(words))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def parse(words):
    return dict(word.partition("=")[::2] for word in words)


def write_cpus(root, lines):
    """Topology and caches; returns {cpu: node}."""
    cpu_root = root / "sys/devices/system/cpu"
    cores, members = [], {"package": {}, "l3": {}}
    for line in lines:
        lists, *words = line.split()
        keys = parse(words)
        for threads in zip(*[numbers(part) for part in lists.split("/")], strict=True):
            cores.append((threads, keys))
            members["package"].setdefault(keys.get("pkg", "0"), []).extend(threads)
            if "l3" in keys:
                members["l3"].setdefault(keys["l3"], []).extend(threads)
    home, kinds, seen = {}, {}, set()

    def first(kind, number):
        """Facts of a package or a cache are read through its first CPU; a file for each CPU would be thousands for nothing."""
        known = (kind, number) in seen
        seen.add((kind, number))
        return not known

    # hwloc wants core_id to be unique in a package only; a running number is so everywhere.
    order = sorted(((min(threads), core_id) for core_id, (threads, _) in enumerate(cores)))
    for _, core_id in order:
        threads, keys = cores[core_id]
        pkg, l3 = keys.get("pkg", "0"), keys.get("l3")
        for cpu in threads:
            folder = cpu_root / f"cpu{cpu}"
            write(folder / "topology/core_cpus", mask(threads))
            if cpu == min(threads):
                write(folder / "topology/core_id", str(core_id))
                write(folder / "topology/package_cpus", mask(members["package"][pkg]))
                if first("package", pkg):
                    write(folder / "topology/physical_package_id", pkg)
                if l3 is not None and first("l3", l3):
                    cache = folder / "cache/index3"
                    for name, text in (("level", "3"), ("type", "Unified"), ("size", "32768K"), ("id", l3)):
                        write(cache / name, text)
                    write(cache / "shared_cpu_map", mask(members["l3"][l3]))
            if "capacity" in keys:
                write(folder / "cpu_capacity", keys["capacity"])
            home[cpu] = int(keys.get("node", "0"))
            kinds.setdefault(keys.get("type", ""), []).append(cpu)
    for kind in ("core", "atom"):
        if kind in kinds:
            write(root / f"sys/devices/cpu_{kind}/cpus", ranges(kinds[kind]))
    return home


def write_nodes(root, lines, home):
    node_root = root / "sys/devices/system/node"
    present = []
    for line in lines:
        number, *words = line.split()
        keys = parse(words)
        present.append(int(number))
        folder = node_root / f"node{number}"
        write(folder / "cpumap", mask([cpu for cpu, node in home.items() if node == int(number)]))
        write(folder / "cpulist", ranges([cpu for cpu, node in home.items() if node == int(number)]))
        write(folder / "meminfo", f"Node {number} MemTotal: {size(keys.get('memory', '0')) // 1024} kB")
    for line in lines:
        number = int(line.split()[0])
        write(node_root / f"node{number}/distance", " ".join("10" if other == number else "20" for other in present))
    if present:
        write(node_root / "online", ranges(present))


def write_limits(root, text):
    """A /proc and cgroup tree in which the process sits two groups below the mount and the limits hold for the upper one."""
    limits = parse(text.split())
    status = "Name:\tx"
    for key, name in (("cpus", "Cpus_allowed_list"), ("mems", "Mems_allowed_list")):
        if key in limits:
            status += f"\n{name}:\t{limits[key]}"
    write(root / "proc/self/status", status)
    groups, mounts = [], []
    if any(key.endswith("_v1") for key in limits):
        for number, controller in enumerate(("cpu,cpuacct", "memory", "pids"), start=4):
            groups.append(f"{number}:{controller}:/pod/container")
            mounts.append(f"{30 + number} 31 0:{29 + number} / /sys/fs/cgroup/{controller.split(',')[0]} rw - cgroup cgroup rw,{controller}")
    if any(key.endswith("_v2") for key in limits):
        groups.append("0::/pod/container")
        mounts.append("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    if groups:
        write(root / "proc/self/cgroup", "\n".join(groups))
        write(root / "proc/self/mountinfo", "\n".join(mounts))
    v1, v2 = root / "sys/fs/cgroup", root / "sys/fs/cgroup/pod"
    if "quota_v1" in limits:
        quota, period = limits["quota_v1"].split("/")
        for group, value in (("pod", quota), ("pod/container", "-1")):
            write(v1 / f"cpu/{group}/cpu.cfs_quota_us", value)
            write(v1 / f"cpu/{group}/cpu.cfs_period_us", period)
    if "quota_v2" in limits:
        write(v2 / "container/cpu.max", "max 100000")
        write(v2 / "cpu.max", limits["quota_v2"].replace("/", " "))
    if "memory_v1" in limits:
        write(v1 / "memory/pod/memory.limit_in_bytes", str(size(limits["memory_v1"])))
        write(v1 / "memory/pod/memory.usage_in_bytes", "0")
    if "memory_v2" in limits:
        write(v2 / "memory.max", str(size(limits["memory_v2"])))
        write(v2 / "memory.current", "0")
    for version, folder in (("v1", v1 / "pids/pod"), ("v2", v2)):
        if f"pids_{version}" in limits:
            write(folder / "pids.max", limits[f"pids_{version}"])
            write(folder / "pids.current", "0")
    if "total" in limits:
        total, free = size(limits["total"]) // 1024, size(limits.get("available", limits["total"])) // 1024
        write(root / "proc/meminfo", f"MemTotal: {total} kB\nMemFree: {free} kB\nMemAvailable: {free} kB")
    if "nproc" in limits:
        write(root / "proc/self/limits", f"Limit Soft Limit Hard Limit Units\nMax processes             {limits['nproc']} {limits['nproc']} processes")
    facts = [f"{name}: {limits[key]}" for key, name in (("policy", "memory_policy"), ("affinity", "affinity"), ("used", "user_tasks"), ("amx_refused", "amx_refused")) if key in limits]
    if facts:
        write(root / "ipexrun/process.txt", "\n".join(facts))


def build(root, lines):
    """Writes the tree below `root`. Lines of other kinds are not looked at."""
    root, kinds = Path(root), {}
    for line in lines:
        kind, _, rest = line.partition(": ")
        kinds.setdefault(kind, []).append(rest)
    if "cpus" in kinds:
        home = write_cpus(root, kinds["cpus"])
        gone = [cpu for text in kinds.get("offline", []) for cpu in numbers(text)]
        for cpu in gone:
            write(root / f"sys/devices/system/cpu/cpu{cpu}/online", "0")
        for name, cpus in (("online", [*home]), ("present", [*home, *gone]), ("possible", [*home, *gone]), ("offline", gone)):
            write(root / "sys/devices/system/cpu" / name, ranges(cpus))
        write_nodes(root, kinds.get("node", []), home)
    for text in kinds.get("limits", []):
        write_limits(root, text)
    for text in kinds.get("file", []):
        path, _, content = text.partition(" ")
        write(root / path.lstrip("/"), content.replace("\\n", "\n"))
