"""Fused optimizers in unedited programs: SGD, Adam, AdamW and Adagrad of torch.optim run torch's own fused kernels inside step().

Nothing of the optimizer changes: its param_groups keep `fused=None`, its state has the tensors that stock's has, hooks see what they see
without us. torch runs hooks of all optimizers before and after each step (register_optimizer_step_pre_hook); between the two the function
that step() calls (`torch.optim.adam.adam` and so on) is replaced, and only there.

A step writes in place, so stock and fused cannot both run on one step: neighbouring steps take turns until one form won
(docs/decisions/0020-training.md). Before the first fused one a sample of tensors goes through both. Optimizers of one kind (class, settings, sizes of
parameters) are checked and raced together: a program may make one for each of its models or tasks, of a few steps.

Thread rule: functions run under the interpreter lock; a step belongs to the thread that called before().
"""

import atexit
import collections
import itertools
import math
import operator
import os
import sys
import threading
import time
import types
import typing
import weakref

import torch

from .. import plugin
from ..problems import let_through
from . import kept_memory, own_steps

SAMPLE_TENSORS, SAMPLE_ELEMENTS = 16, 4_000_000
# Checking costs 0.5 ms to 3 ms. A program that made optimizers of so many kinds may make one of another for each task: those are looked at from this step on.
MADE, LATER_STEP = 16, 8
KINDS = 256  # that are known at a time
BOUND = {torch.float32: 1e-6, torch.float64: 1e-13}  # of the accuracy rule
SMALLEST = 1e-15  # norm whose squares float32 still has
MODULES = {"SGD": "sgd", "Adam": "adam", "AdamW": "adam", "Adagrad": "adagrad"}  # class: module and function of torch.optim
STATES = {"sgd": 1, "adam": 3, "adagrad": 1}  # lists of state tensors beside parameters and gradients; a list of steps may follow
PLAIN = {torch.Tensor, torch.nn.Parameter}
TYPES = (type, types.ModuleType, types.BuiltinFunctionType, types.GenericAlias, typing._GenericAlias, types.UnionType, list, tuple, dict)  # that its functions name, too
TORCH, OPTIMIZERS = os.path.dirname(torch.__file__) + os.sep, os.path.dirname(torch.optim.__file__) + os.sep
REPLACED = "a function of torch.optim's that the program replaced"
FUNCTORCH = torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode  # included while one of its transforms is at work
OTHER_AGES = "parameters of different ages"  # for some steps: stock answers these
TIMED = os.environ.get("IPEXRUN_SELECT") != "off"
SPLIT_SGD = os.environ.get("IPEXRUN_SPLIT_SGD") == "1"  # --split-sgd

_steppers = weakref.WeakKeyDictionary()
_foreign = weakref.WeakKeyDictionary()  # optimizers with a step() of their own: own_steps.ForeignSteps
inside = {}  # thread: Stepper of the step that it is in, or of one that raised
resting = {}  # id of an optimizer whose steps are stock's for good: (weak reference, Stepper, or None where it is none of ours); entry.py asks for nothing else
_kept = collections.deque(maxlen=64)  # the last of them, for the report: a program's optimizer may be gone by then
_made = itertools.count(1)  # kinds
_kinds = collections.OrderedDict()  # signature: Kind
_told = []  # what became of each optimizer, for report()


def kind_of(optimizer):
    """The function's name for an exact class of torch.optim, else None."""
    name = type(optimizer).__name__
    return MODULES.get(name) if type(optimizer) is getattr(torch.optim, name, None) else None


def default_device_is_cpu():
    """Whether that is all that modes for functions say (entry.py)."""
    ask = getattr(sys.modules.get("_ipexrun_hook"), "only_cpu_by_default", None)
    return ask is not None and ask()


def plain_here():
    """No mode of torch's is on that wants to see each operator."""
    if torch.are_deterministic_algorithms_enabled():
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() and not default_device_is_cpu():
        return False
    return not torch._C._dispatch_tls_is_dispatch_key_included(FUNCTORCH)


def allowed_here():
    hook = sys.modules.get("_ipexrun_hook")
    return plain_here() and hook is not None and hook.enabled()


def before(optimizer):
    """A step begins: hooks of all optimizers come before the optimizer's own."""
    if isinstance(optimizer, torch.optim.LBFGS) and allowed_here():
        torch.classes.ipexrun.Training().searches_lines()
    begins(optimizer, lambda kind: allowed_here() and (TIMED or (SPLIT_SGD and kind == "sgd")), stepper_class)


def begins(optimizer, allowed, class_of):
    """before(), for steppers of the class class_of(kind) where allowed(kind)."""
    left = inside.get(threading.get_ident())
    if left is not None:
        left.end(raised=True)  # a step that raised, or one whose closure steps this optimizer
    kind = kind_of(optimizer)
    if torch.compiler.is_compiling():
        return
    if kind is None:
        return begins_otherwise(optimizer)
    stepper = _steppers.get(optimizer)
    if stepper is not None and stepper.phase == "split":
        return stepper.begin(optimizer)  # bfloat16 weights have no other step
    if not allowed(kind):
        return
    if stepper is None:
        stepper = _steppers[optimizer] = class_of(kind)(optimizer, kind)
        _kept.append(stepper)
    stepper.begin(optimizer)


def begins_otherwise(optimizer):
    """A step that is never fused. Each of LBFGS's is told."""
    if isinstance(optimizer, torch.optim.LBFGS):
        return
    if not plain_here() or inside_of(type(optimizer).step).__code__.co_filename.startswith(OPTIMIZERS):
        return rest(optimizer, None)
    _foreign.setdefault(optimizer, own_steps.ForeignSteps()).begin()


def rest(optimizer, stepper):
    key = id(optimizer)
    # Bound, since an optimizer may outlive this module's globals at exit.
    resting[key] = weakref.ref(optimizer, lambda _, kept=resting, key=key: kept.pop(key, None)), stepper


def stepper_class(kind):
    if not SPLIT_SGD or kind != "sgd":
        return Stepper
    from .split_sgd import SplitStepper

    return SplitStepper


def ends(optimizer):
    stepper = _steppers.get(optimizer)
    if stepper is not None:
        stepper.end()
    elif _foreign and optimizer in _foreign and _foreign[optimizer].end():
        del _foreign[optimizer]
        rest(optimizer, None)


def tell_step():
    """Weights that change from here on were changed by an optimizer (training_guard.h)."""
    if not _hears:
        _hears.append(torch.classes.ipexrun.Training().stepped if plugin.ready() else None)  # looking a method up takes longer than calling it
    if _hears[0] is not None:
        _hears[0]()


_hears = []  # what is called at each step, or None


def step_ended():
    """after() of an optimizer at rest."""
    tell_step()
    kept_memory.step_ended()


def after(optimizer):
    """It ended: hooks of all optimizers come after the optimizer's own."""
    ends(optimizer)
    step_ended()


def report():
    """For ipexrun.report()["optimizers"]."""
    return [stepper.note() for stepper in list(_kept)]


def tell_ends():
    for stepper in list(_kept):
        stepper.tell()


def default_form(group):
    """What the user left open."""
    return not any(group.get(name) for name in ("capturable", "differentiable")) and all(
        group.get(name) is None for name in ("foreach", "fused")
    )


def stock_function(module, kind):
    """What stands there now, be it the program's own; of one of ours (another thread's step, or one that raised) what it stands for."""
    found = getattr(module, kind)
    owner = getattr(found, "__self__", None)
    return owner.stock if isinstance(owner, Stepper) else found


def inside_of(function):
    """What its wrappers end at: TorchDynamo wraps some of torch.optim's."""
    while inner := getattr(function, "__wrapped__", None):
        function = inner
    return function


def is_torchs(function, name):
    """Whether it is the function of that name in torch.optim's files, in wrappers of torch's if at all."""
    if function is typing.cast:
        return True
    inner = inside_of(function)
    files = [getattr(getattr(one, "__code__", None), "co_filename", "") for one in (function, inner)]
    return files[0].startswith(TORCH) and files[1].startswith(OPTIMIZERS) and inner.__name__ == name


def functions_of(module, kind):
    """Name: function of those that a step of torch's goes through; {} where one is the program's. It may have replaced one before its first optimizer was
    stepped, so they are known by the files that they come from."""
    found, waiting = {}, [kind]
    while waiting:
        name = waiting.pop()
        value = stock_function(module, kind) if name == kind else module.__dict__[name]
        if name in found or isinstance(value, TYPES):
            continue
        if not isinstance(value, types.FunctionType) or not is_torchs(value, name):
            return {}
        found[name] = value
        waiting += [one for one in inside_of(value).__code__.co_names if one in module.__dict__]
    return found


_functions = {}  # kind: (its own function, names and functions of the others), as torch has them


def is_replaced(module, kind, own):
    """Whether the program put another in the place of one of these functions; `own`: what stands for ours. In each step."""
    first, names, others = _functions.get(kind, (None, (), ()))
    if own is first and all(map(operator.is_, map(module.__dict__.get, names), others)):
        return False
    found = functions_of(module, kind)
    if found:
        _functions[kind] = found.pop(kind), tuple(found), tuple(found.values())
    return not found


class Kind:
    """What optimizers of one signature found together: kinds of groups whose sample went through both forms, the open race, and (phase, reason) where it is
    decided."""

    def __init__(self, number):
        self.first_step = 1 if number <= MADE else LATER_STEP
        self.checked = set()
        self.trial, self.times = None, {}  # form: (what was stepped, nanoseconds) of the race's open pair
        self.turn = 0  # of the race
        self.decided = None


def signature_of(optimizer):
    """What decides which kernels a step runs, and how long they take."""
    groups = []
    for group in optimizer.param_groups:
        settings = tuple((name, value if isinstance(value, bool) else bool(value)) for name, value in group.items() if name not in ("params", "lr") and
                         not isinstance(value, torch.Tensor))
        groups.append((settings, tuple((one.dtype, tuple(one.shape), type(one)) for one in group["params"])))
    return type(optimizer), tuple(groups)


def kind_for(optimizer, stepper_type):
    signature = (stepper_type, *signature_of(optimizer))
    kind = _kinds.get(signature)
    if kind is None:
        kind = _kinds[signature] = Kind(next(_made))
        if len(_kinds) > KINDS:
            _kinds.popitem(last=False)
    else:
        _kinds.move_to_end(signature)
    return kind


class Stepper:
    """One optimizer. `phase`: "check" until a sample went through both forms, "race" while they take turns, then "fused" or "stock"."""

    def __init__(self, optimizer, kind):
        if not _told:
            atexit.register(tell_ends)
            _told.append(True)
        self.name = type(optimizer).__name__
        self.module = sys.modules[f"torch.optim.{kind}"]
        self.kind = kind
        self.stock = stock_function(self.module, kind)
        self.phase = "check"
        self.reason = ""
        self.facts = self.make_facts()
        self.shared = None  # Kind, from its first step on
        self.of = None  # the optimizer whose step is under way, as a weak reference
        self.mine = None  # numbers of its parameters, once they are asked for
        self.twice = False  # whether one of them is there more than once
        self.thread = None  # that is inside a step which may run fused
        self.before = None  # the function that stood in the place of ours
        self.fused_now = False
        self.steps = self.fused_steps = 0
        self.all_ns = {False: [], True: []}
        self.elements = 0
        self.ns = 0

    # What another device does in its own way (xpu_optimizers.py).
    UNFIT = "parameters that are not dense float32 or float64"
    make_facts = staticmethod(lambda: torch.classes.ipexrun.Training())
    make_trial = staticmethod(lambda: torch.classes.ipexrun.Trial())

    def equal(self, stock, mine):
        return equal(stock, mine)

    def settle(self, params):
        """Waits until what was given to the device is done, where a step is timed."""

    def begin(self, optimizer):
        self.steps += 1
        ranks = torch.distributed.is_available() and torch.distributed.is_initialized()
        if self.shared is None:
            self.shared = Kind(next(_made)) if ranks else kind_for(optimizer, type(self))
        if self.phase in ("check", "race") and self.shared.decided is not None and not ranks:
            self.phase, self.reason = self.shared.decided
        if self.phase == "stock":
            return rest(optimizer, self)
        if self.thread is not None or (self.steps < self.shared.first_step and self.shared.trial is None):  # the former: another thread steps the same optimizer
            return
        if not all(map(default_form, optimizer.param_groups)):
            return self.stay("foreach, fused, capturable or differentiable is set by the program")
        # Rank 0 and the others have to round alike, or replicas drift apart: no timing decides among ranks.
        if self.phase == "check" and self.shared.trial is not None:
            self.phase = "race"
        if self.phase == "race" and ranks:
            self.phase, self.reason = "fused", "one of several ranks: without a race"
        self.shared.turn += self.phase == "race"
        turn = self.shared.turn % 4 in (1, 2)  # fused, fused, stock, stock
        self.fused_now = self.phase == "fused" or (self.phase == "race" and turn)
        self.elements = self.ns = 0
        self.enter(optimizer)

    def enter(self, optimizer):
        here = threading.get_ident()
        self.of, self.mine = weakref.ref(optimizer), None
        self.thread = here
        inside[here] = self
        self.before = getattr(self.module, self.kind)
        self.stock = stock_function(self.module, self.kind)
        setattr(self.module, self.kind, self.function)

    def leave(self):
        """Whether this thread was inside a step of this optimizer."""
        here = threading.get_ident()
        if self.thread != here:
            return False
        self.thread = None
        outer = getattr(self.before, "__self__", None)  # whose closure steps this optimizer
        nested = isinstance(outer, Stepper) and outer is not self and outer.is_inside()
        if nested:
            inside[here] = outer
        elif inside.get(here) is self:
            del inside[here]
        if getattr(getattr(self.module, self.kind), "__self__", None) is self:  # not what another thread's step or the program put there
            setattr(self.module, self.kind, self.before if nested else self.stock)
        self.before = None
        return True

    def is_inside(self):
        return self.thread == threading.get_ident()

    def end(self, raised=False):
        if not self.leave():
            return
        if self.ns and self.fused_now:
            self.fused_steps += 1
        if self.phase == "race" and self.ns and not raised:
            self.race()
        if self.phase == "check" and self.shared.checked:
            self.phase = "race"
            if self.shared.trial is None:
                self.shared.trial = self.make_trial()

    def is_mine(self, param):
        """The functions are public: after a step that raised, the program may call one with tensors of its own."""
        if self.mine is None:
            optimizer = self.of()
            ids = [id(one) for group in optimizer.param_groups for one in group["params"]] if optimizer is not None else []
            self.mine = set(ids)
            self.twice = len(self.mine) < len(ids)
        return id(param) in self.mine

    def function(self, *lists, **settings):
        """In the place of torch.optim.adam.adam and its like, for the time of a step."""
        if not self.is_inside() or self.phase == "stock" or not lists or not lists[0] or not self.is_mine(lists[0][0]):
            return self.stock(*lists, **settings)
        self.settle(lists[0])
        started = time.perf_counter_ns()
        reason = self.unfit(lists, settings)
        if reason:
            if reason != OTHER_AGES:
                self.stay(reason)
            return self.stock(*lists, **settings)
        kind = self.kind_of_group(lists, settings)
        if kind not in self.shared.checked:
            return self.check(lists, settings, kind)
        if self.fused_now:
            self.run_fused(lists, settings)
        else:
            started = time.perf_counter_ns()  # what stock takes without us
            self.stock(*lists, **settings)
        self.settle(lists[0])
        self.ns += time.perf_counter_ns() - started
        self.elements += sum(param.numel() for param in lists[0])

    def run_fused(self, lists, settings):
        written = [tensor for one in (lists[0], *lists[2:]) for tensor in one if tensor is not None]
        self.stock(*lists, **{**settings, "fused": True})
        # The fused kernels do not: autograd would miss the write. (Inference tensors count none.)
        torch.autograd.graph.increment_version([tensor for tensor in written if not tensor.is_inference()])

    def kind_of_group(self, lists, settings):
        """Groups of one kind take the same branches of the kernels."""
        flags = tuple((name, value if isinstance(value, bool) else bool(value)) for name, value in settings.items() if name != "lr")
        return flags, tuple(bool(one) and one[0] is not None for one in lists), lists[0][0].dtype

    def unfit(self, lists, settings):
        """Why this step cannot be fused; "" = it can."""
        count = 2 + STATES[self.kind]
        if len(lists) < count or not all(type(one) is list for one in lists) or len(lists) > count + 1:
            return "a form of torch.optim that is not known"
        if is_replaced(self.module, self.kind, self.stock):
            return REPLACED
        if settings.get("has_sparse_grad") or settings.get("has_complex"):
            return "sparse gradients or complex parameters"
        if settings.get("grad_scale") is not None or settings.get("found_inf") is not None:
            return "scaled gradients"
        if any(isinstance(value, torch.Tensor) for value in settings.values()):
            return "settings that are tensors"
        params = lists[0]
        if not PLAIN.issuperset(map(type, params)) or not self.facts.are_dense(params):
            return self.UNFIT
        for one in lists[1:count]:
            if not one:
                continue  # amsgrad is off
            missing = sum(tensor is None for tensor in one)
            if missing and missing != len(one):
                return OTHER_AGES
            if not missing and not (PLAIN.issuperset(map(type, one)) and self.facts.lie_alike(one, params)):
                return "gradients or state that lie otherwise than the parameters"
        steps = lists[count] if len(lists) > count else ()
        if self.twice or len(set(map(id, steps))) < len(steps):
            return "a parameter, or its state, that is there twice"  # fused kernels count all steps before the first update
        for step in steps:
            if step.dtype is not torch.float32 or step.device.type != "cpu":
                return "steps that are not counted in float32"
        return ""

    def check(self, lists, settings, kind):
        """The step as stock does it, and a sample of it fused."""
        chosen, elements = [], 0
        stride = max(1, len(lists[0]) // SAMPLE_TENSORS)
        for i in range(0, len(lists[0]), stride):
            if elements + lists[0][i].numel() <= SAMPLE_ELEMENTS:
                chosen.append(i)
                elements += lists[0][i].numel()
        if not chosen:
            chosen = [min(range(len(lists[0])), key=lambda i: lists[0][i].numel())]

        def part(one):
            return [tensor if tensor is None else tensor.detach().clone(memory_format=torch.preserve_format) for tensor in one]

        try:
            samples = [part([one[i] for i in chosen]) if one else [] for one in lists]
            self.stock(*samples, **{**settings, "fused": True})
        except Exception as problem:  # a torch whose insides are others than expected
            let_through(problem)
            self.stay((str(problem).splitlines() or [type(problem).__name__])[0])
            return self.stock(*lists, **settings)
        self.stock(*lists, **settings)
        for one, sample in zip(lists, samples):
            for i, mine in zip(chosen, sample):
                if not self.equal(one[i], mine):
                    return self.stay("its results differ from stock's")
        self.shared.checked.add(kind)

    def race(self):
        self.all_ns[self.fused_now].append(self.ns)
        times, trial = self.shared.times, self.shared.trial
        times[self.fused_now] = (self.elements, self.ns)
        if len(times) < 2:
            return
        stock, fused = times.pop(False, None), times.pop(True, None)
        if stock is None or fused is None:
            return  # another thread's optimizer of this kind took them
        (stock_elements, stock_ns), (fused_elements, fused_ns) = stock, fused
        if stock_elements != fused_elements:
            return
        trial.add(stock_ns, fused_ns)
        result = trial.result()
        if result and self.shared.decided is None:
            self.phase = "fused" if result > 0 else "stock"
            self.reason = f"{1 / trial.ratio():.2f} of stock's speed"
            self.shared.decided = self.phase, self.reason

    def stay(self, reason):
        self.phase, self.reason = "stock", reason

    def choice(self):
        return self.phase if self.phase in ("fused", "stock") else "undecided"

    def note(self):
        return {
            "optimizer": self.name,
            "choice": self.choice(),
            "reason": self.reason,
            "steps": self.steps,
            "fused": self.fused_steps,
        }

    def tell(self):
        from .. import remembered

        stock_ns, fused_ns = (int(sorted(ns)[len(ns) // 2]) if ns else 0 for ns in (self.all_ns[False], self.all_ns[True]))
        values = [self.steps, self.fused_steps, self.steps - self.fused_steps, stock_ns, fused_ns, len(self.all_ns[True])]
        remembered.tell_optimizer(self.name, id(self), self.choice(), self.reason or "not measured long enough", values)


def equal(stock, mine):
    """The accuracy rule, stock's results being the truth."""
    if stock is None or mine is None:
        return stock is mine
    if stock.dtype is not mine.dtype or stock.shape != mine.shape or stock.stride() != mine.stride():
        return False
    bound = BOUND.get(mine.dtype, 1e-6)
    apart, size = float((mine - stock).norm()), float(stock.norm())
    if math.isfinite(apart) and math.isfinite(size) and (apart == 0 or size > SMALLEST):
        return apart <= bound * size
    odd = ~stock.isfinite()
    if not torch.equal(odd, ~mine.isfinite()) or not torch.allclose(stock[odd], mine[odd], rtol=0, atol=0, equal_nan=True):
        return False
    stock, mine = (torch.where(one.isfinite(), one, 0).double() for one in (stock, mine))
    apart, size = (mine - stock).norm(), stock.norm()
    return bool(apart <= bound * size)
