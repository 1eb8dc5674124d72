"""Which operators of a training step may work on what products in bf16 gave, and which get it back in float32.

Autocast rounds products, and everything behind them goes on in bf16 until an operator of its list takes float32. For most of a network that does no harm;
what follows does, in steps that come long after the one that was compared:

- what tells numbers near 1 or near each other apart, or goes to infinity (1 - x, log, division, powers, losses): a sigmoid above 0.998 is 1 in bf16;
- sigmoid, tanh, softmax, elu and others that come to an end, where their results reach such or leave the graph;
- products whose differences reach a root, a logarithm or an arc (distances from products, variances as differences): these are not rounded at all;
- products whose results leave the graph as they are, where they are a small part of the work: what a head gives may differ from sample to sample by less
  than bf16 tells apart (years near 1985: steps of 8), and the loss is made of these differences;
- constants that bf16 does not have (torch.finfo(torch.float32).min is -inf in it), also in masks that a product takes.

So only what is listed here takes bf16; all else gets float32, as an author writes `.float()` in front of a loss. Values that the program itself has in
another dtype stay as they are.

Thread rule: under the interpreter lock.
"""

import math
import re

import torch

from ..problems import let_through

MOST = 3.3895e38  # of bf16
NONE = "what wants float32 is written in place"
PRODUCT = re.compile(r"linear|bilinear|conv\w*|r?matmul|linalg_(matmul|vecdot|multi_dot)|inner|chain_matmul|mm|bmm|mv|addmm|addmv|addbmm|baddbmm|"
                     r"einsum|tensordot|scaled_dot_product_attention|multi_head_attention_forward|lstm|gru|rnn_tanh|rnn_relu|lstm_cell|gru_cell|rnn_tanh_cell|rnn_relu_cell")
ARITHMETIC = re.compile(r"add|radd|iadd|mul|rmul|imul|multiply|neg|negative|sub|rsub|isub|subtract|div|truediv|itruediv|divide")
OF_TENSORS_ALONE = re.compile(r"sub|rsub|isub|subtract")
BY_NUMBERS_ALONE = re.compile(r"div|truediv|itruediv|divide")
ACTIVATION = re.compile(r"relu|relu6|leaky_relu|rrelu|prelu|gelu|silu|mish|hardswish|glu|threshold")
NORM = re.compile(r"(batch|layer|group|instance|rms|local_response)_norm|normalized|dropout\w*|alpha_dropout|feature_\w*dropout")
PLACE = re.compile(r"view|view_as|reshape|reshape_as|permute|transpose|t|flatten|unflatten|ravel|unsqueeze|squeeze|expand|expand_as|repeat|tile|contiguous|clone|"
                   r"chunk|split|tensor_split|unbind|getitem|select|narrow|cat|concat|concatenate|stack|hstack|vstack|roll|flip|pad|movedim|moveaxis|swapaxes|swapdims|"
                   r"detach|index_select|gather|take_along_dim|repeat_interleave|pixel_shuffle|pixel_unshuffle|channel_shuffle|unfold|fold|interpolate|upsample\w*|to|"
                   r"type|type_as|float|double|bfloat16|size|dim|numel|getattr|mean|sum|embedding|(adaptive_|lp_|fractional_)?(max|avg)_?pool\w*|masked_fill|masked_select|index|"
                   r"tuple|list|identity|requires_grad|as_stock")
POWER = re.compile(r"pow|square")
POWERS = (1, 2, 3, 4)
ELU = re.compile(r"elu|celu|selu")  # -1 from some number on, which is often made 0
GATE = re.compile(r"sigmoid|hardsigmoid|tanh|erf|softmax|softmin|softplus|hardtanh|elu|celu|selu")
ENDING = re.compile(r"exp|exp2|expm1|log|log2|log10|log1p|logit|logsigmoid|log_sigmoid|log_softmax|logsumexp|softsign|sinh|clamp\w*|clip|abs|sqrt|cross_entropy|\w+_loss")
SUMS_AND_SCALES = re.compile(r"add|radd|iadd|mul|rmul|imul|multiply")
SENSITIVE = re.compile(r"r?sqrt|log|log2|log10|log1p|logit|reciprocal|norm|linalg_\w*norm|cdist")  # to differences
ARC = re.compile(r"(a|arc)(cos|sin|tan)h?")  # to numbers near 1 as well
HEAD, SMALL_HEAD = 1 / 32, 2**20  # of the multiply-adds of a graph's products, or so many: what one that leaves it may have in float32
MASKS = {"scaled_dot_product_attention": (3, "attn_mask"), "multi_head_attention_forward": (None, "attn_mask"), "baddbmm": (0, "input"),
         "addbmm": (0, "input")}  # where a product takes what may be a mask; that of addmm is a bias nearly always
IN_PLACE = re.compile(r"setitem|i(pow|mod|and|or|xor|floordiv)")


def widened(value):
    return value.float() if isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16 else value


def bounded(mask):
    """Within what bf16 has; infinity stays."""
    if not isinstance(mask, torch.Tensor) or mask.dtype is not torch.float32 or isinstance(mask, torch.nn.Parameter):
        return mask
    return torch.where(mask.isinf(), mask, mask.clamp(-MOST, MOST))


def exactly(function):
    """A product that is not rounded; a method by its name."""

    def in_float32(*args, **kwargs):
        args, kwargs = torch.utils._pytree.tree_map(widened, (args, kwargs))
        with torch.autocast("cpu", enabled=False):
            return getattr(args[0], function)(*args[1:], **kwargs) if isinstance(function, str) else function(*args, **kwargs)

    return in_float32


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
        return bool(node.users) and all(is_harmless_behind_a_gate(user, fits(ELU, name), {}) for user in node.users)
    return any(fits(one, name) for one in (ACTIVATION, NORM, PLACE)) and not (
        name.startswith("masked_fill") and isinstance(node.args[2] if len(node.args) > 2 else node.kwargs.get("value"), torch.fx.Node))


def is_harmless_behind_a_gate(node, of_elu, known):
    """Whether it takes what a gate gave to products, norms and activations alone; by way of sums and products with others, which round no end away."""
    if node not in known:
        known[node] = True  # a graph has no cycles
        name = name_of(node) if node.op in ("call_function", "call_method") else ""
        numbers_too = len(node.all_input_nodes) < 2
        if fits(PRODUCT, name) or fits(ACTIVATION, name) or fits(NORM, name) and "dropout" not in name:
            return True
        passes_on = fits(NORM, name) or fits(SUMS_AND_SCALES, name) and not (numbers_too and of_elu and "add" in name) or \
            fits(PLACE, name) and not re.fullmatch("masked_\\w+", name)
        known[node] = passes_on and bool(node.users) and all(is_harmless_behind_a_gate(user, of_elu, known) for user in node.users)
    return known[node]


def wants_exact(node, differs, known):
    """Whether what a product gave reaches a root or a logarithm as a difference, or an arc, with nothing between but arithmetic."""
    if (node, differs) not in known:
        known[node, differs] = False
        for user in node.users:
            name = name_of(user) if user.op in ("call_function", "call_method") else ""
            power = user.args[1] if fits(POWER, name) and len(user.args) > 1 else None
            root = isinstance(power, float) and 0 < abs(power) < 1
            through = any(fits(one, name) for one in (ARITHMETIC, POWER, PLACE)) or name.startswith("clamp") or name in ("abs", "expm1") or \
                differs and name.startswith("relu")  # above zero, in front of a root
            if fits(ARC, name) or differs and (fits(SENSITIVE, name) or root) or through and wants_exact(user, differs or fits(OF_TENSORS_ALONE, name), known):
                known[node, differs] = True
    return known[node, differs]


def shape_of(node):
    """As it is in the call that is traced; to turn a size that may change into a number would make it one that may not."""
    value = node.meta.get("example_value", node.meta.get("val"))
    if not isinstance(value, torch.Tensor):
        return None
    sizes = [size if isinstance(size, int) else size.node.hint for size in value.shape]
    return sizes if all(isinstance(size, int) for size in sizes) else None


def multiply_adds(node):
    """Of a product, about: what it gives times what each number of it is a sum of; None where that is not known."""
    made, name = shape_of(node), name_of(node)
    given = [shape for shape in map(shape_of, node.all_input_nodes) if shape]
    if made is None or not given:
        return None
    if name.startswith("conv"):
        weight = max(given[1:] or given, key=math.prod)
        return math.prod(made) * math.prod(weight[1:])
    return math.prod(made) * given[0][-1]


def leaves(node, known):
    """Whether a result of the graph is what it gave, moved, scaled, shifted or without what is below zero; or what a function of each number made of that (exp
    of a log link, a probability, a loss), which tells samples apart by what the product gave."""
    if node not in known:
        known[node] = False
        for user in node.users:
            name = name_of(user) if user.op in ("call_function", "call_method") else ""
            through = any(fits(one, name) for one in (PLACE, ARITHMETIC, ACTIVATION, POWER, GATE, ENDING))
            if user.op == "output" or through and leaves(user, known):
                known[node] = True
    return known[node]


def heads(graph):
    """Products whose results leave the graph, and which are a small part of its work each."""
    products = [node for node in graph.nodes if node.op in ("call_function", "call_method") and fits(PRODUCT, name_of(node))]
    work = {node: multiply_adds(node) for node in products}
    all_of_it = sum(one for one in work.values() if one is not None)
    known = {}
    return {node for node in products if work[node] is not None and work[node] <= max(HEAD * all_of_it, SMALL_HEAD) and leaves(node, known)}


def mask_of(node, name):
    place, word = MASKS.get(name, (None, ""))
    found = node.args[place] if place is not None and place < len(node.args) else node.kwargs.get(word)
    return found if isinstance(found, torch.fx.Node) and is_float32(found) else None


def careful(module):
    """The graph with float32 for what wants it: another one, or the same where nothing does; None where a tensor of such is written in place."""
    try:
        return rewritten(module)
    except Exception as problem:  # a graph of other nodes than expected
        let_through(problem)
        return None


def rewritten(module):
    graph = torch.fx.Graph()
    copies, rounded, changed, known, ends = {}, set(), False, {}, heads(module.graph)
    for node in module.graph.nodes:
        if node.op == "get_attr" and isinstance(getattr(module, node.target, None), torch.fx.GraphModule):
            return None  # a graph inside, which is not looked at
        from_bf16 = [one for one in node.all_input_nodes if one in rounded]
        name = name_of(node) if node.op in ("call_function", "call_method") else ""
        widen = set()
        exact = name != "" and fits(PRODUCT, name) and (node in ends or wants_exact(node, False, known))
        masks = set()
        if exact:
            changed = True
        elif name and fits(PRODUCT, name):
            rounded.add(node)
            masks = {one for one in [mask_of(node, name)] if one is not None}
        elif name and from_bf16 and takes_bf16(node):
            if name not in ("float", "double", "as_stock"):
                rounded.add(node)
        elif name and from_bf16:
            if (name.endswith("_") or fits(IN_PLACE, name)) and node.args and node.args[0] in rounded:
                return None
            widen = {one for one in from_bf16 if is_float32(one)}
        made = {one: graph.call_function(widened if one in widen else bounded, (copies[one],)) for one in [*widen, *masks]}
        changed = changed or bool(made)
        copies[node] = graph.node_copy(node, lambda one, made=made: made.get(one, copies[one]))
        if exact:
            copies[node].op, copies[node].target = "call_function", exactly(node.target)
    return torch.fx.GraphModule(module, graph) if changed else module
