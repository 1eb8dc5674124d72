"""The same programs, stock and under ipexrun, with the replaced kernels really in use: equal results, and the summary says so.

Selection by time is switched off where a result is compared (IPEXRUN_FORCE), so that no assertion depends on the clock.
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

TOP = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("IPEXRUN_BUILD_DIR", TOP / "build/dev"))
IPEXRUN = str(BUILD / "bin" / "ipexrun")
MLP = BUILD / "bin" / "mlp"
PACKED_F32, OWN_BF16 = "onednn_f32_packed", "own_bf16"


def run(*argv, **env):
    done = subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, timeout=110, stdin=subprocess.DEVNULL, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    return done


def bf16_is_native():
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return "amx_bf16" in flags or "avx512_bf16" in flags


def modes():
    yield pytest.param("float32", PACKED_F32, id="float32")
    yield pytest.param("auto", OWN_BF16, id="auto", marks=pytest.mark.skipif(not bf16_is_native(), reason="needs native bf16"))


def calls_taken(stderr):
    found = re.search(r"(\d+) of (\d+) linear calls.*? on (\w+)", stderr)
    assert found, stderr
    return int(found[1]), found[3]


@pytest.mark.parametrize("dtype, candidate", list(modes()))
def test_a_cpp_program_on_libtorch_gives_the_same_checksum(dtype, candidate):
    if not MLP.exists():
        pytest.skip("the C++ example was not built")
    argv = [MLP, "--calls", 40, "--width", 512]
    stock, ours = run(*argv), run(IPEXRUN, "--dtype", dtype, *argv, IPEXRUN_FORCE=candidate)
    checksum = [float(re.search(r"checksum: (\S+)", done.stdout)[1]) for done in (stock, ours)]
    assert checksum[1] == pytest.approx(checksum[0], rel=1e-5 if dtype == "float32" else 2e-2)
    taken, on = calls_taken(ours.stderr)
    assert taken > 0 and on == candidate


@pytest.mark.parametrize("dtype, candidate", list(modes()))
def test_embeddings_of_a_trained_encoder_agree_with_stock(dtype, candidate, tmp_path):
    argv = [sys.executable, TOP / "examples" / "embed_sentences.py", "--sentences", 64, "--output"]
    run(*argv, tmp_path / "stock.npy")
    done = run(IPEXRUN, "--dtype", dtype, *argv, tmp_path / "ours.npy", IPEXRUN_FORCE=candidate)
    taken, on = calls_taken(done.stderr)
    assert taken >= 37 and on == candidate
    stock, ours = (np.load(tmp_path / name).astype(np.float64) for name in ("stock.npy", "ours.npy"))
    cosine = (stock * ours).sum(1) / (np.linalg.norm(stock, axis=1) * np.linalg.norm(ours, axis=1))
    assert (1 - cosine).max() < (1e-5 if dtype == "float32" else 1e-2)


SOUNDS = sorted(pathlib.Path("/usr/share/sounds/alsa").glob("*.wav"))


@pytest.mark.skipif(not SOUNDS or importlib.util.find_spec("silero_vad") is None, reason="needs silero-vad and the sounds of alsa-utils")
@pytest.mark.parametrize("dtype, away", [("float32", 1e-5), ("auto", 0.03)])
def test_speech_is_found_where_stock_finds_it(dtype, away, tmp_path):
    """A trained, scripted model that keeps state from call to call, on recorded voices; what answers may depend on the clock, results not."""
    argv = [sys.executable, TOP / "examples" / "find_speech.py", "--repeat", 4, "--output"]
    text = run(*argv, tmp_path / "stock.npy").stdout
    assert run(IPEXRUN, "--dtype", dtype, *argv, tmp_path / "ours.npy").stdout.splitlines()[:-1] == text.splitlines()[:-1]
    stock, ours = (np.load(tmp_path / name) for name in ("stock.npy", "ours.npy"))
    assert "no speech" in text and len(stock) > 1000
    assert np.abs(stock - ours).max() < away


TWO_KINDS = """
import torch
linear, double, conv = torch.nn.Linear(512, 512), torch.nn.Linear(64, 64).double(), torch.nn.Conv2d(16, 32, 3)
with torch.inference_mode():
    for _ in range(8):
        linear(torch.ones(64, 512)), double(torch.ones(64, 64).double()), conv(torch.ones(1, 16, 32, 32))
"""


@pytest.mark.parametrize("more", [[], ["--bench"]], ids=["run", "bench"])
def test_the_report_counts_what_the_program_called(more, tmp_path):
    file = tmp_path / "report.json"
    done = run(IPEXRUN, *more, "--dtype", "float32", "--report-output", file, sys.executable, "-c", TWO_KINDS, IPEXRUN_FORCE=PACKED_F32)
    assert re.search(r"\d+ of 16 linear calls", done.stderr) and re.search(r"\d+ of 8 convolutions", done.stderr)
    assert re.search(r"^ipexrun:   addmm +16 ", done.stderr, re.M), done.stderr
    (instance,) = json.loads(file.read_text())["instances"]
    assert instance["problem"] is None and "torch" in instance["process"]
    ops = {op["op"]: op for op in instance["ops"]}
    assert ops["addmm"]["calls"] == 16 and 0 < ops["addmm"]["taken"] <= 8 and ops["addmm"]["reasons"] == {"dtype": 8}
    assert ops["convolution"]["calls"] == 8
    assert any(site["site"].startswith("addmm|") and site["choice"] == PACKED_F32 for site in instance["sites"])


SIX_LAYERS = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)]).eval()
with torch.no_grad():
    for _ in range(40): model(torch.randn(64, 256))
"""


@pytest.mark.skipif("avx512_bf16" not in pathlib.Path("/proc/cpuinfo").read_text(), reason="no bf16 products on this CPU")
def test_the_report_shows_how_far_bf16_moved_the_results(tmp_path):
    def instance(*options, **env):
        file = tmp_path / "report.json"
        done = run(IPEXRUN, *options, "--report-output", file, sys.executable, "-c", SIX_LAYERS, **env)
        return done.stderr, json.loads(file.read_text())["instances"][0]

    _, first = instance("--dtype", "float32", IPEXRUN_FORCE=PACKED_F32)
    assert first["drift"] is None, "nothing is rounded"
    pins = [{"site": site["site"], "choice": "onednn_bf16_packed"} for site in first["sites"]]
    (tmp_path / "config").write_text(json.dumps({"decisions": pins}))
    text, pinned = instance("--config", tmp_path / "config")
    drift = pinned["drift"]
    assert drift == drift | {"failed": 0, "unfinished": 0, "let_through": 6, "left_in_float32": 0, "waiting": 0}
    assert drift["checks"] >= 1 and 0 < drift["largest_drift"] < 2
    assert "drift of whole passes (at most 2%)" in text


def test_a_report_that_cannot_be_written_stops_the_run_before_it_starts(tmp_path):
    argv = [IPEXRUN, "--report-output", str(tmp_path / "no" / "r.json"), "echo", "ran"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=110, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (1, "") and "--report-output" in done.stderr


LOADER = """
import os, torch
from torch.utils.data import DataLoader, Dataset
class Squares(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.tensor([i * i, len(os.sched_getaffinity(0))])
if __name__ == "__main__":
    rows = torch.cat(list(DataLoader(Squares(), batch_size=2, num_workers=2, multiprocessing_context="{how}")))
    print(rows[:, 0].tolist(), sorted(set(rows[:, 1].tolist())) == [len(os.sched_getaffinity(0))])
"""


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_loader_workers_work_and_may_use_every_core_of_the_instance(how, tmp_path):
    script = tmp_path / "loader.py"
    script.write_text(LOADER.format(how=how))
    assert run(IPEXRUN, sys.executable, script).stdout == "[0, 1, 4, 9, 16, 25, 36, 49] True\n"


TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
optimizer, data = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True), torch.randn(64, 128)
for step in range(30):
    loss = ((model(data) - data) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(repr(loss.item()))
"""


@pytest.mark.parametrize("dtype, away", [("float32", 1e-6), ("auto", 1e-2)])
def test_a_training_loop_keeps_stocks_losses(dtype, away, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    stock, ours = (
        [float(line) for line in run(*prefix, sys.executable, script).stdout.split()] for prefix in ([], [IPEXRUN, "--no-pin", "--dtype", dtype])
    )
    assert len(stock) == 30 and ours == pytest.approx(stock, rel=away)
