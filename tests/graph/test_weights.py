"""What a graph computes from its weights alone is computed when one of them changes.

Risk covered: a result of weights that were changed since, of another module's weights, or that the program may write into; a product whose weight is such
a result and that is packed anew in every call.
"""

import threading

import torch
import torch.nn.functional as F
from test_programs import Captured, linear
from torch import nn


class Standardized(nn.Conv2d):
    """As in networks without batch norms (BiT, NFNet)."""

    def forward(self, x):
        weight = F.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None, training=True, momentum=0.0).reshape_as(self.weight)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


def image():
    return torch.randn(2, 8, 12, 12)


def test_standardized_weights_are_weights():
    torch.manual_seed(1)
    model = Standardized(8, 16, 3, padding=1).eval()
    captured = Captured(lambda x: F.relu(model(x)), image())
    assert "1 convolutions, 1 activations in them" in captured.fused() and "1 results of weights alone" in captured.fused()


def test_normed_weights_are_weights():
    layer = torch.nn.utils.parametrizations.weight_norm(linear())
    captured = Captured(lambda x: F.gelu(layer(x)), torch.randn(7, 48))
    assert captured.fused().startswith("1 linear layers, 1 activations in them") and "1 results of weights alone" in captured.fused()
    convolution = torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(8, 16, 3)).eval()
    assert "1 convolutions" in Captured(convolution, torch.randn(2, 8, 30)).fused()


def test_weights_that_are_changed_count_at_once():
    torch.manual_seed(1)
    model = Standardized(8, 16, 3, padding=1).eval()
    scale, x = nn.Parameter(torch.ones(16, 1, 1, 1)), image()
    captured = Captured(lambda x: F.conv2d(x, model.weight * scale.exp(), model.bias), x)
    for step in range(12):  # more often than weights may change that are packed
        with torch.no_grad():
            (scale if step % 2 else model.weight).mul_(1.3)
        for _ in range(3):
            captured(x)
    with torch.no_grad():
        model.weight[3] = 0.0
    captured(x)
    scale.data = torch.full((16, 1, 1, 1), 0.5)
    captured(x)


def test_modules_of_equal_sizes_have_results_of_their_own():
    torch.manual_seed(1)
    for _ in range(3):
        captured = Captured(Standardized(8, 16, 3).eval(), image())
        for _ in range(2):
            captured(image())


def test_a_result_belongs_to_the_program():
    layer = linear()
    captured = Captured(lambda x: (layer(x), layer.weight.exp(), (layer.weight.exp() * 2).t()), torch.randn(7, 48))
    assert "of weights alone" not in captured.fused()
    first = captured.graphs[-1].mine(True, captured.values)
    first[1].fill_(9), first[2].fill_(9)
    again = captured.graphs[-1].mine(True, captured.values)
    torch.testing.assert_close(again[1], layer.weight.exp())
    torch.testing.assert_close(again[2], (layer.weight.exp() * 2).t())


def test_weight_norm_leaves_its_weight_in_the_module():
    """torch.nn.utils.weight_norm: the weight is a result of each call, too, into which the program may write."""
    torch.manual_seed(1)
    layer = nn.Conv1d(8, 16, 3)
    g, v = nn.Parameter(torch.rand(16, 1, 1) + 0.5), nn.Parameter(torch.randn(16, 8, 3))

    def normalized(x):
        weight = torch._weight_norm(v, g, 0)
        return F.conv1d(F.relu(F.conv1d(x, weight, layer.bias)), weight.transpose(0, 1)), weight

    captured = Captured(normalized, torch.randn(2, 8, 40))
    assert "of weights alone" in captured.fused()
    expected = torch._weight_norm(v, g, 0)
    first = captured.graphs[-1].mine(True, captured.values)
    first[1].fill_(9)
    again = captured.graphs[-1].mine(True, captured.values)
    torch.testing.assert_close(again[1], expected)
    with torch.no_grad():
        g.mul_(2)
    captured(torch.randn(2, 8, 40))


def test_what_reads_inputs_or_only_moves_numbers_is_none():
    layer = linear()
    assert "of weights alone" not in Captured(layer, torch.randn(7, 48)).fused()
    assert "of weights alone" not in Captured(lambda x: F.linear(x, layer.weight * x[0, 0]), torch.randn(7, 48)).fused()
    grown = nn.Parameter(torch.randn(4, 1))  # a thousand times as large as what it is made of
    assert "of weights alone" not in Captured(lambda x: x + grown.exp().repeat(1, 4000), torch.randn(4, 4000)).fused()


def test_a_table_taken_by_indices_that_are_held():
    torch.manual_seed(1)
    table, places = nn.Parameter(torch.randn(9, 4)), torch.arange(49).reshape(7, 7) % 9
    layer = nn.Linear(7, 7).eval()
    layer.register_buffer("places", places)
    captured = Captured(lambda x: layer(x) + table[layer.places].permute(2, 0, 1).contiguous(), torch.randn(4, 7, 7))
    with torch.no_grad():
        table.add_(1.0)
    captured(torch.randn(4, 7, 7))


def test_threads_find_one_result():
    torch.manual_seed(1)
    model = Standardized(8, 16, 3).eval()
    captured = Captured(model, image())
    graph, wrong = captured.graphs[-1], []

    def work():
        for _ in range(20):
            trial = torch.classes.ipexrun.Trial()
            if not trial.check(list(captured.stock), list(graph.mine(True, captured.values)), True):
                wrong.append(trial.error())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong
