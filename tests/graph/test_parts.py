"""Parts of a graph that Inductor may compile: which nodes they are, what their text says, and that the graph computes the same with them cut out (which
Captured checks of every graph of these tests, too).

Risk covered: a view that leaves a part and is made of the wrong memory, a value that somebody outside still reads, a text that means another operator,
number or dtype, products that leave our kernels.
"""

import json
import locale
import sys

import pytest
import torch
import torch.nn.functional as F
from test_programs import Captured, linear

sys.path.insert(0, __file__.rpartition("/tests/")[0] + "/python/ipexrun/graphs")
import inductor_child  # noqa: E402  (it imports nothing of the package)


def numbers(*sizes):
    torch.manual_seed(5)
    return torch.randn(*sizes)


def operators(text):
    return [node["op"].removeprefix("aten::") for node in json.loads(text)["nodes"] if "op" in node]


ALONE = {
    "arithmetic": lambda x, y: (x * 2 + y - 1.5) / (y.abs() + 1),
    "infinities": lambda x, y: (x.masked_fill(y > 0, -float("inf")).softmax(-1) + y, x.clamp(max=float("inf"))),
    "dtypes": lambda x, y: ((x > y).to(torch.int64).sum(-1), (x * 3).to(torch.float64) + y, (x + y).half().float()),
    "rows": lambda x, y: (x.sum(-1, keepdim=True) * y.mean(dim=(0, 1)), x.amax(1), (x - x.mean(-1, keepdim=True)).square().mean(-1)),
    "views": lambda x, y: (x.transpose(1, 2) * 2 + y.permute(0, 2, 1)).reshape(-1) + 1,
    "lists": lambda x, y: [torch.cat([a * 2, b + 1], dim=-1) for a, b in zip(x.chunk(3, -1), y.split([4, 4, 4], -1))],
    "stacked": lambda x, y: torch.stack([x[:, 0] + y[:, 1], x[:, 1] * 2], dim=1).exp(),
    "layouts": lambda x, y: (x.unsqueeze(1) * 2).contiguous(memory_format=torch.channels_last) + y.unsqueeze(1),
    "where": lambda x, y: torch.where(x > 0, x, y * 0.5) + 2,
    "norm": lambda x, y: F.layer_norm(x + y, (12,)) * 2,
    "rolled": lambda x, y: torch.roll(x, 1, 1) + y.flip(1) * 2,
    "vectors": lambda x, y: (x * 2) @ y[:1].transpose(1, 2)[:, :, :1] + 1,
}


@pytest.mark.parametrize("name", ALONE)
def test_the_text_of_a_part_means_what_the_part_computes(name):
    x, y = numbers(2, 5, 12), numbers(2, 5, 12).flip(0)
    captured = Captured(ALONE[name], x, y)
    (text,) = captured.texts
    part = json.loads(text)
    graph, _ = inductor_child.graph_of(part, torch)
    looks = {(tuple(one["sizes"]), tuple(one["strides"])) for one in part["inputs"]}
    given = [value for value in (x, y)]
    if len(part["inputs"]) > 2:  # a table that was folded is one more
        pytest.skip("a constant among its inputs: only the plugin has it")
    assert all((tuple(one.shape), one.stride()) in looks for one in given)
    mine = list(graph(*given))
    swapped = list(graph(*reversed(given)))  # a part's inputs stand in the order in which it reads them
    stock = {(one.shape, one.dtype): one for one in captured.stock}
    for results in (mine, swapped):
        same = [one for one in results if (one.shape, one.dtype) in stock and torch.allclose(one.double(), stock[one.shape, one.dtype].double(), equal_nan=True)]
        if len(same) == len(results):
            break
    else:
        # views are made behind the part: what it gives is their memory
        flat = [one.double().flatten().sort().values for one in captured.stock]
        assert any(all(any(one.numel() == two.numel() and torch.allclose(one.double().flatten().sort().values, two) for two in flat) for one in results) for results in (mine, swapped))


def test_numbers_have_a_point_whatever_the_program_writes(comma):
    locale.setlocale(locale.LC_NUMERIC, comma)
    try:
        (text,) = Captured(lambda x: (x * 1.5 + 1e-07).exp(), numbers(2, 5)).texts
    finally:
        locale.setlocale(locale.LC_NUMERIC, "C")
    found = [one["number"] for node in json.loads(text)["nodes"] for one in node["arguments"] if one is not None and "number" in one]
    assert 1.5 in found and 1e-07 in found


def test_products_stay_ours_and_what_lies_between_is_cut_out():
    layer, other = linear(48, 48), linear(48, 48)
    captured = Captured(lambda x: other((layer(x).exp() + 1).log() * x), numbers(6, 48))
    (text,) = captured.texts
    assert not {"addmm", "mm", "t"} & set(operators(text))
    assert {"exp", "log", "mul"} <= set(operators(text))
    assert operators(text)[-1] == "_to_copy"  # in the form with bf16, which is the last: the product would round it itself


def test_a_product_beside_a_part_does_not_end_it():
    layer = linear(48, 48)
    captured = Captured(lambda x, y: torch.maximum(x.exp() + 1, layer(y).sigmoid()) + x.sin(), numbers(6, 48), numbers(6, 48))
    assert len(captured.texts) == 1


def test_views_that_leave_a_part_are_made_behind_it():
    def function(x):
        y = x.exp() + 1
        z = y.transpose(0, 1)
        return z[1:], y * 2, z.sum(0), torch.stack(list((y * 3).unbind(1))[1:])

    captured = Captured(function, numbers(6, 8))
    (text,) = captured.texts
    made = json.loads(text)
    by_view = {value for node in made["nodes"] for value in node["values"] if "item" in node or node["op"].endswith(("transpose", "slice", "permute", "unbind"))}
    assert not by_view & set(made["values"])


def test_results_that_are_views_of_inputs_stay_so():
    captured = Captured(lambda x: (x.view(-1), (x.exp() + 1).view(-1) * 2), numbers(6, 8))
    assert captured.in_parts[False][0].data_ptr() == captured.stock[0].data_ptr()


def test_sizes_that_change_are_numbers_of_the_call_and_others_are_still_right():
    captured = Captured(lambda x: (x.exp().view(x.shape[0] * 2, -1) + 1) * x.shape[0], numbers(6, 8), dynamic=True)
    graph = captured.graphs[-1]
    tensors, sizes = graph.tensors_of(captured.values), graph.numbers_of(captured.values)
    texts, _, whole_ns = graph.graph.find_parts(False, tensors, sizes, True)
    assert len(texts) == 1 and whole_ns > 0
    captured(numbers(10, 8))
    captured(numbers(2, 8))


def test_one_operator_is_no_part():
    assert Captured(lambda x: x.exp().view(-1), numbers(6, 8)).texts == []


def test_random_and_complex_operators_are_none_of_a_part():
    def function(x):
        spectrum = torch.fft.rfft(x * 2 + 1)
        return torch.fft.irfft(spectrum * 2, n=8) + 1

    for text in Captured(function, numbers(6, 8)).texts:
        assert not any("fft" in op or "complex" in op for op in operators(text))


def test_quotients_of_whole_numbers_stay_torchs_where_they_may_divide_by_zero():
    """torch's raise; those that Inductor compiles end the program."""
    y = torch.arange(1, 49).view(6, 8)

    def function(x, y):
        whole = (y // 3 + y.remainder(5)) * 2
        return torch.div(whole, y, rounding_mode="trunc"), whole // y + 1, whole % y, torch.fmod(whole, y) * 2, (x.exp() + 1) / (y * 2)

    found = [op for text in Captured(function, numbers(6, 8), y).texts for op in operators(text)]
    assert {"exp", "div", "mul"} <= set(found) and found.count("div") == 1 and not {"fmod"} & set(found)
    assert (found.count("floor_divide"), found.count("remainder")) == (1, 1)


def test_places_that_are_given_by_values_stay_torchs():
    """torch's raise where one lies outside; what Inductor compiles ends the program, if a thread of several finds it."""

    def function(x, places):
        table = x.sin() * 2 + 1
        found = table.gather(0, places), table.index_select(0, places[0]), F.embedding(places, table), table.take(places), table[places[0]]
        return [one.cos() + 1 for one in found]

    found = [op for text in Captured(function, numbers(6, 8), torch.arange(8).repeat(2, 1) % 6).texts for op in operators(text)]
    assert {"sin", "cos", "add"} <= set(found) and not {"gather", "index_select", "embedding", "take", "index"} & set(found)


def test_many_parts_of_one_text_are_one():
    layers = [linear(48, 48) for _ in range(3)]

    def function(x):
        for layer in layers:
            x = (layer(x).exp() + 1).log()
        return layers[0](x)

    texts = Captured(function, numbers(6, 48)).texts
    assert len(texts) == 3 and len(set(texts)) == 1
