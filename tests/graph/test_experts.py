"""Mixtures of experts as transformers writes them: torch._grouped_mm in plain calls, an operator of transformers' own under TorchDynamo.

Risk covered: a graph with that operator that is left alone, groups that are multiplied with another expert's weight, rows that torch's kernel refuses.
"""

import pytest
import torch
from ipexrun.graphs import graph_notes
from torch import nn


def groups(rows, weights, ends):
    out, start = torch.zeros(rows.size(0), weights.size(2), dtype=rows.dtype), 0
    for i, end in enumerate(ends.tolist()):
        out[start:end] = rows[start:end] @ weights[i]
        start = end
    return out


@pytest.fixture(scope="module", autouse=True)
def operator():
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):  # transformers 5 has it
        made = torch.library.custom_op("transformers::grouped_mm_fallback", groups, mutates_args=(), schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor")
        made.register_fake(lambda rows, weights, ends: rows.new_empty(rows.size(0), weights.size(2)))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    graph_notes.graphs.clear()


class Experts(nn.Module):
    def __init__(self, width=16, inner=32, experts=4, ends=torch.int32):
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(width, experts)
        self.up, self.down = (nn.Parameter(0.2 * torch.randn(experts, *sizes)) for sizes in ((inner, width), (width, inner)))
        self.ends = ends

    def multiplied(self, rows, weights, ends):
        return torch.ops.transformers.grouped_mm_fallback(rows, weights.transpose(1, 2), ends) if torch.compiler.is_compiling() else groups(rows, weights.transpose(1, 2), ends)

    def forward(self, x):
        scores, chosen = self.router(x).softmax(-1).topk(2)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.zeros(self.up.size(0), dtype=torch.int64).scatter_add_(0, chosen.flatten(), torch.ones(chosen.numel(), dtype=torch.int64))
        ends = counts.cumsum(0).to(self.ends)
        rows = self.multiplied(torch.nn.functional.silu(self.multiplied(x[order // 2], self.up, ends)), self.down, ends)
        back = torch.empty_like(rows).index_copy(0, order, rows)
        return (back.view(*chosen.shape, -1) * scores.unsqueeze(-1)).sum(1)


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_groups_of_rows_by_experts(dtype):
    model = Experts().eval()
    fast = torch.compile(model, backend="ipex", options={"dtype": dtype})
    with torch.no_grad():
        for seed in range(30):
            x = torch.randn(24, 16, generator=torch.Generator().manual_seed(seed))
            mine, stock = fast(x), model(x)
            assert (mine - stock).norm() <= 1e-6 * stock.norm()
    (note,) = graph_notes.graphs
    assert "left_alone" not in note and note["calls"] == 30, note


@pytest.mark.parametrize("case", [{"inner": 30}, {"width": 18}, {"ends": torch.int64}], ids=str)
def test_what_torchs_kernel_refuses(case):
    model = Experts(**case).eval()
    fast = torch.compile(model, backend="ipex", options={"dtype": "float32"})
    x = torch.randn(24, case.get("width", 16))
    with torch.no_grad():
        assert torch.allclose(fast(x), model(x), atol=1e-6)
    (note,) = graph_notes.graphs
    assert "grouped_mm_fallback is not torch's own" in note["left_alone"], note
