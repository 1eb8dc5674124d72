"""Training through torch.compile(backend="ipex"): the captured graph in two forms, as captured, and in bf16 with images channels last from end to
end, as a careful author writes it by hand (autocast inside, results handed back in stock's dtype and strides).

Which form answers is decided on the program's own steps. One step is answered as captured, while both forms compute it once more on copies: results
and, when the program's own gradients arrive, the gradients of all inputs are compared (docs/decisions/0020-training.md). No hook of the program
fires twice, no buffer is written twice, and the random stream goes on as if nothing had been. Then steps are answered in turn until one form won.

Thread rule: under the interpreter lock; a step that another thread begins meanwhile is answered as captured.
"""

import contextlib
import os
import re
import sys
import threading

import torch

from .. import plugin
from ..graphs import graph_notes
from ..graphs.translation import Unsupported
from ..problems import first_line, let_through
from . import step_paths, step_rounding
from .operator_bounds import distance
from .steps import Stopwatch

COSINE = 0.99  # of all gradients together; single ones near zero are rounding noise in both forms
ERROR = 0.15  # relative, of all gradients together: stock's own autocast has a few hundredths
PATIENCE = 4  # steps in which the compared one's gradients may come
ASKED_WEIGHTS = 16  # at most, from all parts of a graph: the first is an embedding, often, of which a step changes few rows
LOSSES = 4096  # numbers of a result that may be losses, one a sample
FIRST_RECHECK = 256  # steps in bf16 after which they are compared again; then twice as many, and so on
MAY_DRAW = re.compile(
    "drop|rand|bernoulli|normal(?!i)|multinomial|poisson|exponential|uniform|cauchy|geometric|rrelu|gumbel|attention|lstm|gru|rnn|fractional|"
    "standard_gamma|dirichlet|binomial|lowrank|lobpcg"
)
ASKED_FOR = os.environ.get("IPEXRUN_DTYPE") == "bfloat16"


def wanted(example_inputs):
    return torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in example_inputs)


def is_image(value):
    return isinstance(value, torch.Tensor) and value.dim() == 4 and value.dtype is torch.float32 and not isinstance(value, torch.nn.Parameter)


@contextlib.contextmanager
def stock_kernels():
    """The truth is torch's own."""
    hook = sys.modules.get("_ipexrun_hook")
    if hook is None:
        yield
        return
    hook.set_enabled(False)
    try:
        yield
    finally:
        hook.set_enabled(True)


def unseen_by_modes():
    """What is computed inside is none of the program's: its modes (counters of operations, logs) do not see it."""
    return without_modes() if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() else contextlib.nullcontext()


@contextlib.contextmanager
def without_modes():
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        yield


def finite(tensors):
    return all(bool(one.isfinite().all()) for one in tensors if one is not None)


def few(results):
    """Those that may be losses."""
    return [one for one in results if isinstance(one, torch.Tensor) and one.numel() <= LOSSES]


def written(copies, values):
    """Places of the inputs that a graph has written, which ran on copies of `values`."""
    return {i for i, (copy, value) in enumerate(zip(copies, values)) if step_paths.is_written(copy, value)}


def writes_image(seen, unseen, values):
    """Whether one of the tensors at these places lies in another way in a form, so that a copy would be written in its stead."""
    return any(is_image(values[i]) for i in seen) or any(isinstance(values[i], torch.Tensor) and values[i].dim() == 4 for i in unseen)


def may_draw(graph):
    """Whether it may draw random numbers, by the names of its operators; these are marked, in graphs made of this one as well."""
    drawing = [node for node in graph.nodes if node.op.startswith("call") and MAY_DRAW.search(name_of(node.target)) and not is_plain_attention(node)]
    for node in drawing:
        node.meta["draws"] = True
    return bool(drawing)


def name_of(target):
    """Pools are of one function each, which tells what it is called but not where it was made."""
    return f"{target} {getattr(target, '__name__', '')}"


def is_plain_attention(node):
    """Without dropout, so that it draws nothing."""
    return node.target is torch.nn.functional.scaled_dot_product_attention and len(node.args) <= 4 and node.kwargs.get("dropout_p", 0.0) == 0.0


def copy_of(value):
    """A leaf of its own; parameters stay parameters, which no form lays out anew."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().clone(memory_format=torch.preserve_format)
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(copy, requires_grad=value.requires_grad)
    return copy.requires_grad_(value.requires_grad)


def trains(guard, arguments):
    """Whether gradients of these parameters belong to steps that change one of them: others are results, and stay float32 (docs/training.md)."""
    weights = [one for one in arguments if isinstance(one, torch.nn.Parameter) and one.requires_grad]
    return not weights or guard.trains(weights[:: 1 + len(weights) // ASKED_WEIGHTS])


class Arrivals:
    """Waits for the gradients of some results and calls `at_end` with them (None where none came) when that backward pass is over. It hangs on
    autograd's nodes: the tensors show no hook. `before`: what is called as the gradient of each comes, and may raise to the program."""

    def __init__(self, tensors, at_end, before=None):
        self.gradients = [None] * len(tensors)
        self.at_end, self.before = at_end, before
        self.watch = None
        self.backward_ns = self.explored_ns = 0
        for i, tensor in enumerate(tensors):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(lambda gradients, i=i, at=tensor.output_nr: self.arrived(i, gradients[at]))

    def arrived(self, i, gradient):
        if self.before is not None and self.before[i] is not None:
            self.before[i]()
        if gradient is not None and torch._C._functorch.is_legacy_batchedtensor(gradient):
            return  # is_grads_batched: several at once, which are compared with nothing
        if self.watch is None:
            self.watch = Stopwatch()
            torch.autograd.Variable._execution_engine.queue_callback(self.over)
        with unseen_by_modes():
            self.gradients[i] = None if gradient is None else gradient.detach()

    def over(self):
        self.backward_ns, self.explored_ns = self.watch.ns(), self.watch.explored_ns()
        gradients, self.gradients = self.gradients, [None] * len(self.gradients)
        at_end, self.at_end = self.at_end, lambda _: None  # a graph that is kept may be run again
        try:
            with unseen_by_modes():
                at_end(gradients)
        except Exception as problem:  # nothing of ours may end the program's backward pass
            let_through(problem)


class TrainingForms:
    """A graph of a training step. `phase`: "check" (next step is compared), "waiting" (for its gradients), "race", then "bf16" or "captured"."""

    def __init__(self, module, captured, dtype):
        self.module, self.captured = module, captured
        self.faces = []  # of stock's results, once compared: dtype and memory format
        self.draws, self.writes = may_draw(module.graph), True  # random numbers; inputs, as far as known
        self.unseen = step_paths.unseen_writes(module.graph)
        self.inside = step_rounding.careful(module)  # what runs in bf16; None: there is none
        self.ends = False  # stock's results of few numbers are finite
        self.trial = torch.classes.ipexrun.Trial()
        self.asked_for = ASKED_FOR or dtype == "bfloat16"
        self.guard = torch.classes.ipexrun.Training()
        self.phase = "check"
        self.checked = False
        self.steps = self.used = 0
        self.recheck_at = FIRST_RECHECK
        self.open = {}  # the race's pair: form -> nanoseconds
        self.lock = threading.Lock()
        self.note = graph_notes.new_note("torch.compile", nodes=len(module.graph.nodes), choice="captured", calls=0, taken=0)

    def __call__(self, *arguments):
        self.note["calls"] += 1
        if self.phase == "captured" or not torch.is_grad_enabled() or torch.is_autocast_enabled("cpu") or not graph_notes.enabled_here():
            return self.captured(*arguments)
        if not self.lock.acquire(blocking=False):
            return self.captured(*arguments)
        try:
            self.steps += 1
            if self.guard.is_off():
                self.lose("training went back to float32")
                return self.captured(*arguments)
            if self.phase == "check":
                return self.check(arguments)
            if self.phase == "waiting":
                if self.steps > self.waiting_until:
                    self.phase = "check"  # the compared step had no backward pass: the next one may
                return self.captured(*arguments)
            bf16 = self.phase == "bf16" or self.steps % 4 in (1, 2)
            if bf16 and not self.asked_for and not trains(self.guard, arguments):
                return self.captured(*arguments)
            if bf16 and self.used >= self.recheck_at:
                self.recheck_at *= 2
                return self.check(arguments)
            return self.answer(bf16, arguments)
        finally:
            self.lock.release()

    def rounded(self, arguments):
        values = [self.laid_out(one) for one in arguments]
        if self.inside is None:
            raise Unsupported(step_rounding.NONE)
        with torch.autocast("cpu", torch.bfloat16):
            results = self.inside.forward(*values)
        return tuple(self.as_stock(one, face) for one, face in zip(results, self.faces, strict=True))

    @staticmethod
    def laid_out(value):
        return value.contiguous(memory_format=torch.channels_last) if is_image(value) else value

    @staticmethod
    def as_stock(value, face):
        if face is None:
            return value
        dtype, memory_format = face
        return value.to(dtype).contiguous(memory_format=memory_format)

    def describe(self, results, arguments):
        """What stock's results look like; raises where ours cannot look the same."""
        memory = {one.untyped_storage().data_ptr() for one in arguments if isinstance(one, torch.Tensor)}
        faces = []
        for one in results:
            if not isinstance(one, torch.Tensor):
                faces.append(None)
                continue
            if one.untyped_storage().data_ptr() in memory:
                raise Unsupported("a result that shares memory with an input")
            last = one.dim() == 4 and one.is_contiguous(memory_format=torch.channels_last)
            if not last and not one.is_contiguous():
                raise Unsupported("a result that is not dense")
            faces.append((one.dtype, torch.contiguous_format if one.is_contiguous() else torch.channels_last))
        self.faces[:] = faces

    # ---- is it right -----------------------------------------------------------------------------------------------------------------

    def check(self, arguments):
        random = torch.get_rng_state()
        try:
            with stock_kernels():
                stock, copies = self.on_copies(self.captured, arguments)
            seen = written(copies, arguments)
            if writes_image(seen, self.unseen, arguments):
                raise Unsupported("an image among its inputs is written")
            self.describe(stock, copies)
            self.ends, self.writes = finite(few(stock)), bool(seen or self.unseen)
            torch.set_rng_state(random)
            mine, mine_copies = self.on_copies(self.rounded, arguments)
            self.compare_results(stock, mine)
            if self.draws and self.order_of(self.module, arguments) != self.order_of(self.inside, [self.laid_out(one) for one in arguments]):
                raise Unsupported(step_paths.OTHER_ORDER)
        except Exception as problem:
            torch.set_rng_state(random)
            let_through(problem)
            self.lose(first_line(problem))
            return self.captured(*arguments)
        torch.set_rng_state(random)
        results = self.captured(*arguments)
        wanting = [i for i, one in enumerate(results) if isinstance(one, torch.Tensor) and one.requires_grad]
        if not wanting:
            return results
        self.phase, self.waiting_until = "waiting", self.steps + PATIENCE

        def compare_gradients(gradients):
            self.compare_gradients(wanting, gradients, stock, copies, mine, mine_copies)

        Arrivals([results[i] for i in wanting], at_end=compare_gradients)
        return results

    def on_copies(self, form, arguments):
        copies = [copy_of(one) for one in arguments]
        return tuple(form(*copies) if form is self.captured else form(copies)), copies

    def order_of(self, module, arguments):
        """How operands of what draws lie in memory. In bf16 in both, which changes no order."""
        runs = step_paths.InOrder(module)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            runs.run(*[copy_of(one) for one in arguments])
        return runs.order

    def compare_results(self, stock, mine):
        tensors = [(one, other) for one, other in zip(stock, mine) if isinstance(one, torch.Tensor)]
        trial = torch.classes.ipexrun.Trial()
        if not trial.check_beside([one.detach() for one, _ in tensors], [other.detach() for _, other in tensors], True, []):
            raise Unsupported(f"results are {trial.error():.1e} away")
        self.note["error"] = trial.error()

    def compare_gradients(self, wanting, given, stock, copies, mine, mine_copies):
        """At the end of the program's own backward pass."""
        try:
            if not finite(given):
                self.phase = "check"  # a step that says nothing of ours
                return
            found = []
            for results, values in ((stock, copies), (mine, mine_copies)):
                leaves = [one for one in values if isinstance(one, torch.Tensor) and one.requires_grad]
                outputs = [(results[i], gradient) for i, gradient in zip(wanting, given) if gradient is not None]
                with stock_kernels() if results is stock else contextlib.nullcontext():
                    found.append(torch.autograd.grad([one for one, _ in outputs], leaves, [one for _, one in outputs], allow_unused=True))
            pairs = [(one, other) for one, other in zip(*found) if one is not None and other is not None]
            if [one is None for one in found[0]] != [one is None for one in found[1]]:
                raise Unsupported("other inputs have gradients")
            found = distance(pairs)
            if not found.cosine >= COSINE or not found.error <= ERROR:
                raise Unsupported(f"gradients are {found.error:.1e} away, cosine {found.cosine:.4f}")
            self.note["gradient_error"] = found.error
        except Exception as problem:
            let_through(problem)
            return self.lose(first_line(problem))
        if self.checked:
            self.phase = "bf16"
        else:
            self.checked = True
            self.phase = "bf16" if self.asked_for else "race"
        self.say_choice()

    # ---- is it faster ----------------------------------------------------------------------------------------------------------------

    def answer(self, bf16, arguments):
        watch = Stopwatch()
        results = self.rounded(arguments) if bf16 else self.captured(*arguments)
        forward_ns = watch.ns()
        if bf16 and self.ends and not finite(few(results)):
            # Losses that the graph computes itself are looked at before the program sees them; stock's, if these can be computed once more.
            self.end_in_float32("NaN or infinity in its loss")
            return results if self.draws or self.writes else self.captured(*arguments)
        self.used += bf16
        self.note["taken"] += bf16
        if bf16:
            self.guard.note_use()  # a loss that the program looks at now may be its doing
        wanting = [one for one in results if isinstance(one, torch.Tensor) and one.requires_grad]
        if wanting:

            def passed(gradients):
                if bf16 and not finite(gradients):
                    self.end_in_float32("NaN or infinity in the gradients that it was given")
                elif self.phase == "race":
                    self.ended(bf16, forward_ns + arrivals.backward_ns)

            arrivals = Arrivals(wanting, at_end=passed)
        return results

    def ended(self, bf16, nanoseconds):
        """A backward pass of the race is over."""
        if self.phase != "race":
            return
        self.open[bf16] = nanoseconds
        if len(self.open) < 2:
            return
        self.trial.add(self.open[False], self.open[True])
        self.open = {}
        result = self.trial.result()
        if result > 0:
            self.phase = "bf16"
            self.note["speed"] = round(1 / self.trial.ratio(), 2)
            self.say_choice()
        elif result < 0:
            self.lose(f"not faster, {1 / self.trial.ratio():.2f} of the captured form's speed")

    def end_in_float32(self, why):
        if not self.guard.is_off():  # which has said so
            plugin.say(f"training: a captured graph goes on in float32: {why}")
        self.lose(why)

    def lose(self, why):
        self.phase = "captured"
        self.note["choice"] = "captured"
        self.note.setdefault("lost", []).append(f"bf16, channels last: {why}")

    def say_choice(self):
        if self.phase == "bf16":
            self.note["choice"] = "bf16, channels last"
