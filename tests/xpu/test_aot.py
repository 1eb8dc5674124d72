"""`ipexrun aot`: kernels built ahead of time are the ones that run, and Intel's compiler takes them."""

import os
import shutil
import subprocess

import pytest

IPEXRUN = os.path.join(os.environ["IPEXRUN_BUILD_DIR"], "bin", "ipexrun")
PROGRAM = ("import torch, ipexrun.xpu as x; print((torch.arange(4., device='xpu') * 3).tolist()); r = x.report(); "
           "print(r['programs_ahead_of_time'], r['programs_from_cache'], r['programs_from_source'])")
RESULT = "[0.0, 3.0, 6.0, 9.0]"
needs_ocloc = pytest.mark.skipif(shutil.which("ocloc") is None, reason="no ocloc")


def aot(*args, **environment):
    if not os.path.exists(IPEXRUN + "-aot"):
        pytest.skip("ipexrun-aot is not built")
    return subprocess.run([IPEXRUN, "aot", *args], capture_output=True, text=True, timeout=300, env={**os.environ, **environment})


def counted(child, cache, **environment):
    done = child(PROGRAM, IPEXRUN_CACHE=str(cache), **environment)
    result, counts = done.stdout.splitlines()
    assert result == RESULT, done.stderr
    return [int(word) for word in counts.split()]


def test_nothing_is_built_for_a_covered_device(child, tmp_path):
    asked = tmp_path / "asked.txt"
    first = counted(child, tmp_path / "other", IPEXRUN_XPU_PROGRAMS=str(asked))
    programs = set(asked.read_text().splitlines())
    assert first == [0, 0, len(programs)] and len(programs) >= 2
    done = aot("--device", "here", "--programs", str(asked), IPEXRUN_CACHE=str(tmp_path))
    assert done.returncode == 0 and f"{len(programs)} programs" in done.stdout, done.stdout + done.stderr
    assert counted(child, tmp_path) == [len(programs), 0, 0]
    # One that is cut off is passed over, and so is a folder that others can write to.
    one = next((tmp_path / "xpu" / "ahead").glob("*/*.bin"))
    one.write_bytes(one.read_bytes()[:100])
    assert counted(child, tmp_path) == [len(programs) - 1, 0, 1]
    (tmp_path / "xpu" / "ahead").chmod(0o777)
    assert counted(child, tmp_path) == [0, 1, len(programs) - 1]


SMALL = """
import torch, ipexrun.xpu as x
a = torch.ones(40, 24, dtype=torch.float16, device="xpu")
b = a @ a.t()
b > 0, b.t().contiguous()
torch.softmax(torch.ones(3, 1500, dtype=torch.float16, device="xpu"), -1)
r = x.report()
print(r['programs_ahead_of_time'], r['programs_from_cache'], r['programs_from_source'])
"""


def test_a_list_of_a_cpu_covers_a_device_with_lanes(child, tmp_path):
    asked = tmp_path / "asked.txt"
    child(SMALL, IPEXRUN_CACHE=str(tmp_path / "other"), IPEXRUN_XPU_PROGRAMS=str(asked))
    done = aot("--device", "here", "--programs", str(asked), IPEXRUN_CACHE=str(tmp_path), IPEXRUN_XPU_KERNELS="lanes")
    assert done.returncode == 0, done.stderr
    done = child(SMALL, IPEXRUN_CACHE=str(tmp_path), IPEXRUN_XPU_KERNELS="lanes", IPEXRUN_XPU_PROGRAMS=str(tmp_path / "lanes.txt"))
    ahead, cached, built = (int(word) for word in done.stdout.split())
    assert ahead >= 5 and cached == built == 0, (done.stdout, sorted(set((tmp_path / "lanes.txt").read_text().splitlines())))


def test_the_list_that_is_shipped_names_kernels_that_there_are():
    lists = os.path.join(os.environ["IPEXRUN_BUILD_DIR"], "lib", "ipexrun", "xpu", "programs.txt")
    kernels = os.path.join(os.path.dirname(__file__), "..", "..", "xpu", "kernels")
    with open(lists) as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    assert len(rows) > 300 and all(os.path.exists(os.path.join(kernels, row[0] + ".cl")) for row in rows)


@needs_ocloc
def test_intel_targets_each_by_itself(tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("# two programs\nfill -DRAW=uint\ncopy -DFROM=float -DTO=double\n")
    done = aot("--device", "acm-g10,pvc,spirv", "--programs", str(few), "--into", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if " programs, " in line]
    # Without double one program less; for matrix units four more.
    assert [line.split(",")[0] for line in lines] == ["acm-g10: 5 programs", "pvc: 6 programs", "spirv: 2 programs"]
    listed = (tmp_path / "out" / "pvc" / "programs.txt").read_text()
    assert "gemm_matrix -DT=half -DMATRIX=16 -DO=float" in listed and "fill -DRAW=uint" in listed
    again = aot("--device", "pvc", "--programs", str(few), "--into", str(tmp_path / "out"))
    assert "(0 built" in again.stdout
    gone = aot("--remove", "acm-g10", "--list", "--into", str(tmp_path / "out"))
    assert "acm-g10" not in gone.stdout and "pvc" in gone.stdout and gone.returncode == 0
    assert not (tmp_path / "out" / "acm-g10").exists()


@needs_ocloc
@pytest.mark.parametrize("device", ["pvc", "acm-g10"])
def test_the_assembly_of_products_holds_dpas(tmp_path, device):
    few = tmp_path / "few.txt"
    few.write_text("fill -DRAW=uint\n")
    done = aot("--device", device, "--programs", str(few), "--into", str(tmp_path / "out"), "--jobs", "1",
               IGC_ShaderDumpEnable="1", IGC_DumpToCustomDir=str(tmp_path / "dump"))
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [path.read_text(errors="replace") for path in (tmp_path / "dump").rglob("*.asm")]
    if not texts:
        pytest.skip("this compiler writes no assembly")
    for type_of_operand in (":hf ", ":bf "):
        assert any("dpas.8x8" in line and type_of_operand in line for text in texts for line in text.splitlines()), device


def test_what_cannot_be_done_is_one_line(tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("fill -DRAW=uint\n")
    for code, words, args, environment in (
        (127, "no ocloc in PATH", ["--device", "pvc", "--programs", str(few)], {"PATH": str(tmp_path)}),
        (2, "no programs in", ["--device", "here", "--programs", str(tmp_path / "missing")], {}),
        (2, "--devise", ["--devise", "pvc"], {}),
    ):
        done = aot(*args, "--into", str(tmp_path / "out"), **environment)
        lines = done.stderr.splitlines()
        assert done.returncode == code and len(lines) == 1 and lines[0].startswith("ipexrun: aot: ") and words in lines[0], done.stderr


@needs_ocloc
def test_a_kernel_that_does_not_build_is_one_line(tmp_path):
    few = tmp_path / "few.txt"
    few.write_text("fill -DRAW=nonsense\nfill -DRAW=uint\n")
    done = aot("--device", "acm-g11", "--programs", str(few), "--into", str(tmp_path / "out"))
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and len(lines) == 1 and "acm-g11: fill -DRAW=nonsense: " in lines[0] and "error: " in lines[0], done.stderr
    assert "acm-g11: 5 programs" in done.stdout
