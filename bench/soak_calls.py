"""What the soak calls: single operators of random shapes, and small models of random size that live for a while."""

import copy
import dataclasses
import importlib.util
import random
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

WIDTHS = (16, 64, 96, 256)  # few enough that most kinds of calls come again: the op tier tells 4096 apart
ODD = (1, 3, 7, 17, 33, 65, 100, 129, 200, 301)
ROWS = (1, 3, 8, 31, 64, 200)


@dataclasses.dataclass
class Call:
    name: str
    run: Callable  # of the tensors
    tensors: list
    sequence: bool = False  # rounding adds up from step to step, as in a module


class Draw:
    """Random sizes and tensors, all from one seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed & 0x7FFFFFFF)
        self.dtype = torch.bfloat16 if self.rng.random() < 0.1 else torch.float32

    def width(self):
        return self.rng.choice(WIDTHS if self.rng.random() < 0.99 else ODD)

    def rows(self):
        return self.rng.choice(ROWS)

    def tensor(self, *sizes, scale=1.0):
        """Mostly contiguous; now and then a view of something larger, transposed or misaligned."""
        kind = self.rng.random()
        if kind < 0.05 and len(sizes) >= 2:
            whole = torch.randn(*sizes[:-2], sizes[-1], sizes[-2], generator=self.generator).transpose(-1, -2)
        elif kind < 0.1:
            whole = torch.randn(*sizes[:-1], sizes[-1] + 3, generator=self.generator)[..., 1 : sizes[-1] + 1]
        else:
            whole = torch.randn(*sizes, generator=self.generator)
        return (whole * scale).to(self.dtype)

    def weight(self, *sizes):
        fan_in = 1
        for size in sizes[1:]:
            fan_in *= size
        return self.tensor(*sizes, scale=fan_in**-0.5)


def linear(d):
    k, n = d.width(), d.width()
    return Call("linear", F.linear, [d.tensor(d.rows(), k), d.weight(n, k), d.tensor(n)])


def linear_3d(d):
    k, n = d.width(), d.width()
    return Call("linear 3d", F.linear, [d.tensor(d.rng.randint(1, 8), d.rng.choice((1, 8, 30)), k), d.weight(n, k)])


def addmm(d):
    m, k, n = d.rows(), d.width(), d.width()
    alpha, beta = d.rng.choice((1, 0.5, 0)), d.rng.choice((1, 2, 0))
    return Call("addmm", lambda c, a, b: torch.addmm(c, a, b, alpha=alpha, beta=beta), [d.tensor(n), d.tensor(m, k), d.tensor(k, n)])


def mm_out(d):
    m, k, n = d.rows(), d.width(), d.width()
    return Call("mm out", lambda a, b: torch.mm(a, b, out=a.new_empty(m, n)), [d.tensor(m, k), d.tensor(k, n)])


def bmm(d):
    b, m, k, n = d.rng.choice((1, 4)), d.rng.randint(1, 64), d.width(), d.rng.choice((8, 64))
    return Call("bmm", torch.bmm, [d.tensor(b, m, k), d.tensor(b, k, n)])


def baddbmm(d):
    b, m, k, n = d.rng.choice((1, 4)), d.rng.randint(1, 64), d.width(), d.rng.choice((8, 64))
    return Call("baddbmm", lambda c, x, y: c.clone().baddbmm_(x, y), [d.tensor(b, m, n), d.tensor(b, m, k), d.tensor(b, k, n)])


def convolution(d):
    dims = d.rng.choice((1, 2, 2, 2, 3))
    side = {1: d.rng.randint(16, 200), 2: d.rng.randint(7, 32), 3: d.rng.randint(5, 9)}[dims]
    groups = d.rng.choice((1, 1, 1, 16))
    inside, outside = d.rng.choice((16, 64)), d.rng.choice((16, 64))
    kernel, stride, transposed = d.rng.choice((1, 3)), d.rng.choice((1, 1, 2)), d.rng.random() < 0.2
    function = getattr(F, f"conv_transpose{dims}d" if transposed else f"conv{dims}d")
    shape = (inside, outside // groups) if transposed else (outside, inside // groups)
    tensors = [d.tensor(d.rng.randint(1, 4), inside, *[side] * dims), d.weight(*shape, *[kernel] * dims), d.tensor(outside)]
    return Call(f"conv{dims}d{' transposed' if transposed else ''}",
                lambda x, w, b: function(x, w, b, stride=stride, padding=kernel // 2, groups=groups), tensors)


def activation(d):
    function = d.rng.choice((F.gelu, F.silu, torch.tanh, torch.sigmoid, F.relu, F.mish, F.hardswish, F.softplus,
                             lambda x: F.gelu(x, approximate="tanh"), lambda x: torch.tanh_(x.clone())))
    return Call("activation", function, [d.tensor(d.rows(), d.rng.randint(1, 16), d.width(), scale=2.0)])


def softmax(d):
    dim = d.rng.choice((-1, -1, 1, 0))
    function = d.rng.choice((torch.softmax, torch.log_softmax))
    return Call("softmax", lambda x: function(x, dim), [d.tensor(d.rng.choice((1, 8)), d.rows(), d.width(), scale=3.0)])


def norm(d):
    width, kind = d.width() // 16 * 16 or 16, d.rng.choice(("layer", "layer", "rms", "group", "batch", "instance"))
    if kind == "layer":
        return Call("layer norm", lambda x, w, b: F.layer_norm(x, (width,), w, b), [d.tensor(d.rows(), 7, width), d.tensor(width), d.tensor(width)])
    if kind == "rms":
        return Call("rms norm", lambda x, w: F.rms_norm(x, (width,), w), [d.tensor(d.rows(), 7, width), d.tensor(width)])
    x = d.tensor(d.rng.randint(2, 4), width, 9, 11)
    if kind == "group":
        return Call("group norm", lambda x, w, b: F.group_norm(x, 8, w, b), [x, d.tensor(width), d.tensor(width)])
    if kind == "batch":
        mean, variance = torch.randn(width, generator=d.generator), torch.rand(width, generator=d.generator) + 0.5
        return Call("batch norm", lambda x, w, b: F.batch_norm(x, mean.to(w.dtype), variance.to(w.dtype), w, b),
                    [x, d.tensor(width), d.tensor(width)])
    return Call("instance norm", F.instance_norm, [x])


def attention(d):
    heads, width, q, k = d.rng.randint(1, 4), d.rng.choice((16, 32, 64)), d.rng.choice((1, 17, 64)), d.rng.choice((2, 17, 64))
    # A row that sees one key only has weights that never change: the gradients of its query and key are rounding noise around zero.
    batch, causal = d.rng.randint(1, 4), d.rng.random() < 0.3 and q > 1
    return Call("attention", lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=causal),
                [d.tensor(batch, heads, q, width), d.tensor(batch, heads, k, width), d.tensor(batch, heads, k, width)], sequence=True)


def embedding(d):
    rows, width = d.rng.choice((50, 1000)), d.width()
    indices = torch.randint(0, rows, (d.rows(),), generator=d.generator)
    if d.rng.random() < 0.5:
        return Call("embedding", lambda w: F.embedding(indices, w), [d.tensor(rows, width)])
    mode = d.rng.choice(("sum", "mean"))
    offsets = torch.arange(0, indices.numel(), 3)
    return Call("embedding bag", lambda w: F.embedding_bag(indices, w, offsets, mode=mode), [d.tensor(rows, width)])


def shaping(d):
    x = d.tensor(d.rng.randint(1, 3), 16, d.rng.randint(8, 24), d.rng.randint(8, 24))
    kind = d.rng.choice(("max pool", "average pool", "adaptive pool", "interpolate", "cat", "sort", "topk"))
    function = {"max pool": lambda x: F.max_pool2d(x, 3, 2, 1), "average pool": lambda x: F.avg_pool2d(x, 2),
                "adaptive pool": lambda x: F.adaptive_avg_pool2d(x, (3, 5)),
                "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
                "cat": lambda x: torch.cat([x, x * 2], dim=1), "sort": lambda x: x.sort(dim=-1).values,
                "topk": lambda x: x.topk(3, dim=-1).values}[kind]
    return Call(kind, function, [x])


OPERATORS = (linear, linear, linear_3d, addmm, mm_out, bmm, baddbmm, convolution, convolution, activation, softmax, norm, norm, attention,
             embedding, shaping)


def draw_operator(seed):
    draw = Draw(seed)
    return draw.rng.choice(OPERATORS)(draw)


# ---- models that live for a while ------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, cell, inside, width, layers, both):
        super().__init__()
        self.cell = cell(inside, width, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(width * (2 if both else 1), 24)

    def forward(self, x):
        return self.head(self.cell(x)[0])


class Language(nn.Module):
    """A small causal LM whose head is its embedding."""

    def __init__(self, words, width, heads):
        super().__init__()
        self.words, self.heads = nn.Embedding(words, width), heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.head(F.layer_norm(x + self.down(F.gelu(self.up(x))), x.shape[-1:]))


def perceptron(d):
    widths = [d.width() for _ in range(d.rng.randint(3, 5))]
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), d.rng.choice((nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh))()]
    return nn.Sequential(*layers), lambda d: {"input": torch.randn(d.rows(), widths[0], generator=d.generator)}


def pictures(d):
    a, b = d.rng.choice((16, 32)), d.rng.choice((16, 64))
    model = nn.Sequential(nn.Conv2d(3, a, 3, padding=1), nn.BatchNorm2d(a), nn.ReLU(), nn.Conv2d(a, b, 3, stride=2, padding=1),
                          nn.GroupNorm(8, b), nn.SiLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * b, 32))
    return model, lambda d: {"input": torch.randn(d.rng.randint(1, 4), 3, *[d.rng.choice((16, 24, 32))] * 2, generator=d.generator)}


def recurrent(d):
    inside = d.rng.choice((16, 64))
    model = Recurrent(d.rng.choice((nn.LSTM, nn.LSTM, nn.GRU)), inside, d.rng.choice((32, 64)), d.rng.randint(1, 2), d.rng.random() < 0.5)
    return model, lambda d: {"x": torch.randn(d.rng.randint(1, 4), d.rng.choice((2, 7, 20)), inside, generator=d.generator)}


def encoder(d):
    width, heads = d.rng.choice(((64, 4), (96, 3)))
    layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, activation="gelu", batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return model, lambda d: {"src": torch.randn(d.rng.randint(1, 4), d.rng.choice((2, 11, 32)), width, generator=d.generator)}


def language(d):
    words, (width, heads) = d.rng.choice((100, 500)), d.rng.choice(((64, 4), (96, 3)))
    return (Language(words, width, heads),
            lambda d: {"tokens": torch.randint(0, words, (d.rng.randint(1, 4), d.rng.choice((2, 11, 32))), generator=d.generator)})


class Recommender(nn.Module):
    def __init__(self, width, tables):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(100, width, mode="sum") for _ in range(tables))
        self.bottom, self.top = nn.Linear(13, width), nn.Linear(width * (tables + 1), 48)

    def forward(self, dense, indices):
        parts = [torch.relu(self.bottom(dense))] + [bag(indices[:, 3 * i : 3 * i + 3]) for i, bag in enumerate(self.bags)]
        return self.top(torch.cat(parts, dim=1))


def recommender(d):
    width, tables = d.width(), d.rng.randint(1, 4)

    def inputs(d):
        rows = d.rows()
        return {"dense": torch.randn(rows, 13, generator=d.generator), "indices": torch.randint(0, 100, (rows, 3 * tables), generator=d.generator)}

    return Recommender(width, tables), inputs


OWN = {"perceptron": perceptron, "pictures": pictures, "recurrent": recurrent, "encoder": encoder, "language": language,
       "recommender": recommender}
FROM_ZOO = ("bert", "gpt2", "llama", "vit", "distilbert", "opt", "albert")


def zoo_family(name):
    from models.zoo import FAMILIES, Size

    size = Size(batch=3, width=64, heads=2, layers=2, length=16, image=64, samples=3200, vocabulary=200)
    model, inputs = FAMILIES[name].build(size)
    return model, lambda d: (lambda n: {key: value[:n] for key, value in inputs.items()})(d.rng.randint(1, 3))


def kinds():
    return list(OWN) + (list(FROM_ZOO) if importlib.util.find_spec("transformers") else [])


class Living:
    """A model with what its weights are like, so that they can be changed again and again without growing."""

    def __init__(self, seed):
        draw = Draw(seed)
        torch.manual_seed(seed & 0x7FFFFFFF)
        self.kind = draw.rng.choice(kinds())
        built_inside = draw.rng.random() < 0.1
        with torch.inference_mode(built_inside):
            self.model, self.inputs_of = OWN[self.kind](draw) if self.kind in OWN else zoo_family(self.kind)
        self.inference_only = built_inside
        self.model.eval()
        self.spreads = {name: max(float(p.detach().float().std()), 1e-3) for name, p in self.parameters()}

    def parameters(self):
        """Weights of products, by name; a tied one once."""
        return [(name, p) for name, p in self.model.named_parameters() if p.dim() >= 2]

    def fresh(self, name, p, generator):
        return torch.randn(p.shape, generator=generator) * self.spreads.get(name, 0.02)

    def inputs(self, seed):
        return self.inputs_of(Draw(seed))

    def double(self):
        return copy.deepcopy(self.model).double()
