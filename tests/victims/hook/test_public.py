"""The package as programs import it: from wherever pip put it, and with wrong arguments."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BUILD = Path(os.environ["IPEXRUN_BUILD_DIR"])
PACKAGE = Path(__file__).resolve().parents[3] / "python/ipexrun"
COMPILED = """
import torch, ipexrun
with torch.no_grad():
    torch.compile(torch.nn.Linear(8, 8), backend="ipex")(torch.ones(2, 8))
print(ipexrun.__file__, [graph["choice"] for graph in ipexrun.report()["graphs"]])
"""


@pytest.mark.parametrize("packages, lib", [("lib/python3.11/dist-packages", "lib"), ("lib64/python3.11/site-packages", "lib"), ("lib64/python3.11/site-packages", "lib64")])
def test_a_package_outside_of_pythons_own_prefix_finds_its_plugins(packages, lib, tmp_path):
    """pip --user, /usr/local on Debian, an environment inside another one."""
    shutil.copytree(PACKAGE, tmp_path / packages / "ipexrun")
    (tmp_path / lib).mkdir(exist_ok=True)
    (tmp_path / lib / "ipexrun").symlink_to(BUILD / "lib/ipexrun")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / packages)}
    done = subprocess.run([sys.executable, "-c", COMPILED], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == (f"{tmp_path / packages / 'ipexrun/__init__.py'} ['stock']\n", "")


@pytest.fixture
def lamb(monkeypatch):
    monkeypatch.syspath_prepend(str(PACKAGE.parent))
    from ipexrun.lamb import Lamb

    return Lamb


def test_lamb_refuses_what_it_cannot_do(lamb):
    with pytest.raises(ValueError, match="two numbers"):
        lamb([torch.nn.Parameter(torch.ones(3))], betas=(0.9,))
    for parameter, grad in ((torch.ones(3), torch.ones(3).to_sparse()), (torch.ones(3, dtype=torch.complex64),) * 2):
        one = torch.nn.Parameter(parameter.clone())
        one.grad = grad
        with pytest.raises(RuntimeError, match="does not support"):
            lamb([one]).step()
        assert torch.equal(one, parameter)
