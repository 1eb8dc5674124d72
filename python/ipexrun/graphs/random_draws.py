"""Graphs that draw random numbers: models of speech that draw one for each layer that they may leave out (and never do in eval mode), dropout that is on
for good, samples of a latent. The numbers are drawn apart from the rest, by torch's own operators and in the order of the program, and are inputs of what
is left. So any form of that may run beside another one, and in float64, with the same numbers, which are drawn once a call.

Thread rule: what is made here may be called by any thread.
"""

import operator
import threading

import torch

from .number_results import NUMBERS
from .translation import Unsupported, exactly

aten = torch.ops.aten
SHAPED = {"rand_like", "randn_like", "randint_like", "bernoulli", "uniform", "exponential", "normal_functional", "random", "log_normal", "cauchy", "geometric"}
DRAWS = SHAPED | {"rand", "randn", "randint", "randperm", "normal"}
EMPTY = {"empty", "empty_like", "empty_strided", "full", "zeros", "ones", "scalar_tensor", "zeros_like", "ones_like", "full_like", "new_empty"}

_last = threading.local()


class WithDraws:
    """Called as what AOTAutograd compiled: one list of arguments, which is emptied."""

    _boxed_call = True

    def __init__(self, compiled, draw):
        self.compiled, self.draw = compiled, draw

    def __call__(self, arguments):
        values = list(arguments)
        if isinstance(arguments, list):
            arguments.clear()
        before = torch.get_rng_state()
        values += self.draw(*values)
        _last.drawn = before, torch.get_rng_state()
        try:
            return self.compiled(values)
        except BaseException:
            put_back()  # whoever answers the call instead draws them
            raise


def put_back():
    """The numbers that this thread's last graph has drawn; not where another thread has drawn since, whose numbers would come again."""
    before, after = _last.drawn
    if torch.equal(torch.get_rng_state(), after):
        torch.set_rng_state(before)


def packet_of(node):
    """The name of a function of torch's own operators that changes nothing, or ""."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten" or target._schema.is_mutable:
        return ""
    return target.overloadpacket.__name__


def is_draw(node):
    return (packet_of(node) in DRAWS and torch.Tag.nondeterministic_seeded in node.target.tags) or is_dropout(node)


def draws(module):
    """Whether a run of AOTAutograd's graph may change torch's random numbers; None: it may do anything, since not all of its operators are torch's."""
    found = False
    for node in module.graph.nodes:
        targets = [one for one in (node.target, *node.args) if isinstance(one, torch._ops.OpOverload)]  # some are arguments of others, to keep their order
        if node.op == "call_function" and not targets and not is_plain_function(node.target):
            return None
        if any(one.namespace not in ("aten", "prims") for one in targets):
            return None
        found = found or any(torch.Tag.nondeterministic_seeded in one.tags for one in targets)
    return found


def is_plain_function(target):
    return getattr(target, "__module__", None) in ("_operator", "operator", "math", "builtins")


def is_dropout(node):
    """As torch captures one that is on, and whose mask nobody reads."""
    if packet_of(node) != "native_dropout" or len(node.args) != 3 or node.args[2] is False or not 0 < node.args[1] <= 1:
        return False
    return all(one.target is operator.getitem and one.args[1] == 0 for one in node.users)


def apart(module):
    """(the graph without draws, whose last inputs are the numbers drawn; a function of all inputs of `module` that gives these), or (`module`, None).
    Raises Unsupported where what is drawn depends on more than sizes and inputs."""
    draws = [node for node in module.graph.nodes if is_draw(node)]
    return (module, None) if not draws else (without(module, draws), Drawing(module, draws).run())


def without(module, draws):
    graph, copies = torch.fx.Graph(), {}
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    for node in inputs:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    for i, node in enumerate(one for one in draws if one.users):
        copies[node] = graph.placeholder(f"drawn_{i}")
        copies[node].meta.update(node.meta)
        if is_dropout(node):
            copies[node].meta["val"] = node.meta["val"][0] if node.args[1] < 1 else node.meta["val"][0].new_zeros(())
    for node in module.graph.nodes:
        if node.target is operator.getitem and node.args[0] in draws:
            copies[node] = graph.call_function(aten.mul.Tensor, (copies[node.args[0].args[0]], copies[node.args[0]]))
            copies[node].meta.update(node.meta)
        elif node not in copies and node not in draws:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return torch.fx.GraphModule(module, graph)


class Drawing:
    """A graph of the draws on its way."""

    def __init__(self, module, draws):
        self.module, self.draws = module, draws
        self.graph, self.copies = torch.fx.Graph(), {}
        self.numbers = {}  # expression of a size -> who has it

    def run(self):
        known = self.known()
        needed, todo = set(), [one for node in self.draws for one in node.all_input_nodes if one in known]
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                todo += node.all_input_nodes
        for node in self.module.graph.nodes:
            if node.op == "placeholder" or node in needed:
                self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
                self.note_numbers(node)
            elif node in self.draws:
                self.copies[node] = self.draw(node, known)
        self.graph.output([self.copies[node] for node in self.draws if node.users])
        return torch.fx.GraphModule(self.module, self.graph).forward

    def known(self):
        """What costs nothing to compute once more: numbers, and tensors without values."""
        known = set()
        for node in self.module.graph.nodes:
            cheap = node.target in NUMBERS or packet_of(node) in EMPTY
            if node.op in ("placeholder", "get_attr") or (node.op == "call_function" and cheap and known.issuperset(node.all_input_nodes)):
                known.add(node)
        return known

    def note_numbers(self, node):
        """Of inputs; what is computed from them is left where it stands."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            self.numbers.setdefault(exactly(value), self.copies[node])
        elif node.op == "placeholder" and isinstance(value, torch.Tensor):
            for i, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and exactly(size) not in self.numbers:
                    self.numbers[exactly(size)] = self.graph.call_function(aten.sym_size.int, (self.copies[node], i))

    def draw(self, node, known):
        if is_dropout(node):
            return self.kept(node)
        copy = self.same(node, known)
        copy.kwargs = {name: value for name, value in copy.kwargs.items() if value is not None and name not in ("device", "pin_memory", "layout")}
        return copy

    def kept(self, dropout):
        """What a dropout multiplies by, as torch makes it outside of graphs."""
        value, rate = dropout.args[0].meta["val"], 1 - dropout.args[1]
        if rate == 0:  # torch's own graph draws for it
            return self.graph.call_function(aten.zeros.default, ([],), {"dtype": value.dtype})
        return self.graph.call_function(aten.div.Scalar, (self.graph.call_function(aten.bernoulli.p, (self.empty_as(value), rate)), rate))

    def same(self, node, known):
        if any(argument.name == "generator" and value_at(node, i, argument.name) is not None for i, argument in enumerate(node.target._schema.arguments)):
            raise Unsupported("it draws from a random stream of its own")
        if getattr(node.kwargs.get("device"), "type", "cpu") != "cpu" or node.meta["val"].device.type != "cpu":
            raise Unsupported("it draws on another device")
        shape = node.args[0] if packet_of(node) in SHAPED and node.args and isinstance(node.args[0], torch.fx.Node) else None
        if any(one not in known and (one is not shape or not gives_only_shape(node)) for one in node.all_input_nodes):
            raise Unsupported(f"{packet_of(node)} draws by what is computed before")
        if shape is None or shape in known:
            return self.graph.node_copy(node, self.copies.__getitem__)
        empty = self.empty_as(shape.meta["val"])
        return self.graph.node_copy(node, lambda one: empty if one is shape else self.copies[one])

    def empty_as(self, value):
        """Numbers fall in the order of memory, which is that of the elements where torch says so."""
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or value.layout is not torch.strided or not value.is_contiguous():
            raise Unsupported("it draws in an order of memory that is not known")
        sizes = [self.number(size) for size in value.shape]
        return self.graph.call_function(aten.empty.memory_format, (sizes,), {"dtype": value.dtype, "device": torch.device("cpu")})

    def number(self, size):
        if not isinstance(size, torch.SymInt):
            return size
        if exactly(size) not in self.numbers:
            raise Unsupported("it draws as many numbers as is computed before")
        return self.numbers[exactly(size)]


def value_at(node, i, name):
    return node.args[i] if i < len(node.args) else node.kwargs.get(name)


def gives_only_shape(node):
    """Not the probabilities that bernoulli(tensor) draws by."""
    return not (packet_of(node) == "bernoulli" and node.target._overloadname in ("default", "out", "Tensor"))
