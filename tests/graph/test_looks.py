"""Programs of large weights, at which all workers look at the begin of a run: what changes between two calls is seen by the next one.

Risk covered: a hash of another tensor or of an earlier call, batch norms whose numbers change under a folded weight, weights that lie elsewhere from one
call to the next, several threads with runs of their own.
"""

import pytest
import torch
from test_programs import Captured, in_threads
from torch import nn


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def layers():
    torch.manual_seed(5)
    return nn.Sequential(*(nn.Sequential(nn.Linear(384, 384), nn.ReLU()) for _ in range(17))).eval()  # 10 MiB


def convolutions():
    torch.manual_seed(5)
    model = nn.Sequential(*(nn.Sequential(nn.Conv2d(192, 192, 3, padding=1, bias=False), nn.BatchNorm2d(192), nn.ReLU()) for _ in range(8))).eval()  # 11 MiB
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_var.uniform_(0.5, 2)
            module.running_mean.normal_(std=0.1)
    return model


CASES = pytest.mark.parametrize("make, shape", [(layers, (5, 384)), (convolutions, (1, 192, 6, 6))], ids=["layers", "convolutions"])


@CASES
def test_what_changes_is_seen_by_the_next_call(make, shape):
    model = make()
    captured = Captured(lambda x: model(x), torch.randn(shape))
    for _ in range(3):
        captured(torch.randn(shape))
    with torch.no_grad():
        for tensor in (*list(model.parameters())[::5], *[one for one in model.buffers() if one.is_floating_point()][::3]):
            tensor.data.mul_(1.25)  # moves no version that the program's own tensor has
            captured(torch.randn(shape))
        last = list(model.parameters())[-1]
        last.data[7] += 3
        captured(torch.randn(shape))
        list(model.parameters())[0].data = torch.randn_like(list(model.parameters())[0]) * 0.05  # elsewhere
        captured(torch.randn(shape))


@CASES
def test_threads_have_runs_of_their_own(make, shape):
    model = make()
    in_threads(Captured(lambda x: model(x), torch.randn(shape)), model, shape)
