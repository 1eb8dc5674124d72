"""Plans for machines that are not there: the real binary, a machine, a command line, and the plan as it was agreed.

A case is tests/golden/plans/<name>.txt: a head of `key: value` lines, a line `---`, then the plan. Keys:
  why       what the case is kept for (required)
  machine   hwloc's synthetic text, or an XML file of tests/machines
  argv      what follows `ipexrun --dry-run --json --topology MACHINE`, split as a shell would
  env       NAME=value, may be repeated
  limits    cpus=LIST mems=LIST quota_v1=US/PERIOD quota_v2=US/PERIOD, any of them: a made-up /proc and cgroup tree

The plan is the JSON output with one key a line. Paths of this run are written as @TMP@; the texts of reasons about allocators and
OpenMP runtimes are left out, since they tell what is installed where the test runs.

    python tests/golden/golden.py            compares, prints a diff for each plan that differs
    python tests/golden/golden.py --update   writes the plans as they are now; read the diff before you commit it
"""

import difflib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLANS = HERE / "plans"
MACHINES = HERE.parent / "machines"
BUILD = Path(os.environ.get("IPEXRUN_BUILD_DIR", HERE.parents[1] / "build" / "dev"))
BINARY = BUILD / "bin" / "ipexrun"


def read_case(path):
    head, separator, plan = path.read_text(encoding="utf-8").partition("---\n")
    assert separator, f"{path}: no line '---'"
    case = {"env": []}
    for line in head.splitlines():
        key, colon, value = line.partition(": ")
        assert colon and key in {"why", "machine", "argv", "env", "limits"}, f"{path}: {line!r}"
        if key == "env":
            case["env"].append(value)
        else:
            case[key] = value
    assert case.get("why"), f"{path}: say why this case is kept"
    return head, case, plan


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def make_limits(root, text):
    """A /proc and cgroup tree in which the process sits two groups below the mount and the quota holds for the upper one."""
    limits = dict(word.split("=", 1) for word in text.split())
    status = "Name:\tx\n"
    if "cpus" in limits:
        status += f"Cpus_allowed_list:\t{limits['cpus']}\n"
    if "mems" in limits:
        status += f"Mems_allowed_list:\t{limits['mems']}\n"
    write(root / "proc/self/status", status)
    if "quota_v2" in limits:
        write(root / "proc/self/cgroup", "0::/pod/container\n")
        write(root / "proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
        write(root / "sys/fs/cgroup/pod/container/cpu.max", "max 100000\n")
        write(root / "sys/fs/cgroup/pod/cpu.max", limits["quota_v2"].replace("/", " ") + "\n")
    if "quota_v1" in limits:
        quota, period = limits["quota_v1"].split("/")
        write(root / "proc/self/cgroup", "4:cpu,cpuacct:/pod/container\n")
        write(root / "proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n")
        for group, value in (("pod", quota), ("pod/container", "-1")):
            write(root / f"sys/fs/cgroup/cpu/{group}/cpu.cfs_quota_us", value + "\n")
            write(root / f"sys/fs/cgroup/cpu/{group}/cpu.cfs_period_us", period + "\n")


def one_key_a_line(plan):
    out = []
    for instance in plan["instances"]:
        out.append(f"instance {instance.pop('index')}")
        env = instance.pop("env")
        for key, value in instance.items():
            out.append(f"  {key}: " + json.dumps(value, separators=(",", ":"), ensure_ascii=False))
        out += [f"  env {name}={value}" for name, value in env.items()]
    out.append("reasons")
    for reason in plan["reasons"]:
        text = "" if reason["subject"] in {"allocator", "omp"} else reason["text"]
        out.append(f"  {reason['subject']} | {reason['value']} | {text}".rstrip())
    return "\n".join(out) + "\n"


def some_library():
    """Any shared library: the launcher looks at a library's header before it plans to preload it."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next(line.split()[-1] for line in maps if ".so" in line)


def plan_now(case):
    with tempfile.TemporaryDirectory(prefix="ipexrun-golden-") as folder:
        tmp = Path(folder).resolve()
        python = tmp / "bin/python"
        write(python, "#!/bin/sh\n")
        python.chmod(0o755)
        shim = tmp / "lib/libipexrun_shim.so"
        shim.parent.mkdir()
        shutil.copyfile(some_library(), shim)
        shim.chmod(0o755)
        machine = str(MACHINES / case["machine"]) if case["machine"].endswith(".xml") else case["machine"]
        command = [str(BINARY), "--dry-run", "--json", "--topology", machine]
        if "limits" in case:
            make_limits(tmp / "root", case["limits"])
            command += ["--sysroot", str(tmp / "root")]
        env = {"PATH": str(tmp / "bin"), "IPEXRUN_LIB_DIR": str(tmp / "lib"), **dict(v.split("=", 1) for v in case["env"])}
        # Sanitizer builds take their options from here.
        env.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
        done = subprocess.run(command + shlex.split(case["argv"]), env=env, capture_output=True, text=True, cwd=tmp, timeout=60)
        if done.returncode != 0:
            return f"exit code {done.returncode}\n{done.stderr}".replace(str(tmp), "@TMP@")
        return one_key_a_line(json.loads(done.stdout.replace(str(tmp), "@TMP@")))


def difference(path):
    """"" when the plan is as agreed, else a diff."""
    _, case, agreed = read_case(path)
    now = plan_now(case)
    return "".join(difflib.unified_diff(agreed.splitlines(True), now.splitlines(True), "agreed", "now", n=2))


def main():
    update = sys.argv[1:] == ["--update"]
    failures = 0
    for path in sorted(PLANS.glob("*.txt")):
        diff = difference(path)
        if not diff:
            continue
        failures += 1
        print(f"== {path.stem}: {read_case(path)[1]['why']}\n{diff}")
        if update:
            head, case, _ = read_case(path)
            path.write_text(head + "---\n" + plan_now(case), encoding="utf-8")
    print(f"{failures} plans {'updated' if update else 'differ'}")
    return 1 if failures and not update else 0


if __name__ == "__main__":
    sys.exit(main())
