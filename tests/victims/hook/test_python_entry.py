"""The risk: coming into the interpreter too early (torch half imported), never, or visibly. Each case is a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("IPEXRUN_BUILD_DIR", HERE.parents[2] / "build" / "dev"))


def run(code, log="debug", **more):
    prelude = f"import sys; sys.path.insert(0, {str(HERE)!r}); import fake; sys.path.pop(0); plugin = fake.load()\n"
    environment = dict(os.environ, IPEXRUN_BUILD_DIR=str(BUILD), IPEXRUN_LOG=log, **more)
    return subprocess.run([sys.executable, "-c", prelude + code], capture_output=True, text=True, env=environment, timeout=120)


# Starts the plugin in the middle of `import torch`, as the shim does: at the first import of an extension after libtorch is there.
WHILE_IMPORTING = """
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.nn" and self in sys.meta_path:
            sys.meta_path.remove(self)
            assert not hasattr(sys.modules["torch"], "nn")
            start()
            assert "_ipexrun_hook" not in sys.modules
        return None
def start():
    fake.start(plugin)
sys.meta_path.insert(0, Watch())
"""

# What the interpreter has by itself: a path file of the development environment names the release tree, where that is built.
GIVEN = json.loads(subprocess.check_output([sys.executable, "-c", "import json, sys; print(json.dumps(sys.path))"], text=True))

CHECK = f"given = {GIVEN!r}" + """
import json, torch
torch.nn.Identity()(torch.zeros(3))
print(json.dumps({"loaded": "_ipexrun_hook" in sys.modules, "calls": [c.name for c in fake.calls(plugin)], "finders": len(sys.meta_path),
                  "spec": type(torch.__spec__).__module__, "initializing": torch.__spec__._initializing,
                  "path": "".join(p for p in sys.path if "ipexrun" in p and "python" in p and p not in given)}))
"""


def facts(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_while_torch_is_being_imported():
    left = "assert [type(f).__name__ for f in sys.meta_path[: len(sys.meta_path) - count]] == ['Waiting', 'Waiting']\n"  # for torch.compile's registry, and where it begins
    got = facts(run("count = len(sys.meta_path)\n" + WHILE_IMPORTING + "import torch\n" + left + CHECK))
    assert got["loaded"] and got["calls"] == ["Identity"]
    assert got["spec"] == "_frozen_importlib" and got["initializing"] is False and got["path"] == ""


def test_script_that_imports_nothing_after_torch():
    got = run(WHILE_IMPORTING + "import torch\nprint('_ipexrun_hook' in sys.modules)")
    assert got.stdout == "True\n"


def test_after_torch_was_imported():
    got = facts(run("import torch\nfake.start(plugin)\n" + CHECK))
    assert got["loaded"] and got["calls"] == ["Identity"]


def test_without_gil_it_waits_for_the_main_thread():
    code = """
import ctypes, torch
free = ctypes.CDLL(str(fake.LIBRARY))  # releases the GIL around the call
free.fake_start(str(fake.LIB).encode(), 1)
""" + CHECK
    assert facts(run(code))["loaded"]


def test_torch_imported_by_another_thread():
    code = WHILE_IMPORTING + """
import threading
def work():
    import torch
t = threading.Thread(target=work); t.start(); t.join()
""" + CHECK
    assert facts(run(code))["calls"] == ["Identity"]


def test_failed_import_of_torch_loads_nothing(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("import fake, sys\nfake.start(sys.plugin)\nraise ImportError('broken')\n")
    got = run(f"""
sys.plugin = plugin; sys.path.insert(0, {str(tmp_path)!r})
try:
    import torch
except ImportError as problem:
    print(problem, "torch" in sys.modules, "_ipexrun_hook" in sys.modules)
""")
    assert got.stdout == "broken False False\n", got.stderr


def test_something_that_is_no_torch_is_left_alone(tmp_path):
    (tmp_path / "torch.py").write_text("import fake, sys\nfake.start(sys.plugin)\n")
    got = run(f"sys.plugin = plugin; sys.path.insert(0, {str(tmp_path)!r})\nimport torch; print('_ipexrun_hook' in sys.modules)")
    assert got.stdout == "False\n"
    assert "left out" in got.stderr and got.returncode == 0


def test_no_torch_at_all():
    got = run("fake.start(plugin); print(1)")
    assert (got.stdout, got.returncode) == ("1\n", 0)
    assert "left out" in got.stderr


def test_missing_folder_is_silent_without_debug():
    got = run("import torch\nplugin.fake_start(b'/nowhere', 1); print(1)", log="warn")
    assert (got.stdout, got.stderr, got.returncode) == ("1\n", "", 0)


def test_idle_hook_is_not_installed():
    text = "import torch\nfake.start(plugin, 0)\nhook = sys.modules['_ipexrun_hook']\nprint(hook.installed(), hook.enabled())"
    assert run(text, IPEXRUN_DTYPE="float32").stdout == "False True\n"
    # Where results may be rounded, checks of whole passes look at what modules return.
    assert run(text, IPEXRUN_DTYPE="auto").stdout == "True True\n"


def test_exception_that_was_set_stays():
    got = run("""
import torch
try:
    raise ValueError("mine")
except ValueError as problem:
    fake.start(plugin)
    print(sys.exc_info()[1] is problem)
""")
    assert got.stdout == "True\n"


def test_package_outside_the_launcher():
    code = f"""
import sys; sys.path.insert(0, {str(BUILD / "lib/ipexrun/python")!r})
import ipexrun
print(ipexrun.is_active(), ipexrun.set_enabled(True), ipexrun.force("x"), sorted(ipexrun.report()), ipexrun.__version__)
"""
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.stdout == "False False False ['active', 'graphs', 'modules', 'optimizers', 'reason'] 0.1.0\n", got.stderr


def test_python_dash_m_finds_the_binary():
    binary = BUILD / "bin" / "ipexrun"
    if not binary.exists():
        return
    environment = dict(os.environ, PYTHONPATH=str(BUILD / "lib/ipexrun/python"), PATH="/nowhere")
    got = subprocess.run([sys.executable, "-m", "ipexrun", "--version"], capture_output=True, text=True, env=environment)
    assert got.stdout.startswith("ipexrun ") and got.returncode == 0
