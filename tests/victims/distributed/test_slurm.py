"""A real Slurm of one node, with daemons and state in a temporary folder; skipped where it is not installed or cannot be started."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest
from conftest import check_two_ranks, cpus_here, environment, facts_of_ranks, needs_two_cpus, run

pytestmark = needs_two_cpus
TOOLS = ["munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo"]

CONFIG = """
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=localhost CPUs={cpus} RealMemory=100 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def tool(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


@pytest.fixture(scope="module")
def slurm():
    missing = [name for name in TOOLS if tool(name) is None]
    if missing:
        pytest.skip("needs Slurm: " + ", ".join(missing))
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm-"))
    daemons = []
    try:
        folder.chmod(0o755)
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        config = folder / "slurm.conf"
        config.write_text(CONFIG.format(folder=folder, ports=free_ports(2), cpus=cpus_here()))
        env = environment(SLURM_CONF=config)
        daemons.append(subprocess.Popen([tool("munged"), "--foreground", f"--key-file={key}", f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
                                         f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed", "--force"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        until = time.monotonic() + 60
        while not (folder / "munge.socket").exists() and time.monotonic() < until:
            time.sleep(0.05)
        for argv in ([tool("slurmctld"), "-D", "-f", config], [tool("slurmd"), "-D", "-f", config, "-N", "localhost"]):
            daemons.append(subprocess.Popen([str(word) for word in argv], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        while time.monotonic() < until:
            state = subprocess.run([tool("sinfo"), "-h", "-o", "%t"], env=env, capture_output=True, text=True, timeout=60)
            if state.stdout.strip() == "idle":
                break
            time.sleep(0.2)
        else:
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log"))
            pytest.skip("Slurm does not come up here: " + logs)
        yield env
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_srun_started_by_ipexrun_in_an_allocation(ipexrun, rank_program, tmp_path, slurm):
    done = run(["salloc", "--ntasks=1", f"--cpus-per-task={cpus_here()}", ipexrun, "--nproc-per-node", 2, rank_program], {**slurm, "OUT": str(tmp_path)})
    assert done.returncode == 0, done.shown
    check_two_ranks(facts_of_ranks(tmp_path))


@pytest.mark.parametrize("binding", [["--cpu-bind=none"], []], ids=["unbound", "as_slurm_binds"])
def test_srun_that_starts_ipexrun(ipexrun, rank_program, tmp_path, slurm, binding):
    done = run(["srun", "--ntasks=2", f"--cpus-per-task={cpus_here() // 2}", *binding, ipexrun, rank_program], {**slurm, "OUT": str(tmp_path)})
    assert done.returncode == 0, done.shown
    check_two_ranks(facts_of_ranks(tmp_path))


def test_the_exit_code_comes_back(ipexrun, rank_program, tmp_path, slurm):
    argv = ["salloc", "--ntasks=1", f"--cpus-per-task={cpus_here()}", ipexrun, "--nproc-per-node", 2, rank_program]
    done = run(argv, {**slurm, "OUT": str(tmp_path), "FAIL": "1"})
    assert done.returncode == 7, done.shown
    assert "ipexrun: rank 1 exited with code 7" in done.stderr, done.shown


def test_a_batch_script_is_no_rank(ipexrun, rank_program, tmp_path, slurm):
    script = tmp_path / "job.sh"
    script.write_text(f'#!/bin/sh\nexec "{ipexrun}" "{rank_program}"\n')
    done = run(["sbatch", "--wait", "--ntasks-per-node=2", "--ntasks=2", f"--output={tmp_path}/out", script], {**slurm, "OUT": str(tmp_path)})
    assert done.returncode == 0, done.shown
    (facts,) = tmp_path.glob("rank-*")
    assert len(json.loads(facts.read_text())["cpus"]) == cpus_here()
