"""Choices among values within a captured graph: rounded values may choose otherwise, and what follows is then another computation.

The same rule as preload/plugin/choices.h holds for programs that are not captured.
"""

import math

import torch

# The position in its results of the integers that say where something was found.
POSITIONS = {"topk": 1, "sort": 1, "argsort": 0, "argmax": 0, "argmin": 0, "max": 1, "min": 1, "kthvalue": 1, "median": 1, "nanmedian": 1, "mode": 1,
             "searchsorted": 0, "bucketize": 0}
COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "_convolution", "linear", "matmul", "lstm", "gru",
            "scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "mkldnn_rnn_layer", "_transformer_encoder_layer_fwd", "_native_multi_head_attention"}
TAKE_BY_MASK = {"nonzero", "nonzero_static", "index", "index_put", "masked_select", "_local_scalar_dense", "is_nonzero"}
OF_SHAPES = {"size", "dim", "numel", "len", "stride", "_shape_as_tensor"}
# Their results move by steps alone.
JUMPS = {"round", "floor", "ceil", "trunc", "fix", "floor_divide", "poisson", "sign", "sgn", "heaviside", "bernoulli"}
MEET = {"mul", "div", "where", "masked_fill"}
LIMITS = {"clamp", "clip", "hardtanh"}
# A step of one in a sample of n numbers, an eighth of their range in size, is a fiftieth of it where that range is FEW_STEPS / sqrt(n) wide.
FEW_STEPS = 400
# Arguments in which whole numbers say what is taken, or how often.
SAY_WHAT = {"index", "indices", "offsets", "repeats"}


def steer(graph):
    """Whether positions that were found among values of floating point, places where a comparison of such values holds, or whole numbers that results
    of products were made (a cast, the places of a pool) as indices, are used within; or whether values that move by steps alone (signs, whole
    numbers as floats, masks as numbers) go into another product."""
    masks, steps = set(), set()
    computed = behind_products(graph)
    for node in graph.nodes:
        name = plain_name(node)
        if is_stepped(node, name, computed, steps):
            if name in PRODUCTS:
                return True
            steps.add(node)
        found = [one for one in node.args if isinstance(one, torch.fx.Node) and is_floating(one)]
        if found and name in POSITIONS and any(is_used(one) for one in positions_of(node, POSITIONS[name])):
            return True
        if any(one in computed and is_whole(one) for one in indices_of(node)):
            return True
        taken = [one for one in torch.utils._pytree.tree_leaves(node.args) if isinstance(one, torch.fx.Node) and one in masks]
        if taken and name in TAKE_BY_MASK:
            return True
        if (found and name in COMPARISONS) or (taken and dtype_of(node) == torch.bool):
            masks.add(node)
    return False


def is_stepped(node, name, computed, steps):
    """Whether a result of products moves by steps, few of them, or (of a product) reads what does."""
    read = [one for one in node.all_input_nodes if one in steps]
    if name in PRODUCTS:
        return bool(read)
    behind = [one for one in node.all_input_nodes if one in computed]
    if not behind or is_of_shapes(name) or not is_floating(node):
        return False
    if name in JUMPS or (name == "div" and node.kwargs.get("rounding_mode") is not None):
        return samples_of(node) < (FEW_STEPS / range_of(node)) ** 2
    if name in MEET and any(one not in steps and is_floating(one) for one in behind):
        return False  # most often both sides meet where the steps turn: a relu or a signed root written out
    # Masks and whole numbers, which follow a comparison or a cast: what they do is not seen where the numbers of two forms are compared.
    return bool(read) or (any(not is_floating(one) and dtype_of(one) is not None for one in behind) and range_of(node) < FEW_STEPS / 16)


def samples_of(node):
    """Numbers in a sample of a result; 0 where that is not known."""
    sizes = list(node.meta["val"].shape)
    sizes = sizes[1:] if len(sizes) > 1 else sizes
    return math.prod(sizes) if all(isinstance(one, int) for one in sizes) else 0


def range_of(node):
    """How far apart the ends of a limit are that stands right before or after this node; 2 where none does: a sign, a code of few levels."""
    near = [*node.users, *node.all_input_nodes]
    near += [two for one in near if plain_name(one) in ("_to_copy", "convert_element_type", *JUMPS) for two in (*one.users, *one.all_input_nodes)]
    ranges = [abs(one.args[2] - one.args[1]) for one in near if plain_name(one) in LIMITS and len(one.args) > 2 and all(isinstance(end, (int, float)) for end in one.args[1:3])]
    return min(ranges, default=2)


def results_of_products(graph):
    """For each result of the graph, whether products are among what it is computed from."""
    computed = behind_products(graph)
    results = graph.output_node().args[0]
    return [one in computed for one in (results if isinstance(results, (list, tuple)) else [results])]


def behind_products(graph):
    computed = set()
    for node in graph.nodes:
        name = plain_name(node)
        if name in PRODUCTS or not (is_of_shapes(name) or computed.isdisjoint(node.all_input_nodes)):
            computed.add(node)
    return computed


def is_of_shapes(name):
    """What such an operator returns says what its tensor is, not what it holds."""
    return name.endswith("_like") or name.startswith(("new_", "sym_")) or name in OF_SHAPES


def indices_of(node):
    """A gradient goes where the forward pass took."""
    name = plain_name(node)
    if not name or name.endswith("_backward"):
        return []
    named = [value for declared, value in zip(node.target._schema.arguments, node.args) if declared.name in SAY_WHAT]
    named += [value for key, value in node.kwargs.items() if key in SAY_WHAT]
    return [one for one in torch.utils._pytree.tree_leaves(named) if isinstance(one, torch.fx.Node)]


def plain_name(node):
    packet = getattr(node.target, "overloadpacket", None)
    return packet.__name__ if node.op == "call_function" and packet is not None else ""


def dtype_of(node):
    return getattr(node.meta.get("val"), "dtype", None)


def is_floating(node):
    dtype = dtype_of(node)
    return dtype is not None and dtype.is_floating_point


def is_whole(node):
    dtype = dtype_of(node)
    return dtype is not None and not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def positions_of(node, place):
    if isinstance(node.meta.get("val"), torch.Tensor):
        return [node] if not is_floating(node) else []
    return [user for user in node.users if user.args[1:] == (place,)]


def is_used(node):
    return any(user.op != "output" for user in node.users)
