"""A graph that was captured under the program's own autocast, as the program would compute without it: in float32, its results rounded to the types that
autocast gave them. From there on it is a graph like others, whose products may be bf16 where that is faster, and which has no copies of weights to make.

Autocast rounds operands of products and leaves what they give in 16 bits. What is rounded for anything else (`x.to(torch.bfloat16)`) stays rounded.
"""

import operator

import torch

from ..problems import let_through

HALF = (torch.bfloat16, torch.float16)
CASTS = (torch.ops.aten._to_copy.default, torch.ops.prims.convert_element_type.default)
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "convolution", "_scaled_dot_product_flash_attention_for_cpu"}
VIEWS = {"view", "_unsafe_view", "reshape", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "slice", "select", "clone"}
WIDENING = {"_softmax", "_log_softmax"}  # whose last argument asks for float32 from 16 bits


class NotUnrounded(Exception):
    """Why a graph stays as autocast made it."""


def unrounded(module, static):
    """The graph in float32, or None where something in it hangs on types. `module`: of AOTAutograd, whose nodes have metadata, with operands of products
    that are rounded; `static`: positions of its parameters and buffers. Thread rule: under the interpreter lock."""
    try:
        with torch.autocast("cpu", enabled=False):
            return Unrounding(module, static).run()
    except Exception as problem:  # the graph stays as it is
        let_through(problem)
        return None


def rounds_operands(module):
    """Whether an operand of a product is rounded to 16 bits in it."""
    return any(node.target in CASTS and is_half(value_of(node)) and feeds_products_alone(node) for node in module.graph.nodes)


def rounds_all_products(module):
    """Whether each product of the graph gives 16 bits: none stands where the program wants float32."""
    return all(is_half(one) for node in module.graph.nodes if name_of(node) in PRODUCTS for one in leaves(value_of(node))[:1])


def leaves(value):
    return [*value] if isinstance(value, (tuple, list)) else [value]


def name_of(node):
    packet = getattr(node.target, "overloadpacket", None)
    return packet.__name__ if packet is not None else ""


def value_of(node):
    return node.meta.get("val")


def is_half(value):
    return isinstance(value, torch.Tensor) and value.dtype in HALF


def feeds_products_alone(node):
    return bool(node.users) and all(name_of(one) in PRODUCTS or (name_of(one) in VIEWS and feeds_products_alone(one)) for one in node.users)


class Unrounding:
    def __init__(self, module, static):
        self.module, self.static = module, static
        self.graph = torch.fx.Graph()
        self.copies = {}  # of nodes, with values in float32
        self.given = {}  # of inputs, as they come
        self.fake = next((one.fake_mode for one in map(value_of, module.graph.nodes) if isinstance(one, torch._subclasses.FakeTensor)), None)

    def run(self):
        if self.fake is None:
            raise NotUnrounded("nothing to compute types with")
        self.inputs()
        for node in self.module.graph.nodes:
            if node.op == "output":
                self.output(node)
            elif node.op == "call_function":
                self.copies[node] = self.call(node)
            elif node.op == "get_attr":
                self.copies[node] = self.constant(node)
            elif node.op != "placeholder":
                raise NotUnrounded(f"a node of kind {node.op}")
        self.graph.eliminate_dead_code()
        return torch.fx.GraphModule(self.module, self.graph)

    def inputs(self):
        given = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        if any(is_half(value_of(node)) and position in self.static for position, node in enumerate(given)):
            raise NotUnrounded("weights of 16 bits, which would be there twice")
        for node in given:
            self.copies[node] = self.given[node] = self.graph.node_copy(node)
        for node in given:
            if is_half(value_of(node)):
                self.copies[node] = self.to(self.copies[node], torch.float32, node)

    def constant(self, node):
        tensor = operator.attrgetter(node.target)(self.module)
        if not isinstance(tensor, torch.Tensor) or is_half(tensor):
            raise NotUnrounded("a constant of 16 bits, or that is no tensor")
        copy = self.graph.node_copy(node)
        if value_of(copy) is None:
            copy.meta["val"] = self.fake.from_tensor(tensor)
        return copy

    def call(self, node):
        value = value_of(node)
        if node.target in CASTS:
            return self.cast(node)
        arguments, named = (torch.fx.node.map_arg(one, self.copies.__getitem__) for one in (node.args, node.kwargs))
        if isinstance(value, (int, torch.SymInt)) or node.target is operator.getitem:
            copy = self.graph.call_function(node.target, arguments, named)
            copy.meta = dict(node.meta)
            if node.target is operator.getitem:
                copy.meta["val"] = value_of(arguments[0])[arguments[1]]
            return self.alike(copy, value)
        if not isinstance(node.target, torch._ops.OpOverload) or node.target is torch.ops.aten.view.dtype:
            raise NotUnrounded(f"{node.target} is about types")
        if node.target._schema.is_mutable:
            if node.target is not torch.ops.aten.copy_.default or node.args[0] not in self.given:
                raise NotUnrounded(f"{node.target} writes")
            copy = self.graph.call_function(node.target, (self.given[node.args[0]], *arguments[1:]), named)  # which rounds what it writes
            copy.meta = dict(node.meta)
            return copy
        arguments, named = (torch.fx.node.map_aggregate(one, self.wider) for one in (arguments, named))
        if name_of(node) in WIDENING:
            arguments = (*arguments[:2], False)
        if node.target is torch.ops.aten.bmm.default and (matrix := same_for_all(arguments[1])) is not None:
            return self.product_of_rows(node, arguments[0], matrix)
        return self.emit(node, arguments, named)

    def product_of_rows(self, node, batches, matrix):
        """F.linear of rows that do not lie one behind the other is a product for each batch under autocast, all by one matrix."""
        sizes = value_of(batches).shape
        if any(isinstance(size, torch.SymInt) for size in sizes) and name_of(batches) in ("expand", "view", "_unsafe_view"):
            sizes = batches.args[1]  # in which such a one is a node
        if any(isinstance(size, torch.SymInt) for size in (*sizes, *value_of(matrix).shape)):
            return self.emit(node, (batches, self.copies[node.args[1]]), {})
        rows = batches if value_of(batches).is_contiguous() else self.emit(node, (batches,), {"memory_format": torch.contiguous_format}, torch.ops.aten.clone.default, like=False)
        rows = self.emit(node, (rows, [-1, value_of(matrix).shape[0]]), {}, torch.ops.aten.view.default, like=False)
        product = self.emit(node, (rows, matrix), {}, torch.ops.aten.mm.default, like=False)
        return self.emit(node, (product, [*sizes[:2], value_of(matrix).shape[1]]), {}, torch.ops.aten.view.default)

    def cast(self, node):
        (source, *_), value = node.args, value_of(node)
        copy = self.copies[source]
        if not isinstance(value_of(source), torch.Tensor) or value.device.type != "cpu" or node.kwargs.get("memory_format") not in (None, torch.preserve_format):
            raise NotUnrounded("a cast that is more than one")
        if not is_half(value):
            return copy if value_of(copy).dtype is value.dtype else self.to(copy, value.dtype, node)
        if value_of(source).dtype is value.dtype:
            return copy
        if not feeds_products_alone(node):
            copy = self.to(copy, value.dtype, node)  # rounded by the program
        return copy if value_of(copy).dtype is torch.float32 else self.to(copy, torch.float32, node)

    def to(self, copy, dtype, node, **more):
        return self.emit(node, (copy,), {"dtype": dtype, **more}, torch.ops.aten._to_copy.default, like=False)

    def emit(self, node, arguments, named, target=None, like=True):
        copy = self.graph.call_function(target or node.target, arguments, named)
        copy.meta = dict(node.meta)
        try:
            with self.fake:
                copy.meta["val"] = copy.target(*torch.fx.node.map_arg(arguments, value_of), **torch.fx.node.map_arg(named, value_of))
        except Exception as problem:
            raise NotUnrounded(f"{copy.target} in float32: {problem}") from problem
        return self.alike(copy, value_of(node)) if like else copy

    def alike(self, copy, before):
        """Types of 16 bits became float32, and nothing else changed."""
        for new, old in zip(leaves(value_of(copy)), leaves(before)):
            if isinstance(old, torch.Tensor) and (new.dtype != (torch.float32 if old.dtype in HALF else old.dtype) or new.dim() != old.dim()):
                raise NotUnrounded(f"{copy.target} has other results in float32")
        return copy

    @staticmethod
    def wider(argument):
        return torch.float32 if argument in HALF else argument

    def output(self, node):
        results = []
        for one in node.args[0]:
            copy = self.copies.get(one) if isinstance(one, torch.fx.Node) else one
            if isinstance(one, torch.fx.Node) and is_half(value_of(one)):
                if origin(one).op == "placeholder":
                    raise NotUnrounded("a result that is an input")
                copy = self.to(copy, value_of(one).dtype, one, memory_format=order_of(value_of(one)))
            results.append(copy)
        self.graph.output(tuple(results)).meta = dict(node.meta)


def same_for_all(batches):
    """The matrix that each of so many batches is, or None."""
    sizes = value_of(batches).shape
    while name_of(batches) in ("view", "_unsafe_view") and same_sizes(value_of(batches.args[0]).shape, sizes):
        batches = batches.args[0]
    if name_of(batches) != "expand" or not same_sizes(value_of(batches.args[0]).shape, sizes[1:]):
        return None
    return batches.args[0]


def same_sizes(some, others):
    """Known to be; nothing is asked of sizes that change."""
    numbers = [[one.node.expr if isinstance(one, torch.SymInt) else one for one in sizes] for sizes in (some, others)]
    return numbers[0] == numbers[1]


def origin(node):
    """Of what is seen through views."""
    while name_of(node) in VIEWS and node.args:
        node = node.args[0]
    return node


def order_of(tensor):
    """How its elements lie."""
    for dimensions, layout in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dimensions and tensor.is_contiguous(memory_format=layout) and not tensor.is_contiguous():
            return layout
    return torch.contiguous_format if tensor.is_contiguous() else torch.preserve_format
