"""Graphs that give numbers beside tensors: a cache that counts what it has seen, say, once its length is no constant. Programs of the plugin give tensors; the
numbers, which are computed from sizes and numbers that come in, are computed by Python.

Thread rule: what is made here may be called by any thread.
"""

import operator

import torch

from .translation import ARITHMETIC, Unsupported

NUMBERS = ARITHMETIC | {operator.neg, operator.pow, torch.ops.aten.sym_size.int, getattr(torch, "sym_sum", operator.neg)}


class WithNumbers:
    """Called as what AOTAutograd compiled: one list of arguments, which is emptied."""

    _boxed_call = True

    def __init__(self, compiled, numbers, places):
        self.compiled, self.numbers, self.places = compiled, numbers, places

    def __call__(self, values):
        found = self.numbers(*values)
        results = list(self.compiled(values))
        for place, number in zip(self.places, found, strict=True):
            results.insert(place, number)
        return results


def is_number(result):
    return type(result) is int or (isinstance(result, torch.fx.Node) and isinstance(result.meta.get("val"), (int, torch.SymInt)))


def apart(module):
    """(the graph of the tensors, a function of all inputs that gives the numbers, where these stand among the results); the last empty, where there are none.
    Raises Unsupported for numbers that are computed from values of tensors."""
    (results,) = next(node for node in module.graph.nodes if node.op == "output").args
    places = [i for i, one in enumerate(results) if is_number(one)]
    if not places:
        return module, None, places
    return (graph_of(module, [one for one in results if not is_number(one)], wanted=None), graph_of(module, [results[i] for i in places], NUMBERS).forward, places)


def graph_of(module, results, wanted):
    """Of `module`'s operators those that `results` need; with `wanted`, no others than these."""
    graph, copies = torch.fx.Graph(), {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    needed, todo = set(), [one for one in results if isinstance(one, torch.fx.Node)]
    while todo:
        node = todo.pop()
        if node in needed or node.op == "placeholder":
            continue
        if wanted is not None and (node.op != "call_function" or node.target not in wanted):
            raise Unsupported("a result that is a number, by values of tensors")
        needed.add(node)
        todo += node.all_input_nodes
    for node in module.graph.nodes:
        if node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies.get(one, one) if isinstance(one, torch.fx.Node) else one for one in results])
    return torch.fx.GraphModule(module, graph)
