"""What happens to a program under ipexrun when something goes wrong around it?

Usage: faults.py [--minutes N] [--count N] [--seed S] [--faults a,b] [--output FILE] [--build DIR] [--limit S] [--jobs N] [--list]

Random faults at random moments, by seed: processes are killed and stopped, caches damaged, disks full, memory refused. Asked of each: what
survives computes what stock computes, nothing hangs or is left over, the exit code is right, and the next start is fine. Number i of a
seed is always the same fault at the same moment; results are appended to FILE as JSON lines, and what is there for this seed and build is
not run again. Exit code 1 if one of them failed.
"""

import argparse
import concurrent.futures
import glob
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import faults_tuner  # noqa: E402
import soak  # noqa: E402
import zoo  # noqa: E402
from faults_run import Bench, Run, Skip  # noqa: E402

OTHER_USER = 65534
CGROUP = "/sys/fs/cgroup/memory"  # v1

FAULTS = dict(faults_tuner.FAULTS)


def fault(function):
    FAULTS[function.__name__.replace("_", " ")] = function
    return function


def signalled(bench, number, codes, to_program, does=("plain", "threads")):
    run = Run(bench, bench.rng.choice(does), seconds=60)
    pid = run.ready()
    if pid is None:
        return run.problems([0])
    bench.moment()
    os.kill(pid if to_program else run.process.pid, number)
    return run.problems(codes) + bench.next_start()


@fault
def program_killed(bench):
    return signalled(bench, signal.SIGKILL, [137], True)


@fault
def launcher_killed(bench):
    """Nothing outlives the launcher; its run folder goes with the next start."""
    found = signalled(bench, signal.SIGKILL, [137], False)
    left = [name for name in os.listdir(os.path.join(bench.folder, "run")) if name.startswith("ipexrun")]
    return found + ([f"left over after the next start: {left}"] if left else [])


@fault
def terminated(bench):
    return signalled(bench, signal.SIGTERM, [143], False)


@fault
def interrupted(bench):
    """Of one thread only: where others compute at the end of the interpreter, stock aborts as well."""
    return signalled(bench, signal.SIGINT, [130], False, ("plain",))


@fault
def killed_before_it_is_ready(bench):
    """While torch is loaded and joined."""
    run = Run(bench, seconds=60)
    bench.moment(4.0)
    os.kill(run.process.pid, bench.rng.choice((signal.SIGTERM, signal.SIGINT, signal.SIGKILL)))
    return run.problems([130, 137, 143]) + bench.next_start()


@fault
def stopped_and_continued(bench):
    run = Run(bench, "threads", seconds=2)
    pid = run.ready()
    for _ in range(3 if pid else 0):
        bench.moment(0.5)
        try:
            os.kill(pid, signal.SIGSTOP)
            bench.moment(0.5)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            break
    return run.problems([0])


def damage(bench, path):
    """One of the ways in which a file goes bad."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    kind = bench.rng.randrange(7)
    at = bench.rng.randrange(max(len(data), 1))
    if kind == 0:
        data = data[:at]
    elif kind == 1:
        for _ in range(20):
            data[bench.rng.randrange(len(data))] = bench.rng.randrange(256)
    elif kind == 2:
        data = bytearray(bench.rng.randbytes(4096))
    elif kind == 3:
        data[at:at] = b"x" * 100000
    elif kind == 4:
        data = bytearray()
    elif kind == 5:
        data = data.replace(b"\t", b"\t\t", 7)
    else:
        data += data[data.index(b"\n") + 1 : at] + b"\0" * 100
    with open(path, "wb") as file:
        file.write(data)


@fault
def cache_damaged_before(bench):
    damage(bench, bench.cache_file())
    return Run(bench).problems([0]) + bench.next_start()


@fault
def cache_damaged_meanwhile(bench):
    path = bench.cache_file()
    run = Run(bench, seconds=2)
    if run.ready() is not None:
        for _ in range(5):
            bench.moment(0.3)
            kind = bench.rng.randrange(3)
            try:
                if kind == 0:
                    damage(bench, path)
                elif kind == 1:
                    os.unlink(path)
                else:
                    os.truncate(path, bench.rng.randrange(200))
            except OSError:
                pass
    return run.problems([0]) + bench.next_start()


@fault
def cache_is_no_folder(bench):
    shutil.rmtree(bench.cache)
    kind = bench.rng.randrange(3)
    if kind == 0:
        with open(bench.cache, "w", encoding="ascii"):
            pass
    elif kind == 1:
        os.symlink("/nowhere/at/all", bench.cache)
    else:
        os.makedirs(bench.cache, mode=0o700)
        for name in ("decisions-0000000000000000", "decisions-"):
            os.makedirs(os.path.join(bench.cache, name))
    return Run(bench).problems([0]) + bench.next_start()


@fault
def cache_of_another_user(bench):
    if os.geteuid() != 0:
        raise Skip("needs root")
    if bench.rng.random() < 0.5:
        bench.cache_file()
        for path in glob.glob(os.path.join(bench.cache, "*")):
            os.chown(path, OTHER_USER, OTHER_USER)
    os.chown(bench.cache, OTHER_USER, OTHER_USER)
    before = {name: os.stat(os.path.join(bench.cache, name)).st_mtime_ns for name in os.listdir(bench.cache)}
    found = Run(bench).problems([0])
    after = {name: os.stat(os.path.join(bench.cache, name)).st_mtime_ns for name in os.listdir(bench.cache)}
    return found + ([f"written to: {before} became {after}"] if before != after else [])


@fault
def cache_read_only(bench):
    """Another user's process where this one is root, whom modes do not stop."""
    bench.cache_file()

    def become():
        os.setgroups([])
        os.setgid(OTHER_USER)
        os.setuid(OTHER_USER)

    root = os.geteuid() == 0
    if root:
        os.chmod(bench.folder, 0o755)
        for path, _, names in os.walk(bench.folder):
            for one in (path, *[os.path.join(path, name) for name in names]):
                os.chown(one, OTHER_USER, OTHER_USER)
        if subprocess.run([sys.executable, "-c", "import torch"], preexec_fn=become, capture_output=True, cwd="/").returncode != 0:
            raise Skip(f"user {OTHER_USER} cannot run this Python")
    for path in glob.glob(os.path.join(bench.cache, "*")):
        os.chmod(path, 0o400)
    os.chmod(bench.cache, 0o500)
    return Run(bench, before=become if root else None).problems([0])


def on_full_disk(bench, which):
    """A small file system of its own, filled but for some bytes, in a mount namespace."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise Skip("needs the right to mount")
    place = os.path.join(bench.folder, which)
    spare = bench.rng.choice((0, 0, 1, 4096, 65536))
    script = (f'mount -t tmpfs -o size=1M,mode=0700 none "{place}" || exit 77; '
              f'head -c {(1 << 20) - spare} /dev/zero > "{place}/ballast" 2>/dev/null; exec "$@"')
    run = Run(bench, seconds=1.5, command=["unshare", "-m", "sh", "-c", script, "sh"])
    if run.ready() is None and run.process.wait(60) in (1, 77) and not run.lines[:-1]:
        run.end()
        raise Skip("no file system can be mounted here")
    return run.problems([0])


@fault
def cache_on_a_full_disk(bench):
    return on_full_disk(bench, "cache")


@fault
def event_file_on_a_full_disk(bench):
    return on_full_disk(bench, "run")


@fault
def event_file_removed(bench):
    """By something that tidies up temporary folders."""
    run = Run(bench, seconds=2)
    if run.ready() is not None:
        bench.moment(1.0)
        for name in os.listdir(os.path.join(bench.folder, "run")):
            shutil.rmtree(os.path.join(bench.folder, "run", name), ignore_errors=True)
    return run.problems([0]) + bench.next_start()


@fault
def files_may_not_grow(bench):
    """RLIMIT_FSIZE: every write beyond it fails (Python ignores SIGXFSZ)."""
    import resource

    size = bench.rng.choice((0, 100, 1 << 20))
    return Run(bench, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))).problems([0]) + bench.next_start()


@fault
def few_descriptors(bench):
    import resource

    most = bench.rng.choice((24, 32, 64))
    return Run(bench, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))).problems([0])


@fault
def no_address_space(bench):
    return Run(bench, "memory", seconds=4).problems([0])


@fault
def cgroup_memory_limit(bench):
    place = os.path.join(CGROUP, f"faults-{os.getpid()}-{bench.seed}")
    try:
        os.mkdir(place)
        limit = bench.rng.randrange(500, 900) << 20
        with open(os.path.join(place, "memory.limit_in_bytes"), "w", encoding="ascii") as file:
            file.write(str(limit))
    except OSError as problem:
        raise Skip(f"no memory cgroup can be made: {problem}") from problem

    def join():
        with open(os.path.join(place, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    try:
        found = Run(bench, "eat", seconds=30, before=join).problems([137])
        return found + bench.next_start()
    finally:
        for _ in range(100):
            try:
                os.rmdir(place)
                break
            except OSError:
                time.sleep(0.1)


@fault
def os_exit_beside_threads(bench):
    return Run(bench, "os_exit").problems([7]) + bench.next_start()


@fault
def sys_exit(bench):
    return Run(bench, "sys_exit").problems([8])


@fault
def uncaught_exception(bench):
    run = Run(bench, "uncaught")
    found = run.problems([1])
    return found


@fault
def abort_beside_threads(bench):
    return Run(bench, "abort").problems([134]) + bench.next_start()


@fault
def forks_beside_threads(bench):
    return Run(bench, "forks", seconds=4).problems([0])


@fault
def workers_of_a_server_killed(bench):
    return Run(bench, "server", seconds=4).problems([0])


@fault
def worker_of_a_loader_killed(bench):
    return Run(bench, "loader").problems([0])


@fault
def libraries_opened_and_closed(bench):
    return Run(bench, "libraries", seconds=2).problems([0])


@fault
def two_share_a_cache_and_one_is_killed(bench):
    one, two = Run(bench, seconds=60), Run(bench, "threads", seconds=2)
    pid = one.ready()
    two.ready()
    bench.moment()
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    return one.problems([137]) + two.problems([0]) + bench.next_start()


# ---- the driver ---------------------------------------------------------------------------------------------------------------------------


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=0, help="begin no fault after this long (0: --count of them)")
    parser.add_argument("--count", type=int, default=0, help="how many (default: each fault three times, or as many as --minutes allow)")
    parser.add_argument("--seed", type=int, default=0, help="which faults, and when they strike")
    parser.add_argument("--faults", default="", help="comma-separated names (default: all)")
    parser.add_argument("--output", default="faults.jsonl", help="JSON lines, appended")
    parser.add_argument("--build", default=os.environ.get("IPEXRUN_BUILD_DIR", "build/dev"), help="build tree with launcher and plugin")
    parser.add_argument("--limit", type=float, default=120, help="seconds after which a process counts as hung")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time")
    parser.add_argument("--list", action="store_true", help="names of the faults")
    options = parser.parse_args(arguments)
    if options.minutes < 0 or options.count < 0 or options.limit <= 0 or options.jobs < 1:
        parser.error("--minutes, --count: not negative; --limit: above 0; --jobs: at least 1")
    options.names = [name for name in options.faults.split(",") if name] or list(FAULTS)
    unknown = [name for name in options.names if name not in FAULTS]
    if unknown:
        parser.error(f"--faults: {', '.join(unknown)} is unknown; --list names them")
    return options


def name_of(options, number):
    """Every fault once before one comes again, in an order that the seed gives."""
    turn, place = divmod(number, len(options.names))
    order = sorted(options.names)
    random.Random(options.seed * 1009 + turn).shuffle(order)
    return order[place]


def run_one(options, number):
    name, start = name_of(options, number), time.monotonic()
    record = {"fault": name, "number": number, "seed": options.seed, "faults": len(options.names), "build": options.build_name, "problems": []}
    with tempfile.TemporaryDirectory(prefix="faults") as folder:
        try:
            record["problems"] = FAULTS[name](Bench(options, number, folder))
        except Skip as why:
            record["skipped"] = str(why)
    return record | {"seconds": round(time.monotonic() - start, 1)}


def verdict(record):
    if "skipped" in record:
        return f"skipped: {record['skipped']}"
    return "; ".join(record["problems"]) or "fine"


def table(records, out=sys.stdout):
    print(f"{'fault':38} {'struck':>6} {'failed':>6} {'skipped':>7}", file=out)
    for name in sorted({record["fault"] for record in records}):
        here = [record for record in records if record["fault"] == name]
        skipped, failed = [r for r in here if "skipped" in r], [r for r in here if r["problems"]]
        print(f"{name:38} {len(here) - len(skipped):6d} {len(failed):6d} {len(skipped):7d}", file=out)
        for record in failed[:3]:
            print(f"    number {record['number']}: {verdict(record)}", file=out)
        if skipped:
            print(f"    {verdict(skipped[0])}", file=out)
    struck = sum("skipped" not in record for record in records)
    print(f"{struck} faults struck, {sum(bool(r['problems']) for r in records)} failed, {len(records) - struck} skipped", file=out)


def main():
    options = parse()
    if options.list:
        print("\n".join(FAULTS))
        return 0
    options.build_name = soak.build_of(options.build)
    count = options.count or (10**6 if options.minutes else 3 * len(options.names))
    until = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    key = {"seed": options.seed, "faults": len(options.names), "build": options.build_name}
    done = {(r["number"], r["fault"]): r for r in zoo.recorded(options.output)
            if "fault" in r and all(r.get(name) == value for name, value in key.items())}
    done = {number: record for (number, name), record in done.items() if name == name_of(options, number)}
    todo = (number for number in range(count) if number not in done)
    lock = threading.Lock()

    def work():
        while time.monotonic() < until:
            with lock:
                number = next(todo, None)
            if number is None:
                return
            zoo.say(f"faults: {len(done)} done, {sum(bool(r['problems']) for r in list(done.values()))} failed: {name_of(options, number)}")
            record = run_one(options, number)
            with lock:
                done[number] = record
                zoo.append(options.output, record)
                zoo.say(f"{record['fault']}: {verdict(record)}", last=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for one in [pool.submit(work) for _ in range(options.jobs)]:
            one.result()
    table(list(done.values()))
    return 1 if any(record["problems"] for record in done.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
