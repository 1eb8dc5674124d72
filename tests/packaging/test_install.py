"""The documented ways to install: pip without build isolation, CMake without pip, and a build without torch.

Risk covered: the binary not finding its libraries in the place where pip put them, and a machine without torch failing to build.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def run(*argv, **kwargs):
    result = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **kwargs)
    assert result.returncode == 0, f"{argv}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}"
    return result


def build_environment(**more):
    """The compiler of the tree that was just built: where there is ccache, what both compile by the same command line comes from it."""
    env = {k: v for k, v in os.environ.items() if k != "IPEXRUN_PYTHON"}
    for language, variable in (("C", "CC"), ("CXX", "CXX")):
        if shutil.which("ccache"):
            env.setdefault(f"CMAKE_{language}_COMPILER_LAUNCHER", "ccache")
        env.setdefault(variable, cached(f"CMAKE_{language}_COMPILER"))
    return {**env, **more}


def cached(name):
    """A variable of the build tree under test."""
    lines = Path(os.environ["IPEXRUN_BUILD_DIR"], "CMakeCache.txt").read_text().splitlines()
    return next(line.split("=", 1)[1] for line in lines if line.startswith(name + ":"))


def make_environment(folder, see_packages):
    """A virtual environment; see_packages: it also sees this interpreter's packages (torch among them)."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    if see_packages:
        purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").stdout.strip()
        Path(purelib, "outer.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


@pytest.fixture(scope="module")
def tree_beside():
    """Makes build trees that lie to the sources as the tree under test does, so that ccache knows their relative paths."""
    made = []

    def make(name):
        made.append(Path(os.environ["IPEXRUN_BUILD_DIR"]).parent / f"packaging-{name}-{os.getpid()}")
        made[-1].mkdir()
        return made[-1]

    yield make
    for tree in made:
        shutil.rmtree(tree)


@pytest.fixture(scope="module")
def installed(tmp_path_factory, tree_beside):
    folder = tmp_path_factory.mktemp("pip") / "venv"
    python = make_environment(folder, see_packages=True)
    run(python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "-q",
        "--config-settings", f"build-dir={tree_beside('wheel')}",
        "--config-settings", f"cmake.define.IPEXRUN_WERROR={cached('IPEXRUN_WERROR')}", TOP, env=build_environment())
    return folder


def test_pip_puts_the_binary_and_its_parts_into_the_environment(installed):
    assert (installed / "bin" / "ipexrun").is_file()
    assert (installed / "lib" / "ipexrun" / "libipexrun_shim.so").is_file()
    assert list((installed / "lib" / "ipexrun" / "plugins").glob("libipexrun_plugin_torch*.so"))


def test_the_installed_binary_knows_its_version_and_plugin(installed):
    assert "0.1.0" in run(installed / "bin" / "ipexrun", "--version").stdout


def test_what_pip_shows_names_the_license(installed):
    shown = run(installed / "bin" / "python", "-m", "pip", "show", "ipexrun").stdout
    assert "License: Apache-2.0\n" in shown  # not the whole of its text


def test_the_installed_package_runs_the_binary(installed):
    out = run(installed / "bin" / "python", "-m", "ipexrun", "--version").stdout
    assert "0.1.0" in out


def test_an_installed_ipexrun_joins_torch(installed):
    program = "import torch; m = torch.nn.Linear(64, 64); print(tuple(m(torch.ones(2, 64)).shape))"
    result = run(installed / "bin" / "ipexrun", "--require-shim", installed / "bin" / "python", "-c", program)
    assert result.stdout == "(2, 64)\n"


def test_the_installed_package_brings_the_backend(installed):
    program = """
import torch, ipexrun
torch.set_grad_enabled(False)
torch.compile(torch.nn.Linear(8, 8), backend="ipex")(torch.ones(2, 8))
print([graph["choice"] for graph in ipexrun.report()["graphs"]])
"""
    result = run(installed / "bin" / "python", "-c", program)
    assert (result.stdout, result.stderr) == ("['stock']\n", "")


def test_without_torch_the_launcher_builds_and_says_what_is_left_out(tmp_path, tree_beside):
    python = make_environment(tmp_path / "bare", see_packages=False)
    tree = tree_beside("bare")
    env = build_environment(IPEXRUN_PYTHON=str(python))
    text = run("cmake", "-S", TOP, "-B", tree, "-G", "Ninja", env=env).stdout
    assert "no torch found" in text and "left out" in text
    run("cmake", "--build", tree, "--target", "ipexrun", env=env)
    assert "0.1.0" in run(tree / "bin" / "ipexrun", "--version").stdout
