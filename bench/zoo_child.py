"""One model family in one process: the op tier on against off. Started by zoo.py with a JSON request on the command line; writes one JSON
object to the file named there. IPEXRUN_DTYPE is the question's dtype.
"""

import contextlib
import copy
import json
import os
import random
import re
import statistics
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "tests", "op_tier")]

import plugin_loader  # noqa: E402
import torch  # noqa: E402
import zoo_rule  # noqa: E402
from models.zoo import FAMILIES, SIZES  # noqa: E402

UNUSABLE_TRUTH = 1e-2  # an fp64 copy this far from stock computed something else (random numbers, a dtype fixed in its code)
VANISHING = 1e-4  # gradients below this share of the largest one are rounding noise around zero: counted in the whole only
PROFILES = 5
FORCED_CALLS = 3  # a weight is packed at its second use
NUDGES = 8  # copies of a model whose weights differ from it by rounding
SETTLED_CALLS = 3  # in a row, in which nothing was measured and nothing waits for a check of a whole pass


def candidates():
    """Names and arithmetic from the op tier's own table."""
    text = open(os.path.join(HERE, "..", "preload", "plugin", "candidates.def"), encoding="utf-8").read()
    return re.findall(r"^IPEXRUN_CANDIDATE\(\w+, \d+, \"?(\w+)\"?, (\w+)\)", text, re.M)


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def silence_dropout(model):
    """No random numbers in a training step: modules, and probabilities that modules and configs keep for functional calls."""
    holders = list(model.modules())
    holders += [m.config for m in holders if hasattr(m, "config")]
    for holder in holders:
        if isinstance(holder, torch.nn.modules.dropout._DropoutNd):
            holder.p = 0.0
        for name, value in list(vars(holder).items()):
            if isinstance(value, float) and re.search(r"drop|layerdrop|mask_.*prob", name):
                setattr(holder, name, 0.0)


def calibrate(model, inputs):
    """Batch norms learn what their inputs look like: with the statistics of a new module (0 and 1) activations of deep networks vanish, and
    what is left is rounding noise."""
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    if not norms:
        return
    model.train()
    momenta = [m.momentum for m in norms]
    with torch.no_grad():
        for m in norms:
            m.momentum = 1.0
        model(**inputs)
    for m, momentum in zip(norms, momenta):
        m.momentum = momentum


@contextlib.contextmanager
def all_double():
    """float32 in a model's code means float64: an fp64 copy that casts to fp32 on the way would not be the truth."""
    saved = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = saved[:3]
        torch.set_default_dtype(saved[3])


def doubled(value):
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def distance(outputs, targets):
    """A mean square to fixed random targets: a loss that every family has."""
    terms = [torch.nn.functional.mse_loss(tensor, targets[path].to(tensor.dtype)) for path, tensor in outputs.items() if path in targets]
    return torch.stack(terms).sum()


def free_bytes():
    for line in open("/proc/meminfo", encoding="ascii"):
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    return 0


def worst_row(values, truth):
    return float(zoo_rule.errors(zoo_rule.rows(values, 0), zoo_rule.rows(truth, 0)).max())


class Comparison:
    def __init__(self, request):
        self.request, self.dtype, self.seed = request, request["dtype"], request["seed"]
        self.family = FAMILIES[request["family"]]
        self.size = SIZES[request["size"]]
        seed_all(self.seed)
        self.model, self.inputs = self.family.build(self.size)
        silence_dropout(self.model)
        calibrate(self.model, self.inputs)
        self.batch = next(iter(self.inputs.values())).shape[0]
        self.spread = None  # of inference; made when something misses the rule
        self.record = {"kind": self.family.kind, "parameters": sum(p.numel() for p in self.model.parameters()), "wrong": {}, "error": {}}

    # ---- one call ------------------------------------------------------------------------------------------------------------------

    def call(self, model=None, inputs=None):
        seed_all(self.seed)
        return zoo_rule.tensors_of((model or self.model)(**(inputs or self.inputs)))

    @contextlib.contextmanager
    def tier(self, on, force=""):
        self.hook.set_enabled(on)
        assert self.hook.force(force) or not force, force
        try:
            yield
        finally:
            self.hook.force("")
            self.hook.set_enabled(False)

    def report(self):
        return json.loads(self.hook.report())

    def judge(self, mode, wrong, error):
        self.record["error"][mode] = error
        if wrong:
            self.record["wrong"].setdefault(mode, {}).update(dict(list(wrong.items())[:5]))

    def judge_inference(self, mode, result, stock, truth, noise, slack=2):
        """What selection answered is held to the rule; of a bf16 candidate forced into every layer, what rounding adds up to is recorded apart."""
        wrong, error = self.compare(result, stock, truth, noise, slack)
        if wrong:
            wrong = self.beyond_nudges(mode, wrong, result, stock, truth, noise, slack, self.nudged_inference)
        if any(name in re.findall(r"\w+", mode) and inside == "bf16" for name, inside in self.forced):
            wrong = self.beyond_bf16(mode, wrong, result, truth or stock, self.stock_bf16)
        for path in wrong:
            own = self.stock_bf16.get(path, 0.0)
            if not own or worst_row(result[path], (truth or stock)[path]) > 2 * own:
                self.record["beyond_bf16"] = True
        self.judge(mode, wrong, error)

    def ops_since(self, before):
        """{op: {calls, taken, and reasons of what was declined}} since that report."""
        old = {one["op"]: one for one in before["ops"]}
        since = {}
        for one in self.report()["ops"]:
            was = old.get(one["op"], {"calls": 0, "taken": 0, "declined": {}})
            calls = one["calls"] - was["calls"]
            if calls:
                declined = {why: n - was["declined"].get(why, 0) for why, n in one["declined"].items()}
                since[one["op"]] = {"calls": calls, "taken": one["taken"] - was["taken"],
                                    "declined": {why: n for why, n in declined.items() if n}}
        return since

    # ---- inference -----------------------------------------------------------------------------------------------------------------

    def double_copy(self):
        """None where no fp64 copy fits or it does not run."""
        if 8 * self.record["parameters"] * 3 > free_bytes() / 4:
            return None
        return copy.deepcopy(self.model).double(), {name: doubled(value) for name, value in self.inputs.items()}

    def find_truth(self, stock, run_double, run_nudged):
        """(truth or None, stock's own error by path where there is no truth)."""
        floats = [path for path, tensor in stock.items() if tensor.is_floating_point()]
        try:
            double = self.double_copy()
            if double is not None:
                with all_double():
                    truth = run_double(*double)
                alike = list(truth) == list(stock) and all(truth[path].shape == stock[path].shape for path in stock)
                shown = [path for path in floats if not path.startswith("grad ")]
                far = max((worst_row(stock[path], truth[path]) for path in shown), default=0.0) if alike else 1.0
                if far < UNUSABLE_TRUTH:
                    return truth, None
                self.record["no_fp64"] = f"the fp64 copy is {far:.1e} away from stock"
        except (RuntimeError, TypeError, ValueError, KeyError, AttributeError, AssertionError) as problem:
            self.record["no_fp64"] = f"{type(problem).__name__}: {str(problem)[:120]}"
        # Stock's own error is then what it makes of weights that differ by rounding.
        nudged = run_nudged()
        return None, {path: worst_row(nudged[path], stock[path]) for path in floats}

    def beyond_nudges(self, mode, wrong, result, stock, truth, noise, slack, nudged):
        """What is still wrong when stock's own error is the worst of several draws of rounding: a value that sits on the edge of a ReLU, or a tie
        of a maximum, falls to either side by the last bit of anything before it, and stock's one result shows one side only."""
        spread = nudged()
        known = {path: max(spread.get(path, 0.0), (noise or {}).get(path, 0.0)) for path in stock}
        left, _ = self.compare(result, stock, truth, known, slack)
        for path in wrong.keys() - left.keys():
            self.record.setdefault("as_nudged_stock", {}).setdefault(mode, {})[path] = [worst_row(result[path], (truth or stock)[path]), spread[path]]
        return {path: wrong[path] for path in wrong if path in left}

    def spread_of(self, run, stock, truth):
        """{path: worst error of stock with weights that differ by rounding}."""
        draws = [run(self.nudged_copy(self.seed + 1 + i)) for i in range(NUDGES)]
        return {path: max(self.worst_sample(draw[path], (truth or stock)[path]) for draw in draws)
                for path in stock if stock[path].is_floating_point()}

    def worst_sample(self, values, truth):
        return float(zoo_rule.errors(zoo_rule.rows(values, self.batch), zoo_rule.rows(truth, self.batch)).max())

    def nudged_inference(self):
        if self.spread is None:
            def run(model):
                with torch.no_grad():
                    return self.call(model.eval())

            self.spread = self.spread_of(run, self.stock, self.truth)
        return self.spread

    def nudged_copy(self, seed=None):
        model = copy.deepcopy(self.model)
        generator = torch.Generator().manual_seed(self.seed if seed is None else seed)
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 2.0**-24 * torch.randn(p.shape, generator=generator))
        return model

    def inference(self):
        self.model.eval()
        with torch.no_grad():
            stock = self.call()
            truth, noise = self.find_truth(stock, self.call, lambda: self.call(self.nudged_copy().eval()))
        again, _ = self.compare(self.no_grad_call(), stock, truth, noise)
        if again:
            self.record["not_repeatable"] = again
        self.record["truth"] = "fp64" if truth is not None else "stock"
        self.stock, self.truth, self.noise = stock, truth, noise
        self.stock_bf16 = self.bf16_of_stock(self.no_grad_call, stock, truth)
        self.record["stock_under_bf16_autocast"] = max(self.stock_bf16.values(), default=0.0)
        self.record["forced"] = {}
        for name, _ in self.forced:
            before = self.report()
            with self.tier(True, name):
                for _ in range(FORCED_CALLS):
                    result = self.no_grad_call()
                    self.judge_inference(name, result, stock, truth, noise)
            self.record["forced"][name] = self.ops_since(before)

    def no_grad_call(self):
        with torch.no_grad():
            return self.call()

    def compare(self, result, stock, truth, noise, slack=2):
        return zoo_rule.compare(result, stock, truth, self.dtype, self.batch, noise, slack)

    def selected(self):
        """Calls until every kind of call is decided or a limit; each is compared: while exploring the user gets results as well."""
        until = time.monotonic() + self.request["select_seconds"]
        calls, settled = 0, 0
        with self.tier(True):
            while calls < FORCED_CALLS or (settled < SETTLED_CALLS and calls < self.request["select_calls"] and time.monotonic() < until):
                self.judge_inference("selected", self.no_grad_call(), self.stock, self.truth, self.noise)
                calls += 1
                now = self.report()
                settled = settled + 1 if not now["drift"]["waiting"] and all(site["decided"] for site in now["sites"]) else 0
            before = self.report()
            self.judge_inference("selected", self.no_grad_call(), self.stock, self.truth, self.noise)
            ops = self.ops_since(before)
        sites = self.report()["sites"]
        self.record["selected"] = {"ops": ops, "calls": calls, "sites": len(sites), "decided": sum(site["decided"] for site in sites),
                                   "drift": self.report()["drift"], "undecided": [site["site"] for site in sites if not site["decided"]],
                                   "chosen": sum(site["choice"] != "stock" for site in sites)}

    # ---- training ------------------------------------------------------------------------------------------------------------------

    def step(self, model, inputs, targets):
        """One forward, backward and SGD step."""
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
        outputs = self.call(model, inputs)
        if not targets:
            generator = torch.Generator().manual_seed(self.seed)
            targets.update({path: torch.randn(v.shape, generator=generator, dtype=v.dtype) for path, v in outputs.items()
                            if v.is_floating_point() and v.requires_grad and bool(v.isfinite().all())})
        loss = distance(outputs, targets)
        loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        seen = {"loss": loss.detach()} | {f"train {path}": v.detach() for path, v in outputs.items()}
        return seen, gradients, {name: p.detach().clone() for name, p in model.named_parameters()}

    def training(self):
        base = copy.deepcopy(self.model)
        targets = {}
        seen, reference, after = self.step(copy.deepcopy(base), self.inputs, targets)
        largest = max(float(g.norm()) for g in reference.values())
        lasting = [name for name, g in reference.items() if float(g.norm()) > VANISHING * largest]

        def with_gradients(seen, gradients, after):
            one = {"all gradients": torch.cat([gradients[name].flatten() for name in reference]),
                   "all parameters": torch.cat([value.flatten() for value in after.values()])}
            return seen | one | {f"grad {name}": gradients[name] for name in lasting}

        def stepped(model, inputs):
            return with_gradients(*self.step(model, inputs, targets))

        stock = with_gradients(seen, reference, after)
        truth, noise = self.find_truth(stock, stepped, lambda: stepped(self.nudged_copy(), self.inputs))
        self.record["training_truth"] = "fp64" if truth is not None else "stock"
        self.record["training"] = {}
        spread = {}
        yardstick = self.bf16_of_stock(lambda: stepped(copy.deepcopy(base), self.inputs), stock, truth)
        for name, inside in [("", "f32"), *self.forced]:
            mode = f"training {name or 'selected'}"
            model = copy.deepcopy(base)
            before = self.report()
            with self.tier(True, name):
                result = stepped(model, self.inputs)
            self.record["training"][name or "selected"] = self.ops_since(before)
            # A forced candidate is nothing that selection would take in a step. Errors of whole gradients, its and stock's, are one draw of
            # rounding each: their ratio exceeds 2 now and then without any defect.
            slack = 4 if name else 2
            wrong, error = self.compare(result, stock, truth, noise, slack)
            if wrong:
                spread = spread or self.spread_of(lambda model: stepped(model, self.inputs), stock, truth)
                wrong = self.beyond_nudges(mode, wrong, result, stock, truth, noise, slack, lambda: spread)
            if inside == "bf16":
                wrong = self.beyond_bf16(mode, wrong, result, truth or stock, yardstick)
            if wrong:
                self.record["beyond_bf16"] = True
            self.judge(mode, wrong, error)
            self.after_step(mode, model, name)

    def bf16_of_stock(self, run, stock, truth):
        """{path: error} when stock itself computes in bf16, by autocast."""
        if self.dtype == "float32":
            return {}
        try:
            with torch.autocast("cpu", torch.bfloat16):
                result = run()
        except (RuntimeError, TypeError, ValueError):
            return {}
        return {path: worst_row(result[path], (truth or stock)[path]) for path in stock
                if stock[path].is_floating_point() and path in result and result[path].shape == stock[path].shape}

    def beyond_bf16(self, mode, wrong, result, truth, yardstick):
        """Forced into every layer, or into training (where signs behind ReLU flip), a candidate does what bf16 does anywhere: what misses the rule,
        but is no further off than twice stock's own bf16 autocast, is recorded apart."""
        left = {}
        worst_gradient = max((error for path, error in yardstick.items() if path.startswith("grad ")), default=0.0)
        for path, problem in wrong.items():
            own = worst_gradient if path.startswith("grad ") else yardstick.get(path, 0.0)
            error = worst_row(result[path], truth[path]) if own else float("inf")
            if error <= 2 * own:
                self.record.setdefault("as_bf16_of_stock", {}).setdefault(mode, {})[path] = [error, own]
            else:
                left[path] = f"{problem}; stock under bf16 autocast {own:.2e}"
        return left

    def after_step(self, mode, model, name):
        """Weights that a step changed, seen by the next call: the same model, tier on against off."""
        model.eval()
        with torch.no_grad():
            stock = self.call(model)
            with self.tier(True, name):
                result = self.call(model)
        noise = self.noise or {path: worst_row(self.stock[path], self.truth[path]) for path, v in stock.items() if v.is_floating_point()}
        # Against stock instead of the truth: 2 e(stock) + t become 3 e(stock) + t, and one more for weights that a forced step made.
        self.judge_inference(f"{mode}, next call", result, stock, None, noise, 4 if name else 3)

    # ---- time: recorded, never judged --------------------------------------------------------------------------------------------------

    def speed(self):
        ratios, off_times = [], []
        until = time.monotonic() + self.request["speed_seconds"]
        while len(ratios) < 5 or (time.monotonic() < until and len(ratios) < 101):
            times = {}
            for on in ((False, True) if len(ratios) % 2 == 0 else (True, False)):
                with self.tier(on):
                    start = time.perf_counter()
                    with torch.no_grad():
                        self.model(**self.inputs)
                    times[on] = time.perf_counter() - start
            ratios.append(times[False] / times[True])
            off_times.append(times[False])
        ratios.sort()
        n = len(ratios)
        self.record["speed"] = {"speed_up": statistics.median(ratios), "quartiles": [ratios[n // 4], ratios[3 * n // 4]], "pairs": n,
                                "stock_ms": statistics.median(off_times) * 1e3, "load": os.getloadavg()[0]}

    def profiled(self):
        """Operator time of a forward, and by operator with everything below it."""
        from torch.profiler import ProfilerActivity, profile

        with torch.no_grad(), profile(activities=[ProfilerActivity.CPU]) as seen:
            self.model(**self.inputs)
        whole = {}
        for event in seen.events():
            if event.name.startswith("aten::") and not (event.cpu_parent is not None and event.cpu_parent.name == event.name):
                name = event.name.removeprefix("aten::")
                whole[name] = whole.get(name, 0) + event.cpu_time_total
        return sum(event.self_cpu_time_total for event in seen.events()), whole

    def coverage(self):
        """Share of stock's operator time in the ops that the tier took: by op, times the share of that op's calls that were taken."""
        # The quickest of some forwards: another process on the core lengthens whatever operator runs at that moment.
        total, owned = min((self.profiled() for _ in range(PROFILES)), key=lambda one: one[0])
        self.record["profile"] = {k: round(v / total, 4) for k, v in sorted(owned.items(), key=lambda one: -one[1])[:12]}

        def share(ops):
            if not ops:
                return 0.0
            sums = {}
            for op, one in ops.items():
                plain = op.split(".")[0]
                calls, taken = sums.get(plain, (0, 0))
                sums[plain] = calls + one["calls"], taken + one["taken"]
            return sum(owned.get(op, 0) * taken / calls for op, (calls, taken) in sums.items()) / total

        best = {}
        for ops in self.record["forced"].values():  # what any candidate could take
            for op, one in ops.items():
                if op not in best or one["taken"] / one["calls"] > best[op]["taken"] / best[op]["calls"]:
                    best[op] = one
        self.record["coverage"] = {"selected": share(self.record["selected"]["ops"]), "possible": share(best),
                                   "owned": sum(owned.get(op.split(".")[0], 0) for op in {o.split(".")[0] for o in best}) / total}

    def run(self):
        result, reason = plugin_loader.start()
        if result != 0:
            raise RuntimeError(f"the plugin did not start: {reason}")
        self.hook = sys.modules["_ipexrun_hook"]
        self.hook.set_enabled(False)
        self.forced = [one for one in candidates() if self.dtype != "float32" or one[1] == "f32"]
        self.record["threads"] = torch.get_num_threads()
        self.inference()
        self.selected()
        self.training()
        if self.request["speed_seconds"] > 0:
            self.speed()
            self.coverage()
        # What selection answers is what users get. Forced into every layer a candidate shows more, and is counted apart.
        names = {name for name, _ in self.forced}
        self.record["forced_unequal"] = [mode for mode in self.record["wrong"] if names & set(re.findall(r"\w+", mode))]
        self.record["equal"] = set(self.record["wrong"]) == set(self.record["forced_unequal"])
        return self.record


def main():
    request = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    record = Comparison(request).run()
    with open(request["answer"], "w", encoding="utf-8") as file:
        json.dump(record, file)


if __name__ == "__main__":
    main()
