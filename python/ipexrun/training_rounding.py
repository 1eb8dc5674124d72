"""Which operators of a training step may work on what products in bf16 gave, and which get it back in float32.

Autocast rounds products, and everything behind them goes on in bf16 until an operator of its list takes float32. For most of a network that does no harm;
what follows does, in steps that come long after the one that was compared:

- what tells numbers near 1 or near each other apart, or goes to infinity (1 - x, log, division, powers, losses): a sigmoid above 0.998 is 1 in bf16;
- sigmoid, tanh and softmax whose results reach such, or leave the graph;
- constants that bf16 does not have (torch.finfo(torch.float32).min is -inf in it).

So only what is listed here takes bf16; all else gets float32, as an author writes `.float()` in front of a loss. Values that the program itself has in
another dtype stay as they are.

Thread rule: under the interpreter lock.
"""

import math
import re

import torch

from .interrupts import let_through

MOST = 3.3895e38  # of bf16
NONE = "what wants float32 is written in place"
PRODUCT = re.compile(r"linear|bilinear|conv\w*|r?matmul|mm|bmm|mv|addmm|addbmm|baddbmm|einsum|tensordot|scaled_dot_product_attention|multi_head_attention_forward|"
                     r"lstm|gru|rnn_tanh|rnn_relu|lstm_cell|gru_cell|rnn_tanh_cell|rnn_relu_cell")
ARITHMETIC = re.compile(r"add|radd|iadd|mul|rmul|imul|multiply|neg|negative|sub|isub|subtract|div|truediv|itruediv|divide")
OF_TENSORS_ALONE = re.compile(r"sub|isub|subtract")
BY_NUMBERS_ALONE = re.compile(r"div|truediv|itruediv|divide")
ACTIVATION = re.compile(r"relu|relu6|leaky_relu|rrelu|prelu|gelu|silu|mish|elu|celu|selu|hardswish|hardtanh|glu|softplus|threshold")
NORM = re.compile(r"(batch|layer|group|instance|rms|local_response)_norm|normalized|dropout\w*|alpha_dropout|feature_\w*dropout")
PLACE = re.compile(r"view|view_as|reshape|reshape_as|permute|transpose|t|flatten|unflatten|ravel|unsqueeze|squeeze|expand|expand_as|repeat|tile|contiguous|clone|"
                   r"chunk|split|tensor_split|unbind|getitem|select|narrow|cat|concat|concatenate|stack|hstack|vstack|roll|flip|pad|movedim|moveaxis|swapaxes|swapdims|"
                   r"detach|index_select|gather|take_along_dim|repeat_interleave|pixel_shuffle|pixel_unshuffle|channel_shuffle|unfold|fold|interpolate|upsample\w*|to|"
                   r"type|type_as|bfloat16|size|dim|numel|getattr|mean|sum|embedding|(adaptive_|lp_|fractional_)?(max|avg)_?pool\w*|masked_fill|masked_select|index|"
                   r"tuple|list|identity|requires_grad")
POWER = re.compile(r"pow|square")
POWERS = (1, 2, 3, 4)
GATE = re.compile(r"sigmoid|hardsigmoid|tanh|softmax|softmin")
THROUGH = re.compile(r"mul|rmul|multiply|dropout\w*")  # what a gate may go into beside products
IN_PLACE = re.compile(r"setitem|i(pow|mod|and|or|xor|floordiv)")


def widened(value):
    return value.float() if isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16 else value


def name_of(node):
    target = node.target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        target = getattr(target, "overloadpacket", target)._qualified_op_name.split("::")[1]
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    return name.strip("_") if name.startswith("__") else name


def fits(pattern, name):
    return pattern.fullmatch(name.removesuffix("_")) is not None


def numbers(node):
    return [one for one in torch.utils._pytree.tree_leaves([node.args, node.kwargs]) if isinstance(one, (int, float)) and not isinstance(one, bool)]


def is_tensor(node):
    value = node.meta.get("example_value", node.meta.get("val"))
    return value is None or isinstance(value, (torch.Tensor, tuple, list))


def is_float32(node):
    value = node.meta.get("example_value", node.meta.get("val"))
    return value is None or (isinstance(value, torch.Tensor) and value.dtype is torch.float32)


def takes_bf16(node):
    """Whether it may be given numbers in bf16; of what is no product."""
    name = name_of(node)
    if any(math.isfinite(one) and abs(one) > MOST for one in numbers(node)):
        return False
    if fits(ARITHMETIC, name):
        tensors = [one for one in node.args[:2] if isinstance(one, torch.fx.Node) and is_tensor(one)]
        if fits(OF_TENSORS_ALONE, name):
            return len(tensors) == 2
        return not fits(BY_NUMBERS_ALONE, name) or len(tensors) == 1 and tensors[0] is node.args[0]
    if fits(POWER, name):
        return name.startswith("square") or (len(node.args) > 1 and node.args[1] in POWERS)
    if fits(GATE, name):
        return all(is_harmless_behind_a_gate(user) for user in node.users)
    return any(fits(one, name) for one in (ACTIVATION, NORM, PLACE)) and not (name.startswith("masked_fill") and len(node.args) > 2 and isinstance(node.args[2], torch.fx.Node))


def is_harmless_behind_a_gate(node):
    name = name_of(node) if node.op.startswith("call") else ""
    if fits(PRODUCT, name) or fits(THROUGH, name) and not fits(NORM, name):
        return True
    if fits(ARITHMETIC, name) and name in ("add", "radd"):  # 1 + tanh(x), a part of gelu
        return len(node.all_input_nodes) == 1 and bool(node.users) and all(map(is_harmless_behind_a_gate, node.users))
    passes_on = fits(PLACE, name) and not re.fullmatch("mean|sum|masked_\\w+", name) or fits(NORM, name)
    return passes_on and bool(node.users) and all(map(is_harmless_behind_a_gate, node.users))


def careful(module):
    """The graph with float32 for what wants it: another one, or the same where nothing does; None where a tensor of such is written in place."""
    try:
        return rewritten(module)
    except Exception as problem:  # a graph of other nodes than expected
        let_through(problem)
        return None


def rewritten(module):
    graph = torch.fx.Graph()
    copies, rounded, changed = {}, set(), False
    for node in module.graph.nodes:
        from_bf16 = [one for one in node.all_input_nodes if one in rounded]
        name = name_of(node) if node.op in ("call_function", "call_method") else ""
        widen = set()
        if name and fits(PRODUCT, name):
            rounded.add(node)
        elif name and from_bf16 and takes_bf16(node):
            if name not in ("float", "double"):
                rounded.add(node)
        elif name and from_bf16 and name not in ("float", "double"):
            if (name.endswith("_") or fits(IN_PLACE, name)) and node.args and node.args[0] in rounded:
                return None
            widen = {one for one in from_bf16 if is_float32(one)}
        made = {}
        if widen:
            changed = True
            made = {one: graph.call_function(widened, (copies[one],)) for one in widen}
        copies[node] = graph.node_copy(node, lambda one, made=made: made.get(one, copies[one]))
    return torch.fx.GraphModule(module, graph) if changed else module
