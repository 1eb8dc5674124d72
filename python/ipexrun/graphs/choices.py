"""Choices among values within a captured graph: rounded values may choose otherwise, and what follows is then another computation.

The same rule as preload/plugin/choices.h holds for programs that are not captured.
"""

import torch

# The position in its results of the integers that say where something was found.
POSITIONS = {"topk": 1, "sort": 1, "argsort": 0, "argmax": 0, "argmin": 0, "max": 1, "min": 1, "kthvalue": 1, "median": 1, "nanmedian": 1, "mode": 1,
             "searchsorted": 0, "bucketize": 0}
COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne"}
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "_convolution", "linear", "matmul", "lstm", "gru",
            "scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "mkldnn_rnn_layer", "_transformer_encoder_layer_fwd", "_native_multi_head_attention"}
TAKE_BY_MASK = {"nonzero", "nonzero_static", "index", "index_put", "masked_select", "_local_scalar_dense", "is_nonzero"}
OF_SHAPES = {"size", "dim", "numel", "len", "stride", "_shape_as_tensor"}
# Arguments in which whole numbers say what is taken, or how often.
SAY_WHAT = {"index", "indices", "offsets", "repeats"}


def steer(graph):
    """Whether positions that were found among values of floating point, places where a comparison of such values holds, or whole numbers that results
    of products were made (a cast, the places of a pool) as indices, are used within."""
    masks = set()
    computed = behind_products(graph)
    for node in graph.nodes:
        name = plain_name(node)
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
