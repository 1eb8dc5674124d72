"""Documents that the binary writes are the ones in docs/."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from test_xpu import CLEAN, tree

TOP = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ["IPEXRUN_BUILD_DIR"]) / "bin" / "ipexrun"
sys.path.insert(0, str(TOP / "tests/machines"))
import sysfs  # noqa: E402


def output(*args):
    return subprocess.run([BINARY, *args], capture_output=True, text=True, check=True, timeout=60).stdout


def test_env_vars_md_is_current():
    assert (TOP / "docs/env-vars.md").read_text() == output("env", "--docs"), "run: ipexrun env --docs > docs/env-vars.md"


def test_man_page_is_current():
    assert (TOP / "docs/ipexrun.1").read_text() == output("--man"), "run: ipexrun --man > docs/ipexrun.1"


def test_hypertune_1_is_current():
    shown = subprocess.run([BINARY.parent / "hypertune", "--man"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert (TOP / "docs/hypertune.1").read_text() == shown, "run: hypertune --man > docs/hypertune.1"


def test_every_option_of_hypertune_is_explained_in_tuning_md():
    shown = subprocess.run([BINARY.parent / "hypertune", "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    text = (TOP / "docs/tuning.md").read_text()
    missing = [name for name in re.findall(r"^  (--[a-z-]+)", shown, re.M) if name not in text]
    assert not missing, missing


def test_every_option_is_explained_in_launcher_md():
    text = (TOP / "docs/launcher.md").read_text() + (TOP / "docs/coming-from-ipex.md").read_text()
    missing = [name for name in re.findall(r"^  (--[a-z-]+)", output("--help"), re.M) if f"`{name}" not in text]
    assert not missing, missing


def test_report_md_explains_every_field_of_the_report(tmp_path):
    output("--report-output", tmp_path / "r.json", "true")
    report = json.loads((tmp_path / "r.json").read_text())
    rows = [f"| `{field['name']}` | {field['unit']} | {field['doc']} |".replace("|  |", "| |") for kind in ("op", "site", "drift", "module", "region", "time") for field in report[f"{kind}_fields"]]
    shown = re.findall(r"^\| `.*$", (TOP / "docs/report.md").read_text(), re.M)
    assert rows == shown


def test_completion_is_valid_bash_and_completes():
    script = output("--completion", "bash") + '\nCOMP_WORDS=(ipexrun --nins); COMP_CWORD=1; _ipexrun; echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["--ninstances"], done.stderr


# ---- links, files and commands of the pages ----

PAGES = sorted(path for pattern in ("*.md", "docs/**/*.md", "*/README.md", "tests/machines/**/*.md") for path in TOP.glob(pattern))
FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.M | re.S)


def anchors(page):
    """The names that a forge gives to the headings of a page."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading)).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue  # of the network
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or not path.is_relative_to(TOP) or (anchor and anchor not in anchors(path)):
            wrong.append(target)
    assert not wrong, wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_files_that_a_page_names_are_there(page):
    named = re.findall(r"(?<![\w./-])((?:bench|configs|docs|examples|kernels|launcher|preload|python|tests)/[\w/.-]*\.[a-zA-Z0-9]+)\b", page.read_text())
    missing = sorted({name for name in named if not (TOP / name).exists() and not (page.parent / name).exists()})
    assert not missing, missing


AS_ANYBODY = {**CLEAN, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # Open MPI wants that of root


def shown_commands():
    """Lines of code blocks that start ipexrun, without their comments."""
    out = []
    for page in PAGES:
        blocks = re.findall(r"^    (?:\$ )?(ipexrun(?: .*)?)$", page.read_text(), re.M)
        for fenced in FENCE.finditer(page.read_text()):
            blocks += re.findall(r"^(?:\$ )?(ipexrun(?: .*)?)$", fenced.group(), re.M)
        out += [(page.name, re.split(r" {3,}| +# ", line)[0]) for line in blocks if not re.search(r"\bPROGRAM\b|: |\.\.\.", line)]
    return out


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """What the pages take for granted: programs, a config, a host file, and an archive of a machine."""
    folder = tmp_path_factory.mktemp("user")
    for name in ("app.py", "serve.py", "train.py", "batch.py", "serve_forever.py", "my_libtorch_program", "my_cpp_program"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    (folder / "fast.yaml").write_text("schema: 1\nninstances: 4\n")
    (folder / "hypertune").mkdir()
    (folder / "hypertune/best.yaml").write_text("schema: 1\nninstances: 2\n")
    (folder / "hosts.txt").write_text("host0 slots=2\nhost1 slots=2\n")
    (folder / "tests").symlink_to(TOP / "tests")
    sysfs.build(folder / "machine", (TOP / "tests/machines/xeon-2s-56c.txt").read_text().partition("---")[0].splitlines())
    with tarfile.open(folder / "machine.tar.gz", "w:gz", format=tarfile.USTAR_FORMAT) as archive:
        archive.add(folder / "machine", "ipexrun-machine")
    return folder


def test_there_are_commands_to_check():
    assert len(shown_commands()) > 30


@pytest.mark.parametrize("page, line", sorted(set(shown_commands())))
def test_a_command_of_a_page_is_understood(page, line, place, tmp_path):
    """A program is planned for on a machine that is not there, so that nothing is started; the other commands run."""
    words = shlex.split(line)[1:]
    first = words[0] if words else ""
    if first not in ("topology", "gather", "doctor", "env"):
        machine = ["--dry-run"]
        if first == "xpu":
            machine += ["--topology", tree(tmp_path, "max-1550-x4"), "--sysroot", tmp_path]
        elif not {"--topology", "--sysroot"} & set(words):
            machine += ["--topology", "node:2(memory=64GB) core:28 pu:2"]
        words = [first, *machine, *words[1:]] if first in ("xpu", "tune") else [*machine, *words]
    folder = tmp_path if first == "gather" else place  # an archive that is there is not overwritten
    done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=120, cwd=folder, env=AS_ANYBODY, stdin=subprocess.DEVNULL)
    if done.returncode == 127 and re.search("mpirun|torch", done.stderr):
        pytest.skip(done.stderr)
    assert done.returncode in ((0, 1) if first == "doctor" else (0,)), f"{page}: {done.stderr}"
    assert done.stdout if first != "gather" else list(tmp_path.iterdir())


def shown_outputs():
    """Commands after a `$ ` with the lines that stand below them."""
    blocks = [(page.name, *found) for page in PAGES for found in re.findall(r"^    \$ (ipexrun .*)\n((?:    .*\n)+)", page.read_text(), re.M)]
    assert blocks
    return blocks


@pytest.mark.parametrize("page, line, shown", shown_outputs(), ids=lambda text: text if "\n" not in text else "")
def test_a_command_prints_the_lines_that_a_page_shows(page, line, shown, place):
    done = subprocess.run([BINARY, *shlex.split(line)[1:]], capture_output=True, text=True, timeout=120, cwd=place, env=CLEAN)
    printed = {text.rstrip() for text in (done.stdout + done.stderr).splitlines()}
    assert not [text for text in shown.splitlines() if text[4:].rstrip() not in printed], f"{page}: it printed\n{done.stdout}{done.stderr}"


def test_the_tests_that_a_page_names_exist():
    if shutil.which("ctest") is None:
        pytest.skip("needs ctest")
    listed = subprocess.run(["ctest", "--test-dir", BINARY.parents[1], "-N"], capture_output=True, text=True, check=True, timeout=60).stdout
    names = re.findall(r"^ *Test +#\d+: (\S+)$", listed, re.M)
    places = [*PAGES, TOP / "dev"]
    named = [word for path in places for word in re.findall(r"(?:\./dev test|ctest, e\.g\.) -R ('[^']+'|[\w-]+)", path.read_text())]
    assert names and named
    missing = [word for word in named if not any(re.search(word.strip("'").replace("\\|", "|"), name) for name in names)]
    assert not missing, missing
