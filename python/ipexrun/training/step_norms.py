"""Operations of captured steps that replace several of torch's, each recorded for autograd as one.

Batch norms, with the sum and relu behind them (preload/plugin/batch_norms.h): two passes over memory forward and two backward, where torch's operators
make six and seven. Dropout (preload/plugin/dropouts.h), the same numbers to the bit: its mask is bytes, and nothing is divided.

A call that does not fit (other layouts and dtypes, one number a channel, a momentum that is a tensor) is torch's, as the graph has it.

Thread rule: under the interpreter lock.
"""

import operator

import torch

FUNCTIONAL, DIRECT = torch.nn.functional.batch_norm, torch.batch_norm
SUMS = (operator.add, operator.iadd, torch.add)
RELUS = (torch.nn.functional.relu, torch.nn.functional.relu_, torch.relu, torch.relu_)
CONVOLUTIONS = (torch.conv2d, torch.nn.functional.conv2d)
IN_PLACE = (operator.iadd, torch.nn.functional.relu_, torch.relu_)

_training = None


def training():
    global _training
    if _training is None:
        _training = torch.classes.ipexrun.Training()
    return _training


def dropout(x, p):
    result = training().dropout(x, p)
    return torch.nn.functional.dropout(x, p, True) if result is None else result


def batch_norm(x, running_mean, running_var, weight, bias, of_batch, momentum, eps, residual, relu):
    if type(momentum) is float and not (residual is not None and type(residual) is not torch.Tensor):
        result = training().batch_norm(x, [residual, weight, bias, running_mean, running_var], bool(of_batch), momentum, eps, relu)
        if result is not None:
            return result
    result = FUNCTIONAL(x, running_mean, running_var, weight, bias, of_batch, momentum, eps)
    if residual is not None:
        result = result + residual
    return torch.nn.functional.relu(result) if relu else result


def pair(value):
    """[2 numbers] of a stride, padding or dilation; None of what is written as a word."""
    if type(value) is int:
        return [value, value]
    fits = isinstance(value, (list, tuple)) and len(value) in (1, 2) and all(type(one) is int for one in value)
    return list(value) * (3 - len(value)) if fits else None


def skips_pixels(weight, stride):
    """Every second pixel of images whose channels do not fill oneDNN's blocks: its gradient of such weights writes past its memory where images lie
    channels last (convolution_grad_call.h)."""
    return weight.shape[2:] == (1, 1) and weight.shape[1] % 16 != 0 and pair(stride) != [1, 1]


def convolution(x, weight, bias, stride, padding, dilation, groups):
    planar = skips_pixels(weight, stride)
    if planar:
        x = x.contiguous()
    if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.bfloat16:
        # oneDNN's bf16 gradient of weights whose windows are longer than the image leaves memory unwritten
        if planar or any(one == 1 and window > 1 for one, window in zip(x.shape[2:], weight.shape[2:])):
            with torch.autocast("cpu", enabled=False):
                return torch.conv2d(x.float(), weight, bias, stride, padding, dilation, groups).bfloat16()
        sizes = [pair(one) for one in (stride, padding, dilation)]
        result = training().convolution(x, weight, bias, sum(sizes, []), groups) if None not in sizes else None
        if result is not None:
            return result
    return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)


def convolved(node):
    """What convolution() takes of a convolution of images; None of what is none."""
    if node.op != "call_function" or node.target not in CONVOLUTIONS:
        return None
    names = ["input", "weight", "bias", "stride", "padding", "dilation", "groups"]
    found = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1, **dict(zip(names, node.args)), **node.kwargs}
    tensors = all(isinstance(found.get(one), torch.fx.Node) for one in ("input", "weight"))
    return [found[one] for one in names] if tensors and set(found) == set(names) else None


def replace(graph, node, function, arguments):
    with graph.inserting_before(node):
        made = graph.call_function(function, tuple(arguments))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def arguments_of(node):
    """(x, running mean, running variance, weight, bias, training, momentum, eps) of a batch norm, None where it is written otherwise."""
    if node.op != "call_function" or node.target not in (FUNCTIONAL, DIRECT):
        return None
    if node.target is FUNCTIONAL:
        names = ["input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"]
        found = {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5, **dict(zip(names, node.args)), **node.kwargs}
    else:
        names = ["input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps", "cudnn_enabled"]
        found = {**dict(zip(names, node.args)), **node.kwargs}
        names = ["input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"]
    if any(name not in found for name in names):
        return None
    return [found[name] for name in names]


def only_user(node):
    return next(iter(node.users)) if len(node.users) == 1 else None


def is_relu(node):
    if node.op == "call_function":
        return node.target in RELUS
    return node.op == "call_method" and node.target in ("relu", "relu_") and len(node.args) == 1


def added_to(node, norm):
    """What `node` adds to the norm; None where it is no sum, or one that is kept elsewhere."""
    method = node.op == "call_method" and node.target in ("add", "add_")
    if not method and not (node.op == "call_function" and node.target in SUMS):
        return None
    if len(node.args) != 2 or node.kwargs or not all(isinstance(one, torch.fx.Node) for one in node.args) or node.args[0] is node.args[1]:
        return None
    if (node.target in IN_PLACE or node.target == "add_") and node.args[0] is not norm:
        return None  # the other one is written
    return node.args[1] if node.args[0] is norm else node.args[0]


def is_same_size(one, other):
    """By what is written: comparing sizes that are not known would make guards of TorchDynamo's out of them."""
    values = [node.meta.get("example_value") for node in (one, other)]
    return all(isinstance(value, torch.Tensor) for value in values) and len({str(tuple(value.shape)) for value in values}) == 1


def dropped(node):
    """(input, p) of a dropout of training that writes nothing in place; None of what is none."""
    if node.op != "call_function" or node.target is not torch.nn.functional.dropout:
        return None
    found = {"p": 0.5, "training": True, "inplace": False, **dict(zip(["input", "p", "training", "inplace"], node.args)), **node.kwargs}
    fits = type(found["p"]) is float and found["training"] is True and found["inplace"] is False and isinstance(found.get("input"), torch.fx.Node)
    return (found["input"], found["p"]) if fits else None


def fused(module):
    """`module` (a graph of TorchDynamo's) with its batch norms and dropouts replaced; None where it has none."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    replaced = 0
    for norm in list(graph.nodes):
        single = [(function, found) for function, found in ((dropout, dropped(norm)), (convolution, convolved(norm))) if found is not None]
        if single:
            replace(graph, norm, *single[0])
            replaced += 1
            continue
        arguments = arguments_of(norm)
        if arguments is None:
            continue
        last, residual, relu = norm, None, False
        user = only_user(norm)
        # The norm moves to its sum: nothing may read or write what it reads and writes between the two.
        alone = all(one is None or only_user(one) is norm for one in arguments[:3] if one is None or isinstance(one, torch.fx.Node))
        if user is not None and alone:
            other = added_to(user, norm)
            if other is not None and is_same_size(other, norm):
                last, residual, user = user, other, only_user(user)
        if user is not None and is_relu(user):
            relu = True
            inner, last = last, user
        else:
            inner = last
        with graph.inserting_before(inner):
            made = graph.call_function(batch_norm, (*arguments, residual, relu))
        made.meta = dict(last.meta)
        last.replace_all_uses_with(made)
        for node in dict.fromkeys([last, inner, norm]):
            graph.erase_node(node)
        replaced += 1
    if not replaced:
        return None
    graph.lint()
    return torch.fx.GraphModule(module, graph)
