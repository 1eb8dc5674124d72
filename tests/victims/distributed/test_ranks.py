"""Every engine, from outside (ipexrun starts it) and from inside (it starts ipexrun): each rank has its own slice and knows who it is."""
import json
import os
import pathlib
import select
import signal
import subprocess
import sys

import pytest
from conftest import check_two_ranks, cpus_here, environment, facts_of_ranks, needs_two_cpus, run


def one_line(done, code, *words):
    assert done.returncode == code, done.shown
    assert done.stdout == "" and done.stderr.count("\n") == 1 and done.stderr.startswith("ipexrun: "), done.shown
    for word in words:
        assert word in done.stderr, done.shown


@needs_two_cpus
def test_torchrun_started_by_ipexrun(ipexrun, rank_program, tmp_path, torchrun):
    done = run([ipexrun, "--nproc-per-node", 2, rank_program, "a b", "--nnodes"], environment(OUT=tmp_path))
    assert done.returncode == 0, done.shown
    facts = check_two_ranks(facts_of_ranks(tmp_path))
    assert all(one["argv"] == ["a b", "--nnodes"] for one in facts)
    assert "Setting OMP_NUM_THREADS" not in done.stderr, done.shown


@needs_two_cpus
def test_torchrun_that_starts_ipexrun(ipexrun, rank_program, tmp_path, torchrun):
    done = run([*torchrun, "--standalone", "--nproc-per-node", 2, "--no-python", ipexrun, "--explain", rank_program], environment(OUT=tmp_path))
    assert done.returncode == 0, done.shown
    check_two_ranks(facts_of_ranks(tmp_path))
    if cpus_here() >= 4:
        assert "torchrun put it there" in done.stderr, done.shown
    assert done.stderr.count("ranks      0/2") == 1 and "ranks      1/2" not in done.stderr, "one rank speaks for its host\n" + done.shown


@needs_two_cpus
def test_what_the_user_asked_torchrun_for_stays(ipexrun, rank_program, tmp_path, torchrun):
    done = run([*torchrun, "--standalone", "--nproc-per-node", 2, "--no-python", ipexrun, rank_program], environment(OUT=tmp_path, OMP_NUM_THREADS=3))
    assert done.returncode == 0, done.shown
    assert [one["OMP_NUM_THREADS"] for one in facts_of_ranks(tmp_path)] == ["3", "3"]


@needs_two_cpus
def test_mpirun_started_by_ipexrun(ipexrun, rank_program, tmp_path, mpi):
    flavour, env = mpi
    hosts = tmp_path / "hosts"
    hosts.write_text("# one host\nlocalhost slots=2\n" if flavour == "openmpi" else "localhost:2\n")
    done = run([ipexrun, "--hostfile", hosts, "--nprocs-per-node", 2, rank_program, "x"], {**env, "OUT": str(tmp_path)})
    assert done.returncode == 0, done.shown
    check_two_ranks(facts_of_ranks(tmp_path))


@needs_two_cpus
def test_mpirun_that_starts_ipexrun(ipexrun, rank_program, tmp_path, mpi):
    flavour, env = mpi
    unbound = ["--bind-to", "none", "--oversubscribe"] if flavour == "openmpi" else []
    done = run(["mpirun", *unbound, "-np", 2, ipexrun, sys.executable, rank_program], {**env, "OUT": str(tmp_path)})
    assert done.returncode == 0, done.shown
    check_two_ranks(facts_of_ranks(tmp_path))


@needs_two_cpus
@pytest.mark.parametrize("mpi", ["openmpi"], indirect=True)
def test_a_mask_that_the_engine_chose_is_kept(ipexrun, rank_program, tmp_path, mpi):
    _, env = mpi
    argv = ["mpirun", "--bind-to", "core", "--map-by", "core", "-np", 2]
    plain = run([*argv, sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"], env)
    if plain.returncode != 0 or len(set(plain.stdout.split("\n"))) < 3:
        pytest.skip("Open MPI cannot bind to cores here")
    done = run([*argv, ipexrun, sys.executable, rank_program], {**env, "OUT": str(tmp_path)})
    assert done.returncode == 0, done.shown
    masks = {tuple(one["cpus"]) for one in facts_of_ranks(tmp_path)}
    assert masks == {tuple(json.loads(line)) for line in plain.stdout.split("\n") if line}, done.shown


@needs_two_cpus
def test_a_shell_between_engine_and_rank_changes_nothing(ipexrun, rank_program, tmp_path, mpi):
    flavour, env = mpi
    unbound = ["--bind-to", "none", "--oversubscribe"] if flavour == "openmpi" else []
    done = run(["mpirun", *unbound, "-np", 2, "sh", "-c", f'"{ipexrun}" "{sys.executable}" "{rank_program}"; exit $?'], {**env, "OUT": str(tmp_path)})
    assert done.returncode == 0, done.shown
    check_two_ranks(facts_of_ranks(tmp_path))


@needs_two_cpus
def test_a_program_of_a_rank_that_uses_ipexrun_gets_no_slice_of_the_slice(ipexrun, rank_program, tmp_path, torchrun):
    done = run([ipexrun, "--nproc-per-node", 2, ipexrun, rank_program], environment(OUT=tmp_path))
    assert done.returncode == 0, done.shown
    check_two_ranks(facts_of_ranks(tmp_path))


@pytest.mark.parametrize("engine", ["torchrun", "openmpi", "mpich"])
def test_the_exit_code_of_the_rank_that_failed_comes_back(ipexrun, rank_program, tmp_path, engine, request):
    if engine == "torchrun":
        request.getfixturevalue("torchrun")
        env = environment()
        argv = [ipexrun, "--nproc-per-node", 1]
    else:
        from conftest import mpirun_folder

        env = environment()
        env["PATH"] = mpirun_folder(engine, tmp_path) + ":" + env["PATH"]
        argv = [ipexrun, "--engine", "mpirun", "--nproc-per-node", 1]
    done = run([*argv, rank_program], {**env, "OUT": str(tmp_path), "FAIL": "0"})
    assert done.returncode == 7, done.shown
    assert "ipexrun: rank 0 exited with code 7" in done.stderr, done.shown


@needs_two_cpus
def test_one_dead_rank_ends_the_job(ipexrun, tmp_path, torchrun):
    program = tmp_path / "wait.py"
    program.write_text("import os, signal\nif os.environ['RANK'] == '1': os.kill(os.getpid(), signal.SIGKILL)\nsignal.pause()\n")
    done = run([ipexrun, "--nproc-per-node", 2, program], environment())
    assert done.returncode == 137, done.shown
    assert "rank 1 was ended by signal 9" in done.stderr, done.shown


@needs_two_cpus
def test_only_the_last_attempt_counts(ipexrun, tmp_path, torchrun):
    program = tmp_path / "second.py"
    program.write_text("import os, sys\nsys.exit(5 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1' else 0)\n")
    done = run([ipexrun, "--nproc-per-node", 2, "--max-restarts", 1, program], environment())
    assert done.returncode == 0, done.shown


@pytest.mark.parametrize("engine", ["torchrun", "openmpi", "mpich"])
def test_no_rank_outlives_a_killed_ipexrun(ipexrun, tmp_path, engine, request):
    env = environment()
    if engine == "torchrun":
        request.getfixturevalue("torchrun")
        argv = [ipexrun, "--nproc-per-node", 1]
    else:
        from conftest import mpirun_folder

        env["PATH"] = mpirun_folder(engine, tmp_path) + ":" + env["PATH"]
        argv = [ipexrun, "--engine", "mpirun", "--nproc-per-node", 1]
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    program = tmp_path / "wait.py"
    # The pipe ends when the last rank is gone: SIGTERM is ignored, so it takes SIGKILL.
    program.write_text(f"import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nout = open({str(fifo)!r}, 'w')\nout.write('up\\n'); out.flush()\nwhile True: signal.pause()\n")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    launcher = subprocess.Popen([*map(str, argv), str(program)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        seen = b""
        while b"up" not in seen:
            assert select.select([reader], [], [], 0.2)[0] or launcher.poll() is None, "ended before the rank was up"
            try:
                seen += os.read(reader, 100)
            except BlockingIOError:
                pass
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
        ended, _, _ = select.select([reader], [], [], 120)
        assert ended and os.read(reader, 100) == b"", "a rank is still there"
    finally:
        launcher.kill()
        launcher.wait()
        os.close(reader)


def test_bad_requests_are_one_line(ipexrun, tmp_path):
    env = environment()
    empty = tmp_path / "empty"
    empty.write_text("# none\n")
    bad = tmp_path / "bad"
    bad.write_text("a\nb; rm\n")
    one_line(run([ipexrun, "--hostfile", tmp_path / "no", "true"], env), 2, "cannot read hostfile", "No such file")
    one_line(run([ipexrun, "--hostfile", tmp_path, "true"], env), 2, "is a directory")
    os.mkfifo(tmp_path / "pipe")
    one_line(run([ipexrun, "--hostfile", tmp_path / "pipe", "true"], env), 2, "is no regular file")
    one_line(run([ipexrun, "--hostfile", "/dev/zero", "true"], env), 2, "is no regular file")
    one_line(run([ipexrun, "--hostfile", empty, "true"], env), 2, "names no host")
    one_line(run([ipexrun, "--hostfile", bad, "true"], env), 2, "bad:2", "'b;' is no host")
    one_line(run([ipexrun, "--nproc-per-node", 2, "--ninstances", 2, "true"], env), 2, "contradict")
    one_line(run([ipexrun, "--nproc-per-node", 1, "--rdzv-endpoint", "host:port", "true"], env), 2, "HOST:PORT", "host:port")
    one_line(run([ipexrun, "--as-rank", "true"], env), 2, "names no rank")
    one_line(run([ipexrun, "--nproc-per-node", 1, "no-such-program"], env), 127, "not found")
    alone = {**env, "PATH": str(tmp_path)}
    one_line(run([ipexrun, "--engine", "mpirun", "--nproc-per-node", 1, "/bin/true"], alone), 127, "mpirun is not in PATH", "install")
    one_line(run([ipexrun, "--engine", "srun", "--nproc-per-node", 1, "/bin/true"], {**alone, "SLURM_JOB_ID": "1"}), 127, "srun is not in PATH")
    one_line(run([ipexrun, "--engine", "srun", "--nproc-per-node", 1, "/bin/true"], alone), 2, "no Slurm allocation")
    one_line(run([ipexrun, "--nproc-per-node", 1, "/bin/true"], alone), 127, "no Python in PATH")


def test_more_ranks_than_cores_are_refused(ipexrun, torchrun):
    many = cpus_here() + 1
    one_line(run([ipexrun, "--nproc-per-node", many, "true"], environment()), 2, f"--nprocs-per-node {many}", "usable")


def test_a_python_without_torch(ipexrun, tmp_path):
    fake = tmp_path / "python"
    real = pathlib.Path(sys.executable).resolve()
    fake.write_text(f'#!/bin/sh\nexec "{real}" -I -S "$@"\n')
    fake.chmod(0o755)
    if subprocess.run([fake, "-c", "import torch"], capture_output=True).returncode == 0:
        pytest.skip("torch is part of this Python itself")
    env = environment()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    one_line(run([ipexrun, "--nproc-per-node", 1, "-m", "x"], env), 127, "has no torch")


def test_dry_run_starts_nothing_and_shows_all(ipexrun, tmp_path, torchrun):
    program = tmp_path / "never.py"
    program.write_text("raise SystemExit('started')")
    argv = [ipexrun, "--nproc-per-node", 1, "--dry-run", program, "a b"]
    done = run(argv, environment())
    assert done.returncode == 0 and "--standalone --no-python" in done.stdout and "--as-rank" in done.stdout and "'a b'" in done.stdout, done.shown
    facts = json.loads(run([*argv[:-2], "--json", *argv[-2:]], environment()).stdout)
    assert facts["engine"]["name"] == "torchrun" and facts["engine"]["argv"][-1] == "a b" and len(facts["instances"]) == 1


def test_slices_of_another_machine(ipexrun):
    done = run([ipexrun, "--topology", "node:2 core:28 pu:2", "--nproc-per-node", 4, "--ccl-worker-count", 2, "--dry-run", "--json", "x.py"], environment())
    plan = json.loads(done.stdout)
    assert [one["cpus"][0] for one in plan["instances"]] == [0, 28, 56, 84], done.shown
    assert {one["threads"] for one in plan["instances"]} == {12}
    assert plan["instances"][0]["env"]["CCL_WORKER_AFFINITY"] == "0,2,28,30,56,58,84,86"


def test_the_kill_switch_still_makes_ranks(ipexrun, rank_program, tmp_path, mpi):
    _, env = mpi
    done = run([ipexrun, "--engine", "mpirun", "--nproc-per-node", 1, rank_program], {**env, "OUT": str(tmp_path), "IPEXRUN_DISABLE": "1"})
    assert done.returncode == 0, done.shown
    facts = facts_of_ranks(tmp_path)
    assert len(facts) == 1 and facts[0]["WORLD_SIZE"] == "1" and len(facts[0]["cpus"]) == cpus_here()


def test_variables_that_name_no_rank_are_said_once(ipexrun):
    done = run([ipexrun, "true"], environment(LOCAL_RANK="3", LOCAL_WORLD_SIZE="2"))
    assert done.returncode == 0 and "LOCAL_RANK=3 and LOCAL_WORLD_SIZE=2 name no rank" in done.stderr, done.shown
