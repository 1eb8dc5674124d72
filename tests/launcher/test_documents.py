"""Documents that the binary writes are the ones in docs/."""

import os
import re
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ["IPEXRUN_BUILD_DIR"]) / "bin" / "ipexrun"


def output(*args):
    return subprocess.run([BINARY, *args], capture_output=True, text=True, check=True, timeout=60).stdout


def test_env_vars_md_is_current():
    assert (TOP / "docs/env-vars.md").read_text() == output("env", "--docs"), "run: ipexrun env --docs > docs/env-vars.md"


def test_man_page_is_current():
    assert (TOP / "docs/ipexrun.1").read_text() == output("--man"), "run: ipexrun --man > docs/ipexrun.1"


def test_every_option_is_explained_in_launcher_md():
    text = (TOP / "docs/launcher.md").read_text() + (TOP / "docs/coming-from-ipex.md").read_text()
    missing = [name for name in re.findall(r"^  (--[a-z-]+)", output("--help"), re.M) if f"`{name}" not in text]
    assert not missing, missing


def test_completion_is_valid_bash_and_completes():
    script = output("--completion", "bash") + '\nCOMP_WORDS=(ipexrun --nins); COMP_CWORD=1; _ipexrun; echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["--ninstances"], done.stderr
