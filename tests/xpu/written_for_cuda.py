"""A program written for cuda: it says xpu only where it looks at what became of it (test_redirect.py)."""

import io
import warnings

import torch

warnings.simplefilter("ignore", FutureWarning)
cuda = torch.cuda


def devices():
    assert cuda.is_available() and cuda.device_count() >= 1
    for device in (torch.device("cuda"), torch.device("cuda:0"), torch.device("cuda", 0), torch.device(type="cuda", index=0)):
        assert device.type == "xpu"
    assert torch.device("cpu").type == "cpu" and torch.device("meta").type == "meta"
    made = [torch.ones(3, device="cuda"), torch.ones(3).cuda(), torch.ones(3).to("cuda:0", non_blocking=True), torch.ones(3).cuda(0),
            torch.zeros(3).new_ones(3, device=torch.device("cuda")), torch.arange(3).to(device="cuda", dtype=torch.float32)]
    assert all(tensor.is_cuda and tensor.is_xpu for tensor in made) and not torch.ones(2).is_cuda
    assert made[0].device == torch.device("cuda", cuda.current_device())
    with cuda.device(0):
        assert torch.zeros(2).cuda().is_cuda
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
    for name, words in (("cuda:9", "xpu:9 is not there"), ("coda", "Expected one of cpu, cuda")):
        try:
            torch.ones(2, device=name)
            raise AssertionError(f"{name} was taken")
        except RuntimeError as problem:
            assert words in str(problem), problem


def functions():
    cuda.set_device("cuda:0")
    cuda.manual_seed_all(3)
    cuda.manual_seed(3)
    one = torch.rand(3, device="cuda")
    cuda.manual_seed(3)
    assert (torch.rand(3, device="cuda") == one).all()
    state = cuda.get_rng_state()
    two = torch.rand(3, device="cuda")
    cuda.set_rng_state(state)
    assert (torch.rand(3, device="cuda") == two).all()
    generator = torch.Generator(device="cuda").manual_seed(1)
    torch.randn(2, generator=generator, device="cuda")
    with torch.random.fork_rng(devices=[0], device_type="cuda"):
        cuda.manual_seed(4)
    stream, first, last = cuda.Stream(), cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    stream.wait_stream(cuda.current_stream())
    with cuda.stream(stream):
        first.record()
        doubled = one * 2
        last.record()
    cuda.current_stream().wait_stream(stream)
    cuda.synchronize()
    assert first.elapsed_time(last) >= 0 and torch.equal(doubled.cpu(), one.cpu() * 2)
    assert cuda.default_stream() == cuda.current_stream() != stream
    assert cuda.memory_allocated() > 0 and cuda.max_memory_allocated("cuda:0") > 0 and cuda.memory_reserved(0) > 0
    properties = cuda.get_device_properties(0)
    assert properties.total_memory > 0 and properties.multi_processor_count > 0 and properties.name == cuda.get_device_name()
    assert (properties.major, properties.minor) == cuda.get_device_capability()
    cuda.reset_peak_memory_stats()
    cuda.empty_cache()
    cuda.ipc_collect()
    cuda.nvtx.range_push("a step")
    cuda.nvtx.range_pop()
    assert "PyTorch CUDA memory summary" in cuda.memory_summary() and cuda.mem_get_info()[1] > 0 and cuda.is_bf16_supported()


class Doubled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x):
        assert x.dtype is torch.float32
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        return grad * 2


def training(device):
    """The losses of a short training with mixed precision."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    model = model.cuda() if device == "cuda" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    scaler = cuda.amp.GradScaler() if device == "cuda" else torch.amp.GradScaler("cpu")
    losses = []
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 8)), batch_size=16, pin_memory=device == "cuda")
    for (batch,) in loader:
        batch = batch.to(device, non_blocking=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            out = model(batch)
            assert out.dtype is torch.bfloat16
            loss = torch.nn.functional.cross_entropy(out, (batch.sum(1) > 0).long())
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return model, losses


def rest(model):
    x = torch.ones(4, 8, device="cuda")
    for autocast in (cuda.amp.autocast(), torch.autocast(device_type="cuda"), torch.amp.autocast("cuda", dtype=torch.float16)):
        with autocast:
            assert model(x).dtype is torch.float16
            assert torch.is_autocast_enabled("cuda") and torch.get_autocast_gpu_dtype() is torch.float16
            assert Doubled.apply(x.half()).dtype is torch.float32
    assert torch.amp.GradScaler("cuda").is_enabled() and torch.amp.GradScaler().is_enabled()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for where, there in (("cuda", True), (torch.device("cuda:0"), True), ("cpu", False), (lambda storage, place: storage.cuda(), True)):
        file.seek(0)
        assert all(value.is_cuda == there for value in torch.load(file, map_location=where).values())
    torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).sum().backward()
    torch.nn.DataParallel(model)(x)
    compiled = torch.compile(lambda t: (t.to("cuda") + torch.ones(3, device="cuda")).relu(), backend="eager")
    assert compiled(torch.ones(3)).is_cuda


devices()
functions()
model, there = training("cuda")
here = training("cpu")[1]
assert all(abs(one - other) < 0.02 for one, other in zip(there, here)), (there, here)
rest(model)
print("fine")
