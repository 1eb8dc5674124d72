"""`ipexrun xpu` as a user meets it: the real binary, /sys trees of machines with GPUs, plans; and a real run where there is no GPU."""

import json
import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ["IPEXRUN_BUILD_DIR"]) / "bin" / "ipexrun"
MACHINES = TOP / "tests/machines/xpu"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("ZE_", "ONEAPI_", "IPEXRUN_", "OMP_"))}


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def tree(root, name):
    """Makes the /sys and /dev that tests/machines/xpu/NAME.txt describes; returns the text for --topology."""
    topology = ""
    for line in (MACHINES / f"{name}.txt").read_text().splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "topology":
            topology = rest
        if kind != "pci":
            continue
        address, *words = rest.split()
        keys = dict(word.partition("=")[::2] for word in words)
        device = root / "sys/bus/pci/devices" / address
        for key in ("vendor", "device", "class", "numa_node"):
            write(device / key, keys[key])
        if "driver" in keys:
            (device / "driver").symlink_to("../../../bus/pci/drivers/" + keys["driver"])
        card = device / "drm" / f"card{keys.get('card', '')}"
        if "card" in keys:
            card.mkdir(parents=True)
        if "render" in keys:
            (device / "drm" / f"renderD{keys['render']}").mkdir(parents=True)
            (root / "dev/dri").mkdir(parents=True, exist_ok=True)
            if "no_node" not in keys:
                write(root / "dev/dri" / f"renderD{keys['render']}")
        for gt in range(int(keys.get("gt", 0))):
            (card / "gt" / f"gt{gt}").mkdir(parents=True)
        for tile in range(int(keys.get("tile", 0))):
            (device / f"tile{tile}" / "gt0").mkdir(parents=True)
    return topology


def run(*args, env=None):
    return subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=60, env={**CLEAN, **(env or {})})


def plan(root, name, *options, env=None):
    topology = tree(root, name)
    done = run("xpu", "--dry-run", "--json", "--topology", topology, "--sysroot", str(root), *options, "./app", env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["instances"]


def masks(instances):
    return [one["env"].get("ZE_AFFINITY_MASK") for one in instances]


def test_one_instance_a_tile(tmp_path):
    instances = plan(tmp_path, "max-1550-x4", "--one-per-tile")
    assert masks(instances) == [str(i) for i in range(8)]
    assert [one["numa_nodes"] for one in instances] == [[0]] * 4 + [[1]] * 4
    cpus = [cpu for one in instances for cpu in one["cpus"]]
    assert len(cpus) == len(set(cpus)) == 16
    assert instances[5]["devices"] == [{"device": 2, "tile": 1, "address": "0000:9a:00.0"}]


def test_both_cards_of_one_socket(tmp_path):
    instances = plan(tmp_path, "flex-170-x2", "--one-per-device")
    assert masks(instances) == ["0", "1"] and [one["cpus"] for one in instances] == [[4, 5], [6, 7]]


def test_xe_on_a_socket_cut_in_four(tmp_path):
    instances = plan(tmp_path, "max-xe-snc", "--one-per-tile", "--device-hierarchy", "composite")
    assert masks(instances) == ["0.0", "0.1"]
    assert sorted(cpu for one in instances for cpu in one["cpus"]) == list(range(16))


def test_the_card_and_not_the_integrated_gpu(tmp_path):
    assert masks(plan(tmp_path, "arc-and-integrated", "--one-per-tile")) == ["1"]


def test_battlemage(tmp_path):
    assert masks(plan(tmp_path, "battlemage-xe", "--ninstances", "2")) == ["0", "1"]


def test_a_laptop_and_its_defaults(tmp_path):
    (only,) = plan(tmp_path, "laptop-media-gt")
    assert masks([only]) == [None] and only["cpus"] == list(range(6)) and len(only["devices"]) == 1


def test_an_own_mask_bounds_the_plan(tmp_path):
    assert masks(plan(tmp_path, "max-1550-x4", "--one-per-tile", env={"ZE_AFFINITY_MASK": "2,7"})) == ["2", "7"]


def test_a_container_without_a_node(tmp_path):
    topology = tree(tmp_path, "container-with-one-node")
    done = run("xpu", "--dry-run", "--explain", "--topology", topology, "--sysroot", str(tmp_path), "./app")
    assert done.returncode == 0 and "GPU 0 (0000:ab:00.0) cannot be used" in done.stdout and "--device /dev/dri" in done.stdout


def test_topology_shows_gpus(tmp_path):
    topology = tree(tmp_path, "max-1550-x4")
    text = run("topology", "--topology", topology, "--sysroot", str(tmp_path)).stdout
    assert "0000:9a:00.0  1          2" in text
    gpus = json.loads(run("topology", "--json", "--topology", topology, "--sysroot", str(tmp_path)).stdout)["gpus"]
    assert [gpu["node"] for gpu in gpus] == [0, 0, 1, 1] and gpus[0]["driver"] == "i915"


def test_cpu_runs_read_no_gpu(tmp_path):
    topology = tree(tmp_path, "max-1550-x4")
    done = run("--dry-run", "--json", "--topology", topology, "--sysroot", str(tmp_path), "./app")
    (only,) = json.loads(done.stdout)["instances"]
    assert "devices" not in only and "ZE_AFFINITY_MASK" not in only["env"] and len(only["cpus"]) == 16


@pytest.mark.parametrize(
    "args, words",
    [
        (["xpu", "--devices", "7", "./app"], "--devices 7: this machine has 4 Intel GPUs"),
        (["xpu", "--ninstances", "9", "./app"], "there are 8 tiles"),
        (["xpu", "--throughput-mode", "./app"], "counts CPU cores"),
        (["xpu", "--one-per-tile", "--ninstances", "2", "./app"], "contradict"),
        (["xpu", "--require-shim", "--opencl", "off", "./app"], "contradict"),
        (["xpu", "--opencl", "any", "--one-per-tile", "./app"], "contradict"),
        (["xpu", "--redirect", "cuda", "--opencl", "off", "./app"], "contradict"),
        (["xpu", "--redirect", "hip", "./app"], "needs one of cuda"),
        (["--redirect", "cuda", "./app"], "belongs to ipexrun xpu"),
        (["--opencl", "any", "./app"], "belongs to ipexrun xpu"),
        (["xpu", "--convert-fp64-to-fp32", "./app"], "IGC_EnableDPEmulation"),
        (["xpu", "--device-hierarchy", "flatt", "./app"], "did you mean flat?"),
        (["xpu"], "no PROGRAM given"),
        (["--devices", "0", "./app"], "belongs to ipexrun xpu"),
        (["cpu", "--one-per-tile", "./app"], "belongs to ipexrun xpu"),
    ],
)
def test_one_line_and_code_2(tmp_path, args, words):
    topology = tree(tmp_path, "max-1550-x4")
    command = args[:1] if args[0] in ("xpu", "cpu") else []
    done = run(*command, "--dry-run", "--topology", topology, "--sysroot", str(tmp_path), *args[len(command) :])
    assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_no_gpu_is_one_line_and_code_2(tmp_path):
    topology = tree(tmp_path, "none")
    for where in (["--topology", topology, "--sysroot", str(tmp_path)], ["--topology", topology]):
        done = run("xpu", "--dry-run", *where, "./app")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
        assert "no Intel GPU" in done.stderr and "runs it on the CPU" in done.stderr


def test_the_kill_switch_starts_the_program_anyway():
    done = run("xpu", "true", env={"IPEXRUN_DISABLE": "1"})
    assert (done.returncode, done.stderr) == (0, "")


def test_ranks_of_torchrun_get_cores_near_their_device_and_see_all(tmp_path):
    """A script of one device a rank asks for xpu:LOCAL_RANK: a mask would leave it only xpu:0."""
    plans = []
    for rank in ("0", "1"):
        (own,) = plan(tmp_path / rank, "flex-170-x2", env={"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"})
        plans.append(own)
    assert not any("ZE_AFFINITY_MASK" in one["env"] for one in plans)
    assert [one["numa_nodes"] for one in plans] == [[1], [1]]
    assert not set(plans[0]["cpus"]) & set(plans[1]["cpus"])
