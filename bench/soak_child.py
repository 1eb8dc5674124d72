"""The program of the soak: rounds of random activities until the time is over, each result compared with stock. Started by soak.py, under
ipexrun (the subject) or without it (the control, in which stock is compared with stock), with a JSON request on the command line.
"""

import concurrent.futures
import copy
import ctypes
import faulthandler
import gc
import json
import os
import random
import re
import sys
import threading
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import soak_calls  # noqa: E402
import soak_life  # noqa: E402
import torch  # noqa: E402
import zoo_rule  # noqa: E402
from soak_check import Checker, Tier, doubled  # noqa: E402

LIVING = 5
LOOKS = 3  # calls of one state of a model: a weight is packed at its second use


def candidates():
    text = open(os.path.join(HERE, "..", "preload", "plugin", "candidates.def"), encoding="utf-8").read()
    return re.findall(r"^IPEXRUN_CANDIDATE\(\w+, \d+, \"?(\w+)\"?, \w+\)", text, re.M)


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def heap_kib():
    """What malloc handed out and did not get back, of all arenas; None where the C library does not say."""
    try:
        call = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    call.restype = Mallinfo
    info = call()
    return (info.uordblks + info.hblkhd) // 1024


def memory_kib():
    """RSS, PSS and what is this process's alone."""
    fields = {}
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as file:
            for line in file.readlines()[1:]:
                name, size = line.split()[:2]
                fields[name[:-1]] = int(size)
        return {"rss": fields["Rss"], "pss": fields["Pss"], "private": fields["Private_Clean"] + fields["Private_Dirty"]}
    except OSError:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident, common = (int(word) * os.sysconf("SC_PAGE_SIZE") // 1024 for word in file.read().split()[1:3])
        return {"rss": resident, "pss": resident, "private": resident - common}


class Soak:
    def __init__(self, request):
        self.request = request
        self.tier = Tier()
        self.rng = random.Random(request["seed"])
        self.checker = Checker(request["dtype"], self.tell)
        self.forced = candidates()
        self.pool = concurrent.futures.ThreadPoolExecutor(3)  # threads that outlive models, beside those made anew each time
        self.living = []
        self.rounds = {}
        self.seen_stale_would_be = 0  # weight changes after which a stale pack would have been noticed
        self.start = time.monotonic()
        self.sampled = 0.0

    def tell(self, record):
        line = json.dumps({"who": self.request["who"], "leg": self.request["leg"], **self.request["key"], **record}) + "\n"
        with open(self.request["output"], "ab", buffering=0) as file:
            file.write(line.encode())

    # ---- comparing one call --------------------------------------------------------------------------------------------------------------

    def mode(self):
        return self.rng.choice((torch.inference_mode, torch.no_grad, torch.no_grad))

    def look(self, what, call, module, truth, bf16=None, fresh=None, mode=None):
        """The call with the tier, some times, beside stock, which may come first or last."""
        what += self.maybe_force()
        stock_first = self.rng.random() < 0.5
        with (mode or self.mode())():
            if stock_first:
                with self.tier.off():
                    stock = call()
            results = [call() for _ in range(LOOKS)]
            if not stock_first:
                with self.tier.off():
                    stock = call()

            def in_stock(function):
                def run():
                    with self.tier.off():
                        return function()
                return run

            for result in results:
                self.checker.judge(what, result, stock, module, in_stock(truth), in_stock(bf16) if bf16 else None, fresh)

    def look_at(self, living, what=""):
        inputs = living.inputs(self.rng.getrandbits(31))

        def bf16():
            with torch.autocast("cpu", torch.bfloat16):
                result = living.model(**inputs)
            return as_float32(result)

        def truth():
            return living.double()(**{name: doubled(value) for name, value in inputs.items()})

        mode = torch.inference_mode if living.inference_only else None
        self.look(f"{living.kind}{what}", lambda: living.model(**inputs), True, truth, bf16, lambda: of_a_copy(living, inputs), mode)

    def maybe_force(self):
        """Now and then one candidate everywhere, in all threads; else selection decides."""
        forced = self.rng.choice(self.forced) if self.rng.random() < 0.4 else ""
        self.tier.force(forced)
        return f", forced {forced}" if forced else ""

    # ---- activities ------------------------------------------------------------------------------------------------------------------------

    def operators(self):
        for _ in range(8):
            call = soak_calls.draw_operator(self.rng.getrandbits(31))
            shapes = " ".join("x".join(map(str, t.shape)) for t in call.tensors)
            self.look(f"{call.name} {shapes} {str(call.tensors[0].dtype)[6:]}", lambda: call.run(*call.tensors), call.sequence,
                      lambda: call.run(*map(doubled, call.tensors)))

    def gradients(self):
        """Forward and backward of an operator; nothing is forced where gradients are wanted."""
        self.tier.force("")
        for _ in range(3):
            call = soak_calls.draw_operator(self.rng.getrandbits(31))
            if call.name == "mm out":
                continue

            def run(tensors):
                leaves = [t.detach().clone().requires_grad_() for t in tensors]
                result = call.run(*leaves)
                pull = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).reshape(result.shape)
                return [result.detach(), *torch.autograd.grad(result, leaves, pull)]

            results = [run(call.tensors) for _ in range(2)]
            with self.tier.off():
                stock = run(call.tensors)

            def truth():
                with self.tier.off():
                    return run([doubled(t) for t in call.tensors])

            for result in results:
                self.checker.judge(f"gradients of {call.name}", result, stock, True, truth)

    def models(self):
        """Models are made, used, changed, used again, and dropped."""
        if len(self.living) < LIVING or self.rng.random() < 0.3:
            if len(self.living) >= LIVING:
                self.living.pop(self.rng.randrange(len(self.living)))
            self.living.append(soak_calls.Living(self.rng.getrandbits(31)))
        living = self.rng.choice(self.living)
        self.look_at(living)
        for _ in range(self.rng.randint(1, 3)):
            self.change(living)

    def change(self, living):
        names = soak_life.OF_INFERENCE_TENSORS if living.inference_only else tuple(soak_life.CHANGES)
        name = self.rng.choice(names)
        inputs = living.inputs(self.rng.getrandbits(31))
        mode = torch.inference_mode if living.inference_only else torch.no_grad

        def stock():
            with self.tier.off(), mode():
                return only_tensors(living.model(**inputs))

        before = stock()
        with torch.inference_mode(living.inference_only):
            soak_life.CHANGES[name](living, torch.Generator().manual_seed(self.rng.getrandbits(31)))
        soak_life.flatten(living)
        after = stock()
        tensors = [(a, b) for a, b in zip(before.values(), after.values()) if a.is_floating_point() and a.shape == b.shape]
        if any(float((a.double() - b.double()).norm() / b.double().norm()) > 0.1 for a, b in tensors):
            self.seen_stale_would_be += 1
        self.look_at(living, f" after {name}")

    def training(self):
        """Some steps with the tier and without, from the same start: selection alone decides."""
        self.tier.force("")
        seed, make = self.rng.getrandbits(31), self.rng.choice(list(soak_calls.OWN))
        optimizer = self.rng.choice((lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9), lambda p: torch.optim.AdamW(p, lr=1e-3),
                                     lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True)))

        def run(dtype):
            draw = soak_calls.Draw(seed)
            torch.manual_seed(seed)
            model, inputs_of = soak_calls.OWN[make](draw)
            model, inputs = model.to(dtype), inputs_of(soak_calls.Draw(seed + 1))
            inputs = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
            model.train()
            steps = optimizer(model.parameters())
            losses = []
            for _ in range(3):
                steps.zero_grad()
                loss = (model(**inputs).square().mean() + 1).log()
                loss.backward()
                steps.step()
                losses.append(loss.detach())
            return {"losses": torch.stack(losses), "parameters": torch.cat([p.detach().flatten() for p in model.parameters()])}

        result = run(torch.float32)
        with self.tier.off():
            stock = run(torch.float32)

        def truth():
            with self.tier.off():
                return run(torch.float64)

        self.checker.judge(f"training {make}", result, stock, True, truth)

    def ready(self):
        """A model of those that live and have version counters, inputs, and what stock makes of them."""
        usable = [one for one in self.living if not one.inference_only] or [soak_calls.Living(7)]
        living = self.rng.choice(usable)
        inputs = living.inputs(self.rng.getrandbits(31))
        with torch.no_grad(), self.tier.off():
            stock = only_tensors(living.model(**inputs))
        return living, inputs, stock

    def threads(self):
        """Several threads infer at a time, each switching the tier on and off for itself."""
        jobs = [self.ready() for _ in range(self.rng.randint(2, 4))]
        self.maybe_force()
        seeds = [self.rng.getrandbits(31) for _ in range(self.rng.randint(2, 4))]

        def work(seed):
            rng = random.Random(seed)
            with torch.no_grad():
                for _ in range(6):
                    living, inputs, stock = rng.choice(jobs)
                    on = rng.random() < 0.8
                    if self.tier.there:
                        self.tier.hook.set_enabled(on)
                    if on:
                        self.judge_threaded(living, inputs, stock)
                    else:
                        living.model(**inputs)
            if self.tier.there:
                self.tier.hook.set_enabled(True)

        if self.rng.random() < 0.5:
            for done in [self.pool.submit(work, seed) for seed in seeds]:
                done.result()
        else:
            fresh = concurrent.futures.ThreadPoolExecutor(len(seeds))
            with fresh:
                for done in [fresh.submit(work, seed) for seed in seeds]:
                    done.result()
        if self.tier.there:
            self.checker.expect("another thread's switch does not move this one's", self.tier.hook.enabled())

    def judge_threaded(self, living, inputs, stock):
        result = living.model(**inputs)

        def bf16():
            with self.tier.off(), torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                return as_float32(living.model(**inputs))

        def truth():
            with self.tier.off(), torch.no_grad():
                return living.double()(**{name: doubled(value) for name, value in inputs.items()})

        self.checker.judge(f"{living.kind} in a thread", only_tensors(result), stock, True, truth, bf16,
                           lambda: of_a_copy(living, inputs))

    def forks(self):
        """A child is forked while another thread computes; it calls stock first: what hangs there, hangs without the tier."""
        living, inputs, stock = self.ready()
        self.maybe_force()
        going = threading.Event()
        going.set()

        def call():
            with torch.no_grad():
                living.model(**inputs)

        thread, problems = soak_life.busy(call, going.is_set)
        try:
            for _ in range(2):
                self.checker.expect("fork", self.fork(living, inputs, stock))
        finally:
            going.clear()
            thread.join()
        self.checker.expect(f"the thread beside a fork: {problems}", not problems)

    def fork(self, living, inputs, stock):
        def work(say):
            with torch.no_grad():
                with self.tier.off():
                    living.model(**inputs)
                say("stock")
                before = sum(one[1] for one in self.checker.counts.values())
                for _ in range(3):
                    self.judge_threaded(living, inputs, stock)
                living.model.requires_grad_(False)
                soak_life.copy_in_place(living, torch.Generator().manual_seed(1))
                with self.tier.off():
                    changed = only_tensors(living.model(**inputs))
                self.judge_threaded(living, inputs, changed)
                say("tier")
            return 0 if sum(one[1] for one in self.checker.counts.values()) == before else 3

        code, steps = soak_life.run_child(work)
        if code is None and "stock" not in steps:
            self.tell({"kind": "note", "round": self.checker.round, "what": "a forked child hung in stock code"})
            return True
        if code != 0:
            self.tell({"kind": "note", "round": self.checker.round, "what": f"forked child: exit code {code}, steps {steps}"})
        return code == 0

    def loader(self, start="fork"):
        weight, inputs = torch.randn(32, 16, 3), [torch.randn(16, 64) for _ in range(8)]
        if start == "spawn":
            weight.share_memory_()
        data = soak_life.Rows(weight, inputs)
        with self.tier.off(), torch.no_grad():
            stock = [soak_life.compute_row(x, weight) for x in inputs]
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=start, timeout=soak_life.CHILD_SECONDS)
        for i, (rows, there) in enumerate(self.rows_of(loader, data)):
            self.checker.expect(f"the op tier in a worker ({start})", bool(there.all()) == self.tier.there)
            self.checker.judge(f"a row of a worker ({start})", rows, torch.stack(stock[4 * i : 4 * i + 4]), False,
                               lambda: torch.stack([soak_life.compute_row(doubled(x), doubled(weight)) for x in inputs[4 * i : 4 * i + 4]]))

    def rows_of(self, loader, data):
        """Its batches; a worker that hung before the op tier was asked is stock's."""
        try:
            yield from loader
        except RuntimeError as problem:
            if "timed out" not in str(problem) or not data.hung_in_stock():
                raise
            self.tell({"kind": "note", "round": self.checker.round, "what": "a worker of a loader hung in stock code"})

    def spawn(self):
        self.loader("spawn")

    def errors(self):
        """What stock raises reaches the user word for word, and leaves the switch alone."""
        a, b = torch.randn(self.rng.randint(2, 9), 5), torch.randn(self.rng.randint(6, 9), 4)
        layer = torch.nn.Linear(64, 64)
        layer.register_forward_hook(lambda *_: [][0])
        calls = [lambda: torch.mm(a, b), lambda: torch.addmm(a, a, b), lambda: torch.conv2d(a, b), lambda: torch.softmax(a, 7),
                 lambda: torch.layer_norm(a, (9,)), lambda: torch.bmm(a, b), lambda: layer(torch.randn(4, 64)), lambda: layer(a)]
        call = self.rng.choice(calls)

        def outcome():
            try:
                call()
            except Exception as problem:
                return type(problem).__name__, str(problem)
            return None

        result = outcome()
        with self.tier.off():
            stock = outcome()
        self.checker.expect(f"an exception as stock's: {result}", result == stock and result is not None)

    ACTIVITIES = {"operators": 30, "gradients": 10, "models": 30, "training": 4, "threads": 10, "forks": 3, "loader": 1, "spawn": 0.15, "errors": 4}

    # ---- the loop --------------------------------------------------------------------------------------------------------------------------

    def round(self, number):
        names = list(self.ACTIVITIES)
        # Each once at first: a short run has seen them all.
        name = names[number] if number < len(names) else self.rng.choices(names, list(self.ACTIVITIES.values()))[0]
        self.checker.activity, self.checker.round = name, number
        self.rounds[name] = self.rounds.get(name, 0) + 1
        self.heartbeat(number, name)
        try:
            getattr(self, name)()
        except Exception as problem:
            traceback.print_exc()
            self.checker.note(f"an exception in {name}", f"{type(problem).__name__}: {str(problem)[:300]}")
        finally:
            self.tier.force("")

    def heartbeat(self, number, name):
        """What the driver shows, and what it knows of a round in which the process died."""
        counts = self.checker.counts.values()
        text = json.dumps({"pid": os.getpid(), "minutes": round((time.monotonic() - self.start) / 60, 2), "round": number, "activity": name,
                           "checks": sum(c[0] for c in counts), "wrong": sum(c[1] for c in counts)})
        with open(self.request["status"], "r+b" if os.path.exists(self.request["status"]) else "wb", buffering=0) as file:
            file.write(text.ljust(200).encode())

    def sample(self):
        now = time.monotonic()
        if now - self.sampled < self.request["sample_seconds"]:
            return
        self.sampled = now
        gc.collect()
        report = self.tier.report()
        counts = self.checker.counts.values()
        self.tell({"kind": "sample", "minutes": (now - self.start) / 60, **memory_kib(), "heap": heap_kib(),
                   "tasks": len(os.listdir("/proc/self/task")), "fds": len(os.listdir("/proc/self/fd")),
                   "pack_kib": report.get("pack_bytes", 0) // 1024, "weights": report.get("weights", 0),
                   "sites": len(report.get("sites", ())), "calls": report.get("calls", 0), "taken": report.get("taken", 0),
                   "rounds": sum(self.rounds.values()), "checks": sum(c[0] for c in counts)})

    def run(self):
        number = 0
        until = self.start + 60 * self.request["minutes"]
        while number < len(self.ACTIVITIES) or time.monotonic() < until:
            self.round(number)
            number += 1
            self.sample()
        self.pool.shutdown()
        report = self.tier.report()
        self.tell({"kind": "end", "minutes": (time.monotonic() - self.start) / 60, "active": self.tier.there, "rounds": self.rounds,
                   "counts": self.checker.counts, "changes_seen": self.seen_stale_would_be,
                   "ops": [{key: one[key] for key in ("op", "calls", "taken", "declined")} for one in report.get("ops", ())],
                   "sites": len(report.get("sites", ())), "decided": sum(site["decided"] for site in report.get("sites", ())),
                   "chosen": sum(site["choice"] != "stock" for site in report.get("sites", ()))})


def only_tensors(output):
    """By path; what is no tensor (caches of language models) is no result to keep."""
    return zoo_rule.tensors_of(output)


def of_a_copy(living, inputs):
    """The op tier's result of the same weights in storages of their own."""
    twin = copy.deepcopy(living.model)
    return [only_tensors(twin(**inputs)) for _ in range(4 * LOOKS)][-1]


def as_float32(output):
    return {path: t.float() if t.dtype == torch.bfloat16 else t for path, t in only_tensors(output).items()}


def main():
    request = json.loads(sys.argv[1])
    faulthandler.enable()
    warnings.simplefilter("ignore")
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    Soak(request).run()


if __name__ == "__main__":
    main()
