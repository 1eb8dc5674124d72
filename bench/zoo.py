"""Do models of many families compute the same with the op tier on and off, how much of their time does it take over, and what is gained?
With --graphs: do they as unedited programs whose modules are captured?

Usage: zoo.py [--graphs off|auto|dynamo] [--minutes N] [--seed S] [--families a,b] [--dtypes auto,float32] [--size full|small] [--output FILE]
              [--build DIR] [--limit S] [--threads N] [--jobs N] [--list]

Families of timm, torchvision and diffusers come with these packages, where they are installed (--families timm_ takes those whose names begin so).

Each family and dtype runs in a process of its own (zoo_child.py): forward, backward and a step, every candidate forced and then chosen by
measurement, against stock in the same process under the accuracy rule (zoo_rule.py). Results are appended to FILE as JSON lines; what
is there already for this seed, size and build is not run again. Exit code 1 if a family is unequal, crashed or hung. Times are recorded and
never judged. With --graphs the process is started by the launcher with that --graph-mode (zoo_capture.py), and makes the calls of a program:
of several sizes, with other results asked for, and texts written with a cache.
"""

import argparse
import concurrent.futures
import glob
import hashlib
import json
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

SECONDS = {"full": {"select_seconds": 20, "select_calls": 400, "speed_seconds": 2},
           "small": {"select_seconds": 2, "select_calls": 60, "speed_seconds": 0.5}}
CAPTURE = {"full": {"select_seconds": 60, "select_calls": 600, "texts": 6, "speed_seconds": 2},
           "small": {"select_seconds": 25, "select_calls": 400, "texts": 4, "speed_seconds": 0.5}}


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", choices=["off", "auto", "dynamo"], default="off", help="auto, dynamo: capture, instead of the op tier alone")
    parser.add_argument("--minutes", type=float, default=0, help="start no family after this long (0: all of them)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, inputs and the order of families")
    parser.add_argument("--families", default="", help="comma-separated names; NAME_ for all that begin so (default: all)")
    parser.add_argument("--dtypes", default="auto,float32", help="what IPEXRUN_DTYPE is set to, in turn")
    parser.add_argument("--size", choices=sorted(SECONDS), default="full", help="small: calls of a few milliseconds, times say little")
    parser.add_argument("--output", default="zoo.jsonl", help="JSON lines, appended")
    parser.add_argument("--build", default=os.environ.get("IPEXRUN_BUILD_DIR", "build/dev"), help="build tree with the plugin")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a family counts as hung")
    parser.add_argument("--threads", type=int, default=0, help="of each process (0: torch's default)")
    parser.add_argument("--jobs", type=int, default=1, help="families at a time, each on CPUs of its own")
    parser.add_argument("--list", action="store_true", help="names of the families")
    options = parser.parse_args(arguments)
    if options.minutes < 0 or options.limit <= 0 or options.threads < 0 or options.jobs < 1:
        parser.error("--minutes, --limit, --threads: not negative; --jobs: at least 1")
    unknown = set(options.dtypes.split(",")) - {"auto", "float32", "bfloat16"}
    if unknown:
        parser.error(f"--dtypes: {', '.join(sorted(unknown))} is unknown (auto, float32, bfloat16)")
    return options


def digest_of(paths):
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:12]


def build_of(folder):
    """Names the plugin that is tested, what tests it and what it is tested in: a resumed run mixes no two of them."""
    import torch
    import transformers

    major, minor = torch.__version__.split(".")[:2]
    found = glob.glob(os.path.join(folder, "lib", "ipexrun", "plugins", f"libipexrun_plugin_torch{major}_{minor}.so"))
    if not found:
        sys.exit(f"zoo.py: no plugin for torch {major}.{minor} under {folder}: build it first (./dev build)")
    questions = sorted(glob.glob(os.path.join(HERE, "zoo*.py")) + glob.glob(os.path.join(HERE, "models", "**", "*.py"), recursive=True))
    found += sorted(glob.glob(os.path.join(folder, "lib", "ipexrun", "python", "ipexrun", "*.py")))
    return f"{digest_of(found)} zoo {digest_of(questions)} torch {torch.__version__} transformers {transformers.__version__}"


def recorded(path):
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue  # the last line of a run that was killed
    return records


def key_of(record):
    return record["family"], record["dtype"], record["seed"], record["size"], record["build"], record.get("mode", "off")


def ended(process, limit):
    """Exit code, or None when it had to be killed."""
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # its group: nothing of it outlives it
        except ProcessLookupError:
            pass
        process.wait()


def shares(jobs):
    """The CPUs that may be used, dealt out."""
    cpus = sorted(os.sched_getaffinity(0))
    size = max(len(cpus) // jobs, 1)
    dealt = queue.SimpleQueue()
    for job in range(jobs):
        dealt.put(cpus[job * size % len(cpus):][:size])
    return dealt


def child(request, options, cpus=None, launcher=()):
    """Exit code, the answer, and what it wrote to stdout and stderr."""
    with tempfile.TemporaryDirectory(prefix="zoo") as folder:
        answer, said = os.path.join(folder, "answer.json"), os.path.join(folder, "said")
        script = "zoo_child.py" if options.graphs == "off" else "zoo_capture.py"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("IPEXRUN_")} | {
            "IPEXRUN_BUILD_DIR": os.path.abspath(options.build), "IPEXRUN_DTYPE": request["dtype"], "IPEXRUN_CACHE": "off", "HF_HUB_OFFLINE": "1",
            "IPEXRUN_GRAPH_WAIT": "0"}
        if options.graphs != "off":
            own = os.path.join(environment["IPEXRUN_BUILD_DIR"], "lib", "ipexrun", "python")
            environment["PYTHONPATH"] = os.pathsep.join(part for part in (own, environment.get("PYTHONPATH")) if part)
        with open(said, "w", encoding="utf-8") as file:
            process = subprocess.Popen([*launcher, sys.executable, os.path.join(HERE, script), json.dumps(request | {"answer": answer})],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if options.graphs == "off" else file, stderr=file,
                                       env=environment, start_new_session=True, preexec_fn=lambda: cpus and os.sched_setaffinity(0, cpus))
            code = ended(process, options.limit)
        with open(said, encoding="utf-8", errors="replace") as file:
            lines = file.read().strip().splitlines()
        if code != 0:
            return code, {}, lines
        with open(answer, encoding="utf-8") as file:
            return code, json.load(file), lines


def run_family(family, dtype, options, cpus=None):
    """One child; a crash, an error or a hang is a record as well."""
    captured = options.graphs != "off"
    request = {"family": family, "dtype": dtype, "seed": options.seed, "size": options.size, "threads": options.threads}
    request |= (CAPTURE if captured else SECONDS)[options.size]
    launcher = [os.path.join(options.build, "bin", "ipexrun"), "--dtype", dtype, "--graph-mode", options.graphs] if captured else []
    start = time.monotonic()
    code, answer, lines = child(request, options, cpus, launcher)
    record = {"family": family, "dtype": dtype, "seed": options.seed, "size": options.size, "build": options.build_name, "mode": options.graphs,
              "equal": False, "seconds": round(time.monotonic() - start, 1)}
    if code != 0:
        what = f"no end after {options.limit:g} s" if code is None else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return record | {"failure": " | ".join([what, *lines[-3:]])}
    record |= answer
    lines = [line for line in lines if not line.startswith("ipexrun: ")]  # the launcher's
    if captured and lines:
        stocks = child(request, options, cpus)[2]
        record["said"] = [line for line in lines if line not in stocks][:20]
        record["equal"] &= not record["said"]
    return record


def append(path, record):
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def say(text, last=False):
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K" + text[:150] + ("\n" if last else ""))
        sys.stderr.flush()


def further_off(record):
    """Unequal in more than what bf16 is: crashed, hung, or further off than twice stock under bf16 autocast."""
    return bool(not record["equal"] or record.get("forced_unequal")) and ("failure" in record or record.get("beyond_bf16", False))


def verdict(record):
    if "failure" in record:
        return f"failed: {record['failure']}"
    if record["equal"]:
        notes = [(record.get("forced_unequal"), "UNEQUAL where a candidate was forced"),
                 (record.get("as_nudged_stock"), "as far off as stock with weights changed by rounding"),
                 (record.get("as_bf16_of_stock"), "bf16 forced is as far off as stock's autocast")]
        return "; ".join(["equal"] + [f"{text} ({', '.join(modes)})" for modes, text in notes if modes])
    if not record["wrong"]:
        return f"SAYS {record['said'][0]}"
    mode, wrong = next((mode, wrong) for mode, wrong in record["wrong"].items() if mode not in record.get("forced_unequal", []))
    path, problem = next(iter(wrong.items()))
    return f"{'UNEQUAL' if record.get('beyond_bf16') else 'unequal, as bf16 of stock'}: {mode}: {path}: {problem}"


def table(records, out=sys.stdout):
    head = f"{'family':30} {'kind':16} {'dtype':8} {'stock ms':>9} {'error':>8} {'taken':>7} {'possible':>8} {'speed-up':>9}  verdict"
    print(head, file=out)
    for one in sorted(records, key=lambda r: (r["dtype"], r.get("kind", ""), r["family"])):
        error = max((e for mode, e in one.get("error", {}).items() if "training" not in mode), default=float("nan"))
        cover, speed = one.get("coverage", {}), one.get("speed", {})
        shown = [f"{speed['stock_ms']:9.1f}" if speed else " " * 9, f"{error:8.1e}", f"{cover['selected']:7.0%}" if cover else " " * 7,
                 f"{cover['possible']:8.0%}" if cover else " " * 8, f"{speed['speed_up']:9.2f}" if speed else " " * 9]
        print(f"{one['family']:30} {one.get('kind', ''):16} {one['dtype']:8} {' '.join(shown)}  {verdict(one)}", file=out)
    for dtype in sorted({r["dtype"] for r in records}):
        here = [r for r in records if r["dtype"] == dtype]
        line = f"{dtype}: {sum(r['equal'] for r in here)} of {len(here)} families equal as selection chose"
        line += f", {sum(r['equal'] and not r.get('forced_unequal') for r in here)} with each candidate forced as well"
        rounded = sum(not r["equal"] and not further_off(r) for r in here)
        line += f", {rounded} more no further off than twice stock's own bf16" if rounded else ""
        ups = sorted(r["speed"]["speed_up"] for r in here if "speed" in r)
        if ups:
            n = len(ups)
            covers = [r["coverage"] for r in here if "coverage" in r]
            line += (f"; share of stock's time taken: median {statistics.median(c['selected'] for c in covers):.0%} as chosen,"
                     f" {statistics.median(c['possible'] for c in covers):.0%} if every candidate were; speed-up: least {ups[0]:.2f},"
                     f" quartile {ups[n // 4]:.2f}, median {statistics.median(ups):.2f}, quartile {ups[3 * n // 4]:.2f},"
                     f" most {ups[-1]:.2f}")
            load = statistics.median(r["speed"]["load"] for r in here if "speed" in r)
            cpus = len(os.sched_getaffinity(0))
            if load > 1.5 * cpus:
                line += f"; the machine was busy (median load {load:.1f} on {cpus} CPUs): these speed-ups are indications only"
        print(line, file=out)


def became(record):
    """What became of the family's module, and its speed as it was raced."""
    for one in record.get("modules", []):
        if one["module"] == record["module"]:
            return one
    return {"state": "not looked at"}


def table_of_captures(records, out=sys.stdout):
    print(f"{'family':30} {'kind':16} {'dtype':8} {'stock ms':>9} {'error':>8} {'graphs':>6} {'speed-up':>9}  verdict; state", file=out)
    for one in sorted(records, key=lambda r: (r["dtype"], r.get("kind", ""), r["family"])):
        speed, state = one.get("speed", {}), became(one)
        shown = [f"{speed['stock_ms']:9.1f}" if speed else " " * 9, f"{max(one.get('error', {}).values(), default=float('nan')):8.1e}",
                 f"{state.get('graphs', 0):6}", f"{speed['speed_up']:9.2f}" if speed else " " * 9]
        print(f"{one['family']:30} {one.get('kind', ''):16} {one['dtype']:8} {' '.join(shown)}  {verdict(one)}; {state['state']}", file=out)
    for dtype in sorted({r["dtype"] for r in records}):
        here = [r for r in records if r["dtype"] == dtype]
        line = f"{dtype}: {sum(r['equal'] for r in here)} of {len(here)} families equal, {sum(became(r)['state'] == 'captured' for r in here)} captured"
        for what, ups in (("all", [r["speed"]["speed_up"] for r in here if "speed" in r]),
                          ("captured", [r["speed"]["speed_up"] for r in here if "speed" in r and became(r)["state"] == "captured"])):
            if ups:
                ups.sort()
                n = len(ups)
                line += (f"; speed-up of {what}: least {ups[0]:.2f}, quartile {ups[n // 4]:.2f}, median {statistics.median(ups):.2f},"
                         f" quartile {ups[3 * n // 4]:.2f}, most {ups[-1]:.2f}")
        print(line, file=out)


def chosen(families, wanted):
    """(names of the families that are wanted, what is wanted and unknown); a name that ends in _ means all that begin so."""
    wanted = [one for one in wanted.split(",") if one]
    found = {one: [name for name in families if name == one or (one.endswith("_") and name.startswith(one))] for one in wanted}
    return sorted(set(sum(found.values(), [])) if wanted else families), [one for one in wanted if not found[one]]


def main():
    options = parse()
    from models.zoo import FAMILIES

    if options.list:
        print("\n".join(sorted(FAMILIES)))
        return 0
    names, unknown = chosen(FAMILIES, options.families)
    if unknown:
        sys.exit(f"zoo.py: --families: {', '.join(unknown)} is unknown; --list names them")
    options.build_name = build_of(options.build)
    todo = [(name, dtype) for name in names for dtype in options.dtypes.split(",")]
    wanted = {(*one, options.seed, options.size, options.build_name, options.graphs) for one in todo}
    done = {key_of(record): record for record in recorded(options.output) if key_of(record) in wanted}
    # Both dtypes of a family one after the other; which families come first depends on the seed.
    order = list(names)
    random.Random(options.seed).shuffle(order)
    todo = [(name, dtype) for name in order for dtype in options.dtypes.split(",")]
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    left = []
    lock = threading.Lock()
    free = shares(options.jobs)

    def one(task):
        key = (*task, options.seed, options.size, options.build_name, options.graphs)
        if key in done:
            return
        if time.monotonic() > until:
            left.append(task)
            return
        say(f"zoo: {len(done)} of {len(todo)} done: {', '.join(task)}; {sum(not r['equal'] for r in list(done.values()))} unequal so far")
        cpus = free.get()
        try:
            record = run_family(*task, options, cpus)
        finally:
            free.put(cpus)
        with lock:
            done[key] = record
            append(options.output, record)
            say(f"{', '.join(task)}: {verdict(record)}", last=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, todo))
    (table if options.graphs == "off" else table_of_captures)(list(done.values()))
    if left:
        print(f"{len(left)} of {len(todo)} were not started within {options.minutes:g} minutes; the same command goes on with them")
    return 1 if any(not record["equal"] or record.get("forced_unequal") for record in done.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
