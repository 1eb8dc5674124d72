"""Risk: on real calls nothing is ever chosen, the choice is not reported, or what was asked for is ignored."""

import functools
import json

import test_process
from conftest import needs_bf16

run_python = functools.partial(test_process.run_python, OMP_NUM_THREADS="1")  # so that programs of the sample may be forked

PROGRAM = """
import json, time
plugin_loader.start()
layers = [torch.nn.Linear(1024, 1024) for _ in range(2)]
x = torch.randn(256, 1024)
with torch.no_grad():
    expected = [layer(x) for layer in layers]
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for layer in layers: layer(x)
        report = json.loads(sys.modules["_ipexrun_hook"].report())
        if report["sites"] and report["sites"][0]["decided"] and report["taken"] + TAKEN_OR_NOT > 20: break
    error = max(((layer(x) - e).norm() / e.norm()).item() for layer, e in zip(layers, expected))
print(json.dumps({**report, "error": error}))
"""


def outcome(taken_or_not, run_python=run_python, **environment):
    return json.loads(run_python(PROGRAM.replace("TAKEN_OR_NOT", str(taken_or_not)), IPEXRUN_SELECT="on", **environment).stdout)


def test_a_site_is_decided_and_its_numbers_hold():
    report = outcome(21, test_process.run_python)  # by as many threads as there are
    site = report["sites"][0]
    assert site["decided"]
    assert site["reason"] in {"faster", "slower"}
    assert (site["choice"] != "stock") == (site["reason"] == "faster")
    assert site["site"].startswith("addmm|f32,f32,f32|ct|m=256,n=1024,k=1024|t=")
    assert report["error"] < 1e-2
    assert report["explorations"] >= 2


def test_the_third_packed_candidate_of_a_weight_alone_has_room():
    program = PROGRAM.replace("Linear(1024, 1024) for _ in range(2)", "Linear(64, 128) for _ in range(1)").replace("randn(256, 1024)", "randn(64, 64)")
    report = json.loads(run_python(program.replace("TAKEN_OR_NOT", "21"), IPEXRUN_SELECT="on", IPEXRUN_DTYPE="float32").stdout)
    assert report["sites"][0]["decided"], "packs of those that have lost kept what comes after them waiting"


@needs_bf16
def test_asked_for_bfloat16_it_is_used():
    site = outcome(0, IPEXRUN_DTYPE="bfloat16")["sites"][0]
    assert site["choice"] in {"own_bf16", "onednn_bf16_packed"}
    assert site["reason"] == "pinned"


def test_the_second_process_starts_warm_and_checks_the_numbers_again(tmp_path):
    tmp_path.chmod(0o700)
    first = outcome(21, IPEXRUN_CACHE=str(tmp_path))["sites"][0]
    second = outcome(21 if first["choice"] == "stock" else 0, IPEXRUN_CACHE=str(tmp_path))
    site = second["sites"][0]
    assert site["reason"] == "remembered"
    assert site["choice"] == first["choice"]
    assert second["explorations"] == (2 if site["choice"] != "stock" else 0)  # two weights, each checked once
    assert second["error"] < 1e-2


def test_a_damaged_cache_is_measured_afresh(tmp_path):
    tmp_path.chmod(0o700)
    outcome(21, IPEXRUN_CACHE=str(tmp_path))
    (cache,) = tmp_path.iterdir()
    cache.write_bytes(cache.read_bytes()[: len(cache.read_bytes()) // 2])
    assert outcome(21, IPEXRUN_CACHE=str(tmp_path))["sites"][0]["reason"] in {"faster", "slower"}


def test_a_pinned_decision_is_used_and_nothing_is_measured(tmp_path):
    first = outcome(21)["sites"][0]
    pins = tmp_path / "pins"
    pins.write_text("\t".join([first["site"], "onednn_f32_packed", "0", "0", "0", "", "auto", "0"]) + "\n", encoding="utf-8")
    report = outcome(0, IPEXRUN_DECISIONS=str(pins))  # runs until the choice was used 21 times
    site = report["sites"][0]
    assert (site["choice"], site["reason"]) == ("onednn_f32_packed", "pinned")
    assert report["explorations"] == 2  # two weights, each checked once
    assert report["error"] < 1e-5


def test_selection_off_measures_nothing():
    done = run_python(
        """
        import json
        plugin_loader.start()
        for _ in range(50): torch.mm(x, w)
        report = json.loads(sys.modules["_ipexrun_hook"].report())
        print(report["explorations"], report["taken"], report["pack_bytes"])
        """
    )
    assert done.stdout.split() == ["0", "0", "0"]


def test_training_keeps_no_packs():
    done = run_python(
        """
        import json
        plugin_loader.start()
        layer = torch.nn.Linear(512, 512)
        for _ in range(60): layer(x).square().mean().backward()
        report = json.loads(sys.modules["_ipexrun_hook"].report())
        print(report["pack_bytes"])
        """,
        IPEXRUN_SELECT="on",
    )
    assert done.stdout.split() == ["0"]


@needs_bf16
def test_a_weight_whose_numbers_are_not_good_enough_keeps_no_pack():
    program = """
    import json
    plugin_loader.start()
    def packs():
        return json.loads(sys.modules["_ipexrun_hook"].report())["pack_bytes"]
    torch.manual_seed(0)
    good, bad = torch.nn.Linear(512, 512), [torch.nn.Linear(512, 512) for _ in range(4)]
    near_equal = 1000 + 1e-3 * torch.randn(256, 512)  # beside rows that cancel: what is left of them is rounding
    with torch.no_grad():
        for layer in bad:
            layer.weight -= layer.weight.mean(1, keepdim=True)
        for _ in range(60):
            good(torch.randn(256, 512))
        before = packs()
        for _ in range(12):
            for layer in bad:
                layer(near_equal)
    print(json.dumps({"before": before, "after": packs()}))
    """
    found = json.loads(run_python(program, IPEXRUN_SELECT="on", IPEXRUN_DTYPE="bfloat16").stdout)
    assert found["before"] > 0
    assert found["after"] <= found["before"]


def test_ever_other_sizes_of_one_operator_leave_room_for_the_others():
    program = """
    import json
    plugin_loader.start()
    with torch.no_grad():
        for size in range(5000):
            torch.nn.functional.max_pool2d(torch.zeros(1, 1, 32 + size % 80, 32 + size // 80), 2)
        for _ in range(3):
            torch.mm(x, w)
    sites = json.loads(sys.modules["_ipexrun_hook"].report())["sites"]
    print(json.dumps([site["site"].partition("|")[0] for site in sites]))
    """
    found = json.loads(run_python(program, IPEXRUN_SELECT="on").stdout)
    assert found.count("max_pool2d_with_indices") > 1000
    assert "mm" in found
