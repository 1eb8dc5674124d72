"""What goes wrong around device xpu: one clear error each, and CPU work unharmed."""

import os
import subprocess
import sys

import pytest
import torch

CPU_WORKS = "; x = torch.ones(3); assert (x + x).sum() == 6; print('cpu fine')"


def test_a_device_that_is_not_there():
    with pytest.raises(RuntimeError, match="xpu:7 is not there: this process has"):
        torch.ones(2, device="xpu:7")
    with pytest.raises(RuntimeError):
        torch.xpu.set_device(9)
    assert torch.ones(2, device="xpu").sum().item() == 2


def test_fork_is_refused_and_does_not_hang():
    torch.ones(2, device="xpu")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.ones(2, device="xpu")
        except RuntimeError as problem:
            code = 0 if "forked subprocess" in str(problem) else 2
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_forked_loader_workers_stay_on_the_cpu():
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert sorted(value.item() for (batch,) in loader for value in batch.xpu()) == list(range(8))


def test_no_driver(child, tmp_path):
    done = child("import torch, ipexrun; assert not torch.xpu.is_available()" + CPU_WORKS, OCL_ICD_VENDORS=str(tmp_path))
    assert done.stdout == "cpu fine\n", done.stderr
    text = "import torch, ipexrun.xpu as x; print(x.install())" + CPU_WORKS
    done = child(text, OCL_ICD_VENDORS=str(tmp_path))
    assert done.stdout.startswith("no OpenCL driver is installed") and done.stdout.endswith("cpu fine\n"), done.stderr


def test_only_gpus_unless_asked(child):
    done = child("import torch, ipexrun.xpu as x; print(x.install())" + CPU_WORKS, IPEXRUN_XPU="gpu")
    assert done.stdout.endswith("cpu fine\n"), done.stderr
    assert child("import torch, ipexrun.xpu as x; print(x.install())", IPEXRUN_XPU="off").stdout == "switched off\n"
    assert child("import torch, ipexrun.xpu as x; print(x.install())", IPEXRUN_DISABLE="1").stdout == "switched off\n"


AS_BUILT_FOR_CUDA = "import torch; torch.cuda._is_compiled = lambda: True; torch.cuda.is_available = lambda: False; torch._C._cuda_getCurrentRawStream = None; import ipexrun, ipexrun.xpu as x; "


def test_a_torch_built_for_cuda_still_makes_tensors_without_memory(child):
    text = AS_BUILT_FOR_CUDA + """
print(repr(x.install()), torch.xpu._is_compiled())
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode(): print(torch.ones(2).shape)
print(torch.ones(2).xpu().sum().item())"""
    done = child(text)
    assert done.stdout == "'' True\ntorch.Size([2])\n2.0\n", done.stdout + done.stderr


def test_where_torch_has_cuda_devices_xpu_waits_to_be_asked_for(child):
    text = AS_BUILT_FOR_CUDA + "x.glob.glob = lambda pattern: ['/dev/nvidia0']; print(x.attach(), torch.xpu._is_compiled())"
    done = child(text, IPEXRUN_XPU="")
    assert done.stdout.startswith("this torch computes on CUDA devices") and done.stdout.endswith(" False\n"), done.stdout + done.stderr


def test_a_torch_that_has_no_library_of_ours_stays_as_it_is(child):
    text = "import os, torch, ipexrun.xpu as x; x.plugin.library = lambda name: (None, 0, 'no library'); del os.environ['IPEXRUN_XPU']; print(x.attach(), torch.xpu._is_compiled())"
    assert child(text, IPEXRUN_XPU="off").stdout == "no library False\n"


def test_a_program_that_uses_no_xpu_opens_no_opencl(child):
    text = "import ipexrun, torch; torch.manual_seed(0); torch.ones(3).sum(); print('OpenCL' in open('/proc/self/maps').read())"
    assert child(text).stdout == "False\n"


def test_import_in_either_order(child):
    for text in ("import torch; import ipexrun", "import ipexrun; import torch"):
        done = child(text + "; print(torch.ones(2, device='xpu').sum().item())")
        assert done.stdout == "2.0\n", done.stderr


def test_a_wheel_with_xpu_is_left_alone(child):
    done = child("import torch; torch._C._has_xpu = True; from ipexrun import xpu; print(xpu.install(), hasattr(torch._C, '_xpu_init'))")
    assert done.stdout == "this torch has XPU built in False\n", done.stderr


def test_backward_on_the_cpu_before_the_first_device(child):
    done = child("import torch; torch.ones(2, requires_grad=True).sum().backward(); torch.accelerator.is_available(); import ipexrun; "
                 "x = torch.ones(2, device='xpu', requires_grad=True); (x * x).sum().backward(); print(x.grad.tolist())")
    assert done.stdout == "[2.0, 2.0]\n", done.stderr


def test_memory_that_the_host_cannot_read(child):
    done = child("import torch, ipexrun; x = torch.arange(12., device='xpu').reshape(3, 4); y = x.t()[1:, ::2].contiguous() * 2; "
                 "print(torch.xpu.get_device_properties().memory, y.tolist(), (x @ x.t()).sum().item())", IPEXRUN_XPU_MEMORY="buffers")
    assert done.stdout == "buffers [[2.0, 18.0], [4.0, 20.0], [6.0, 22.0]] 1134.0\n", done.stderr


def test_two_processes_at_once():
    text = "import torch, ipexrun; x = torch.randn(300, 300, device='xpu'); print(torch.isfinite(x @ x).all().item())"
    env = {**os.environ, "PYTHONPATH": os.path.join(os.environ["IPEXRUN_BUILD_DIR"], "lib", "ipexrun", "python")}
    both = [subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    assert [one.communicate(timeout=300)[0] for one in both] == ["True\n", "True\n"]


TRAINING = """
import torch, ipexrun
def step(batch):
    x = torch.randn(batch, 256).xpu()
    model(x).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
    return [p.detach().cpu().isfinite().all().item() for p in model.parameters()]
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).xpu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step(64)
torch.xpu.set_per_process_memory_fraction(64 * 2**20 / torch.xpu.get_device_properties().total_memory)
for _ in range(2):
    try:
        step(20000); print("no error")
    except torch.OutOfMemoryError as problem:
        text = str(problem)
    print(torch.ones(3).sum().item(), all(step(64)), torch.xpu.memory_allocated() < 2**22)
print(text.splitlines()[0])
"""


def test_memory_that_runs_out_in_a_training(child):
    done = child(TRAINING)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["3.0 True True"] * 2, done.stdout + done.stderr
    assert "tried to allocate 19.5 MiB" in lines[2] and "this process may take 64.0 MiB" in lines[2], lines[2]


def test_a_spoiled_cache_of_programs(child, tmp_path):
    text = "import torch, ipexrun.xpu; print((torch.arange(4., device='xpu') * 3).tolist(), ipexrun.xpu.report()['programs_from_source'])"
    first = child(text, IPEXRUN_CACHE=str(tmp_path)).stdout
    kept = list(tmp_path.rglob("*.clbin"))
    assert kept and child(text, IPEXRUN_CACHE=str(tmp_path)).stdout == "[0.0, 3.0, 6.0, 9.0] 0\n"
    for one in kept:
        one.write_bytes(b"spoiled")
    assert child(text, IPEXRUN_CACHE=str(tmp_path)).stdout == first


def test_the_report_says_what_ran_where(child):
    text = "import torch, ipexrun; x = torch.ones(300, 300, device='xpu'); (x @ x).digamma().sum().item()"
    done = child(text, IPEXRUN_XPU_REPORT="1")
    lines = [line for line in done.stderr.splitlines() if line.startswith("ipexrun: ")]
    assert "ms in kernels" in lines[0] and "ms in fallbacks to the CPU" in lines[0], done.stderr
    assert any("aten::digamma" in line for line in lines) and any(" gemm" in line for line in lines)


def test_ipexrun_xpu_brings_the_device(child):
    ipexrun = os.path.join(os.environ["IPEXRUN_BUILD_DIR"], "bin", "ipexrun")
    if not os.path.exists(ipexrun):
        pytest.skip("the launcher is not built")
    text = "import torch; print(torch.xpu.is_available(), torch.accelerator.current_accelerator(), torch.ones(2).xpu().sum().item())"
    done = child(text, ipexrun, "xpu", "--opencl", "any", sys.executable, IPEXRUN_XPU="", PYTHONPATH="")
    assert done.stdout == "True xpu 2.0\n", done.stderr
    done = child("import torch; print(torch.xpu.is_available())", ipexrun, sys.executable, IPEXRUN_XPU="", PYTHONPATH="")
    assert done.stdout == "False\n", done.stderr


BROKEN = """
import torch, ipexrun, ipexrun.xpu as x
a = torch.ones(4).xpu()
for _ in range(2):
    print((a + a).tolist(), (a.reshape(2, 2) @ a.reshape(2, 2)).sum().item())
try:
    torch.nn.Linear(4, 2).xpu()(a).sum().backward()
except RuntimeError as problem:
    print(str(problem).splitlines()[0])
print(torch.ones(3).sum().item(), x.report()["programs_from_source"])
"""


def test_kernels_that_do_not_build(child, tmp_path):
    """Where the driver's compiler refuses everything: a line for each operator, once, and the CPU does the work; fills and copies, which have no other way, are an error."""
    if "Portable Computing Language" not in torch.xpu.get_device_properties().platform_name:
        pytest.skip("only PoCL takes options from its environment")
    done = child(BROKEN, IPEXRUN_CACHE="off", POCL_CACHE_DIR=str(tmp_path), POCL_EXTRA_BUILD_FLAGS="-include /missing.h")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[:2] == ["[2.0, 2.0, 2.0, 2.0] 8.0"] * 2, done.stdout + done.stderr
    assert lines[2].startswith("xpu: the kernels in fill.cl do not build for ") and lines[3:] == ["3.0 0"], done.stdout
    said = [line for line in done.stderr.splitlines() if line.startswith("ipexrun: xpu: ")]
    assert all(" runs on the CPU: xpu: the kernels in " in line and "do not build for" in line for line in said), done.stderr
    names = [line.split()[2] for line in said]
    assert "aten::add" in names and len(names) == len(set(names)), names
