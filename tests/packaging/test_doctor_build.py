"""`ipexrun doctor --build`: an installation without a plugin for this torch gets one, for this user, and programs find it.

Risk covered: sources that were not installed, a build that depends on the source tree, a folder that programs do not look into, and a
failure that says nothing.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["IPEXRUN_BUILD_DIR"])
TORCH = "import torch; m = torch.nn.Linear(64, 64); print(tuple(m(torch.ones(2, 64)).shape))"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The build tree as it would be installed, without its plugin."""
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake")
    prefix = tmp_path_factory.mktemp("prefix")
    done = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (lib,) = [shim.parent for shim in prefix.glob("lib*/**/libipexrun_shim.so")]
    for plugin in (lib / "plugins").iterdir():
        plugin.unlink()
    return prefix


def environment(home, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("IPEXRUN_", "XDG_"))}
    if shutil.which("ccache"):
        env.setdefault("CMAKE_C_COMPILER_LAUNCHER", "ccache")
        env.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
        # Another HOME would mean another, empty, cache.
        env.setdefault("CCACHE_DIR", subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True, check=True).stdout.strip())
    return {**env, "HOME": str(home), **more}


def cached(name):
    """A variable of the build tree under test."""
    lines = (BUILD / "CMakeCache.txt").read_text().splitlines()
    return next(line.split("=", 1)[1] for line in lines if line.startswith(name + ":"))


def doctor(prefix, home, *words, python=sys.executable, **more):
    argv = [prefix / "bin/ipexrun", "doctor", "--json", "--torch-python", python, *words]
    return subprocess.run([str(word) for word in argv], env=environment(home, **more), capture_output=True, text=True, timeout=3000)


def check(report, name):
    return next(one for one in report["checks"] if one["name"] == name)


def test_sources_are_small_and_complete_enough_to_configure(installed):
    files = [path for path in (installed / "share/ipexrun/src").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 4_000_000
    assert not [path for path in files if path.suffix in (".o", ".so", ".pyc")]


def test_a_build_that_fails_is_one_line_that_names_the_log(installed, tmp_path):
    done = doctor(installed, tmp_path, "--build", CC="false", CXX="false")
    lines = [line for line in done.stderr.splitlines() if "could not be built" in line]
    assert (done.returncode, done.stdout, len(lines)) == (1, "", 1), done.stderr
    log = Path(lines[0].rsplit("'", 2)[1])
    assert log.is_relative_to(tmp_path / ".local/share/ipexrun/plugins") and "CMake Error" in log.read_text()
    assert not (log.parent / "build").exists()


def test_a_folder_that_others_can_write_to_is_refused(installed, tmp_path):
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    done = doctor(installed, tmp_path, "--build", IPEXRUN_PLUGIN_DIR=str(folder))
    assert (done.returncode, done.stdout) == (1, "") and "others may write to it" in done.stderr and not list(folder.iterdir())


def test_a_plugin_is_built_and_found(installed, tmp_path):
    # The build's tree lies to these sources as the tree under test lies to its own, so that ccache knows most of the objects.
    sources = installed / "share/ipexrun/src"
    python = Path(sys.executable)
    if python.is_relative_to(TOP):  # an environment in the tree under test: torch's headers lie to the build as they do there
        (sources / Path(sys.prefix).relative_to(TOP)).symlink_to(sys.prefix)
        python = sources / python.relative_to(TOP)
    same = tmp_path / "same.cmake"  # what the command lines of the tree under test have
    same.write_text(f"set(IPEXRUN_WERROR {cached('IPEXRUN_WERROR')} CACHE BOOL \"\")\n")
    chosen = {"IPEXRUN_PLUGIN_DIR": str(sources / "plugins"), "CCACHE_BASEDIR": str(sources), "CCACHE_NOHASHDIR": "1", "CMAKE_TOOLCHAIN_FILE": str(same)}
    before = json.loads(doctor(installed, tmp_path, **chosen).stdout)
    assert check(before, "plugin")["level"] == "warn" and "doctor --build" in check(before, "plugin")["hint"]

    done = doctor(installed, tmp_path, "--build", python=python, **chosen)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    plugin = Path(report["facts"]["plugin"])
    assert report["facts"]["plugin_active"] == "yes" and report["facts"]["plugin_isa"] == report["facts"]["process_isa"]
    assert plugin.parent == sources / "plugins"
    assert [path.name for path in plugin.parent.iterdir()] == [plugin.name], "neither log nor tree stay behind"
    assert plugin.parent.stat().st_mode & 0o777 == 0o700

    run = [str(installed / "bin/ipexrun"), "--require-shim", sys.executable, "-c", TORCH]
    ran = subprocess.run(run, env=environment(tmp_path, **chosen), capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "(2, 64)\n"), ran.stderr

    plugin.parent.chmod(0o777)
    refused = subprocess.run(run, env=environment(tmp_path, **chosen), capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1 and "can be written by every user" in refused.stderr
    again = doctor(installed, tmp_path, **chosen)
    assert again.returncode == 1 and check(json.loads(again.stdout), "plugin")["level"] == "fail"


def test_a_plugin_in_the_users_own_folder_is_found(installed, tmp_path):
    version = subprocess.run([installed / "bin/ipexrun", "--version"], capture_output=True, text=True, timeout=60).stdout.split()[1]
    folder = tmp_path / ".local/share/ipexrun/plugins" / version
    folder.mkdir(parents=True, mode=0o700)
    (plugin,) = (BUILD / "lib/ipexrun/plugins").glob("libipexrun_plugin_*.so")
    shutil.copy2(plugin, folder)
    run = [str(installed / "bin/ipexrun"), "--require-shim", sys.executable, "-c", TORCH]
    ran = subprocess.run(run, env=environment(tmp_path), capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, "(2, 64)\n"), ran.stderr


def test_where_a_plugin_is_installed_nothing_is_built(tmp_path):
    done = subprocess.run([BUILD / "bin/ipexrun", "doctor", "--build", "--torch-python", sys.executable], env=environment(tmp_path),
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "nothing to build" in done.stderr and not (tmp_path / ".local/share").exists()
