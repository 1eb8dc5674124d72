"""Allocators and OpenMP runtimes as real libraries: ones that crash, complain or are two, and what a run says about them."""
import importlib.util
import json
import os
import shutil
import subprocess

import pytest


def run(argv, env=None, **how):
    return subprocess.run([str(word) for word in argv], env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=200, **how)


def lines_with(done, word):
    return [line for line in done.stderr.splitlines() if word in line]


@pytest.fixture
def library():
    """library(path, C source) compiles a shared library; skipped where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")

    def build(path, source="int nothing;", *link):
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(path), f"-Wl,-soname,{path.name}", "-x", "c", "-", "-x", "none", *link],
                       input=source, text=True, check=True)
        return path

    return build


CRASH = "#include <stdlib.h>\n__attribute__((constructor)) static void die(void) { abort(); }\n"
NO_MALLOC = "#include <stddef.h>\nvoid* malloc(size_t n) { (void)n; return NULL; }\n"
OWN_MALLOC = "#include <stddef.h>\nvoid* __libc_malloc(size_t n);\nvoid* malloc(size_t n) { return __libc_malloc(n); }\n"
TLS = """#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void say(void) { fputs("cannot allocate memory in static TLS block\\n", stderr); }
"""


@pytest.mark.parametrize("source,why", [(CRASH, "signal 6"), (NO_MALLOC, ""), (TLS, "static TLS")])
def test_a_bad_candidate_is_said_once_and_the_next_one_is_taken(ipexrun, tmp_path, library, source, why):
    bad = library(tmp_path / "venv/lib/libmimalloc.so.99", source)
    good = library(tmp_path / "conda/lib/libmimalloc.so.2")
    done = run([ipexrun, "--no-optimize", "--memory-allocator", "mimalloc", "sh", "-c", "echo $LD_PRELOAD"],
               env={"VIRTUAL_ENV": str(tmp_path / "venv"), "CONDA_PREFIX": str(tmp_path / "conda")})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().split(":") == [str(good)]
    said = lines_with(done, "is not used")
    assert len(said) == 1 and str(bad) in said[0] and why in said[0], done.stderr


@pytest.mark.parametrize("where", ["pthread_atfork(0, 0, hang)", "hang()", "close(1), close(2), hang()"])
def test_a_candidate_that_hangs_is_refused_and_nothing_of_its_probe_stays(ipexrun, tmp_path, library, start, witness, where):
    bad = library(tmp_path / "libjemalloc.so.2", f"""#include <pthread.h>
#include <unistd.h>
static void hang(void) {{ for (;;) pause(); }}
__attribute__((constructor)) static void begin(void) {{ {where}; }}
""")
    launcher = start([ipexrun, "--memory-allocator", bad, "echo", "never"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, errors = launcher.communicate(timeout=60)
    assert (launcher.returncode, out) == (2, "") and "did not end" in errors, errors
    witness.wait_for_end()


@pytest.mark.parametrize("option", ["--memory-allocator", "--omp-runtime"])
def test_a_library_given_by_its_path_must_work(ipexrun, tmp_path, library, option):
    name = "libjemalloc.so.2" if option == "--memory-allocator" else "libomp.so.5"
    bad = library(tmp_path / "bad" / name, CRASH)
    done = run([ipexrun, option, bad, "echo", "never"])
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert str(bad) in done.stderr and "signal 6" in done.stderr
    good = library(tmp_path / "good" / name, OWN_MALLOC)
    done = run([ipexrun, "--no-optimize", option, good, "sh", "-c", "echo $LD_PRELOAD"])
    assert (done.returncode, done.stdout) == (0, f"{good}\n"), done.stderr
    relative = run([ipexrun, option, f"./{name}", "true"])
    assert relative.returncode == 2 and "absolute path" in relative.stderr


def test_what_cannot_be_preloaded_is_refused(ipexrun, tmp_path, library):
    blank = library(tmp_path / "with a blank/libjemalloc.so.2")
    loose = library(tmp_path / "loose/libjemalloc.so.2")
    loose.chmod(0o777)
    small = library(tmp_path / "small/libjemalloc.so.2")
    image = bytearray(small.read_bytes())
    image[4] = 1  # ELFCLASS32
    small.write_bytes(image)
    for path in (blank, loose, small, tmp_path / "gone/libjemalloc.so.2"):
        done = run([ipexrun, "--memory-allocator", path, "echo", "never"])
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, (path, done.stderr)
        assert str(path) in done.stderr


def test_a_memory_profile_takes_tcmalloc_where_it_is(ipexrun, tmp_path, library):
    good = library(tmp_path / "lib/libtcmalloc_minimal.so.999")
    show = ["sh", "-c", "echo $LD_PRELOAD $ONEDNN_PRIMITIVE_CACHE_CAPACITY"]
    bounded = [ipexrun, "--no-optimize", "--memory", "bounded"]
    assert run([*bounded, *show], env={"VIRTUAL_ENV": str(tmp_path)}).stdout == f"{good} 64\n"
    assert run([*bounded, "--memory-allocator", "default", *show], env={"VIRTUAL_ENV": str(tmp_path)}).stdout == "64\n"
    fast = run([ipexrun, "--no-optimize", "--memory", "throughput", *show], env={"VIRTUAL_ENV": str(tmp_path)})
    assert fast.stdout.split() == [str(good)]
    own = library(tmp_path / "own/libmimalloc.so.2")
    assert run([*bounded, *show], env={"VIRTUAL_ENV": str(tmp_path), "LD_PRELOAD": str(own)}).stdout == f"{own} 64\n"


def test_two_runtimes_in_one_process_are_reported_with_and_without_the_shim(ipexrun, python, tmp_path, library):
    one = library(tmp_path / "a/libgomp.so.1")
    two = library(tmp_path / "b/libgomp-e985bcbb.so.1")
    # Long enough for many looks; nothing here tells the program when it was looked at.
    script = "import ctypes, sys, time; [ctypes.CDLL(path) for path in sys.argv[1:]]; time.sleep(3)"
    for options in (["--no-optimize"], []):
        said = lines_with(run([ipexrun, *options, python, "-c", script, one, two]), "more than one OpenMP runtime")
        assert len(said) == 1 and str(one) in said[0] and str(two) in said[0] and "instance 0" in said[0], said
    below = run([ipexrun, "--no-optimize", "sh", "-c", f'{python} -c "$0" {one} {two}; true', script])
    assert lines_with(below, "more than one OpenMP runtime"), below.stderr
    assert not lines_with(run([ipexrun, "--no-optimize", python, "-c", script, one]), "more than one OpenMP runtime")
    served = library(tmp_path / "c/libiomp5.so")
    assert not lines_with(run([ipexrun, "--no-optimize", "--omp-runtime", served, python, "-c", script, one, two]),
                          "more than one OpenMP runtime")


def test_the_runtime_of_torch_is_named(ipexrun, tmp_path, library):
    package = tmp_path / "env/lib/python3.11/site-packages/torch/lib"
    gomp = library(package / "libgomp-a34b3233.so.1")
    library(package / "libtorch_cpu.so", "int torch;", "-Wl,--no-as-needed,-rpath,$ORIGIN", str(gomp))
    fake = tmp_path / "env/bin/python3.11"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    done = run([ipexrun, "--dry-run", "--json", fake])
    reasons = [one for one in json.loads(done.stdout)["reasons"] if one["subject"] == "omp"]
    assert reasons[0]["value"] == "gnu" and str(gomp) in reasons[0]["text"], done.stdout


WORKERS = """
import json, os, sys
import torch
from torch.utils.data import DataLoader, Dataset


class Masks(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return json.dumps(sorted(os.sched_getaffinity(0)))


if __name__ == "__main__":
    a = torch.randn(400, 400)
    (a @ a).relu().sum().item()
    torch.softmax(a, 1)
    masks = {"main": [json.dumps(sorted(os.sched_getaffinity(0)))]}
    for how in ("fork", "spawn"):
        masks[how] = [mask for batch in DataLoader(Masks(), num_workers=2, multiprocessing_context=how, batch_size=1) for mask in batch]
    print(json.dumps(masks))
"""

BINDING = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0-1", "KMP_AFFINITY": "granularity=fine,compact,1,0"}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("variables", [{}, BINDING], ids=["plain", "binding variables set"])
def test_dataloader_workers_have_the_mask_of_the_instance(ipexrun, python, tmp_path, variables):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    plan = run([ipexrun, "--dry-run", "--json", python, script], env=variables)
    instance = json.loads(plan.stdout)["instances"][0]
    pinned = not any(reason["value"] == "not pinned" for reason in json.loads(plan.stdout)["reasons"])
    expected = json.dumps(sorted(instance["cpus"] if pinned else os.sched_getaffinity(0)))
    done = run([ipexrun, python, "-W", "ignore", script], env=variables)
    assert done.returncode == 0, done.stderr
    masks = json.loads(done.stdout.splitlines()[-1])
    assert {mask for masks_of in masks.values() for mask in masks_of} == {expected}, (masks, done.stderr)
    for name in variables:
        assert len(lines_with(done, f"{name}={variables[name]} of the environment is not passed on")) == 1, done.stderr
