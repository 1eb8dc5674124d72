"""Bad input, one sentence each, on the real binary: one clear line on stderr, nothing on stdout, the right exit code, nothing started."""

import os
import subprocess
from pathlib import Path

import pytest

BINARY = Path(os.environ["IPEXRUN_BUILD_DIR"]) / "bin" / "ipexrun"


@pytest.fixture
def run(tmp_path):
    marker = tmp_path / "started"
    script = tmp_path / "app.sh"
    script.write_text(f"#!/bin/sh\ntouch {marker}\n")
    script.chmod(0o755)

    def call(*args, env=None):
        done = subprocess.run([BINARY, *args], capture_output=True, text=True, cwd=tmp_path, timeout=60,
                              env={**os.environ, "IPEXRUN_LOG": "", **(env or {})})
        done.started = marker.exists()
        return done

    call.folder = tmp_path
    return call


def expect(done, code, *parts):
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert not done.started
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("ipexrun: "), done.stderr
    for part in parts:
        assert part in lines[0]


def test_fails_for_unknown_option(run):
    expect(run("--ninstance", "2", "./app.sh"), 2, "unknown option '--ninstance'", "did you mean --ninstances?")


def test_fails_without_a_program(run):
    expect(run(), 2, "no PROGRAM given", "ipexrun --help")


def test_fails_for_a_value_that_is_no_number(run):
    expect(run("--ninstances", "two", "./app.sh"), 2, "--ninstances needs auto or a whole number", "'two'")


def test_fails_for_more_instances_than_cores(run):
    expect(run("--ninstances", "60000", "./app.sh"), 2, "60000", "usable")


def test_fails_for_a_core_outside_of_the_machine(run):
    expect(run("--cores-list", "60000", "./app.sh"), 2, "CPU 60000", "allowed: ")


def test_fails_for_a_node_outside_of_the_machine(run):
    expect(run("--nodes-list", "4000", "./app.sh"), 2, "NUMA node 4000", "allowed: ")


def test_fails_for_an_instance_that_the_plan_does_not_have(run):
    expect(run("--instance-idx", "1", "./app.sh"), 2, "--instance-idx 1", "1 instance")


def test_fails_for_a_program_that_is_not_there(run):
    expect(run("./no-such-program"), 127, "./no-such-program")


def test_fails_for_a_script_that_is_not_there(run):
    expect(run("no-such-script.py"), 127, "no-such-script.py")


def test_fails_for_a_program_that_is_not_executable(run):
    (run.folder / "data").write_text("x")
    expect(run("./data"), 126, "data")


def test_fails_for_contradicting_modes(run):
    expect(run("--latency-mode", "--throughput-mode", "./app.sh"), 2, "contradict")


def test_fails_for_a_log_folder_that_cannot_be_made(run):
    (run.folder / "file").write_text("")
    expect(run("--log-dir", "file/logs", "./app.sh"), 1, "file/logs")


def test_fails_for_a_config_with_an_unknown_key(run):
    (run.folder / "c.yaml").write_text("ninstances: 1\nnstances: 2\n")
    expect(run("--config", "c.yaml", "./app.sh"), 2, "c.yaml:2", "nstances", "did you mean ninstances?")


def test_fails_for_a_list_where_a_config_has_one_value(run):
    (run.folder / "c.yaml").write_text("ninstances: [1, 2]\n")
    expect(run("--config", "c.yaml", "./app.sh"), 2, "c.yaml:1", "ninstances needs one value, not a list")


def test_fails_for_a_module_that_is_not_to_run_under_python(run):
    expect(run("--no-python", "-m", "this"), 2, "-m and --no-python contradict each other")


def test_fails_for_m_without_a_module(run):
    expect(run("-m", "--ninstances", "1"), 2, "-m needs the name of a Python module")


@pytest.mark.parametrize("words", [
    ["--core-list", "0, 0", "--ninstances", "1", "--ncores-per-instance", "1", "--rank", "0", "{app}"],  # run_cpu's own example
    ["--instance-idx", "-1", "{app}"],
    ["--log-dir", "", "{app}"],
    ["--multi_instance", "--ninstances", "1", "{app}"],
    ["--multi-instance", "--ncores_per_instance", "1", "--ninstances", "1", "--node_id", "0", "{app}"],
    ["--logical_core_for_ccl", "{app}"],
    ["-m", "--ninstances", "1", "this"],
])
def test_command_lines_of_other_launchers_run(run, words):
    allowed = sorted(os.sched_getaffinity(0))[0]
    done = run(*(word.format(app="./app.sh").replace("0, 0", f"{allowed}, {allowed}") for word in words))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.started or "Zen of Python" in done.stdout


def test_a_folder_of_libraries_that_is_not_there_is_named(run):
    done = run("./app.sh", env={"IPEXRUN_LIB_DIR": "/no/such/folder"})
    assert done.started and done.stderr == "ipexrun: launch only: the folder '/no/such/folder' of IPEXRUN_LIB_DIR does not exist\n"


def test_words_of_ipexrun_log_count_in_any_case(run):
    assert "instance 0: pid" in run("./app.sh", env={"IPEXRUN_LOG": "INFO"}).stderr


def test_fails_for_a_config_that_is_no_yaml(run):
    (run.folder / "c.yaml").write_text("a: [1\nb: }\n")
    expect(run("--config", "c.yaml", "./app.sh"), 2, "c.yaml:", "not valid YAML")


def test_fails_for_a_topology_without_dry_run(run):
    expect(run("--topology", "node:2 core:2 pu:1", "./app.sh"), 2, "--dry-run")


def test_fails_for_a_topology_that_is_none(run):
    expect(run("topology", "--topology", "nonsense:9x"), 2, "nonsense:9x")


def test_fails_for_a_space_file_that_is_missing(run):
    expect(run("tune", "--conf-file", "x.yaml", "./app.sh"), 2, "x.yaml", "No such file")


def test_fails_for_a_save_config_that_cannot_be_written(run):
    expect(run("--save-config", "no/such/folder/c.yaml", "./app.sh"), 1, "no/such/folder/c.yaml")


def test_refuses_ipex_benchmark_with_a_hint(run):
    expect(run("--benchmark", "./app.sh"), 2, "--bench")


def test_help_survives_a_reader_that_goes_away(run):
    done = subprocess.run(f"{BINARY} --help | head -1; echo ${{PIPESTATUS[0]}}", shell=True, executable="/bin/bash", capture_output=True,
                          text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0", done.stdout


def test_the_kill_switch_runs_the_program_as_it_is(run):
    done = run("--ninstances", "60000", "--auto-ipex", "--log-dir", "/no/such", "env", env={"IPEXRUN_DISABLE": "1"})
    assert done.returncode == 0 and done.stderr == ""
    assert "OMP_NUM_THREADS=" not in done.stdout and "LD_PRELOAD=" not in done.stdout.replace(
        f"LD_PRELOAD={os.environ.get('LD_PRELOAD')}", "")


def test_the_kill_switch_keeps_silent_about_a_failing_program(run):
    done = run("sh", "-c", "kill -TERM $$", env={"IPEXRUN_DISABLE": "1"})
    assert done.returncode == 143 and done.stderr == ""


def test_a_saved_config_plans_the_same(run):
    plain = run("--dry-run", "--json", "--save-config", "c.yaml", "--ninstances", "1", "--no-pin", "--dtype", "float32", "./app.sh")
    again = run("--dry-run", "--json", "--config", "c.yaml", "./app.sh")
    assert plain.returncode == 0, plain.stderr
    assert plain.stdout == again.stdout


def test_dry_run_and_topology_start_nothing(run):
    assert not run("--dry-run", "--explain", "./app.sh").started
    assert run("topology").returncode == 0
    assert run("topology", "--json").stdout.startswith("{")


@pytest.mark.parametrize("variable", ["DISABLE=y", "DISABLE=2", "DTYPE=foo", "SELECT=foo", "GRAPH_MODE=foo", "GRAPH_WAIT=-1", "INDUCTOR=foo", "PACK_MEMORY=-5", "PACK_CHECK=foo",
                                      "WAITING=foo", "MAX_ISA=foo", "INHERIT=foo", "XPU=foo", "LOG=foo", "LARGE_TILES=foo"])
def test_fails_for_a_value_that_a_variable_of_ours_cannot_have(run, variable):
    name, value = ("IPEXRUN_" + variable).split("=")
    for more in ((), ("xpu",), ("--dry-run",)):
        expect(run(*more, "./app.sh", env={name: value}), 2, f"{name}={value}", "unset it")


def test_a_variable_of_the_environment_reaches_the_program_and_an_ipexrun_in_it(run):
    variables = {"IPEXRUN_DTYPE": "float32", "IPEXRUN_INHERIT": "all", "IPEXRUN_MODE": "observe"}
    (run.folder / "app.sh").write_text("#!/bin/sh\necho $IPEXRUN_DTYPE $IPEXRUN_INHERIT $IPEXRUN_MODE $IPEXRUN_GRAPH_MODE\n")
    assert run("./app.sh", env=variables).stdout == "float32 all observe\n"
    assert run("--dtype", "auto", "./app.sh", env=variables).stdout == "auto all observe\n"
    (run.folder / "config.yaml").write_text("dtype: bfloat16\n")
    assert run("--config", "config.yaml", "./app.sh", env=variables).stdout == "bfloat16 all observe\n"
    inner = run("--dtype", "float32", "--graph-mode", "off", "--select", "off", "--pack-memory", "1M", str(BINARY), "--ninstances", "1", "./app.sh")
    assert inner.returncode == 0 and inner.stdout == "float32 all optimize off\n", inner.stderr


def test_fails_for_a_host_of_a_number_that_there_is_not(run):
    expect(run("--node-rank", "1", "./app.sh"), 2, "--node-rank 1, but the job has 1 host")
    expect(run("--nnodes", "2", "--node-rank", "2", "--master-addr", "h", "./app.sh"), 2, "2 hosts", "numbered from 0 to 1")
    expect(run("--nnodes", "1:4", "--node-rank", "4", "--rdzv-endpoint", "h:1", "./app.sh"), 2, "4 hosts")


def test_fails_for_options_of_ranks_without_ranks(run):
    clean = {name: "" for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    for option, value in (("--ccl-worker-count", "2"), ("--master-addr", "x"), ("--master-port", "5")):
        expect(run(option, value, "./app.sh", env=clean), 2, option, "--nprocs-per-node")


def test_fails_for_a_mistyped_command(run):
    expect(run("topolgy"), 127, "did you mean ipexrun topology?")
    (run.folder / "topolgy").write_text("#!/bin/sh\necho mine\n")
    (run.folder / "topolgy").chmod(0o755)
    assert run("topolgy", env={"PATH": f"{run.folder}:{os.environ['PATH']}"}).stdout == "mine\n"


def test_fails_for_a_sysroot_that_describes_no_machine(run):
    (run.folder / "empty").mkdir()
    expect(run("--sysroot", "empty", "--dry-run", "./app.sh"), 2, "neither proc nor sys")
    expect(run("topology", "--sysroot", "empty"), 2, "neither proc nor sys")


def test_fails_for_an_allocator_without_malloc(run):
    with open("/proc/self/maps") as maps:
        libraries = {line.split()[-1] for line in maps if "/libm.so" in line or "/libm-" in line}
    if not libraries:
        pytest.skip("no library without malloc is loaded here")
    expect(run("--memory-allocator", libraries.pop(), "./app.sh"), 2, "has no malloc")


def test_without_proc_that_is_what_is_said(run):
    hidden = ["unshare", "-m", "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], capture_output=True).returncode != 0:
        pytest.skip("/proc cannot be hidden here")
    done = subprocess.run([*hidden, BINARY, "doctor"], capture_output=True, text=True, timeout=60)
    assert "/proc is not mounted" in done.stdout and "not installed (package" not in done.stdout and "install again" not in done.stdout, done.stdout
    done = subprocess.run([*hidden, BINARY, "tune", "x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "/proc is not mounted" in done.stderr
