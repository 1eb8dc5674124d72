"""Training on xpu beside training on the CPU, from the same seed. Risk covered: small errors of single operators that add up; operators that fall back."""

import copy

import torch

F = torch.nn.functional


def losses(model, x, y, device, steps=6):
    model = copy.deepcopy(model).to(device)
    x, y = x.to(device), y.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    out = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return torch.tensor(out), [p.detach().cpu() for p in model.parameters()]


class Reader(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(50, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, activation="gelu")
        self.out = torch.nn.Linear(16, 4)

    def forward(self, words):
        return self.out(self.layer(self.words(words)).mean(1))


def images():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                               torch.nn.Flatten(), torch.nn.Linear(64, 4))


def test_a_transformer_and_a_cnn_learn_as_on_the_cpu(device):
    torch.manual_seed(0)
    labels = torch.randint(4, (8,))
    for model, x in ((Reader(), torch.randint(50, (8, 6))), (images(), torch.randn(8, 1, 8, 8))):
        device.forget_fallbacks()
        mine, weights = losses(model, x, labels, "xpu")
        assert device.report()["fallbacks"] == []
        right, expected = losses(model, x, labels, "cpu")
        assert right[-1] < right[0]
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-5)
        # SGD, since AdamW moves by its sign a gradient that is nought but for rounding (that of the bias of keys).
        off = torch.cat([(a - b).flatten() for a, b in zip(weights, expected)]).norm()
        assert off < 1e-3 * torch.cat([b.flatten() for b in expected]).norm()
