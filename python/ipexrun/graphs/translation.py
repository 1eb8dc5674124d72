"""A captured graph of torch.fx becomes a Graph of the plugin (preload/plugin/graph): operators, constants, what is known of their results.

Nothing is decided here but what cannot be translated (Unsupported).
"""

import operator

import torch

MEMORY_FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3}
ARITHMETIC = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, torch.sym_max, torch.sym_min}


class Unsupported(Exception):
    """Why a graph stays as torch captured it."""


def dtype_number(dtype):
    return _DTYPES[dtype]


# ScalarType of c10, by name.
_DTYPES = {
    getattr(torch, name): number
    for number, name in enumerate(
        "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16".split()
    )
}


def known_sizes(sizes):
    return [size if isinstance(size, int) else -1 for size in sizes]


def same_of_torchs(target, arguments):
    """(operator, arguments) of torch's own that computes what another library's does; the operator itself where there is none.

    transformers calls torch._grouped_mm for mixtures of experts, and under TorchDynamo an operator of its own in that one's place, which multiplies group by
    group as torch's kernel for CPUs does. torch's wants the rows of all operands to begin at multiples of 16 bytes."""
    if target.namespace != "transformers" or target._schema.name != "transformers::grouped_mm_fallback" or len(arguments) != 3:
        return target, arguments
    rows, weights, ends = (one.meta.get("val") for one in arguments)
    aligned = all(exactly(size * one.element_size()) % 16 == 0 for one in (rows, weights) for size in one.shape[-1:]) and weights.shape[1] * weights.element_size() % 16 == 0
    if not aligned or ends.dtype is not torch.int32 or rows.dtype is not weights.dtype:
        return target, arguments
    return torch.ops.aten._grouped_mm.default, arguments


def exactly(number):
    """What is compared without asking torch to prove anything of sizes that change."""
    return number.node.expr if isinstance(number, torch.SymInt) else number


def layout(tensor):
    """The number of a Layout (preload/plugin/graph/ir.h): the strides are those of an image without gaps, to the number."""
    if not 3 <= tensor.dim() <= 5:
        return 0
    orders = {1: range(tensor.dim() - 1, -1, -1)}
    if tensor.dim() > 3:
        orders[2] = [1, *range(tensor.dim() - 1, 1, -1), 0]
    for number, order in orders.items():
        step, strides = 1, {}
        for dimension in order:
            strides[dimension] = step
            step = step * tensor.shape[dimension]
        if all(exactly(strides[i]) == exactly(tensor.stride(i)) for i in range(tensor.dim())):
            return number
    return 0


def layout_of_result(target, tensor):
    """Images of one pixel or one channel are planar and channels last at once. Operators other than convolutions make new ones planar,
    which those that torch traces with do not know."""
    number = layout(tensor)
    if number != 2 or target is torch.ops.aten.convolution.default:
        return number
    one_pixel = all(exactly(size) == 1 for size in tensor.shape[2:])
    return 1 if one_pixel or exactly(tensor.shape[1]) == 1 else 2


VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


class Layouts(torch.fx.Interpreter):
    """Runs a graph once and keeps how its tensors lie: `found`, by node, for each of its results the number of a Layout and whether it is contiguous; and
    which views there cannot be (`copies`). What AOTAutograd traces with gives results other strides than torch's operators do: dimensions of size 1 in
    views, so that it takes a convolution behind them to answer in channels last (images made of the tokens of one sequence), batch norms of transposed
    numbers, and then makes a view of what the program wrote as reshape (torch 2.11 to 2.14)."""

    def __init__(self, module):
        super().__init__(module)
        self.found = {}
        self.copies = []

    def run_node(self, node):
        try:
            result = super().run_node(node)
        except RuntimeError:
            if node.target not in VIEWS:
                raise
            tensor, sizes = self.fetch_args_kwargs_from_env(node)[0]
            result = tensor.reshape(sizes)
            self.copies.append(node)
        self.found[node] = [(layout(one), one.is_contiguous()) if isinstance(one, torch.Tensor) else None
                            for one in (result if isinstance(result, (tuple, list)) else [result])]
        return result


def as_it_lies(module, values):
    """How stock's results lie, for Translation; None for a graph whose sizes change. Views that there cannot be become copies. Whether that says anything new
    of the graph: torch's own kernels may raise or answer otherwise for other reasons."""
    lie = Layouts(module)
    lie.run(*values)
    for node in lie.copies:
        node.target = torch.ops.aten.reshape.default
    if lie.copies:
        module.recompile()
    changes = any(isinstance(node.meta.get("val"), torch.SymInt) for node in module.graph.nodes)
    return None if changes else lie.found, bool(lie.copies)


class Translation:
    """One graph on its way into a Graph of the plugin. `layouts`: how results lie, where that is known better than from the graph."""

    def __init__(self, module, static, layouts=None):
        self.module = module
        self.layouts = layouts or {}
        self.graph = torch.classes.ipexrun.Graph()
        self.values = {}  # node -> number, or list of numbers for an operator of several results
        self.inputs_are_tensors = []
        self.lifted = []  # tensors that the module holds: inputs of ours that no caller gives
        self.static = static

    def run(self):
        position = 0
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.input(node, position in self.static)
                position += 1
        for node in self.module.graph.nodes:
            if node.op == "get_attr":
                self.values[node] = self.attribute(node)
        for node in self.module.graph.nodes:
            if node.op == "call_function":
                self.values[node] = self.call(node)
            elif node.op == "output":
                self.results(node)
            elif node.op not in ("placeholder", "get_attr"):
                raise Unsupported(f"a node of kind {node.op}")
        return self

    def input(self, node, static):
        meta = node.meta.get("val")
        self.inputs_are_tensors.append(isinstance(meta, torch.Tensor))
        if isinstance(meta, torch.Tensor):
            return self.tensor_input(meta, static)
        if isinstance(meta, (int, torch.SymInt)):
            return self.graph.number_input()
        raise Unsupported(f"an input that is a {type(meta).__name__}")

    def tensor_input(self, tensor, static):
        plain(tensor)
        value = self.graph.tensor_input(
            dtype_number(tensor.dtype), known_sizes(tensor.shape), tensor.is_contiguous(), static
        )
        self.graph.describe_layout(value, layout(tensor))
        return value

    def attribute(self, node):
        tensor = self.module
        for part in node.target.split("."):
            tensor = getattr(tensor, part)
        if not isinstance(tensor, torch.Tensor):
            raise Unsupported(f"an attribute that is a {type(tensor).__name__}")
        self.lifted.append(tensor)
        return self.tensor_input(tensor, True)

    def call(self, node):
        target = node.target
        if target is operator.getitem:
            source, index = node.args
            value = self.values[source]
            if isinstance(value, list):
                return value[index]
            item, meta = self.graph.item(value, index), node.meta.get("val")
            if isinstance(meta, torch.Tensor):
                self.describe(item, target, meta, self.layouts.get(node, [None])[0])
            return item
        if target is operator.neg and isinstance(node.meta.get("val"), (int, torch.SymInt)):
            form, numbers = ["i"], [0]
            self.write(node.args[0], form, numbers, [])
            return self.graph.number("sub", "".join(form), numbers)
        if target is getattr(torch, "sym_sum", None) and len(node.args[0]) > 1:
            return self.sum_of(node.args[0])
        if target in ARITHMETIC and len(node.args) == 2 and isinstance(node.meta.get("val"), (int, torch.SymInt)):
            form, numbers = [], []
            for argument in node.args:
                self.write(argument, form, numbers, [])
            return self.graph.number(target.__name__, "".join(form), numbers)
        if not isinstance(target, torch._ops.OpOverload):
            raise Unsupported(f"{getattr(target, '__name__', target)} is no operator of torch")
        arguments, named = node.args, node.kwargs
        if target is torch.ops.prims.convert_element_type.default:  # of a float of the program that torch made an input
            target, arguments, named = torch.ops.aten._to_copy.default, node.args[:1], {"dtype": node.args[1]}
        target, arguments = same_of_torchs(target, arguments)
        schema = target._schema
        if not schema.returns or "_assert" in schema.name:  # nobody reads what it gives, so passes would take it away
            raise Unsupported(f"{schema.name} may raise")
        form, numbers, constants = [], [], []
        for i, argument in enumerate(schema.arguments):
            if i < len(arguments):
                self.write(arguments[i], form, numbers, constants)
            elif argument.name in named:
                self.write(named[argument.name], form, numbers, constants)
            else:
                form.append("d")
        results = self.graph.op(schema.name, schema.overload_name, "".join(form), numbers, tuple(constants))
        described = node.meta.get("val")
        described = described if isinstance(described, (tuple, list)) and len(results) > 1 else [described]
        for value, meta, lies in zip(results, described, self.layouts.get(node, [None] * len(results))):
            if isinstance(meta, torch.Tensor):
                self.describe(value, target, meta, lies)
        return results[0] if len(results) == 1 else results

    def describe(self, value, target, meta, lies):
        plain(meta)
        number, contiguous = lies or (layout_of_result(target, meta), meta.is_contiguous())
        self.graph.describe(value, dtype_number(meta.dtype), known_sizes(meta.shape), contiguous)
        self.graph.describe_layout(value, number)

    def sum_of(self, terms):
        form, numbers = [], []
        self.write(terms[0], form, numbers, [])
        for term in terms[1:]:
            self.write(term, form, numbers, [])
            form, numbers = ["v"], [self.graph.number("add", "".join(form), numbers)]
        return numbers[0]

    def write(self, argument, form, numbers, constants):
        if isinstance(argument, torch.fx.Node):
            value = self.values[argument]
            if isinstance(value, list):
                raise Unsupported("several results as one argument")
            form.append("v")
            numbers.append(value)
        elif argument is None:
            form.append("n")
        elif isinstance(argument, (list, tuple)):
            form.append("[")
            for element in argument:
                self.write(element, form, numbers, constants)
            form.append("]")
        elif isinstance(argument, int) and not isinstance(argument, bool):
            form.append("i")
            numbers.append(argument)
        elif isinstance(argument, torch.dtype):
            form.append("i")
            numbers.append(dtype_number(argument))
        elif isinstance(argument, torch.memory_format):
            form.append("i")
            numbers.append(MEMORY_FORMATS[argument])
        elif isinstance(argument, torch.layout):
            if argument is not torch.strided:
                raise Unsupported(f"layout {argument}")
            form.append("i")
            numbers.append(0)
        elif isinstance(argument, (bool, float, complex, str, torch.device)):
            form.append("c")
            constants.append(argument)
        else:
            raise Unsupported(f"an argument that is a {type(argument).__name__}")

    def results(self, node):
        form, numbers = [], []
        for result in node.args[0]:
            if result is None:
                form.append("n")
            elif isinstance(result, torch.fx.Node) and isinstance(result.meta.get("val"), torch.Tensor):
                form.append("v")
                numbers.append(self.values[result])
            else:
                raise Unsupported("a result that is no tensor")
        self.graph.results("".join(form), numbers)


def plain(tensor):
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
        raise Unsupported(f"a tensor that is not plain: {tensor.dtype}, {tensor.layout}, {tensor.device}")
