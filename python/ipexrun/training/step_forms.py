"""The graph of a captured module in a training step, as TorchDynamo gave it: stock's operators in stock's order, recorded by autograd itself. Run as it
is it cannot differ from the module (random numbers, buffers, hooks of tensors, double backward); what can be faster is another form of it:

- "channels last": images lie channels last inside, nothing else changes; products and convolutions are those of any training step.
- "bf16, channels last": under autocast as well, as a careful author writes it by hand: with float32 for what wants it (step_rounding.py).

In both, batch norms and the sums and relus behind them are single operations of ours (step_norms.py).

A form answers only after one of the program's steps was compared: results, state of the random stream and, when the program's own gradients have
arrived, the gradients of all inputs, beside torch's own kernels on copies. "channels last" is compared with torch's kernels in both (what the op tier
rounds inside operators it checks itself) and held to float32's bound under --dtype float32, else to LAYOUT_ERROR; bf16 to the bounds of
step_graphs.py, or where batch norms take operators that are rounded one by one further than these, to theirs (operator_bounds.py).

Thread rule: under the interpreter lock; captured_steps.py lets one thread at a time into a graph that is not decided.
"""

import contextlib
import math
import threading
import time

import torch

from .. import plugin
from ..capture import rebuilt
from ..graphs import compiler, double, graph_notes
from ..problems import first_line, let_through
from . import operator_bounds, step_graphs, step_norms, step_paths, step_rounding
from .step_graphs import Arrivals, few, finite, is_image, stock_kernels
from .steps import rounds_to_bf16

LAST, BF16_LAST = "channels last", "bf16, channels last"
FLOAT32_COSINE, FLOAT32_ERROR = 0.9999, 1e-3  # of all gradients together, where bf16 is not allowed
LAYOUT_ERROR = 1e-3  # of results of "channels last" where it is: torch's batch norm of such images sums 1e-6 and more away from its other one
NO_TRUTH = 1e-3  # float64 results that are further from stock's are others: random numbers, most often
SHARE_OF_FREE_MEMORY = 0.5  # that a comparison may take: activations and gradients of two more steps
MOST_OF_SPREAD, FEW_NUMBERS = 0.25, 8  # of what a result's numbers differ by, that rounding may be; of so many numbers
OF_AUTOCASTS, COSINE_LESS = 1.1, 5e-3  # of the distance of the program's own autocast to float32, and of its cosine, that a form may have
FIRST_RECHECK = 256
CHECKS = 8  # of one form, begun without coming to an end
PATIENCE = 4  # steps in which the compared one's gradients may come

DROPOUTS = (torch.dropout, torch.nn.functional.dropout, torch.nn.functional.dropout1d, torch.nn.functional.dropout2d)
CONVOLUTIONS = (torch.conv2d, torch.nn.functional.conv2d)


def offered(graph, bf16_allowed):
    """Forms that may be worth a try, best first."""
    images = any(node.op == "call_function" and node.target in CONVOLUTIONS for node in graph.graph.nodes)
    return [BF16_LAST] * bf16_allowed + [LAST] * images


def refusal(graph):
    """Why a graph stays with the program; "" = it may run in our hands."""
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return f"{node.target} inside"  # checkpoints, functions of autograd's that the program wrote, control flow
        if node.op == "call_function" and not (is_torchs(node.target) or rebuilt.is_numpys(node.target)):
            return f"{getattr(node.target, '__name__', node.target)} inside, which is none of torch's own: it may count its calls"
        if node.op == "call_module":
            return "a module inside that TorchDynamo left as it is"
        if node.op == "get_attr" and any(writes(user, node) for user in node.users):
            return "a constant inside that is written"
        if any(isinstance(one, torch.Generator) for one in [*node.args, *node.kwargs.values()]) or isinstance(node.meta.get("example_value"), torch.Generator):
            return "a random stream of its own"
    return ""


LIBRARIES = {"aten", "prim", "prims", "torchvision", "transformers"}  # whose operators only compute
MODULES = {"torch", "operator", "_operator", "builtins", "math", "einops"}


def is_torchs(function):
    """Whether a function of a graph is one of torch's or Python's own, or of a library that is known to compute only. Comparing a form computes a step beside the program's."""
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        packet = getattr(function, "overloadpacket", function)
        return packet._qualified_op_name.split("::")[0] in LIBRARIES
    module = getattr(function, "__module__", None) or "torch"  # functions in C have none
    return module.split(".")[0] in MODULES


def writes(user, node):
    name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "")
    return (name.endswith("_") or name in ("setitem", "__setitem__")) and bool(user.args) and user.args[0] is node


def bytes_of(value):
    if isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in value.shape):
        return value.numel() * value.element_size()
    return sum(map(bytes_of, value)) if isinstance(value, (list, tuple)) else 0


class ToStock(torch.autograd.Function):
    """The tensor itself; its gradient comes back as stock's would lie, for whoever looks at it or views it."""

    @staticmethod
    def forward(ctx, tensor):
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.contiguous()


class Truth(double.Doubled):
    """In float64, with the dropout masks that float32 draws."""

    def call_function(self, target, args, kwargs):
        if target in DROPOUTS and args and isinstance(args[0], torch.Tensor) and args[0].dtype is torch.float64:
            return args[0] * target(torch.ones_like(args[0], dtype=torch.float32), *args[1:], **kwargs).double()
        return super().call_function(target, args, kwargs)


class Wrong(Exception):
    """Why a form is not taken."""


class Graph:
    """`asks.kind`: the form in question or chosen, None: none; `asks.lose(kind, why)` is told which one fell."""

    def __init__(self, module, asks, where):
        self.module, self.asks = module, asks
        self.draws = step_graphs.may_draw(module.graph)
        self.unseen = step_paths.unseen_writes(module.graph)
        self.faces = []  # of stock's results, once compared
        kept = step_paths.kept(module, self.faces)
        self.inside = step_norms.fused(kept) or kept  # what forms run
        self.rounded = step_rounding.careful(self.inside)  # likewise in bf16; None: there is none
        self.right = set()  # forms that were compared
        self.saved = {}  # as step_paths.saved(), of stock's step
        self.waiting = 0  # calls that the compared step's gradients may still take
        self.used = self.checks = 0
        self.writes, self.seen = True, set()  # inputs or buffers, as far as known; the places of those that a comparison saw written
        self.ends = False  # stock's results of few numbers are finite
        self.recheck_at = FIRST_RECHECK
        self.by_operators = operator_bounds.magnifies(module)  # checks ask how far rounded operators take it
        self.guard = torch.classes.ipexrun.Training()
        self.made_bytes = sum(bytes_of(node.meta.get("example_value")) for node in module.graph.nodes if node.op.startswith("call"))
        compiler.function_of(module)  # else what a call raises would be printed as well
        self.note = graph_notes.new_note(f"{where} (training)", nodes=len(module.graph.nodes), choice="captured", calls=0, taken=0)

    def __call__(self, *arguments):
        self.note["calls"] += 1
        kind = self.asks.kind
        self.asks.ran = None
        if kind is None or (torch.is_autocast_enabled("cpu") and not rounds_to_bf16()) or not torch.is_grad_enabled() or not graph_notes.enabled_here():
            return self.module.forward(*arguments)
        if kind == BF16_LAST and self.guard.is_off():
            self.lose(kind, "training went back to float32")
            return self.module.forward(*arguments)
        if kind == BF16_LAST and not step_graphs.trains(self.guard, arguments):
            return self.module.forward(*arguments)
        if kind in self.right:
            if kind == BF16_LAST and self.used >= self.recheck_at:
                self.recheck_at *= 2
                self.right.discard(kind)
            else:
                return self.answer(kind, arguments)
        self.waiting -= 1
        if self.waiting >= 0 or self.checks >= CHECKS:  # it may be the graph of another purpose, whose calls have no backward pass
            return self.module.forward(*arguments)
        self.checks += 1
        return self.check(kind, arguments)

    def lose(self, kind, why):
        self.note["choice"] = "captured"
        self.note.setdefault("lost", []).append(f"{kind}: {why}")
        self.right.discard(kind)
        self.waiting = 0
        self.asks.lose(kind, why)

    def formed(self, kind, arguments, way=step_paths.at_once):
        values = [self.laid_out(one) for one in arguments]
        if kind == BF16_LAST:
            if self.rounded is None:
                raise Wrong(step_rounding.NONE)
            with torch.autocast("cpu", torch.bfloat16):
                results = way(self.rounded)(*values)
        else:
            results = way(self.inside)(*values)
        return tuple(step_graphs.TrainingForms.as_stock(one, face) for one, face in zip(results, self.faces, strict=True))

    @staticmethod
    def laid_out(value):
        if not isinstance(value, torch.Tensor) or value.dim() != 4 or value.dtype is not torch.float32:
            return value
        if value.requires_grad and value.is_contiguous():
            value, parameter = ToStock.apply(value), isinstance(value, torch.nn.Parameter)
        else:
            parameter = isinstance(value, torch.nn.Parameter)
        return value if parameter else value.contiguous(memory_format=torch.channels_last)

    def answer(self, kind, arguments):
        results = self.formed(kind, arguments)
        if kind == BF16_LAST and self.ends and not finite(few(results)):
            return self.instead_of_infinity(arguments, results)
        self.asks.ran = kind
        self.used += 1
        self.note["taken"] += 1
        if kind == BF16_LAST:
            self.guard.note_use()  # a loss that the program looks at now may be its doing
        made = torch.utils.hooks.RemovableHandle.next_id
        self.hang_on(kind, arguments, results)
        if self.asks.module_hooks.made == made:
            self.asks.module_hooks.made = torch.utils.hooks.RemovableHandle.next_id  # those were ours
        return results

    def hang_on(self, kind, arguments, results):
        """What a backward pass of a form is asked."""
        checks = {i: step_paths.Unwritten([arguments[j] for j in places]) for i, places in self.saved.items()}
        if kind == LAST:
            for i, check in checks.items():
                results[i].grad_fn.register_prehook(check)
            return
        recorded = [i for i, one in enumerate(results) if isinstance(one, torch.Tensor) and one.grad_fn is not None]
        if recorded:
            Arrivals([results[i] for i in recorded], at_end=self.look, before=[checks.get(i) for i in recorded])

    def instead_of_infinity(self, arguments, results):
        """Losses that the graph computes itself are looked at before the program sees them; stock's, if these can be computed once more."""
        stock = results if self.draws or self.writes else self.module.forward(*arguments)
        self.end_in_float32("NaN or infinity in its loss")
        return stock

    def look(self, gradients):
        if not finite(gradients) and BF16_LAST in self.right:
            self.end_in_float32("NaN or infinity in the gradients that it was given")

    def end_in_float32(self, why):
        if not self.guard.is_off():  # which has said so
            plugin.say(f"training: a captured graph goes on in float32: {why}")
        self.lose(BF16_LAST, why)

    # ---- is it right -----------------------------------------------------------------------------------------------------------------

    def check(self, kind, arguments):
        """The program gets the graph as captured; what a form gives is computed beside it."""
        random = torch.get_rng_state()
        orders = []
        way = step_paths.in_order(orders) if self.draws else step_paths.at_once
        try:
            self.fits(arguments)
            if step_paths.may_be_read_elsewhere(self.module.graph):
                raise Wrong("a result that may be read elsewhere by another name")
            with stock_kernels():
                stock, copies = self.on_copies(way(self.module), arguments)
            self.seen = step_graphs.written(copies, arguments)
            if step_graphs.writes_image(self.seen, self.unseen, arguments):
                raise Wrong("an image among its inputs is written")
            self.describe(stock, copies)
            copied = [None if i in self.seen or kind == LAST and not is_image(one) else one for i, one in enumerate(copies)]
            self.saved = step_paths.saved(stock, copied)
            self.ends = finite(few(stock))
            after = torch.get_rng_state()
            self.draw_again(random)
            with self.kernels(kind):
                mine, mine_copies = self.on_copies(lambda *values: self.formed(kind, values, way), arguments)
            if self.draws and not torch.equal(after, torch.get_rng_state()):
                raise Wrong("it draws other random numbers")
            if len(set(map(str, orders))) > 1:
                raise Wrong(step_paths.OTHER_ORDER)
            exact = self.in_float64(stock, arguments, random) if kind == LAST else []
            rounded_itself = kind == BF16_LAST and rounds_to_bf16()
            beside = self.by_rounded_operators(arguments, random) if kind == BF16_LAST and self.by_operators and not rounded_itself else None
            unrounded = self.without_autocast(arguments, random) if rounded_itself else None
            self.compare_results(kind, stock, mine, exact, beside)
            self.compare_state(kind, copies, mine_copies, beside)
        except Exception as problem:
            self.draw_again(random)
            let_through(problem)
            self.lose(kind, first_line(problem))
            return self.module.forward(*arguments)
        self.draw_again(random)
        results = self.module.forward(*arguments)
        recorded = [i for i, one in enumerate(results) if isinstance(one, torch.Tensor) and one.grad_fn is not None]
        self.waiting = PATIENCE

        def compare_gradients(gradients):
            self.compare_gradients(kind, recorded, gradients, (stock, copies), (mine, mine_copies), beside, unrounded)

        Arrivals([results[i] for i in recorded], at_end=compare_gradients)
        return results

    def draw_again(self, state):
        """The stream is the program's: what a graph without random numbers finds moved, another thread has moved."""
        if (self.draws or threading.active_count() == 1) and not torch.equal(torch.get_rng_state(), state):
            torch.set_rng_state(state)

    @staticmethod
    def kernels(kind):
        return stock_kernels() if kind == LAST else contextlib.nullcontext()

    def fits(self, arguments):
        more = self.by_operators or rounds_to_bf16()  # a third step is computed beside
        wanted = (2 + more) * self.made_bytes + (4 + more) * bytes_of([one for one in arguments if isinstance(one, torch.Tensor)])
        if wanted > SHARE_OF_FREE_MEMORY * double.free_bytes():
            raise Wrong("too little memory to compare it")

    def on_copies(self, form, arguments):
        copies = [step_graphs.copy_of(one) for one in arguments]
        return tuple(form(*copies)), copies

    def by_rounded_operators(self, arguments, random):
        """(results, copies) of the graph as captured, products and convolutions in bf16."""
        self.draw_again(random)
        with operator_bounds.rounded_operators():
            return self.on_copies(self.module.forward, arguments)

    def without_autocast(self, arguments, random):
        """(results, copies) of what the program would compute without its autocast; None where it cannot."""
        self.draw_again(random)
        try:
            with stock_kernels(), torch.autocast("cpu", enabled=False):
                return self.on_copies(self.module.forward, arguments)
        except RuntimeError:  # operands of two types
            return None

    def describe(self, results, arguments):
        """What stock's results look like; raises where ours cannot look the same."""
        step_graphs.TrainingForms.describe(self, results, arguments)
        places = [one.untyped_storage().data_ptr() for one in results if isinstance(one, torch.Tensor) and one.numel() > 0]
        if len(set(places)) < len(places):
            raise Wrong("results that share memory")
        if any(one.dim() == 5 for one in results if isinstance(one, torch.Tensor)) and not all(one.is_contiguous() for one in results):
            raise Wrong("results in other memory formats")

    def in_float64(self, stock, arguments, random):
        """[] where there is no truth."""
        self.draw_again(random)
        exact = double.results(self.module, [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in arguments], Truth)
        if exact is None:
            return []
        pairs = [(one, other) for one, other in zip(exact, stock) if isinstance(one, torch.Tensor)]
        for one, other in pairs:
            if one.is_floating_point() and not (one - other.detach()).norm() <= NO_TRUTH * one.norm() + 1e-12:
                return []
        return [one for one, _ in pairs]

    def compare_results(self, kind, stock, mine, exact, beside):
        pairs = [(one, other) for one, other in zip(stock, mine) if isinstance(one, torch.Tensor)]
        if any(one.requires_grad != other.requires_grad for one, other in pairs):
            raise Wrong("other results have gradients")
        if not step_paths.ways(stock) <= step_paths.ways(mine):
            raise Wrong("a result lies no longer on the way to another one")
        trial = torch.classes.ipexrun.Trial()
        rounded = kind == BF16_LAST or self.asks.bf16_allowed
        near = trial.check_beside([one.detach() for one, _ in pairs], [other.detach() for _, other in pairs], rounded, exact)
        if not near or (kind == LAST and trial.error() > LAYOUT_ERROR):
            if beside is None or not operator_bounds.results_alike(trial.error(), stock, mine, beside[0]):
                raise Wrong(f"results are {trial.error():.1e} away")
        if kind == BF16_LAST and any(self.hides(one.detach(), other.detach()) for one, other in pairs):
            raise Wrong("results differ among each other by little more than rounding")
        self.note["error"] = trial.error()

    @staticmethod
    def hides(stock, rounded):
        """Whether rounding is a good part of what the numbers of a result differ by (years near 1985), of which a loss is made."""
        if not stock.is_floating_point() or stock.numel() < FEW_NUMBERS:
            return False
        spread = float((stock - stock.mean()).norm())
        return spread > 0 and float((rounded - stock).norm()) > MOST_OF_SPREAD * spread

    def compare_state(self, kind, copies, mine, beside):
        """Buffers that the graph writes, statistics of batch norms above all."""
        self.writes = bool(self.seen or self.unseen)
        for i, (one, other) in enumerate(zip(copies, mine)):
            if not isinstance(one, torch.Tensor) or (one._version == 0 and other._version == 0 and i not in self.seen):
                continue
            if one._version != other._version:
                raise Wrong("it writes other inputs")
            if not one.is_floating_point():
                same = torch.equal(one, other)
            else:
                bound = 3e-2 if kind == BF16_LAST else 1e-4
                bound += 0 if beside is None else operator_bounds.state_bound(one, beside[1][i])
                difference = (one.detach().double() - other.detach().double()).norm()
                same = bool(difference <= bound * one.detach().double().norm() + 1e-7 * math.sqrt(one.numel()))
            if not same:
                raise Wrong("state that it writes is too far away")

    def compare_gradients(self, kind, recorded, given, stock, mine, beside, unrounded):
        """At the end of the program's own backward pass. `stock`, `mine`, `beside`, `unrounded` (None: not asked for): results, and the copies they came
        from."""
        self.waiting = 0
        began = time.perf_counter()
        try:
            if not finite(given) or all(one is None for one in given):
                return  # a step that says nothing of ours
            with stock_kernels():
                truth = self.gradients(*stock, recorded, given)
            with self.kernels(kind):
                ours = self.gradients(*mine, recorded, given)
            if [one is None for one in truth] != [one is None for one in ours]:
                raise Wrong("other inputs have gradients")
            pairs = [(one, other) for one, other in zip(truth, ours) if one is not None]
            if any(one.stride() != other.stride() and not (one.is_contiguous() and other.is_contiguous()) for one, other in pairs):
                raise Wrong("gradients that lie otherwise")
            found = operator_bounds.distance(pairs)
            rounded = kind == BF16_LAST or self.asks.bf16_allowed
            least, most = (step_graphs.COSINE, step_graphs.ERROR) if rounded else (FLOAT32_COSINE, FLOAT32_ERROR)
            if found.truth == 0 and found.other == 0:
                return
            if (not found.cosine >= least or not found.error <= most) and not self.as_near_as_autocast(truth, ours, recorded, given, unrounded):
                self.as_far_as_operators(found, truth, recorded, given, beside)
            self.note["gradient_error"] = found.error
        except Exception as problem:
            let_through(problem)
            return self.lose(kind, first_line(problem))
        finally:
            self.asks.extra_s += time.perf_counter() - began
        self.checks = 0
        self.right.add(kind)
        self.note["choice"] = kind

    @staticmethod
    def gradients(results, values, recorded, given):
        """Of the leaves among `values`, at the gradients that the program gave."""
        leaves = [one for one in values if isinstance(one, torch.Tensor) and one.requires_grad]
        outputs = [(results[i], gradient) for i, gradient in zip(recorded, given) if gradient is not None]
        return torch.autograd.grad([one for one, _ in outputs], leaves, [one for _, one in outputs], allow_unused=True)

    def as_near_as_autocast(self, stock, ours, recorded, given, unrounded):
        """Whether the program's own autocast, beside which ours are compared, is as far from float32's gradients as ours are: two roundings of one step
        differ by more than each does from what it rounds."""
        if unrounded is None:
            return False
        results, copies = unrounded
        with stock_kernels(), torch.autocast("cpu", enabled=False):
            exact = self.gradients([one.float() if isinstance(one, torch.Tensor) and one.is_floating_point() else one for one in results], copies, recorded,
                                   [None if one is None else one.float() for one in given])
        theirs = operator_bounds.distance([(one, other) for one, other in zip(exact, stock) if one is not None and other is not None])
        mine = operator_bounds.distance([(one, other) for one, other in zip(exact, ours) if one is not None and other is not None])
        self.note["gradient_error_of_autocast"] = theirs.error
        return mine.error <= OF_AUTOCASTS * theirs.error and mine.cosine >= theirs.cosine - COSINE_LESS

    def as_far_as_operators(self, found, truth, recorded, given, beside):
        """Raises where rounded operators taken one by one give nearer gradients than those that are `found` away from `truth`."""
        said = f"gradients are {found.error:.1e} away, cosine {found.cosine:.4f}"
        if beside is None:
            raise Wrong(said)
        with operator_bounds.rounded_operators():
            theirs = self.gradients(*beside, recorded, given)
        bound = operator_bounds.distance([(one, other) for one, other in zip(truth, theirs) if one is not None and other is not None])
        if not operator_bounds.gradients_alike(found, bound):
            raise Wrong(f"{said}; {bound.error:.1e} and {bound.cosine:.4f} with operators rounded one by one")
        self.note["gradient_error_of_operators"] = bound.error
