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


FAKE_OCLOC = """#!/bin/sh
# ocloc ids NAME, and ocloc compile ... -output NAME -out_dir DIR: knows two devices, builds one byte.
if [ "$1" = ids ]; then [ "$2" = tgllp ]; exit; fi
while [ $# -gt 0 ]; do case $1 in -output) name=$2 ;; -out_dir) dir=$2 ;; esac; shift; done
echo x > "$dir/$name"
"""


@pytest.fixture
def fake(tmp_path):
    """Runs `ipexrun aot` with a compiler that is none: fake(*args) -> CompletedProcess."""
    place = tmp_path / "fake"
    place.mkdir()
    (place / "ocloc").write_text(FAKE_OCLOC)
    (place / "ocloc").chmod(0o755)
    few = tmp_path / "few.txt"
    few.write_text("fill -DRAW=uint\n")
    return lambda *args, into=tmp_path / "out": aot(*args, "--programs", str(few), "--into", str(into), PATH=f"{place}:{os.environ['PATH']}")


def users_folder(tmp_path, name):
    """A folder of the user's in --into, closed to others, with files that end as ours do."""
    folder = tmp_path / "out" / name
    folder.mkdir(parents=True)
    for file in ("pytorch_model.bin", "shader.spv", "0123456789abcdef.bin"):
        (folder / file).write_text("mine")
    folder.chmod(0o700)
    folder.parent.chmod(0o750)
    return folder


def untouched(folder):
    return (sorted(path.name for path in folder.iterdir()) == ["0123456789abcdef.bin", "pytorch_model.bin", "shader.spv"]
            and folder.stat().st_mode & 0o777 == 0o700 and folder.parent.stat().st_mode & 0o777 == 0o750)


@pytest.mark.parametrize("name", ["llama", "../out/llama", "", ".", "-q", "pvc,llama"])
def test_a_name_that_is_no_device_is_refused_before_anything_is_made(tmp_path, fake, name):
    folder = users_folder(tmp_path, "llama")
    done = fake("--device", name)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and len(lines) == 1 and "no device" in lines[0] and "acm-g10" in lines[0], done.stderr
    assert untouched(folder) and sorted(os.listdir(tmp_path / "out")) == ["llama"]


def test_a_folder_without_our_list_is_left_alone(tmp_path, fake):
    folder = users_folder(tmp_path, "tgllp")
    done = fake("--device", "tgllp")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "no list of ipexrun aot" in done.stderr, done.stderr
    assert untouched(folder) and os.listdir(tmp_path / "out") == ["tgllp"]
    (tmp_path / "out" / "pvc").symlink_to(folder)
    assert fake("--device", "pvc").returncode == 2 and untouched(folder)
    assert "nothing is built" in fake("--list").stdout


@pytest.mark.parametrize("name", ["photos", "../out/photos", "nosuch", "", "linked"])
def test_only_targets_are_removed(tmp_path, fake, name):
    folder = users_folder(tmp_path, "photos")
    assert fake("--device", "pvc").returncode == 0
    (tmp_path / "out" / "linked").symlink_to(tmp_path / "out" / "pvc")
    done = fake("--remove", "pvc", "--remove", name)
    lines = done.stderr.splitlines()
    assert done.returncode == 2 and len(lines) == 1 and f"--remove '{name}'" in lines[0], done.stderr
    assert untouched(folder) and (tmp_path / "out" / "pvc" / "programs.txt").exists()


def test_of_a_target_only_what_its_list_names_goes_away(tmp_path, fake):
    assert fake("--device", "pvc").returncode == 0
    folder = tmp_path / "out" / "pvc"
    ours = sorted(path.name for path in folder.glob("*.bin"))
    assert len(ours) == 5 and folder.stat().st_mode & 0o777 == 0o755
    (folder / "weights.bin").write_text("mine")
    (folder / "fedcba9876543210.bin").write_text("mine")
    (tmp_path / "few.txt").write_text("copy -DFROM=float -DTO=float\n")
    assert fake("--device", "pvc").returncode == 0
    left = {path.name for path in folder.glob("*.bin")}
    assert {"weights.bin", "fedcba9876543210.bin"} < left and len(set(ours) & left) == 4 and len(left) == 7  # fill's is of an older list
    one = sorted(set(ours) & left)[0]
    (folder / (one + ".77")).write_text("draft of a build that was killed")
    (folder / (one + ".mine")).write_text("mine")
    done = fake("--remove", "pvc", "--list")
    assert done.returncode == 0 and "files that ipexrun aot did not make" in done.stderr and "pvc  " not in done.stdout
    assert {"weights.bin", "fedcba9876543210.bin"} <= {path.name for path in folder.iterdir()}
    assert not (folder / "programs.txt").exists() and not (folder / (one + ".77")).exists()


def test_a_list_that_names_paths_deletes_nothing(tmp_path, fake):
    assert fake("--device", "pvc").returncode == 0
    folder, precious = tmp_path / "out" / "pvc", tmp_path / "out" / "precious.bin"
    precious.write_text("mine")
    with open(folder / "programs.txt", "a") as file:
        file.write("../precious fill -DRAW=uint\n")
    assert fake("--remove", "pvc").returncode == 0 and precious.exists() and not folder.exists()


def test_a_folder_that_cannot_be_written_to_is_said_before_building(tmp_path, fake):
    for into in ("/proc/x", str(tmp_path / "few.txt"), str(tmp_path / "few.txt" / "deeper")):
        done = fake("--device", "pvc,here", into=into)
        lines = done.stderr.splitlines()
        assert done.returncode == 1 and len(lines) == 1 and into in lines[0] and "--into" in lines[0], done.stderr


def test_nothing_built_is_said(tmp_path, fake):
    done = fake("--list")
    assert done.returncode == 0 and "nothing is built ahead of time in" in done.stdout and done.stderr == ""


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
