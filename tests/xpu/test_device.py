"""Device xpu as programs use it: torch.xpu, torch.accelerator, devices of tensors and modules, streams, mixed precision, files.

Risk covered: a function of torch.xpu that is missing or answers another thing than on an XPU wheel.
"""

import copy
import io

import pytest
import torch


def test_torch_xpu_has_a_device():
    assert torch.xpu.is_available() and torch.xpu.device_count() >= 1
    properties = torch.xpu.get_device_properties(0)
    assert properties.total_memory > 0 and properties.name == torch.xpu.get_device_name()
    assert "total_memory" in torch.xpu.get_device_capability()
    assert torch.xpu.current_device() == 0
    torch.xpu.set_device(0)
    torch.xpu.synchronize()
    with torch.xpu.device(0):
        assert torch.ones(1, device="xpu").device == torch.device("xpu", 0)


def test_torch_accelerator_is_xpu():
    assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "xpu"
    assert torch.accelerator.device_count() == torch.xpu.device_count()
    torch.accelerator.synchronize()


def test_tensors_go_there_and_back():
    x = torch.arange(24.0).reshape(2, 3, 4)
    for view in (x, x.transpose(0, 2), x[:, ::2], x[..., 1:3], x.expand(5, 2, 3, 4)):
        there = view.to("xpu")
        assert there.is_xpu and torch.equal(there.cpu(), view)
    assert torch.equal(x.to("xpu").transpose(0, 1)[1:, :, ::3].cpu(), x.transpose(0, 1)[1:, :, ::3])
    channels_last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert channels_last.xpu().is_contiguous(memory_format=torch.channels_last)
    assert torch.tensor([1.5], device="xpu").item() == 1.5 and torch.arange(3).xpu().tolist() == [0, 1, 2]
    with pytest.raises(TypeError):
        torch.ones(2, device="xpu").numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
                                   torch.uint8, torch.bool, torch.complex64, torch.complex128])
def test_casts_are_stocks(dtype):
    values = torch.tensor([0.0, 1.0, -2.0, 3.5, 100.25, -0.5]).abs() if dtype == torch.uint8 else torch.tensor([0.0, 1.0, -2.0, 3.5, 100.25, -0.5])
    assert torch.equal(values.xpu().to(dtype).cpu(), values.to(dtype))
    there = values.to(dtype).xpu()
    assert torch.equal(there.to(torch.float32).cpu(), values.to(dtype).to(torch.float32))
    assert torch.equal(there.to(torch.int64).cpu(), values.to(dtype).to(torch.int64))
    strided = values.to(dtype).repeat(2, 3).t()
    assert torch.equal(strided.xpu()[1::2].to(torch.float64).cpu(), strided[1::2].to(torch.float64))


def test_seeds_are_honoured():
    def drawn():
        return torch.randn(5, device="xpu"), torch.rand(3, device="xpu"), torch.randperm(7, device="xpu")

    torch.manual_seed(3)
    first = drawn()
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(first, drawn()))
    torch.xpu.manual_seed(3)
    second = drawn()
    assert torch.equal(first[0], second[0]) and not torch.equal(second[0], drawn()[0])
    state = torch.xpu.get_rng_state()
    third = drawn()
    torch.xpu.set_rng_state(state)
    assert torch.equal(third[0], drawn()[0])
    one, other = torch.Generator("xpu").manual_seed(11), torch.Generator("xpu").manual_seed(11)
    assert torch.equal(torch.randn(4, device="xpu", generator=one), torch.randn(4, device="xpu", generator=other))
    assert not torch.equal(torch.randn(4, device="xpu", generator=one), torch.randn(4, device="xpu", generator=torch.Generator("xpu").manual_seed(12)))


def test_drawing_on_xpu_leaves_the_cpu_alone():
    torch.manual_seed(5)
    expected = torch.randn(4)
    torch.manual_seed(5)
    torch.nn.functional.dropout(torch.ones(100, device="xpu"), training=True)
    torch.randn(9, device="xpu")
    assert torch.equal(torch.randn(4), expected)


def test_fork_rng_restores():
    state = torch.xpu.get_rng_state()
    with torch.random.fork_rng(devices=[0], device_type="xpu"):
        torch.randn(3, device="xpu")
    assert torch.equal(state, torch.xpu.get_rng_state())


def test_streams_and_events():
    x = torch.ones(1000, device="xpu")
    side = torch.xpu.Stream()
    start, end = torch.xpu.Event(enable_timing=True), torch.xpu.Event(enable_timing=True)
    start.record()
    with torch.xpu.stream(side):
        side.wait_stream(torch.xpu.default_stream() if hasattr(torch.xpu, "default_stream") else torch.accelerator.current_stream())
        assert torch.xpu.current_stream() == side
        y = x.clone().fill_(3)
        y.record_stream(side)
    torch.xpu.current_stream().wait_stream(side)
    end.record()
    end.synchronize()
    assert isinstance(end, torch.xpu.Event) and end.query() and start.elapsed_time(end) >= 0
    assert torch.equal(y.cpu(), torch.full((1000,), 3.0))
    assert torch.xpu.current_stream() != side


def test_mixed_precision_training():
    torch.manual_seed(0)
    for dtype in (torch.float16, torch.bfloat16):
        model = torch.nn.Linear(6, 2).to("xpu")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("xpu", init_scale=4.0)
        before = model.weight.detach().clone()
        with torch.autocast("xpu", dtype=dtype):
            out = model(torch.randn(4, 6, device="xpu"))
        assert out.dtype == dtype
        scaler.scale(out.float().pow(2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert not torch.equal(before, model.weight)
    with torch.xpu.amp.autocast(dtype=torch.bfloat16):
        assert model(torch.randn(4, 6, device="xpu")).dtype == torch.bfloat16


def test_files_and_copies():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).xpu()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for where in ("cpu", "xpu", None):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded["0.weight"].device.type == (where or "xpu")
        assert torch.equal(loaded["0.weight"].cpu(), model[0].weight.cpu())
    twin = copy.deepcopy(model)
    assert twin[0].weight.is_xpu and torch.equal(twin[0].weight, model[0].weight)


def test_pinned_memory():
    x = torch.randn(100)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and torch.equal(pinned, x) and torch.equal(pinned.to("xpu", non_blocking=True).cpu(), x)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=50, pin_memory=True)
    assert all(batch.is_pinned() for (batch,) in loader)


def test_default_device_and_modules():
    torch.set_default_device("xpu")
    try:
        assert torch.ones(2).is_xpu and torch.nn.Linear(2, 2).weight.is_xpu
    finally:
        torch.set_default_device(None)
    assert torch.nn.Linear(2, 2).to("xpu:0").weight.device == torch.device("xpu:0")


def test_optimizer_and_compile_eager():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).xpu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.randn(32, 4, device="xpu"), torch.randn(32, 1, device="xpu")
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    compiled = torch.compile(lambda v: (v * 2).relu(), backend="eager")
    assert torch.equal(compiled(x).cpu(), (x.cpu() * 2).relu())


def test_copies_between_views_of_conjugates():
    z = torch.randn(4, 3, dtype=torch.complex64)
    there = z.xpu()
    assert torch.equal(there.conj().cpu(), z.conj()) and torch.equal(there.conj().resolve_conj().cpu(), z.conj().resolve_conj())
    assert torch.equal(there.imag.cpu(), z.imag) and torch.equal(there.conj().imag.cpu(), z.conj().imag)
    target, stock = torch.zeros_like(there), torch.zeros_like(z)
    target.conj().copy_(there)
    stock.conj().copy_(z)
    assert torch.equal(target.cpu(), stock)
