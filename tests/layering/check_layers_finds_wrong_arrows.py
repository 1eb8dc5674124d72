"""The checker itself can fail: each wrong arrow, planted in a small tree, is found."""

import subprocess
import sys
import tempfile
from pathlib import Path

CHECKER = Path(__file__).with_name("check_layers.py")
PLANTED = {
    "launcher/a.cpp": '#include "preload/plugin_abi.h"\n',
    "kernels/a.cpp": "#include <ATen/ATen.h>\n",
    "kernels/b.cpp": "#pragma omp parallel for\n",
    "configs/a.cpp": '#include "launcher/options.h"\n',
    "launcher/b.cpp": "int f() { return getenv(\"HOME\") != nullptr; }\n",
    "launcher/c.cpp": '#include "options.h"\n',
    "launcher/plan/a.cpp": '#include "launcher/run/runner.h"\n',
    "launcher/new/a.cpp": '#include "launcher/plan/planner.h"\n',
    "launcher/CMakeLists.txt": "target_link_libraries(x ipexrun::torch_cpu)\n",
    "preload/a.cpp": "#include <CL/cl.h>\n",
    "python/ipexrun/graphs/a.py": "def f():\n    from ..capture import b\n",
    "python/ipexrun/capture/a.py": "from ..training.b import c\n",
}


def run(tree):
    return subprocess.run([sys.executable, CHECKER, tree], capture_output=True, text=True)


failed = []
for name, text in PLANTED.items():
    with tempfile.TemporaryDirectory() as tree:
        path = Path(tree, name)
        path.parent.mkdir(parents=True)
        path.write_text(text)
        result = run(tree)
        if result.returncode == 0 or name not in result.stdout:
            failed.append(name)
with tempfile.TemporaryDirectory() as tree:
    path = Path(tree, "launcher/fine.cpp")
    path.parent.mkdir()
    path.write_text('#include "configs/base/log.h"\n// getenv( in a comment is no call\n')
    if run(tree).returncode != 0:
        failed.append("a clean tree")
print("not found: " + ", ".join(failed) if failed else "every planted arrow was found")
sys.exit(bool(failed))
