"""The arrows of configs/README.md, checked on every include and link of the tree. Prints each wrong arrow; exit 1 if there is one."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]

# folder -> folders it may include; anything may include its own folder. tests, bench and examples may include anything.
ARROWS = {
    "configs": set(),
    "kernels": {"configs"},
    "xpu": {"configs"},
    "preload": {"configs", "kernels", "xpu"},
    "launcher": {"configs"},
    "tuner": {"configs", "launcher"},
    "python": {"configs", "preload"},
}
# The same within the launcher. Files beside main.cpp: options.h, which anything may include.
LAUNCHER_ARROWS = {
    "plan": set(),
    "machine": {"plan"},
    "distributed": {"plan", "machine"},
    "cli": {"plan"},
    "run": {"plan", "machine", "distributed"},
    "bench": {"plan", "machine", "run"},
    "commands": {"plan", "machine", "distributed", "cli", "run", "bench"},
    "main.cpp": {"machine", "cli", "run", "commands"},
}
# The same within the package; the files beside these folders may be imported by all of them, and import what they like.
PACKAGE = "python/ipexrun"
PACKAGE_ARROWS = {"graphs": set(), "capture": {"graphs"}, "training": {"capture", "graphs"}}
PACKAGE_EXCEPTIONS = {("graphs/backend.py", "training")}  # torch.compile(backend="ipex") of a training step
TORCH = re.compile(r'^\s*#\s*include\s*[<"](torch|ATen|c10|caffe2)/', re.M)
OPENCL = re.compile(r'^\s*#\s*include\s*[<"]CL/', re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
GETENV = re.compile(r"\b(secure_)?getenv\s*\(")
OPENMP = re.compile(r"^\s*#\s*pragma\s+omp|#\s*include\s*<omp\.h>", re.M)
TORCH_FREE = ("configs", "kernels", "launcher", "tuner", "preload/common", "preload/crash", "preload/shim", "preload/select", "preload/memory", "xpu")
GETENV_HOME = "configs/contract/env.cpp"


def sources(top):
    for folder in ARROWS:
        for path in sorted((top / folder).rglob("*")):
            if path.suffix in {".c", ".h", ".cpp", ".S", ".inc"} and path.is_file():
                yield path.relative_to(top), path.read_text(encoding="utf-8")


def strip_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def imported(path, text):
    """Folders of the package that a file of it imports from."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parts[: len(path.parts) - node.level]
            for one in node.names:
                there = [*folder, *(node.module.split(".") if node.module else []), one.name]
                if there[0] in PACKAGE_ARROWS:
                    yield there[0]


def package_violations(top):
    for file in sorted((top / PACKAGE).rglob("*.py")):
        path = file.relative_to(top / PACKAGE)
        folder = path.parts[0]
        if folder in PACKAGE_ARROWS:
            for there in imported(path, file.read_text(encoding="utf-8")):
                if there != folder and there not in PACKAGE_ARROWS[folder] and (path.as_posix(), there) not in PACKAGE_EXCEPTIONS:
                    yield f"{PACKAGE}/{path}: {folder} may not import {there}"


def violations(top):
    yield from package_violations(top)
    for path, text in sources(top):
        folder = path.parts[0]
        code = strip_comments(text)
        for target in INCLUDE.findall(code):
            there = target.split("/")[0]
            if there in ARROWS and there != folder and there not in ARROWS[folder]:
                yield f'{path}: {folder} may not include {there} ("{target}")'
            if path.parts[0] == "launcher" and target.startswith("launcher/") and target.count("/") > 1:
                inner, part = target.split("/")[1], path.parts[1]
                if inner != part and inner not in LAUNCHER_ARROWS.get(part, set()):
                    yield f'{path}: launcher/{part} may not include launcher/{inner} ("{target}")'
            if "/" not in target and not (top / path.parent / target).exists():
                yield f'{path}: include "{target}" is not written from the top of the tree'
        name = path.as_posix()
        if name.startswith(TORCH_FREE) and TORCH.search(code):
            yield f"{path}: this folder is torch-free"
        if not name.startswith("xpu/opencl/") and OPENCL.search(code):
            yield f"{path}: only xpu/opencl includes OpenCL headers"
        if name != GETENV_HOME and not name.startswith("preload/shim/") and GETENV.search(code):
            yield f"{path}: getenv belongs in {GETENV_HOME} (a row in env_vars.def)"
        if folder == "kernels" and OPENMP.search(code):
            yield f"{path}: kernels take a Parallel, never OpenMP"
    for folder in ("launcher", "tuner", "kernels", "configs"):
        for lists in (top / folder).rglob("CMakeLists.txt"):
            if "torch_cpu" in lists.read_text(encoding="utf-8"):
                yield f"{lists.relative_to(top)}: {folder} never links torch"


def linked_libraries(binary):
    out = subprocess.run(["readelf", "-d", binary], capture_output=True, text=True, check=True).stdout
    return re.findall(r"NEEDED.*\[(.+)\]", out)


def main():
    top = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else TOP
    wrong = list(violations(top))
    for binary in filter(os.path.exists, sys.argv[2:]):
        wrong += [f"{binary}: links {lib}" for lib in linked_libraries(binary) if re.match(r"lib(torch|c10|gomp|iomp)", lib)]
    print("\n".join(wrong) if wrong else "layering: all arrows are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
