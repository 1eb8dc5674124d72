"""`ipexrun xpu PROGRAM` makes unedited programs faster: fused optimizers, 16 bits inside. Risks covered: results that differ, what shows of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).with_name("unedited.py"))


NAMES = ["Adam", "AdamW", "SGD", "Adagrad", "infer"]


def printed(output):
    """By name what a program shows of itself, and its number."""
    lines = output.splitlines()
    return {name: (shown, float(number)) for name, shown, number in zip(NAMES, lines[::2], lines[1::2])}


@pytest.fixture(scope="module")
def stock():
    done = subprocess.run([sys.executable, PROGRAM, ",".join(NAMES), "cpu"], capture_output=True, text=True, timeout=300, check=True)
    return printed(done.stdout)


@pytest.fixture
def launched(child):
    """(what the program printed, what we said): launched(program's arguments, ..., options before it, **environment)."""
    path = os.path.join(os.environ["IPEXRUN_BUILD_DIR"], "bin", "ipexrun")
    if not os.path.exists(path):
        pytest.skip("the launcher is not built")

    def run(arguments, *options, **environment):
        done = child("", path, "xpu", "--opencl", "any", "--report", *options, sys.executable, *arguments, PYTHONPATH="", IPEXRUN_XPU="", **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return run


def test_as_stock(launched, stock):
    """PoCL has no units for 16 bits, so --dtype auto leaves products alone."""
    out, said = launched([PROGRAM, ",".join(NAMES), "xpu"])
    for name, (shown, number) in printed(out).items():
        assert shown == stock[name][0], name  # the state is stock's
        assert number == pytest.approx(stock[name][1], rel=1e-4), name
    for name in NAMES[:-1]:
        # A busy machine may leave the race undecided.
        assert re.search(rf"^ipexrun: xpu: {name} ((fused|stock) \(.* speed\)|undecided): [1-9]\d* of 28 steps fused$", said, re.M), said
    assert " inside " not in said, said


@pytest.mark.parametrize("dtype, apart", [("bfloat16", 2e-2), ("float16", 5e-3)])
def test_as_asked(launched, stock, dtype, apart):
    out, said = launched([PROGRAM, "infer,SGD", "xpu"], "--dtype", dtype)
    lines = out.splitlines()
    assert lines[0] == stock["infer"][0]  # float32 as ever
    number, trained = float(lines[1]), float(lines[3])
    assert number == pytest.approx(stock["infer"][1], rel=apart) and number != pytest.approx(stock["infer"][1], rel=1e-7)
    assert f"xpu: {dtype} inside" in said and "as asked" in said and "no float16" not in said, said
    # Training in float16 wants a loss scale.
    right = stock["SGD"][1]
    assert trained == pytest.approx(right, rel=apart) and (trained == pytest.approx(right, rel=1e-6)) == (dtype == "float16")


def test_auto_measures_where_there_are_units(launched):
    """Units that work items play are slow."""
    text = """import torch
a = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
b = a.xpu()
for _ in range(20): c = b @ b
torch.testing.assert_close(c.cpu(), a @ a)"""
    _, said = launched(["-c", text], IPEXRUN_XPU_KERNELS="matrix")
    assert "float32 inside 1 kind of products and convolutions, 20 calls: measured slower" in said, said


def test_nothing_without_the_launcher(child):
    done = child("import sys, torch, ipexrun; sys.argv = ['', 'Adam', 'xpu']; exec(open(%r).read()); print(ipexrun.report()['xpu']['reduced'], "
                 "ipexrun.report()['optimizers'])" % PROGRAM, IPEXRUN_DTYPE="bfloat16")
    assert done.stdout.splitlines()[-1] == "[] []", done.stderr


def test_too_far_stays_float32(child):
    """Sums that cancel: bfloat16 keeps nothing of them, and the program gets float32's."""
    text = """import torch, ipexrun
a = torch.cat([torch.full((8, 32), 1000.5), torch.full((8, 32), -1000.5)], 1).xpu()
b = torch.linspace(1, 1.01, 64 * 16).reshape(64, 16).xpu()
right = (a.cpu().double() @ b.cpu().double())
with torch.no_grad():
    for _ in range(3): out = a @ b
assert (out.cpu() - right).norm() < 1e-4 * right.norm()
(row,) = ipexrun.report()["xpu"]["reduced"]
assert row["choice"] == "float32" and row["reason"] == "too far from float32" and row["calls"] == 3, row
"""
    done = child(text, IPEXRUN_XPU_START="1", IPEXRUN_DTYPE="bfloat16")
    assert done.returncode == 0 and "stay float32" in done.stderr, done.stderr
