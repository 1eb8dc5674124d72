"""`ipexrun xpu --redirect cuda`: a program written for cuda, unedited."""

import os
import sys
from pathlib import Path

import pytest

LINE = "ipexrun: --redirect cuda: this program's device cuda is xpu: "
PROGRAM = str(Path(__file__).with_name("written_for_cuda.py"))


@pytest.fixture(scope="module")
def ipexrun():
    path = os.path.join(os.environ["IPEXRUN_BUILD_DIR"], "bin", "ipexrun")
    return path if os.path.exists(path) else pytest.skip("the launcher is not built")


def test_a_program_written_for_cuda(child, ipexrun):
    done = child("", ipexrun, "xpu", "--opencl", "any", "--redirect", "cuda", sys.executable, PROGRAM, IPEXRUN_XPU="", PYTHONPATH="")
    assert done.stdout == "fine\n", done.stdout + done.stderr
    assert done.stderr.count(LINE) == 1, done.stderr


def test_without_it_cuda_is_cuda(child, ipexrun):
    text = "import torch; print(torch.cuda.is_available(), torch.device('cuda'), torch.ones(2).is_cuda)"
    done = child(text, ipexrun, "xpu", "--opencl", "any", sys.executable, IPEXRUN_XPU="", PYTHONPATH="")
    assert done.stdout == "False cuda False\n" and LINE not in done.stderr, done.stderr


def test_by_the_environment(child):
    done = child("import torch, ipexrun; print(torch.device('cuda'), torch.ones(2, device='cuda').is_cuda)", IPEXRUN_XPU_REDIRECT="cuda")
    assert done.stdout == "xpu True\n" and done.stderr.count(LINE) == 1, done.stderr


def test_no_device_to_go_to(child, tmp_path):
    text = "import torch, ipexrun; print(torch.cuda.is_available(), torch.device('cuda'))"
    done = child(text, IPEXRUN_XPU_REDIRECT="cuda", OCL_ICD_VENDORS=str(tmp_path))
    assert done.stdout == "False cuda\n", done.stderr
    # Where no driver is named, nothing is opened and nothing redirected.
    assert all(line.startswith("ipexrun: --redirect cuda was left out: ") for line in done.stderr.splitlines()), done.stderr


def test_a_torch_that_has_cuda(child):
    text = "import torch; torch.version.cuda = '12.8'; import ipexrun; print(torch.device('cuda'))"
    done = child(text, IPEXRUN_XPU_REDIRECT="cuda")
    assert done.stdout == "cuda\n" and "left out: this torch has cuda built in" in done.stderr, done.stderr
