"""What a captured step in bf16 computes in float32 (python/ipexrun/training/step_rounding.py).

Risk covered: a loss, a mask or a probability that bf16 takes to NaN or infinity where stock is finite, in steps that are not compared; float32 for what does
without, which is what bf16 gains; a write into memory that was copied for it.
"""

import pytest
import torch
import torch.nn.functional as F
from ipexrun.training import step_forms, step_rounding
from torch import nn

LEAST = torch.finfo(torch.float32).min


class Net(nn.Module):
    def __init__(self, body):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.body = body

    def forward(self, x):
        return self.body(self, x)


def graph_of(body, x):
    found = []
    torch._dynamo.reset()
    net = Net(body)
    torch.compile(net, backend=lambda graph, inputs: (found.append((graph, inputs)), graph.forward)[1])(x)
    ((graph, inputs),) = found
    return graph, inputs


def rounded(graph, inputs):
    with torch.autocast("cpu", torch.bfloat16):
        return graph.forward(*inputs)[0]


def scores(net, x):
    q = net.second(net.first(x))
    return q @ q.transpose(-1, -2)


def entropy(net, x):
    p = torch.sigmoid(8 * net.second(net.first(x)).abs().clamp(min=0.9))
    return -(0.25 * torch.log(p) + 0.75 * torch.log(1 - p)).mean()


def clamped(net, x):
    p = torch.sigmoid(8 * net.second(net.first(x)).abs().clamp(min=0.9)).clamp(1e-6, 1 - 1e-6)
    return torch.log(1 - p).mean()


def masked_by_where(net, x):
    return torch.softmax(torch.where(torch.zeros(8, 8, dtype=torch.bool), scores(net, x), LEAST), -1) @ x


def masked_by_fill(net, x):
    w = scores(net, x)
    return torch.softmax(w.masked_fill(torch.ones(8, 8, dtype=torch.bool), torch.finfo(w.dtype).min), -1) @ x


def squashed(net, x):
    return torch.log(1 - torch.tanh(4 + net.second(net.first(x)).abs()) ** 2 + 1e-9).mean()


def returned(net, x):
    return torch.sigmoid(7 + net.second(net.first(x)).abs())


def divided(net, x):
    y = net.second(net.first(x))
    return 1e-3 / (1 - y / (y.abs().max() + 1e-3))


def masked_product(net, x):
    y = net.first(x).unsqueeze(0)
    mask = torch.zeros(1, 8, 8)
    mask[:, 2] = LEAST
    return torch.softmax(torch.baddbmm(mask, y, y.transpose(1, 2)), -1) @ y


def masked_attention(net, x):
    y = net.first(x).view(1, 1, 8, 32)
    mask = torch.zeros(1, 1, 8, 8)
    mask[..., 2, :] = LEAST
    return F.scaled_dot_product_attention(y, y, y, attn_mask=mask)


def both(net, x):
    p = torch.sigmoid(7 + net.first(x).abs()) * torch.sigmoid(7 + net.first(x).abs())
    return torch.log(1 - p).mean(1)


def elu_above_zero(net, x):
    return torch.log(F.elu(-8 - net.second(net.first(x)).abs()) + 1).mean(1)


def distances(net, x):
    y = net.first(x) + 8
    z = y + 0.05
    d = (y * y).sum(-1, keepdim=True) + (z * z).sum(-1) - 2 * net.second(y).sum() * 0 - 2 * y @ z.t()
    return torch.sqrt(d + 1e-2)


def arc(net, x):
    y = F.normalize(net.first(x), dim=-1)
    return torch.acos(0.999 * (y @ y.t())).diagonal()


def linalg(net, x):
    y = net.first(x)
    return torch.log(1 - torch.sigmoid(7 + 0.1 * torch.linalg.matmul(y, y.t()))).mean(1)


@pytest.mark.parametrize("body", [entropy, clamped, masked_by_where, masked_by_fill, squashed, returned, divided, masked_product, masked_attention, both,
                                  elu_above_zero, distances, arc, linalg])
def test_what_bf16_takes_to_infinity_or_to_one_is_computed_in_float32(body):
    graph, inputs = graph_of(body, torch.randn(8, 16, generator=torch.Generator().manual_seed(1)))
    stock = graph.forward(*inputs)[0]
    mine = rounded(step_rounding.careful(graph), inputs)
    assert mine.isfinite().all() and stock.isfinite().all()
    if body is returned:
        assert (mine < 1).all() and (rounded(graph, inputs) == 1).any(), "which it is in bf16"
    else:
        assert (mine - stock).norm() <= 5e-2 * stock.norm()


def test_plain_autocast_would_not_do():
    for body in (entropy, masked_by_where):
        graph, inputs = graph_of(body, torch.randn(8, 16, generator=torch.Generator().manual_seed(1)))
        assert not rounded(graph, inputs).isfinite().all(), body


HARMLESS = {
    "layers": lambda net, x: net.second(F.gelu(net.first(x))) + x,
    "a gate": lambda net, x: net.second(net.first(x) * torch.sigmoid(net.first(x))),
    "attention": lambda net, x: torch.softmax(scores(net, x) / 4.0, -1) @ net.second(net.first(x)),
    "a mask that bf16 has": lambda net, x: torch.softmax(scores(net, x).masked_fill(torch.eye(8, dtype=torch.bool), float("-inf")), -1) @ x,
    "gelu written out": lambda net, x: net.second((lambda y: 0.5 * y * (1.0 + torch.tanh(0.8 * (y + 0.045 * torch.pow(y, 3.0)))))(net.first(x))),
    "elu": lambda net, x: net.second(F.elu(net.first(x))),
    "gelu by erf": lambda net, x: net.second((lambda y: 0.5 * y * (1.0 + torch.erf(y / 1.41)))(net.first(x))),
    "a norm written out": lambda net, x: net.second((lambda y: y * torch.rsqrt(y.float().pow(2).mean(-1, keepdim=True) + 1e-6))(net.first(x))).relu(),
    "images": lambda net, x: F.relu(net.norm(net.conv(x.view(2, 4, 4, 4)))).mean((2, 3)),
    "an activation in place": lambda net, x: net.second(net.first(x).relu_()),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_without_stays_as_it_is(name, monkeypatch):
    monkeypatch.setattr(step_rounding, "SMALL_HEAD", 0)
    graph, _ = graph_of(HARMLESS[name], torch.randn(8, 16))
    assert step_rounding.careful(graph) is graph


def year(net, x):
    """It ends near 1985, where samples differ by less than a step of bf16."""
    return net.second(F.gelu(net.first(x)))[:, :1] + 1985


ENDS = {
    "exp": lambda y: (7 + y / 20).exp(), "softplus": lambda y: F.softplus(70 + y), "sigmoid": lambda y: torch.sigmoid(2 + y / 20),
    "tanh": lambda y: torch.tanh(3 + y / 10), "log": lambda y: (1985 + y).log(), "a loss": lambda y: F.mse_loss(1985 + y, 1985 + y.detach().round(), reduction="none"),
    "log_softmax": lambda y: F.log_softmax(torch.cat((y + 1985, torch.full_like(y, 1985)), 1), 1),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_head_behind_a_function_of_its_numbers_is_one(end, monkeypatch):
    graph, inputs = graph_of(lambda net, x: ENDS[end](net.second(F.gelu(net.first(x)))[:, :1] + 0.0), torch.randn(64, 16, generator=torch.Generator().manual_seed(1)))
    stock = graph.forward(*inputs)[0]
    distance = (rounded(step_rounding.careful(graph), inputs) - stock).norm() / (stock - stock.mean(0)).norm()
    assert distance < 0.05, distance


@pytest.mark.parametrize("most, is_one", [(2**20, True), (0, False)])
def test_a_head_that_is_a_small_part_of_the_work_is_not_rounded(most, is_one, monkeypatch):
    monkeypatch.setattr(step_rounding, "SMALL_HEAD", most)
    graph, inputs = graph_of(year, torch.randn(64, 16, generator=torch.Generator().manual_seed(1)))
    stock = graph.forward(*inputs)[0]
    distance = (rounded(step_rounding.careful(graph), inputs) - stock).norm() / (stock - stock.mean()).norm()
    assert (distance < 0.02) == is_one, distance


def test_a_large_head_is_rounded(monkeypatch):
    monkeypatch.setattr(step_rounding, "SMALL_HEAD", 0)
    graph, _ = graph_of(year, torch.randn(64, 16))
    assert step_rounding.heads(graph.graph) == set(), "half of the work"


def test_results_that_differ_by_little_more_than_rounding_keep_float32():
    years = 1985 + torch.rand(64, 1, generator=torch.Generator().manual_seed(0))
    assert step_forms.Graph.hides(years, years.bfloat16().float())
    logits = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
    assert not step_forms.Graph.hides(logits, logits.bfloat16().float())
    assert not step_forms.Graph.hides(torch.ones(64), torch.full((64,), 1.01)), "nothing differs: there is nothing to hide"


def test_there_is_none_where_it_would_be_written_in_place():
    def body(net, x):
        w = scores(net, x)
        w.masked_fill_(torch.eye(8, dtype=torch.bool), LEAST)
        return w @ x

    graph, _ = graph_of(body, torch.randn(8, 16))
    assert step_rounding.careful(graph) is None


def test_what_the_program_has_in_bf16_stays_so():
    graph, inputs = graph_of(lambda net, x: (net.first(x).bfloat16() - 1).exp(), torch.randn(8, 16))
    assert rounded(step_rounding.careful(graph), inputs).dtype is torch.bfloat16
