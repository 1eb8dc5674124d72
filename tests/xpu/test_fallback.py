"""Operators that run on the CPU instead. Risk covered: silently wrong results: in-place and out= arguments, generators, bits of views."""

import torch


def test_in_place_and_out():
    x = torch.arange(6.0).reshape(2, 3)
    there = x.xpu()
    assert there.cumsum_(1) is there and torch.equal(there.cpu(), x.cumsum(1))
    out = torch.empty(0, device="xpu")
    torch.logaddexp(x.xpu(), x.xpu(), out=out)
    torch.testing.assert_close(out.cpu(), torch.logaddexp(x, x))
    column = torch.zeros(2, 4).xpu()
    column[:, 1].copysign_(torch.tensor([1.0, -1.0]).xpu())
    values, indices = torch.empty(0).xpu(), torch.empty(0, dtype=torch.long).xpu()
    torch.sort(x.xpu(), descending=True, out=(values, indices))
    assert values.tolist() == [[2, 1, 0], [5, 4, 3]] and indices.shape == (2, 3)


def test_lists_of_tensors():
    xs = [torch.ones(3).xpu(), torch.full((2,), 4.0).xpu()]
    torch._foreach_erf_(xs)
    torch.testing.assert_close([x.cpu() for x in xs], [torch.ones(3).erf(), torch.full((2,), 4.0).erf()])


def test_explicit_generator_continues():
    generator = torch.Generator("xpu").manual_seed(1)
    x = torch.empty(4).xpu()
    first, second = x.exponential_(generator=generator).clone(), x.exponential_(generator=generator).clone()
    assert not torch.equal(first, second)
    assert torch.equal(x.exponential_(generator=torch.Generator("xpu").manual_seed(1)), first)


def test_conjugate_and_negative_bits():
    z = torch.randn(5, dtype=torch.complex64)
    assert torch.allclose(torch.fft.ifft(z.xpu()).cpu(), torch.fft.ifft(z))
    assert torch.allclose(torch.fft.hfft(z.xpu()).cpu(), torch.fft.hfft(z))
    assert torch.allclose(z.xpu().conj().imag.sinh().cpu(), z.conj().imag.sinh())


def test_half_where_the_cpu_has_none():
    x = torch.randn(3, 3, dtype=torch.float16)
    y = torch.cdist(x.xpu(), x.xpu())
    assert y.dtype == torch.float16
    torch.testing.assert_close(y.cpu().float(), torch.cdist(x.float(), x.float()), rtol=2e-2, atol=2e-2)


def test_as_strided_sees_the_whole_storage():
    x = torch.arange(12.0)
    assert torch.equal(x.xpu()[2:5].as_strided((2, 2), (5, 1), 1).cpu(), x[2:5].as_strided((2, 2), (5, 1), 1))
    assert torch.equal(torch.as_strided_copy(x.xpu()[2:5], (2, 2), (5, 1), 1).cpu(), torch.as_strided_copy(x[2:5], (2, 2), (5, 1), 1))


def test_sparse():
    x = torch.eye(4) * 3
    there = x.xpu().to_sparse()
    assert there.layout == torch.sparse_coo and there.is_xpu and torch.equal(there.to_dense().cpu(), x)
    assert torch.equal((there @ x.xpu()).cpu(), x @ x)
    assert torch.equal(there.indices().cpu(), x.to_sparse().indices()) and there._nnz() == 4
    assert torch.equal(x.to_sparse().to("xpu").to_dense().cpu(), x) and torch.equal(there.cpu().to_dense(), x)
    rows = x.xpu().to_sparse_csr()
    assert rows.layout == torch.sparse_csr and torch.equal((rows @ x.xpu()).cpu(), x @ x)


def cells(kind, device):
    torch.manual_seed(0)
    layer = kind(5, 6, num_layers=2, bidirectional=True).to(device)
    x = torch.randn(4, 3, 5).to(device).requires_grad_()
    out, _ = layer(x)
    out.sum().backward()
    return [out, x.grad, *(p.grad for p in layer.parameters())]


def test_recurrent_layers():
    for kind in (torch.nn.LSTM, torch.nn.GRU):
        for mine, right in zip(cells(kind, "xpu"), cells(kind, "cpu")):
            torch.testing.assert_close(mine.cpu(), right)


def test_attention_and_convolution():
    q = torch.randn(2, 4, 8, 16)
    for causal in (False, True):
        there = q.xpu().requires_grad_()
        here = q.clone().requires_grad_()
        mine = torch.nn.functional.scaled_dot_product_attention(there, there, there, is_causal=causal)
        right = torch.nn.functional.scaled_dot_product_attention(here, here, here, is_causal=causal)
        mine.sum().backward(), right.sum().backward()
        torch.testing.assert_close((mine.cpu(), there.grad.cpu()), (right, here.grad))
    for make in (lambda: torch.nn.Conv2d(4, 6, 3, groups=2), lambda: torch.nn.ConvTranspose2d(4, 6, 3, stride=2)):
        torch.manual_seed(0)
        layer = make()
        x = torch.randn(2, 4, 7, 7)
        right = layer(x)
        right.sum().backward()
        grads = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        layer.xpu()
        mine = layer(x.xpu())
        mine.sum().backward()
        torch.testing.assert_close(mine.cpu(), right)
        torch.testing.assert_close([p.grad.cpu() for p in layer.parameters()], grads)


def test_fallbacks_are_counted(device):
    device.forget_fallbacks()
    torch.ones(3).xpu().digamma()
    rows = {row["name"]: row for row in device.report()["fallbacks"]}
    assert rows["aten::digamma"]["calls"] == 1 and rows["aten::digamma"]["bytes"] > 0


def test_gradients_of_determinants_of_a_part():
    """The factors that the gradient takes are those of the transpose where the matrix is contiguous."""
    torch.manual_seed(0)
    base = torch.randn(5, 10).abs() + 9 * torch.eye(10)[::2]
    for function in (torch.linalg.det, lambda m: torch.linalg.slogdet(m)[1], torch.logdet):
        for part in (lambda m: m[:, ::2], lambda m: m[:, :5], lambda m: m[:, ::2].t(), lambda m: m[:, ::2].contiguous()):
            here, there = base.clone().requires_grad_(), base.xpu().requires_grad_()
            function(part(here)).backward(), function(part(there)).backward()
            torch.testing.assert_close(there.grad.cpu(), here.grad)


def test_gradients_of_the_largest_products_of_sparse_rows(child):
    done = child("""if True:
        import torch, ipexrun
        from ipexrun import xpu
        assert not xpu.install()
        torch.manual_seed(0)
        rows, columns = torch.randn(5, 5).relu(), torch.randn(5, 3)
        for reduce in ("amax", "amin", "mean", "sum"):
            found = []
            for where in ("cpu", "xpu"):
                a, b = rows.to_sparse_csr().to(where).requires_grad_(), columns.clone().to(where).requires_grad_()
                torch.sparse.mm(a, b, reduce).sum().backward()
                found.append([a.grad.to_dense().cpu(), b.grad.cpu()])
            torch.testing.assert_close(*found)
    """)
    assert done.returncode == 0, done.stderr
