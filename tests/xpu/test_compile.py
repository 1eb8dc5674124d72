"""torch.compile on xpu: backend "ipex", with and without freezing; Inductor's place is taken by it."""

import pytest
import torch
import torch.nn.functional as F


class SimpleNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, stride=2, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.second_norm = torch.nn.BatchNorm2d(8)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = x + F.relu(self.second_norm(self.second(x)))
        return self.head(x.mean((2, 3)))


@pytest.fixture
def model():
    torch.manual_seed(0)
    torch._dynamo.reset()
    net = SimpleNet()
    for norm in (net.norm, net.second_norm):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return net


def graph_of(compiled_function):
    """The names of the operators that a frozen graph runs."""
    return [str(node.target) for node in compiled_function.__self__.graph.nodes if node.op == "call_function"]


@pytest.fixture
def frozen(monkeypatch):
    """Every frozen graph that is made."""
    from ipexrun import xpu_graphs

    made = []

    class Noted(xpu_graphs.Frozen):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(xpu_graphs, "Frozen", Noted)
    return made


def beside_cpu(model, images):
    """(images of 32 x 32, what the model makes of them on the CPU), the model in eval mode."""
    x = torch.rand(images, 3, 32, 32)
    with torch.no_grad():
        return x, model.eval()(x)


def test_inference_as_ipex_documents_it(device, model, frozen, capfd):
    """The seeds' example, but for the import and the size of the images."""
    x, right = beside_cpu(model, 4)
    model = model.to("xpu")

    # compile model
    compiled_model = torch.compile(model, options={"freezing": True})

    # inference main
    input = x.to(torch.device("xpu"))
    with torch.no_grad():
        with torch.xpu.amp.autocast(dtype=torch.float16):
            output = compiled_model(input)
            assert output.dtype is torch.float16 and output.is_xpu
            assert torch.equal(output, compiled_model(input))
    torch.testing.assert_close(output.float().cpu(), right, rtol=2e-2, atol=2e-2)
    assert "Inductor needs Triton" in capfd.readouterr().err
    names = graph_of(frozen[0].run)
    # Casts of weights, batch norms and transposes are gone; the image's cast is not.
    assert sum("_to_copy" in name for name in names) == 1 and not any("batch_norm" in name or "aten.t" in name for name in names), names


def test_training_as_ipex_documents_it(device, model):
    """Likewise: ten steps, beside the same on the CPU."""
    x, target = torch.rand(8, 3, 32, 32), torch.randint(10, (8,))
    losses = []
    for where in ("cpu", "xpu"):
        torch.manual_seed(0)
        net = SimpleNet().to(where)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        compiled_model = torch.compile(net) if where == "xpu" else net
        input, labels, of_this = x.to(where), target.to(where), []
        for _ in range(6):
            with torch.autocast(where, dtype=torch.bfloat16):
                output = compiled_model(input)
                loss = F.cross_entropy(output.float(), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            of_this.append(loss.item())
        losses.append(of_this)
    assert losses[1][-1] < losses[1][0]
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("freezing", [False, True])
def test_float32(device, model, frozen, freezing):
    x, right = beside_cpu(model, 3)
    with torch.no_grad():
        there = model.to("xpu")
        compiled = torch.compile(there, backend="ipex", options={"freezing": freezing})
        torch.testing.assert_close(compiled(x.xpu()).cpu(), right, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(compiled(x[:2].xpu()).cpu(), right[:2], rtol=1e-4, atol=1e-4)  # other sizes
        # A weight that changes is seen, frozen or not.
        there.head.weight.mul_(2)
        there.norm.running_mean.add_(1)
        torch.testing.assert_close(compiled(x.xpu()), there(x.xpu()), rtol=1e-4, atol=1e-4)
    assert bool(frozen) == freezing


def test_random_numbers_and_writes_are_not_folded(device, frozen):
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, device="xpu"))
            self.register_buffer("calls", torch.zeros(1, device="xpu"))

        def forward(self, x):
            self.calls.add_(1)
            return x + torch.rand_like(self.weight) + self.weight.exp()

    torch._dynamo.reset()
    module = Noisy()
    compiled = torch.compile(module, backend="ipex", options={"freezing": True})
    with torch.no_grad():
        x = torch.zeros(4, device="xpu")
        one, two = compiled(x), compiled(x)
    assert not torch.equal(one, two) and module.calls.item() == 2
    assert (one >= torch.e - 1e-4).all() and (one < torch.e + 1).all()


def test_options(device):
    torch._dynamo.reset()
    x = torch.ones(2, device="xpu")
    with pytest.raises(Exception, match="torch.autocast instead of option dtype"):
        torch.compile(torch.exp, backend="ipex", options={"dtype": "bfloat16"})(x)
    torch._dynamo.reset()
    assert torch.compile(torch.exp, backend="ipex")(x).is_xpu
