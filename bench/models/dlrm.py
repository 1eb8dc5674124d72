"""A recommender in the shape of DLRM (Naumov and others, 2019): embedding bags, a bottom and a top tower, dot products of all pairs."""

import torch
from torch import nn


def tower(widths, last=nn.ReLU):
    layers = []
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        layers += [nn.Linear(a, b), nn.ReLU() if i + 2 < len(widths) else last()]
    return nn.Sequential(*layers)


class Dlrm(nn.Module):
    def __init__(self, dense=13, tables=8, rows=1000, width=64, bottom=(512, 256), top=(512, 256)):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = tower([dense, *bottom, width])
        self.top = tower([width + (tables + 1) * tables // 2, *top, 1], nn.Sigmoid)
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense, indices, offsets):
        """dense: [batch, dense]; indices: [tables, n]; offsets: [tables, batch]."""
        x = self.bottom(dense)
        rows = torch.stack([x] + [bag(i, o) for bag, i, o in zip(self.bags, indices, offsets)], dim=1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        crossed = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, crossed], dim=1)).squeeze(1)
