"""Programs for duel.py: each function builds something and gives back what is called again and again. They are of kinds that have little to gain, that
are costly to capture, or that no capture can hold; what they compute is beside the point."""

import concurrent.futures
import http.server
import json
import random
import threading
import urllib.request

import torch
from torch import nn
from torch.nn import functional as F


def big_convolutions():
    """Three convolutions of large images: a call takes about two seconds of one core."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 32, 3, padding=1)).eval()
    images = torch.randn(1, 3, 768, 768)

    def step():
        with torch.no_grad():
            model(images)

    return step


def large_encoder():
    """Four layers of a transformer on long rows: about a second a call."""
    layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
    rows = torch.randn(2, 512, 768)

    def step():
        with torch.no_grad():
            model(rows)

    return step


def large_in_loop():
    """Calls of a third of a second that a module spreads over twenty of its own parts in a loop with a data-dependent end."""

    class Refining(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(16, 64, 3, padding=1), nn.GELU(), nn.Conv2d(64, 16, 3, padding=1))

        def forward(self, x):
            for _ in range(8):
                y = self.body(x)
                if float((y - x).abs().mean()) < 1e-9:
                    break
                x = y
            return x

    model, images = Refining().eval(), torch.randn(1, 16, 128, 128)

    def step():
        with torch.no_grad():
            model(images)

    return step


def cell_of_changing_lengths():
    """A recurrent cell in a Python loop as long as its input."""

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.GRUCell(32, 64), nn.Linear(64, 8)

        def forward(self, x):
            state = x.new_zeros(x.shape[0], 64)
            for t in range(x.shape[1]):
                state = self.cell(x[:, t], state)
            return self.head(state)

    model, draw = Reader().eval(), random.Random(0)

    def step():
        with torch.no_grad():
            model(torch.randn(4, draw.randint(5, 60), 32))

    return step


def branches():
    """120 blocks, each of which looks at a value before it goes on."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(32, 32)

        def forward(self, x):
            y = self.layer(x)
            return torch.tanh(y) if y.mean().item() > 0 else torch.sigmoid(y)

    model = nn.Sequential(*[Block() for _ in range(120)]).eval()

    def step():
        with torch.no_grad():
            model(torch.randn(8, 32))

    return step


def tree():
    """A recursive module over nested tuples of changing shapes."""

    class Tree(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf, self.both = nn.Linear(16, 32), nn.Linear(64, 32)

        def forward(self, node):
            if isinstance(node, tuple):
                return torch.tanh(self.both(torch.cat([self(node[0]), self(node[1])], -1)))
            return self.leaf(node)

    model, draw = Tree().eval(), random.Random(0)

    def grown(depth):
        if depth == 0 or draw.random() < 0.2:
            return torch.randn(1, 16)
        return grown(depth - 1), grown(depth - 1)

    def step():
        with torch.no_grad():
            model(grown(5))

    return step


def beam_with_cache():
    """A decoder with a cache of its own that grows by one row a call and is reordered."""

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.ModuleList(nn.Linear(64, 192) for _ in range(4))
            self.out = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
            self.head = nn.Linear(64, 100)

        def forward(self, x, cache):
            grown = []
            for qkv, out, (keys, values) in zip(self.qkv, self.out, cache):
                q, k, v = qkv(x).chunk(3, -1)
                keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
                grown.append((keys, values))
                x = x + out(F.scaled_dot_product_attention(q, keys, values))
            return self.head(x), grown

    model, state = Decoder().eval(), {"cache": None}

    def step():
        with torch.no_grad():
            if state["cache"] is None or state["cache"][0][0].shape[1] > 40:
                state["cache"] = [(torch.zeros(5, 1, 64), torch.zeros(5, 1, 64)) for _ in range(4)]
            scores, cache = model(torch.randn(5, 1, 64), state["cache"])
            order = scores[:, 0].max(-1).values.argsort()
            state["cache"] = [(keys[order], values[order]) for keys, values in cache]

    return step


def quantized():
    """Dynamically quantized linear layers, which are torchbind objects."""
    model = nn.Sequential(*[nn.Linear(256, 256), nn.ReLU()] * 3).eval()
    model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    rows = torch.randn(16, 256)

    def step():
        with torch.no_grad():
            model(rows)

    return step


def dropout_samples():
    """Dropout that draws in each call without gradients: nothing of it may be captured."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1)).train()
    rows = torch.randn(64, 64)

    def step():
        with torch.no_grad():
            model(rows)

    return step


def tiny_training():
    """The smallest step of training."""
    layer, rows = nn.Linear(10, 1), torch.randn(64, 10)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-6)

    def step():
        optimizer.zero_grad()
        layer(rows).square().mean().backward()
        optimizer.step()

    return step


def small_training():
    """A small network for tables with Adam."""
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer, rows, labels = torch.optim.Adam(model.parameters()), torch.randn(128, 20), torch.randint(2, (128,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(rows), labels).backward()
        optimizer.step()

    return step


def derivatives_by_inputs():
    """A physics-informed network: second derivatives by its inputs."""
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        x = torch.rand(256, 2, requires_grad=True)
        u = model(x)
        (g,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (gg,) = torch.autograd.grad(g[:, 0].sum(), x, create_graph=True)
        optimizer.zero_grad()
        (g[:, 1] - gg[:, 0]).square().mean().backward()
        optimizer.step()

    return step


def weights_replaced():
    """A hypernetwork's target: its weights are others in each call."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)).eval()
    rows = torch.randn(16, 32)

    def step():
        weights = {name: torch.randn_like(value) for name, value in model.named_parameters()}
        with torch.no_grad():
            torch.func.functional_call(model, weights, (rows,))

    return step


def agent():
    """An actor that is asked for one observation at a time and trained now and then."""
    actor = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer, seen = torch.optim.Adam(actor.parameters()), []

    def step():
        observation = torch.randn(8)
        with torch.no_grad():
            action = torch.distributions.Categorical(logits=actor(observation)).sample()
        seen.append((observation, action))
        if len(seen) == 64:
            observations, actions = map(torch.stack, zip(*seen))
            seen.clear()
            optimizer.zero_grad()
            (-torch.distributions.Categorical(logits=actor(observations)).log_prob(actions).mean()).backward()
            optimizer.step()

    return step


def small_images():
    """A small convolutional classifier, one image a call."""
    layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 10)]
    model = nn.Sequential(*layers).eval()

    def step():
        with torch.no_grad():
            model(torch.randn(1, 1, 28, 28))

    return step


def sentences_of_changing_length():
    """A small encoder, whose captured form is worth having."""
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
    model, draw = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval(), random.Random(0)

    def step():
        with torch.no_grad():
            model(torch.randn(2, draw.randint(8, 64), 128))

    return step


def detector():
    """A backbone that gains, and a choice of boxes in Python behind it."""

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.back = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU())
            self.scores, self.boxes = nn.Conv2d(32, 3, 1), nn.Conv2d(32, 12, 1)

        def forward(self, images):
            found = self.back(images)
            scores, boxes = self.scores(found).sigmoid().flatten(1), self.boxes(found).flatten(1)
            results = []
            for one, box in zip(scores, boxes):
                keep = (one > 0.5).nonzero()[:50, 0]
                results.append((one[keep], box[keep]))
            return results

    model, images = Detector().eval(), torch.randn(2, 3, 128, 128)

    def step():
        with torch.no_grad():
            model(images)

    return step


def encoder_in(dtype):
    """A model whose weights are 16 bits wide, as checkpoints are loaded, on any CPU."""
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model, rows = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval().to(dtype), torch.randn(2, 64, 256).to(dtype)

    def step():
        with torch.no_grad():
            model(rows)

    return step


def images_in(dtype):
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.GroupNorm(8, 64), nn.SiLU(), nn.ConvTranspose2d(64, 16, 2, 2)]
    model, images = nn.Sequential(*layers).eval().to(dtype), torch.randn(1, 3, 64, 64).to(dtype)

    def step():
        with torch.no_grad():
            model(images)

    return step


def encoder_in_bfloat16():
    return encoder_in(torch.bfloat16)


def encoder_in_float16():
    return encoder_in(torch.float16)


def images_in_bfloat16():
    return images_in(torch.bfloat16)


def images_in_float16():
    return images_in(torch.float16)


def training_in(dtype):
    """A small network of images under the program's own autocast."""
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images, labels = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))

    def step():
        with torch.autocast("cpu", dtype):
            loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def training_in_bfloat16():
    return training_in(torch.bfloat16)


def training_in_float16():
    return training_in(torch.float16)


def images_under_autocast():
    """A program tuned by hand: it enters autocast for each call."""
    layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    for _ in range(6):
        layers += [nn.Conv2d(32, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    model, images = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).eval(), torch.randn(2, 3, 128, 128)

    def step():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            model(images)

    return step


def many_models():
    """A search: each model is trained for a few steps."""
    rows = torch.randn(64, 32)
    wanted = rows[:, :1].sin()

    def step():
        model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(10):
            optimizer.zero_grad()
            (model(rows) - wanted).square().mean().backward()
            optimizer.step()

    return step


def batches_of_other_sizes():
    """A product for each edge of a graph, and each batch has other numbers of edges."""
    layer, numbers = nn.Linear(32, 32), random.Random(0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)

    def step():
        edges = numbers.randrange(600, 1100)
        optimizer.zero_grad()
        messages = torch.bmm(layer(torch.randn(edges, 32)).unsqueeze(1), torch.randn(edges, 32, 32))
        messages.square().mean().backward()
        optimizer.step()

    return step


def a_thread_for_each_request():
    """An encoder behind an HTTP server that answers each request in a thread of its own, as Python's and Flask's do."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    table, model = nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            with torch.no_grad():
                tokens = torch.tensor(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                body = json.dumps(model(table(tokens)).mean(1)[0].tolist()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def step():
        body = json.dumps(torch.randint(0, 1000, (4, 64)).tolist()).encode()
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}", data=body).read()

    return step


def four_threads():
    """A small network that four threads of a pool call at a time."""
    blocks = [nn.Sequential(nn.LayerNorm(192), nn.Linear(192, 192), nn.GELU()) for _ in range(6)]
    model, rows = nn.Sequential(*blocks).eval(), torch.randn(16, 192)
    pool = concurrent.futures.ThreadPoolExecutor(4)

    def work():
        torch.set_num_threads(1)
        with torch.no_grad():
            for _ in range(20):
                model(rows)

    def step():
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()

    return step


PARTS = (encoder_in, images_in, training_in)  # of programs
PROGRAMS = {name: value for name, value in list(globals().items()) if callable(value) and getattr(value, "__module__", "") == __name__ and value not in PARTS}
