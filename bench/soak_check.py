"""Comparison of what the op tier computed with stock, in one process, under the accuracy rule (zoo_rule.py)."""

import contextlib
import sys
import threading

import torch
import zoo_rule

ONE_OP = {"float32": 1e-6, "auto": 8e-3}  # of a single operator in float32; auto: bf16 is allowed inside
MODULE = zoo_rule.TOLERANCE
BF16_RESULT = 8e-3
ROW = 64  # values of a sample below which only the whole is judged: a sum of few terms may cancel


class Tier:
    """The op tier of this process, or none (the control run)."""

    def __init__(self):
        self.hook = sys.modules.get("_ipexrun_hook")

    @property
    def there(self):
        return self.hook is not None and bool(self.hook.optimizing())

    @contextlib.contextmanager
    def off(self):
        """Stock, in this thread."""
        if not self.there:
            yield
            return
        before = self.hook.enabled()
        self.hook.set_enabled(False)
        try:
            yield
        finally:
            self.hook.set_enabled(before)

    def force(self, candidate):
        if self.there:
            self.hook.force(candidate)

    def report(self):
        import json

        return json.loads(self.hook.report()) if self.there else {}


def doubled(value):
    return value.detach().double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def compare(result, stock, truth, dtype, module):
    """({path: what is wrong}, worst error) of two results of one call; truth None: stock is the truth."""
    result, stock = zoo_rule.tensors_of(result), zoo_rule.tensors_of(stock)
    truth = None if truth is None else zoo_rule.tensors_of(truth)
    if list(result) != list(stock):
        return {"output": f"{list(result)} instead of {list(stock)}"}, float("inf")
    wrong, worst = {}, 0.0
    for path, tensor in result.items():
        tolerance = MODULE[dtype] if module else BF16_RESULT if stock[path].dtype == torch.bfloat16 else ONE_OP[dtype]
        batch = tensor.shape[0] if tensor.dim() > 1 and tensor.numel() >= ROW * tensor.shape[0] else 0
        cosine = zoo_rule.COSINE if module and dtype != "float32" else 0
        problem, error = zoo_rule.compare_tensor(tensor, stock[path], None if truth is None else truth[path], tolerance, cosine, batch)
        worst = max(worst, error)
        if problem:
            wrong[path] = problem
    return wrong, worst


class Checker:
    """Counts comparisons by activity, and tells of wrong ones. Used by several threads."""

    def __init__(self, dtype, tell):
        self.dtype, self.tell = dtype, tell
        self.lock = threading.Lock()
        self.activity, self.round = "", 0
        self.counts = {}  # activity -> [comparisons, wrong, as bf16 of stock, worst error]

    def note(self, what, wrong, error=0.0, rounded=False):
        with self.lock:
            counts = self.counts.setdefault(self.activity, [0, 0, 0, 0.0])
            counts[0] += 1
            counts[1] += bool(wrong) and not rounded
            counts[2] += rounded
            counts[3] = max(counts[3], min(error, 1e9)) if not wrong else counts[3]
        if wrong and not rounded:
            self.tell({"kind": "wrong", "round": self.round, "activity": self.activity, "what": what,
                       "wrong": wrong if isinstance(wrong, dict) else {"": str(wrong)}})

    def expect(self, what, true):
        self.note(what, None if true else "not so")

    def judge(self, what, result, stock, module, truth=None, bf16=None, fresh=None):
        """`truth`, `bf16`, `fresh`: functions that give the fp64 result, stock's under bf16 autocast, and the op tier's of a copy of the model,
        asked only of a result that is off. A copy tells a stale pack from a kernel that is wrong.

        Closer to stock than t means closer to the truth than e(stock) + t, so the rule holds without the truth.
        """
        wrong, error = compare(result, stock, None, self.dtype, module)
        if wrong and truth is not None:
            wrong, error = compare(result, stock, truth(), self.dtype, module)
        rounded = False
        if wrong and bf16 is not None and self.dtype != "float32":
            # Rounding that adds up from layer to layer is told from a defect by stock's own bf16 (docs/zoo.md).
            own, other = zoo_rule.tensors_of(bf16()), zoo_rule.tensors_of(stock)
            mine = zoo_rule.tensors_of(result)
            rounded = list(mine) == list(other) and all(far(mine[path], other[path]) <= 2 * far(own[path], other[path]) for path in wrong)
        if wrong and not rounded and fresh is not None:
            again = zoo_rule.tensors_of(fresh())
            wrong = {path: f"{text}; away from the op tier on a copy by {far(zoo_rule.tensors_of(result)[path], again[path]):.1e}"
                     if path in again else text for path, text in wrong.items()}
        self.note(what, wrong, error, rounded)
        return not wrong or rounded


def far(one, other):
    if (one.shape, one.dtype) != (other.shape, other.dtype) or not one.is_floating_point():
        return float("inf")
    return float(zoo_rule.errors(zoo_rule.rows(one, 0), zoo_rule.rows(other, 0)).max())
