"""What another form of a captured step could lose beside numbers, and no comparison of numbers shows:

- a result that the rest of the graph reads as well (features beside logits, logits beside a loss): the program asks for its gradient and hangs hooks on
  it, so the rest has to be computed from the very tensor that the program gets;
- an error: of autograd, where the program writes what stock's step keeps for its backward pass and a form keeps a copy of;
- writes that move no version: through `.data`, or by giving a tensor other memory. A form's copy of an image takes them, and the program's tensor does not;
- the order in which random numbers fall: it is that of memory.

Thread rule: under the interpreter lock.
"""

import contextlib
import re
import weakref

import torch

from ..quiet import no_progress_bars
from . import step_rounding

IN_PLACE = re.compile(r"setitem|i(add|sub|mul|matmul|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift|concat)")
COMPUTE = (step_rounding.PRODUCT, step_rounding.ARITHMETIC, step_rounding.ACTIVATION, step_rounding.NORM, step_rounding.POWER, step_rounding.GATE)
SAME = re.compile(r"contiguous|to|float|double|half|bfloat16|type|type_as|requires_grad|\w*dropout\d?d?|flatten|ravel|real|conj|conj_physical|"
                  r"resolve_\w+|positive|identity")  # may give the tensor that they were given
MAY_WRITE = (step_rounding.ACTIVATION, step_rounding.GATE, step_rounding.NORM)  # where told to
OTHER_ORDER = "random numbers would fall in another order"
OTHER_MEMORY = ("set_", "set_data", "_set_data")


def as_stocks(faces, i):
    def as_stock(value):
        dtype, memory_format = faces[i]
        return value.to(dtype).contiguous(memory_format=memory_format)

    return as_stock


def is_read_inside(node):
    """Whether a result is a tensor that the rest of the graph reads."""
    is_tensor = isinstance(node.meta.get("example_value", node.meta.get("val")), torch.Tensor)
    return node.op.startswith("call") and is_tensor and len(node.users) > 1


def kept(module, faces):
    """`module` with results that the rest of it reads looking like stock's (`faces`, known when it runs) before it does."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    results = list(graph.nodes)[-1].args[0]
    places = {node: i for i, node in reversed(list(enumerate(results))) if isinstance(node, torch.fx.Node) and is_read_inside(node)}
    for node, i in places.items():
        with graph.inserting_after(node):
            made = graph.call_function(as_stocks(faces, i), (node,))
        made.meta = dict(node.meta)
        made.meta.pop("draws", None)
        node.replace_all_uses_with(made, delete_user_cb=lambda user, made=made: user is not made)
    return torch.fx.GraphModule(module, graph) if places else module


def may_be_read_elsewhere(graph):
    """Whether a result may be the very tensor that another node gave (`x.float()`), which others read by way of that one: which of them is not seen."""
    for node in list(graph.nodes)[-1].all_input_nodes:
        name = step_rounding.name_of(node) if node.op in ("call_function", "call_method") else ""
        base = node.args[0] if node.args else None
        if (step_rounding.fits(SAME, name) or is_in_place(node)) and isinstance(base, torch.fx.Node) and len(base.users) > 1:
            return True
    return False


def end_of(result):
    return (result.grad_fn, result.output_nr) if isinstance(result, torch.Tensor) and result.grad_fn is not None else None


def behind(result):
    """All that its gradient passes, (node, which of its results)."""
    found, open_ = set(), [end_of(result)]
    while open_:
        for edge in open_.pop()[0].next_functions:
            if edge[0] is not None and edge not in found:
                found.add(edge)
                open_.append(edge)
    return found


def ways(results):
    """Which results lie on the way of which other one's gradient, by their places."""
    ends = {i: end_of(one) for i, one in enumerate(results) if end_of(one) is not None}
    if len(ends) < 2:
        return set()
    found = set()
    for i in ends:
        passed = behind(results[i])
        found |= {(i, j) for j, end in ends.items() if end in passed}
    return found


def saved(results, values):
    """{place of a result: places of the tensors among `values`, parameters aside, that its history keeps for its gradient}."""
    places = {one.untyped_storage().data_ptr(): i for i, one in enumerate(values)
              if isinstance(one, torch.Tensor) and not isinstance(one, torch.nn.Parameter) and one.dim() > 1 and one.numel() > 0}
    found = {}
    for i, result in enumerate(results):
        if places and end_of(result) is not None:
            nodes = {result.grad_fn, *(node for node, _ in behind(result))}
            kept = {places.get(one.untyped_storage().data_ptr()) for node in nodes for one in saved_by(node)} - {None}
            if kept:
                found[i] = kept
    return found


def saved_by(node):
    kept = []
    for name in dir(node):
        if name.startswith("_saved_"):
            with contextlib.suppress(RuntimeError):  # written since
                kept += torch.utils._pytree.tree_leaves(getattr(node, name))
    return [one for one in kept if isinstance(one, torch.Tensor)]


class Unwritten:
    """In front of a form's backward pass: torch's error where these tensors, of which the form holds copies, were written since the forward pass."""

    def __init__(self, tensors):
        self.tensors = [(weakref.ref(one), one._version) for one in tensors]

    def __call__(self, *_):
        for reference, version in self.tensors:
            one = reference()
            if one is not None and one._version != version:
                made = f", which is output {one.output_nr} of {one.grad_fn.name()}," if one.grad_fn is not None else ""
                raise RuntimeError(
                    f"one of the variables needed for gradient computation has been modified by an inplace operation: [{one.type()} {list(one.shape)}]{made} "
                    f"is at version {one._version}; expected version {version} instead. Hint: enable anomaly detection to find the operation that failed to "
                    "compute its gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).")


def is_in_place(node):
    name = step_rounding.name_of(node) if node.op in ("call_function", "call_method") else ""
    if name.endswith("_") or IN_PLACE.fullmatch(name) is not None or "out" in node.kwargs or node.kwargs.get("inplace") is True:
        return True
    told = any(one is True for one in node.args) and not name.endswith("norm")
    return told and any(step_rounding.fits(one, name) for one in MAY_WRITE)


def makes_anew(node):
    """Whether it gives memory of its own, by its name."""
    return node.op in ("call_function", "call_method") and not is_in_place(node) and any(
        step_rounding.fits(one, step_rounding.name_of(node)) for one in COMPUTE)


def shared(nodes, onward):
    """These and all that may lie in their memory, one way through the graph."""
    found, open_ = set(nodes), list(nodes)
    while open_:
        for one in onward(open_.pop()):
            if one not in found:
                found.add(one)
                open_.append(one)
    return found


def unseen_writes(graph):
    """Places of the inputs that may be written without their versions telling."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    written = []
    for node in graph.nodes:
        name = step_rounding.name_of(node) if node.op in ("call_function", "call_method") else ""
        data = name == "_get_data_attr" or node.target is getattr and node.args[1:2] == ("data",)
        views = shared([node], lambda one: [user for user in one.users if not makes_anew(user)]) if data else ()
        if name in OTHER_MEMORY or any(is_in_place(one) for one in views):
            written.append(node)
    bases = shared(written, lambda one: [] if makes_anew(one) else one.all_input_nodes)
    return {i for i, node in enumerate(inputs) if node in bases}


def same_numbers(one, other):
    return torch.equal(one, other) or bool(((one == other) | (one != one) & (other != other)).all())


def is_written(copy, value):
    """Whether a graph that was given a copy of `value` has written it."""
    if not isinstance(copy, torch.Tensor) or copy._version != 0:
        return isinstance(copy, torch.Tensor)
    with torch.no_grad():
        return copy.layout is torch.strided and (copy.shape != value.shape or not same_numbers(copy, value))


class InOrder(torch.fx.Interpreter):
    """Runs a graph; `order` then tells how the operands of what draws random numbers lie in memory."""

    def __init__(self, module):
        super().__init__(module)
        self.order = []

    def run(self, *arguments):
        with no_progress_bars():
            return super().run(*arguments)

    def run_node(self, node):
        if node.meta.get("draws"):
            operands = torch.utils._pytree.tree_leaves(self.fetch_args_kwargs_from_env(node))
            self.order.append([lies(one) for one in operands if isinstance(one, torch.Tensor)])
        return super().run_node(node)


def lies(tensor):
    return [(size, stride) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]


def at_once(module):
    return module.forward


def in_order(orders):
    """As at_once(), and each run appends to `orders` what InOrder tells."""

    def way(module):
        runs = InOrder(module)
        orders.append(runs.order)
        return runs.run

    return way
