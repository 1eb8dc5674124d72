#!/usr/bin/env python3
"""Five workloads, unedited under ipexrun, beside stock and what a careful author could choose instead of it: torch.compile in its forms, the
model converted by hand, OpenVINO, IPEX. One process each, kept alive; they work in turn, round by round, and sleep between.

    python bench/workloads.py --build build/dev --openvino-python /tmp/openvino/bin/python --ipex-python /tmp/ipex/bin/python

Of torch.compile's forms (and IPEX's) the fastest in a first look takes part in the rounds: one of each column, "bf16" (whatever computes in
bf16 inside) and "float32". Caches of compilers and of ipexrun are empty at the start. Prints for each contender the median of the rounds with
their least and greatest, its time over that of ipexrun in the same column (the median of the rounds' ratios with a bootstrap interval), the first
call, the seconds of calls until it was within a tenth of its best, MiB resident at most and at the end, relative RMS error and cosine beside stock,
and the share of the rate of stock's own 3072^3 product of that dtype, measured in the same rounds.
"""

import argparse
import json
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import rounds as paired  # noqa: E402

WORKLOADS = {"resnet50_b1": "ResNet-50 b1", "resnet50_b16": "ResNet-50 b16", "bert_b1": "BERT-base b1 s128", "bert_b8": "BERT-base b8 s128",
             "vit_b4": "ViT-B/16 b4"}
LARGER = {"resnet50_b32": "ResNet-50 b32", "bert_b16": "BERT-base b16 s128", "vit_b8": "ViT-B/16 b8"}  # for machines of many cores, by --only
COLUMNS = {"bf16": "ipexrun", "float32": "ipexrun float32"}  # who stands for us
STATE = """(lambda found: {'states': [one['state'] for one in found.get('modules', [])], 'graphs': found.get('graphs', [])})(
    __import__('sys').modules['ipexrun'].report() if 'ipexrun' in __import__('sys').modules else {})"""
ENDED = ("captured", "stock", "left alone")


class Failed(Exception):
    pass


def contenders(options):
    """{name: {command, column, group}}, in the order in which they start. Of a group the fastest in each column stays."""
    python, launcher = options.python, os.path.join(os.path.abspath(options.build), "bin", "ipexrun")
    plain, by_hand = os.path.join(HERE, "workload_plain.py"), os.path.join(HERE, "workload_by_hand.py")
    found = {"stock": {"command": [python, plain], "column": "float32"},
             "ipexrun": {"command": [launcher, python, plain], "column": "bf16"},
             "ipexrun float32": {"command": [launcher, "--dtype", "float32", python, plain], "column": "float32"}}

    def add(name, interpreter, words, column, group=None):
        found[name] = {"command": [interpreter, by_hand], "words": words, "column": column, "group": group}

    add("eager bfloat16", python, ["eager", "bfloat16"], "bf16")
    for mode in ("default", "freezing", "autotune"):
        for dtype in ("autocast", "bfloat16", "float32"):
            add(f"compile {mode} {dtype}", python, ["compile", mode, dtype], "float32" if dtype == "float32" else "bf16", "compile")
    for tool, interpreter in (("openvino", options.openvino_python), ("ipex", options.ipex_python)):
        if not interpreter or not os.path.exists(interpreter):
            continue  # main() said so
        for dtype, column in (("bfloat16", "bf16"), ("float32", "float32")):
            add(f"{tool} {column}", interpreter, [tool, dtype], column, tool)
            if tool == "ipex":  # edits a copy of the script
                command = [interpreter, "-m", "intel_extension_for_pytorch.cpu.auto_ipex", "--dtype", dtype, "COPY"]
                found[f"ipex codeless {column}"] = {"command": command, "column": column, "group": "ipex"}
    return found


class Contender:
    """A process that answers requests."""

    def __init__(self, name, known, workload, folder, options):
        self.name, self.column = name, known["column"]
        self.known, self.clock = known, options.clock
        path = os.path.join(folder, f"{name.replace(' ', '_')}.socket")
        command = list(known["command"])
        if command[-1] == "COPY":
            command[-1] = shutil.copy(os.path.join(HERE, "workload_plain.py"), os.path.join(folder, "program.py"))
        environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD" and not key.startswith(("IPEXRUN_", "TORCHINDUCTOR_"))}
        environment.update(OMP_NUM_THREADS=str(options.threads), PYTHONPATH=HERE, XDG_CACHE_HOME=folder, HF_HUB_OFFLINE="1",
                           TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, name.replace(" ", "_")))
        self.log = os.path.join(folder, f"{name.replace(' ', '_')}.log")
        with socket.socket(socket.AF_UNIX) as door, open(self.log, "w") as log:
            door.bind(path)
            door.listen(1)
            door.settimeout(1)
            words = [path, workload, *known.get("words", [])]
            self.process = subprocess.Popen([*command, *words], env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
            end = time.monotonic() + options.limit
            while True:
                try:
                    self.line = door.accept()[0]
                    break
                except TimeoutError:
                    if self.process.poll() is not None or time.monotonic() > end:
                        self.process.terminate()
                        raise Failed(self.last_words()) from None
        self.line.settimeout(options.limit)
        self.talk = self.line.makefile("rw")
        json.loads(self.talk.readline())
        self.warming = []

    def last_words(self):
        with open(self.log, errors="replace") as log:
            return next((line.strip()[:200] for line in reversed(log.readlines()) if line.strip()), "no word")

    def __call__(self, do, **request):
        try:
            print(json.dumps({"do": do, **request}), file=self.talk, flush=True)
            answer = json.loads(self.talk.readline() or "null")
        except (OSError, ValueError) as problem:
            raise Failed(f"{problem}") from None
        if answer is None or (isinstance(answer, dict) and "problem" in answer):
            raise Failed(answer["problem"].splitlines()[0][:200] if answer else self.last_words())
        return answer

    def warm(self, options):
        """Until calls are steady; under ipexrun until nothing is being captured or tried."""
        end = time.monotonic() + (options.explore if self.name.startswith("ipexrun") else 10 * options.warm)
        started, state = time.monotonic(), None
        while True:
            self.warming += self("calls", seconds=0, least=4, clock=options.clock)
            now = time.monotonic()
            if self.name.startswith("ipexrun"):
                state = self("ask", expression=STATE)
                done = state["states"] and all(one.startswith(ENDED) for one in state["states"]) and now - started > options.warm
            else:
                done = now - started > options.warm and len(self.warming) >= 8
            if done or now > end:
                break
        self.warming += self("calls", seconds=options.warm / 2, least=8, clock=options.clock)
        return state

    def seconds_a_call(self, seconds, of=statistics.median):
        """Of calls that follow one that is not counted."""
        return of(took for _, took in self("calls", seconds=seconds, least=3, clock=self.clock)[1:])

    def until_best(self, best):
        """Seconds from the start of the first call on."""
        took = [one for _, one in self.warming]
        for i in range(len(took) - 4):
            if statistics.median(took[i:i + 5]) <= 1.1 * best:
                return self.warming[i][0] - self.warming[0][0]
        return None

    def end(self):
        self.talk.close()
        self.line.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.terminate()


def look(wanted, workload, folder, options, first_look):
    """The contenders that take part, warm: of a group the fastest in a column."""
    running = {}
    for name, known in wanted.items():
        one = None
        try:
            one = Contender(name, known, workload, folder, options)
            one.state = one.warm(options)
            seconds = one.seconds_a_call(options.seconds, of=min)  # others may work on the machine meanwhile
        except Failed as problem:
            print(f"  {name}: left out: {problem}", flush=True)
            first_look[name] = None
            if one:
                one.end()
            continue
        first_look[name] = seconds
        print(f"  {name}: {seconds * 1e3:.2f} ms, first call {one.warming[0][1]:.1f} s{describe(one.state)}", flush=True)
        rivals = [other for other in running.values() if known.get("group") and other.known.get("group") == known["group"] and other.column == one.column]
        if rivals and first_look[rivals[0].name] <= seconds:
            one.end()
            continue
        for other in rivals:
            running.pop(other.name).end()
        running[name] = one
    return running


def describe(state):
    return "" if not state else "; " + "; ".join(f"module {one}" for one in state["states"]) + "".join(
        f"; graph {one.get('choice', one.get('left_alone'))}, lost: {one.get('lost')}" for one in state["graphs"])


def accuracy(running, folder):
    import numpy

    results = {}
    for name, one in running.items():
        path = os.path.join(folder, "result.npy")
        one("save", path=path)
        results[name] = numpy.load(path).astype(numpy.float64).ravel()
    truth = results["stock"]

    def beside(result):
        cosine = float(result @ truth / (numpy.linalg.norm(result) * numpy.linalg.norm(truth)))
        return {"error": float(numpy.linalg.norm(result - truth) / numpy.linalg.norm(truth)), "cosine": cosine}

    return {name: beside(result) for name, result in results.items()}


def rates(stock):
    """FLOP/s of stock's product of 3072^3 in each dtype; float32's in place of a bf16 that this CPU does not have."""
    clock = {"wall": "perf_counter", "cpu": "process_time"}[stock.clock]
    return {dtype: stock("ask", expression=f"__import__('limit').gemm_rate(__import__('limit').native(__import__('torch').{name}), repeats={repeats}, clock=__import__('time').{clock})")
            for dtype, name, repeats in (("bf16", "bfloat16", 5), ("float32", "float32", 2))}


def measure(workload, options, screened):
    wanted = {name: known for name, known in contenders(options).items() if is_wanted(name, known, workload, options, screened)}
    with tempfile.TemporaryDirectory() as folder:
        first_look = {}
        running = look(wanted, workload, folder, options, first_look)
        try:
            if "stock" not in running:
                raise Failed("stock did not run")
            flops = running["stock"]("ask", expression="__import__('limit').flops_of(call)")
            products = []

            def one_round(name):
                if name == "stock" and options.rates:
                    products.append(rates(running[name]))
                return 1 / running[name].seconds_a_call(options.seconds)

            speeds = paired.run_rounds(list(running), options.rounds, one_round)
            correct = accuracy(running, folder)
            rows = {}
            for name, one in running.items():
                ms = [1e3 / speed for speed in speeds[name]]
                base = COLUMNS[one.column]
                row = {"column": one.column, "ms": statistics.median(ms), "least_ms": min(ms), "most_ms": max(ms), **correct[name]}
                row["over_ipexrun"] = paired.ratio(speeds, base, name) if base in running else None
                row["first_call_s"] = one.warming[0][1]
                row["until_best_s"] = one.until_best(row["ms"] / 1e3)
                row["peak_mib"], row["resident_mib"] = one("memory")
                row["state"] = one.state and one("ask", expression=STATE)
                if products:
                    row["share_of_product_rate"] = flops / (row["ms"] / 1e3) / statistics.median(one_rate[one.column] for one_rate in products)
                rows[name] = row
            return {"flops": flops, "rates": products, "first_look_ms": {name: s and s * 1e3 for name, s in first_look.items()}, "rows": rows}
        finally:
            for one in running.values():
                one.end()


def is_wanted(name, known, workload, options, screened):
    if options.contenders and not any(name == word or known.get("group") == word for word in options.contenders.split(",")):
        return name == "stock"
    before = screened.get(workload, {}).get("first_look_ms", {})
    group = known.get("group")
    if not group or name not in before:
        return True
    of_group = contenders_of_group(before, group, known["column"])
    return name in of_group[:options.keep]


def contenders_of_group(before, group, column):
    """Names of a group that ran in an earlier look, the fastest first."""
    ran = {name: ms for name, ms in before.items() if ms and name.startswith(group) and name.endswith("float32") == (column == "float32")}
    return sorted(ran, key=ran.get)


def best_of_others(rows, column):
    others = [name for name, row in rows.items() if row["column"] == column and not name.startswith("ipexrun")]
    return min(others, key=lambda name: rows[name]["ms"]) if others else None


def show(workload, found):
    print(f"\n{(WORKLOADS | LARGER).get(workload, workload)}, {found['flops'] / 1e9:.1f} GFLOP a call")
    header = ("", "ms", "least", "most", "over ours", "95%", "first s", "best after s", "peak MiB", "MiB", "error", "cosine", "of rate")
    lines = [header]
    for name, row in found["rows"].items():
        ratio = row["over_ipexrun"]
        until, share = row["until_best_s"], row.get("share_of_product_rate")
        lines.append((name, f"{row['ms']:.2f}", f"{row['least_ms']:.2f}", f"{row['most_ms']:.2f}", f"{ratio['ratio']:.2f}" if ratio else "-",
                      "{:.2f} to {:.2f}".format(*ratio["interval_95"]) if ratio else "-", f"{row['first_call_s']:.1f}",
                      f"{until:.1f}" if until is not None else "-", str(row["peak_mib"]), str(row["resident_mib"]), f"{row['error']:.1e}",
                      f"{row['cosine']:.6f}", f"{share:.0%}" if share else "-"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        print("  " + "  ".join(f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}" for i, (cell, width) in enumerate(zip(line, widths))))
    sys.stdout.flush()


def summary(results):
    print("\nthe best of the others over ipexrun")
    for column, mine in COLUMNS.items():
        ratios, stock = [], []
        for workload, found in results.items():
            rows = found["rows"]
            best = best_of_others(rows, column)
            if best is None or mine not in rows:
                continue
            ratio = rows[best]["over_ipexrun"]
            ratios.append(ratio["ratio"])
            stock.append(rows["stock"]["ms"] / rows[mine]["ms"])
            print(f"  {column:8s} {(WORKLOADS | LARGER).get(workload, workload):18s} {ratio['ratio']:.2f} ({ratio['interval_95'][0]:.2f} to {ratio['interval_95'][1]:.2f})  "
                  f"{best}; stock {stock[-1]:.2f}")
        if ratios:
            mean, stock_mean = (math.exp(statistics.fmean(map(math.log, one))) for one in (ratios, stock))
            print(f"  {column:8s} {'geometric mean':18s} {mean:.2f}; stock {stock_mean:.2f}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("IPEXRUN_BUILD_DIR", "build/dev"))
    parser.add_argument("--python", default=sys.executable, help="has torch and transformers")
    parser.add_argument("--openvino-python", default="", help="has openvino, torch and transformers")
    parser.add_argument("--ipex-python", default="", help="has intel_extension_for_pytorch, torch and transformers")
    parser.add_argument("--only", default="", help=f"workloads, of {','.join(WORKLOADS | LARGER)}; default: the first five")
    parser.add_argument("--contenders", default="", help="names or groups (compile, openvino, ipex); stock always runs")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a contender in a round; at least two calls count")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of calls before the rounds, at least")
    parser.add_argument("--explore", type=float, default=150.0, help="seconds after which ipexrun's exploring is waited for no longer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: the process's own time, with one thread, where others work beside")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which a contender that does not answer is left out")
    parser.add_argument("--screened", default="", help="JSON of an earlier run: of its groups only the best --keep of a column start")
    parser.add_argument("--keep", type=int, default=1)
    parser.add_argument("--json", default="", help="also write everything into this file")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, stock, ipexrun and bf16 by hand: does it run")
    options = parser.parse_args()
    if options.clock == "cpu" and options.threads != 1:
        parser.error("--clock cpu: with --threads 1, since threads that wait burn time as well")
    options.rates = not options.smoke
    if options.smoke:
        options.only, options.contenders = "tiny", "stock,ipexrun,eager bfloat16"
        options.rounds, options.seconds, options.warm, options.explore = 2, 0.1, 0.1, 2.0
    return options


def main():
    options = parse()
    screened = {}
    if options.screened:
        with open(options.screened) as file:
            screened = json.load(file)
    for tool in ("openvino", "ipex"):
        interpreter = getattr(options, f"{tool}_python")
        if not interpreter or not os.path.exists(interpreter):
            print(f"{tool} is left out: no interpreter that has it (--{tool}-python)")
    results = {}
    for workload in options.only.split(",") if options.only else WORKLOADS:
        print(f"{workload}: warming up", flush=True)
        try:
            results[workload] = measure(workload, options, screened)
        except Failed as problem:
            print(f"{workload}: {problem}")
            continue
        show(workload, results[workload])
        if options.json:
            with open(options.json, "w") as file:
                json.dump(results, file, indent=1)
    summary(results)
    if options.smoke:
        return 0 if results and set(results["tiny"]["rows"]) == set(options.contenders.split(",")) else 1
    return 0 if results else 1


if __name__ == "__main__":
    sys.exit(main())
