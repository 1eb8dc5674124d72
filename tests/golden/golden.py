"""Plans for machines that are not there: the real binary, a machine, a command line, and the plan as it was agreed.

Two kinds of cases, which share the machines of tests/machines:

tests/golden/plans/NAME.txt: one whole plan. A head of `key: value` lines, a line `---`, then the plan (JSON, one key a line). Keys:
  why       what the case is kept for (required)
  machine   hwloc's synthetic text, or an XML file of tests/machines
  argv      what follows `ipexrun --dry-run --json --topology MACHINE`, split as a shell would
  env       NAME=value, may be repeated
  limits    cpus=LIST mems=LIST quota_v1=US/PERIOD quota_v2=US/PERIOD ...: a made-up /proc and cgroup tree (tests/machines/sysfs.py)
Paths of this run are written as @TMP@; the texts of reasons about allocators and OpenMP runtimes are left out, since they tell what is
installed where the test runs.

tests/machines/NAME.txt: a machine, and the places that several command lines get on it. Keys of the head:
  why       what the machine is kept for (required)
  topology  hwloc's synthetic text, or an XML file of tests/machines; or the lines of a /sys tree, see tests/machines/sysfs.py:
  cpus, node, offline, limits, file
Below `---`, for each command line: `$ OPTIONS`, the table of instances (the middle of long ones is counted only), and the reasons about
machine, cores, instances, memory and threads.

    python tests/golden/golden.py            compares, prints a diff for each plan that differs
    python tests/golden/golden.py --update   writes the plans as they are now; read the diff before you commit it
"""

import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PLANS = HERE / "plans"
MACHINES = HERE.parent / "machines"
sys.path.insert(0, str(MACHINES))
import sysfs  # noqa: E402

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


def temporary_folder():
    """In memory where that can be had: a /sys tree has thousands of files."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(prefix="ipexrun-golden-", dir=memory if os.access(memory, os.W_OK | os.X_OK) else None)


def run(tmp, arguments, env=()):
    """The binary with a Python and a shim that are there, and nothing else of the machine that runs the test."""
    python = tmp / "bin/python"
    shim = tmp / "lib/libipexrun_shim.so"
    if not python.exists():
        write(python, "#!/bin/sh\n")
        python.chmod(0o755)
        shim.parent.mkdir()
        shutil.copyfile(some_library(), shim)
        shim.chmod(0o755)
    env = {"PATH": str(tmp / "bin"), "IPEXRUN_LIB_DIR": str(tmp / "lib"), **dict(v.split("=", 1) for v in env)}
    # Sanitizer builds take their options from here.
    env.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
    return subprocess.run([str(BINARY), *arguments], env=env, capture_output=True, text=True, cwd=tmp, timeout=60)


def plan_now(case):
    with temporary_folder() as folder:
        tmp = Path(folder).resolve()
        machine = str(MACHINES / case["machine"]) if case["machine"].endswith(".xml") else case["machine"]
        arguments = ["--dry-run", "--json", "--topology", machine]
        if "limits" in case:
            sysfs.build(tmp / "root", ["limits: " + case["limits"]])
            arguments += ["--sysroot", str(tmp / "root")]
        done = run(tmp, arguments + shlex.split(case["argv"]), case["env"])
        if done.returncode != 0:
            return f"exit code {done.returncode}\n{done.stderr}".replace(str(tmp), "@TMP@")
        return one_key_a_line(json.loads(done.stdout.replace(str(tmp), "@TMP@")))


SHOWN = ("machine", "cores", "instances", "memory", "threads")
ROWS = 8


def shortened(table):
    """Long tables keep their first rows and the last one; the rest is counted and hashed, so that no change goes unseen."""
    if len(table) <= ROWS + 1:
        return table
    hidden = table[ROWS - 2 : -1]
    return [*table[: ROWS - 2], f"... {len(hidden)} rows, {zlib.crc32(chr(10).join(hidden).encode()):08x}", table[-1]]


def places(stdout):
    """The table and the reasons out of `--dry-run --explain`."""
    parts = stdout.rstrip("\n").split("\n\n")
    out = shortened(parts[0].split("\n"))
    keep = False
    for line in parts[-1].split("\n"):
        keep = line.startswith(SHOWN) or (keep and line.startswith(" "))
        if keep and not line.endswith("unless said otherwise above"):  # that line is in every plan
            out.append("# " + re.sub(" {2,}", "  ", line))
    return out


def documented_examples(path):
    """[command line, the lines below it] for each `$ ipexrun ...` of an indented block."""
    out = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("    $ ipexrun "):
            out.append((line.removeprefix("    $ ipexrun "), []))
        elif out and line.startswith("    "):
            out[-1][1].append(line[4:])
        elif out and line and out[-1][1] is not None:
            out.append(("", []))  # prose ends an example
    return [(command, lines) for command, lines in out if command]


def example_now(command):
    """What the command prints, without the reasons about allocator, OpenMP runtime, preload, program and threads."""
    with temporary_folder() as folder:
        tmp = Path(folder).resolve()
        words = shlex.split(command.replace("tests/machines/", str(MACHINES) + "/"))
        done = run(tmp, ["--no-optimize", *words])
        assert done.returncode == 0, done.stderr
        parts = done.stdout.rstrip("\n").split("\n\n")
        return [*parts[0].split("\n"), *(line for line in parts[-1].split("\n") if line.startswith(("cores", "instances")))]


def read_machine(path):
    head, separator, _ = path.read_text(encoding="utf-8").partition("---\n")
    assert separator, f"{path}: no line '---'"
    lines = head.splitlines()
    kinds = {line.partition(": ")[0] for line in lines}
    assert kinds <= {"why", "topology", "cpus", "node", "offline", "limits", "file"} and "why" in kinds, f"{path}: {kinds}"
    return lines


def places_now(path):
    """The whole file as it should be now."""
    lines = read_machine(path)
    commands = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("$")]
    assert commands, f"{path}: no command line"
    out = [*lines, "---"]
    with temporary_folder() as folder:
        tmp = Path(folder).resolve()
        root = tmp / "root"
        root.mkdir()
        sysfs.build(root, lines)
        arguments = ["--dry-run", "--explain", "--no-optimize"]
        for line in lines:
            if line.startswith("topology: "):
                text = line.partition(": ")[2]
                arguments += ["--topology", str(MACHINES / text) if text.endswith(".xml") else text]
        if any(root.iterdir()):
            arguments += ["--sysroot", str(root)]
        for command in commands:
            done = run(tmp, [*arguments, *shlex.split(command[1:]), "app"])
            out += [command, *(places(done.stdout) if done.returncode == 0 else [f"exit code {done.returncode}", done.stderr.strip()])]
    return "\n".join(out).replace(str(tmp), "@TMP@") + "\n"


def difference(path):
    """"" when the plan is as agreed, else a diff."""
    if path.parent == MACHINES:
        agreed, now = path.read_text(encoding="utf-8"), places_now(path)
    else:
        _, case, agreed = read_case(path)
        now = plan_now(case)
    return "".join(difflib.unified_diff(agreed.splitlines(True), now.splitlines(True), "agreed", "now", n=2))


def update(path):
    if path.parent == MACHINES:
        path.write_text(places_now(path), encoding="utf-8")
    else:
        head, case, _ = read_case(path)
        path.write_text(head + "---\n" + plan_now(case), encoding="utf-8")


def all_cases():
    return sorted(PLANS.glob("*.txt")) + sorted(MACHINES.glob("*.txt"))


def main():
    failures = 0
    for path in all_cases():
        diff = difference(path)
        if not diff:
            continue
        failures += 1
        print(f"== {path.stem}\n{diff}")
        if sys.argv[1:] == ["--update"]:
            update(path)
    print(f"{failures} plans {'updated' if sys.argv[1:] == ['--update'] else 'differ'}")
    return 1 if failures and sys.argv[1:] != ["--update"] else 0


if __name__ == "__main__":
    sys.exit(main())
