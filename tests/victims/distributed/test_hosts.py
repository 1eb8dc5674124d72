"""Two network namespaces as two hosts: one ipexrun in each, joined by a cable, as an operator would type it on two machines."""
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import ONE_FAILS, PATIENCE_S, TOP, environment, needs_two_cpus

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)
pytestmark = needs_two_cpus

PROGRAM = str(TOP / "examples" / "ddp_train.py")


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


@pytest.fixture
def hosts():
    """The names of two namespaces that see each other as 10.213.7.1 and 10.213.7.2."""
    if shutil.which("ip") is None:
        pytest.skip("needs ip of iproute2")
    names = [f"ipexrun-{os.getpid()}-{i}" for i in (0, 1)]
    cables = [f"ix{os.getpid() % 100000}{i}" for i in "ab"]
    steps = [["netns", "add", names[0]], ["netns", "add", names[1]], ["link", "add", cables[0], "type", "veth", "peer", "name", cables[1]]]
    for name, cable, address in zip(names, cables, ("10.213.7.1/24", "10.213.7.2/24"), strict=True):
        steps += [["link", "set", cable, "netns", name], ["-n", name, "link", "set", cable, "name", "wire"],
                  ["-n", name, "addr", "add", address, "dev", "wire"], ["-n", name, "link", "set", "wire", "up"], ["-n", name, "link", "set", "lo", "up"]]
    try:
        for step in steps:
            done = ip(*step)
            if done.returncode != 0:
                pytest.skip(f"cannot make network namespaces: ip {' '.join(step)}: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            ip("netns", "del", name)
        ip("link", "del", cables[0])


def start_on(hosts, argv_of_host, env):
    return [subprocess.Popen(["ip", "netns", "exec", name, *map(str, argv_of_host(i))], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for i, name in enumerate(hosts)]


def finish(processes):
    done = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=PATIENCE_S)
            done.append((process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return done


@pytest.mark.parametrize("names", ["endpoint", "master"])
def test_training_across_two_hosts(ipexrun, hosts, tmp_path, names):
    # The hosts' names lead nowhere here, so gloo is told its interface and torchrun its address, as on machines without DNS.
    env = environment(GLOO_SOCKET_IFNAME="wire")
    out = tmp_path / "losses.json"

    def command(i):
        where = ["--rdzv-endpoint", "10.213.7.1:29411", "--rdzv-id", "two", "--local-addr", f"10.213.7.{i + 1}"]
        if names == "master":
            where = ["--node-rank", i, "--master-addr", "10.213.7.1", "--master-port", 29412, "--local-addr", f"10.213.7.{i + 1}"]
        return [ipexrun, "--nnodes", 2, "--nproc-per-node", 1, *where, "--dtype", "float32", PROGRAM, "--steps", 5, "--losses", out]

    done = finish(start_on(hosts, command, env))
    shown = json.dumps(done, indent=1).replace("\\n", "\n")
    assert [code for code, _, _ in done] == [0, 0], shown
    assert sorted(text.split(":")[0] for _, text, _ in done) == ["rank 0 of 2", "rank 1 of 2"], shown
    plain = tmp_path / "plain.json"
    one = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", PROGRAM, "--steps", "5", "--losses", plain],
                         env=environment(OMP_NUM_THREADS=1), capture_output=True, text=True, timeout=PATIENCE_S)
    assert one.returncode == 0, one.stderr
    worst = max(abs(a - b) / abs(b) for a, b in zip(json.loads(out.read_text()), json.loads(plain.read_text()), strict=True))
    assert worst <= 1e-5, worst


def test_a_failure_on_one_host_ends_the_other(ipexrun, hosts, tmp_path):
    program = tmp_path / "fails.py"
    program.write_text(ONE_FAILS)
    where = ["--rdzv-endpoint", "10.213.7.1:29413"]
    done = finish(start_on(hosts, lambda i: [ipexrun, "--nnodes", 2, "--nproc-per-node", 1, *where, "--local-addr", f"10.213.7.{i + 1}", program],
                           environment(GLOO_SOCKET_IFNAME="wire")))
    shown = json.dumps(done, indent=1).replace("\\n", "\n")
    assert all(code != 0 for code, _, _ in done), shown
    assert 3 in [code for code, _, _ in done], shown
