"""Engines for the tests: torchrun of this Python, the mpiruns that are installed, and what every rank writes about itself."""
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).parents[3]
BUILD = pathlib.Path(os.environ.get("IPEXRUN_BUILD_DIR", TOP / "build/dev"))
PATIENCE_S = 240  # a torchrun alone imports torch for seconds on a loaded machine

# Each rank writes one line with what it was given; $FAIL names the rank that then exits with 7.
RANK = """
import json, os, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "IPEXRUN_RANK_DIR")
facts = {name: os.environ.get(name) for name in names}
facts["cpus"] = sorted(os.sched_getaffinity(0))
facts["argv"] = sys.argv[1:]
with open(os.path.join(os.environ["OUT"], "rank-" + str(facts["RANK"]) + "-" + str(os.getpid())), "w") as out:
    json.dump(facts, out)
sys.exit(7 if facts["RANK"] == os.environ.get("FAIL", "") else 0)
"""

# Rank 1 goes while the others wait for it.
ONE_FAILS = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1: os._exit(3)
dist.all_reduce(torch.ones(1))
"""


def cpus_here():
    return len(os.sched_getaffinity(0))


needs_two_cpus = pytest.mark.skipif(cpus_here() < 2, reason="needs two CPUs")


@pytest.fixture(scope="session")
def ipexrun():
    path = BUILD / "bin" / "ipexrun"
    if not path.exists():
        pytest.fail(f"{path} is not built")
    return str(path)


@pytest.fixture
def rank_program(tmp_path):
    path = tmp_path / "rank.py"
    path.write_text(RANK)
    return str(path)


def environment(**more):
    """The caller's, without the traces of an engine that may run the tests; this Python first in PATH."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMI", "MPI_", "SLURM_", "LOCAL_", "TORCHELASTIC", "OMP_"))}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "IPEXRUN_RANK"):
        env.pop(name, None)
    folder = str(pathlib.Path(sys.executable).parent)
    env.update({"PATH": folder + ":" + env.get("PATH", ""), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    env.update({k: str(v) for k, v in more.items()})
    return env


def run(argv, env, **how):
    done = subprocess.run([str(word) for word in argv], env=env, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL, **how)
    done.shown = f"{' '.join(map(str, argv))}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def facts_of_ranks(folder):
    """What the ranks wrote, ordered by rank."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*"))]
    return sorted(found, key=lambda facts: int(facts["RANK"]))


@functools.lru_cache(maxsize=None)
def ask(*words):
    return json.loads(run([BUILD / "bin" / "ipexrun", *words], environment()).stdout)


def check_two_ranks(facts):
    assert [one["RANK"] for one in facts] == ["0", "1"], facts
    assert [one["LOCAL_RANK"] for one in facts] == ["0", "1"], facts
    assert {one["WORLD_SIZE"] for one in facts} == {"2"} and {one["LOCAL_WORLD_SIZE"] for one in facts} == {"2"}
    assert all(one["MASTER_ADDR"] and int(one["MASTER_PORT"]) > 0 for one in facts)
    assert len({one["MASTER_PORT"] for one in facts}) == 1
    assert all(one["IPEXRUN_RANK_DIR"] is None for one in facts)
    threads = ask("--dry-run", "--json", "true")["instances"][0]["threads"]  # a quota leaves fewer than there are CPUs, and pins nothing
    assert [one["OMP_NUM_THREADS"] for one in facts] == [str(max(1, threads // 2))] * 2, facts
    if ask("topology", "--json")["quota_cpus"] is None:
        assert not set(facts[0]["cpus"]) & set(facts[1]["cpus"]), facts
    return facts


def mpirun_folder(flavour, tmp_path):
    """A folder for the front of PATH in which `mpirun` is the one of this flavour; skips when it is not installed."""
    real = shutil.which(f"mpirun.{flavour}")
    if real is None:
        plain = shutil.which("mpirun")
        said = subprocess.run([plain, "--version"], capture_output=True, text=True).stdout if plain else ""
        if ("HYDRA" in said) != (flavour == "mpich") or not said:
            pytest.skip(f"needs mpirun of {flavour}")
        return str(pathlib.Path(plain).parent)
    folder = tmp_path / f"bin-{flavour}"
    folder.mkdir(exist_ok=True)
    (folder / "mpirun").symlink_to(real)
    proxy = shutil.which("hydra_pmi_proxy")  # Hydra looks for it beside itself
    if proxy and flavour == "mpich":
        (folder / "hydra_pmi_proxy").symlink_to(proxy)
    return str(folder)


@pytest.fixture(params=["openmpi", "mpich"])
def mpi(request, tmp_path):
    """(flavour, environment whose PATH begins with that mpirun)"""
    folder = mpirun_folder(request.param, tmp_path)
    env = environment()
    env["PATH"] = folder + ":" + env["PATH"]
    return request.param, env


@pytest.fixture(scope="session")
def torchrun():
    pytest.importorskip("torch")
    return [sys.executable, "-m", "torch.distributed.run"]
