"""torch.compile on xpu: a graph of AOTAutograd executed with our kernels, its constants folded where the program asks for freezing.

Functional graphs run operator by operator, forward and backward, in the types that the program's autocast gave them. With freezing, in inference,
parameters and buffers are constants: what depends on them alone (casts of autocast, transposes, batch norms behind convolutions) is computed
once, and anew when one of them has changed.
"""

import sys

import torch

aten = torch.ops.aten
_told = False


def on_xpu(module, inputs):
    """Whether a graph of TorchDynamo takes or makes tensors on xpu."""
    if any(isinstance(one, torch.Tensor) and one.device.type == "xpu" for one in inputs):
        return True
    made = (node.meta.get("example_value") for node in getattr(module, "graph", torch.fx.Graph()).nodes)
    return any(isinstance(one, torch.Tensor) and one.device.type == "xpu" for one in made)


def instead_of_inductor(torch):
    """torch.compile without a backend of its own on xpu: ours, and one line."""
    wrapper = torch._TorchCompileInductorWrapper
    stock = wrapper.__call__

    def call(self, module, inputs):
        global _told
        if not on_xpu(module, inputs):
            return stock(self, module, inputs)
        if not _told:
            _told = True
            print('ipexrun: torch.compile on xpu: Inductor needs Triton, which has no OpenCL: backend "ipex" takes its place', file=sys.stderr, flush=True)
        return backend(module, inputs, bool(self.config.get("freezing", False)))

    wrapper.__call__ = call


def backend(module, inputs, freezing=False):
    """`inputs` as TorchDynamo gives them: parameters and buffers of modules are among them."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func

    def as_captured(graph, _):
        return make_boxed_func(graph.forward)

    def inference(graph, _):
        held = sum(node.op == "placeholder" for node in graph.graph.nodes) == len(inputs)
        frozen = {i: one for i, one in enumerate(inputs) if held and freezing and is_static(one)}
        return Frozen(graph, frozen) if frozen else as_captured(graph, _)

    return aot_autograd(fw_compiler=as_captured, bw_compiler=as_captured, inference_compiler=inference)(module, inputs)


def is_static(value):
    return isinstance(value, torch.nn.Parameter) or (isinstance(value, torch.Tensor) and getattr(value, "_dynamo_static_input_type", None) is not None)


class Frozen:
    """An inference graph whose inputs `frozen` (by position) are constants."""

    _boxed_call = True

    def __init__(self, graph, frozen):
        self.graph, self.frozen = graph, frozen
        self.versions = self.run = None  # folded at the first call: while a graph is made, torch's fake tensors are about

    def versions_now(self):
        return [(0 if one.is_inference() else one._version, one.data_ptr()) for one in self.frozen.values()]

    def fold(self):
        self.versions = self.versions_now()
        self.run = folded(self.graph, self.frozen)

    def __call__(self, arguments):
        if self.versions_now() != self.versions:
            self.fold()
        rest = [one for i, one in enumerate(arguments) if i not in self.frozen]
        arguments.clear()
        return self.run(*rest)


def folded(graph, frozen):
    """A function of the graph's other inputs; what depends on `frozen` alone is computed here."""
    module = torch.fx.GraphModule(graph, torch.fx.Graph())
    copy = torch.fx.Graph()
    values, nodes = {}, {}  # of nodes of the graph: constants, and what became of the others

    def constant(name, value):
        setattr(module, name, value)
        return copy.get_attr(name)

    def node_of(node):
        if node not in nodes:
            nodes[node] = constant(f"frozen_{len(nodes)}", values[node]) if isinstance(values[node], torch.Tensor) else values[node]
        return nodes[node]

    position = 0
    with torch.no_grad():
        for node in graph.graph.nodes:
            if node.op == "placeholder":
                if position in frozen:
                    values[node] = frozen[position].detach()
                else:
                    nodes[node] = copy.placeholder(node.target)
                position += 1
            elif node.op == "get_attr":
                value = graph
                for part in node.target.split("."):
                    value = getattr(value, part)
                values[node] = value
            elif node.op == "call_function" and may_fold(node) and node.all_input_nodes and all(one in values for one in node.all_input_nodes):
                values[node] = node.target(*torch.fx.map_arg(node.args, values.get), **torch.fx.map_arg(node.kwargs, values.get))
            else:
                merged = merged_norm(node, values, nodes)
                if merged is not None:
                    convolution, weight, bias = merged
                    name = f"merged_{len(nodes)}"
                    given = [node_of(convolution.args[0]), constant(name, weight), constant(name + "_bias", bias)]
                    nodes[node] = copy.call_function(aten.convolution.default, (*given, *convolution.args[3:]))
                else:
                    nodes[node] = copy.node_copy(node, node_of)
    copy.eliminate_dead_code()
    module.graph = copy
    module.recompile()
    return module.forward


def may_fold(node):
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__name__", "") == "getitem"
    return torch.Tag.nondeterministic_seeded not in target.tags and not target._schema.is_mutable


def merged_norm(node, values, nodes):
    """(convolution, weight, bias) for the first result of a batch norm in eval mode behind a convolution that nothing else reads; else None."""
    if getattr(node.target, "__name__", "") != "getitem" or node.args[1] != 0:
        return None
    norm = node.args[0]
    if getattr(norm, "target", None) is not aten._native_batch_norm_legit_no_training.default:
        return None
    source, *constants = norm.args[:5]
    if source.op != "call_function" or source.target is not aten.convolution.default or len(source.users) != 1:
        return None
    weight, bias, transposed = source.args[1], source.args[2], source.args[6]
    needed = [weight, *([bias] if bias is not None else []), *constants]
    if transposed or any(one is None or one not in values for one in needed) or len(norm.users) != 1:
        return None
    gamma, beta, mean, variance = (values[one].float() for one in constants)
    scale = gamma / torch.sqrt(variance + norm.args[6])
    weight, bias = values[weight], values[bias].float() if bias is not None else 0
    shape = [-1] + [1] * (weight.dim() - 1)
    return source, (weight.float() * scale.reshape(shape)).to(weight.dtype), ((bias - mean) * scale + beta).to(weight.dtype)
