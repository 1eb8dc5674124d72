"""Kernels that take a CPU's vectors of 16. Risk covered: what is left over beside whole vectors, lines of images that lie partly outside."""

import pytest
import torch

F = torch.nn.functional
BOUND = {torch.float32: 2e-6, torch.bfloat16: 1e-2}


def apart(mine, right):
    return ((mine.cpu().double() - right.double()).norm() / right.double().norm()).item()


@pytest.mark.parametrize("dtype", BOUND)
def test_rows_of_any_length(device, dtype):
    device.forget_fallbacks()
    for n in (5, 16, 100):
        z, w, g = (torch.randn(shape, generator=torch.Generator().manual_seed(n)).to(dtype) for shape in ((7, n), (n,), (7, n)))

        def results(z, w, g):
            z, w = z.clone().requires_grad_(), w.clone().requires_grad_()
            rows = [z.softmax(-1), z.log_softmax(-1), F.layer_norm(z, (n,), w, w), z.sum(-1), z.sum(0), z.amax(-1)]
            (rows[2] * g).sum().backward()
            softened = z.detach().clone().requires_grad_()
            (softened.softmax(-1) * g).sum().backward()
            return [row.detach() for row in rows] + [z.grad, w.grad, softened.grad]

        for k, (mine, right) in enumerate(zip(results(z.xpu(), w.xpu(), g.xpu()), results(z.double(), w.double(), g.double()))):
            assert apart(mine, right) < BOUND[dtype], (n, k)
    assert device.report()["fallbacks"] == []


def test_not_a_number_stays(device):
    z = torch.randn(2, 40)
    z[0, 7] = z[1, 39] = float("nan")
    assert z.xpu().amax(-1).isnan().all() and z.xpu().softmax(-1).isnan().all()
    assert torch.equal(z.xpu().amin(0).isnan().cpu(), z.amin(0).isnan())


def test_rows_that_attend_to_nothing(device):
    z = torch.randn(3, 20)
    z[1] = float("-inf")
    mine = torch._safe_softmax(z.xpu(), -1).cpu()
    torch.testing.assert_close(mine, torch._safe_softmax(z, -1))
    assert torch.equal(mine[1], torch.zeros(20))


@pytest.mark.parametrize("stride, padding, dilation", [(1, 1, 1), (2, 3, 1), (1, (0, 4), (1, 3)), ((3, 2), 2, 2)])
def test_convolutions(stride, padding, dilation):
    x, w = torch.randn(2, 3, 9, 21), torch.randn(4, 3, 3, 5)
    right = F.conv2d(x.double(), w.double(), None, stride, padding, dilation)
    assert apart(F.conv2d(x.xpu(), w.xpu(), None, stride, padding, dilation), right) < 1e-6


@pytest.mark.parametrize("size", [(9, 9), (67, 65)])  # an item a plane, and two
def test_batch_norm(size):
    x, w, b = torch.randn(2, 3, *size), torch.rand(3), torch.randn(3)
    mean, variance = torch.randn(3), torch.rand(3) + 0.5
    for training in (False, True):
        right = F.batch_norm(x.double(), mean.double(), variance.double(), w.double(), b.double(), training)
        assert apart(F.batch_norm(x.xpu(), mean.xpu(), variance.xpu(), w.xpu(), b.xpu(), training), right) < 1e-6


def test_erf_and_gelu():
    x = torch.cat([torch.linspace(-6, 6, 997), torch.tensor([float("inf"), float("-inf"), 0.0])])
    torch.testing.assert_close(torch.erf(x.xpu()).cpu(), torch.erf(x.double()).float(), rtol=1e-6, atol=1e-7)
    assert apart(F.gelu(x[:997].xpu()), F.gelu(x[:997].double())) < 1e-6
    assert torch.erf(torch.full((3,), float("nan")).xpu()).isnan().all()
