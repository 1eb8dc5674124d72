"""hypertune as a user runs it: small programs, real processes, kills in the middle."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BUILD = Path(os.environ["IPEXRUN_BUILD_DIR"])
HYPERTUNE = BUILD / "bin/hypertune"
IPEXRUN = BUILD / "bin/ipexrun"
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("IPEXRUN_", "OMP_", "LD_"))} | {"IPEXRUN_CACHE": "off"}

# Prints a rate that grows with --n up to 4 and is half as much again with A=1, and notes each of its ends in ran.txt.
PROGRAM = """
import argparse, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int, default=1)
parser.add_argument("--sleep", type=float, default=0)
parser.add_argument("--hang-at", type=int, default=0)
parser.add_argument("--crash-at", type=int, default=0)
args = parser.parse_args()
time.sleep(args.sleep)
if args.n == args.hang_at:
    time.sleep(600)
if args.n == args.crash_at:
    os.abort()
rate = 100.0 * (min(args.n, 4)) * (1.5 if os.environ.get("A") == "1" else 1)
print("@hypertune {'name': 'rate', 'higher_is_better': True}")
print(rate)
with open("ran.txt", "a") as ran:
    ran.write(f"{args.n} {os.environ.get('A', '-')}\\n")
"""
QUICK = ("--warmup", "0", "--repeats", "1", "--leader-rounds", "0", "--claim-pairs", "3")


def start(folder, *args, **more):
    (folder / "program.py").write_text(PROGRAM)
    return subprocess.Popen([HYPERTUNE, *args], cwd=folder, env=CLEAN, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def tune(folder, *args):
    process = start(folder, *args)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def rows(folder):
    with open(folder / "record.csv", newline="") as file:
        return list(csv.DictReader(file))


def records(study):
    lines = (study / "journal.jsonl").read_text(errors="replace").splitlines()
    out = []
    for line in lines:
        try:
            out.append(json.loads(line)["r"])
        except (ValueError, KeyError):
            pass
    return out


def test_finds_the_best_and_ipexrun_runs_it(tmp_path):
    done = tune(tmp_path, *QUICK, "--set", "args.n=1,2,4", "--set", "env.A=~,1", sys.executable, "program.py", "--n={n}")
    assert done.returncode == 0, done.stderr
    assert "6.00x" in done.stdout and "95% interval" in done.stdout
    best = (tmp_path / "hypertune/best.yaml").read_text()
    assert re.search(r'A: "1"', best) and "--n=4" in best
    run = subprocess.run([IPEXRUN, "--config", "hypertune/best.yaml", sys.executable, "program.py", "--n=4"], cwd=tmp_path, env=CLEAN, capture_output=True, text=True, timeout=60)
    assert run.stdout.splitlines()[-1] == "600.0", run.stderr
    assert len(rows(tmp_path / "hypertune")) == 6  # n = 1 without A is the default's launch
    page = (tmp_path / "hypertune/report.html").read_text()
    assert "<svg" in page and "http" not in page
    again = tune(tmp_path, *QUICK, "--set", "args.n=1,2,4", "--set", "env.A=~,1", sys.executable, "program.py", "--n={n}")
    assert again.returncode == 0 and "6.00x" in again.stdout
    assert len((tmp_path / "ran.txt").read_text().splitlines()) == 6 + 6 + 1  # nothing was measured again
    for command in (["report", "hypertune"], ["compare", "hypertune", "hypertune"]):
        shown = tune(tmp_path, *command)
        assert shown.returncode == 0 and "600" in shown.stdout, shown.stderr


def test_another_study_in_the_folder_is_refused_and_put_aside(tmp_path):
    assert tune(tmp_path, *QUICK, "--set", "env.A=1,2", sys.executable, "program.py").returncode == 0
    other = tune(tmp_path, *QUICK, "--set", "env.A=1,3", sys.executable, "program.py")
    assert other.returncode == 2 and "another space" in other.stderr and "--fresh" in other.stderr
    assert tune(tmp_path, *QUICK, "--fresh", "--set", "env.A=1,3", sys.executable, "program.py").returncode == 0
    assert (tmp_path / "hypertune/older-1/journal.jsonl").exists()


def test_a_file_of_ipex_and_its_script_run_unchanged(tmp_path):
    (tmp_path / "conf.yaml").write_text(
        "tuning:\n  strategy: grid\n  max_trials: 100\noutput_dir: saved/\n"
        "hyperparams:\n  launcher:\n    hp: ['ncore_per_instance', 'ninstances']\n    ncore_per_instance: all_physical_cores\n    ninstances: [1]\n")
    done = tune(tmp_path, "--conf_file", "conf.yaml", "program.py", "--n", "2")
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "saved/record.csv") as file:
        assert file.readline().startswith("ncore_per_instance,ninstances,rate,")
    assert (tmp_path / "saved/best.yaml").exists()


def test_crashes_hangs_and_failures_are_data(tmp_path):
    done = tune(tmp_path, *QUICK, "--trial-timeout", "3", "--set", "args.n=1,2,3,4", sys.executable, "program.py", "--n={n}", "--hang-at=2", "--crash-at=3")
    assert done.returncode == 0, done.stderr
    states = {row["args.n"]: row["state"] for row in rows(tmp_path / "hypertune")}
    assert states == {"1": "complete", "2": "timeout", "3": "crashed", "4": "complete"}
    assert "SIGABRT" in done.stderr
    assert list((tmp_path / "hypertune/trials/0002/run1/logs").iterdir())
    assert not [line for line in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout.splitlines() if str(tmp_path) in line]


def test_ctrl_c_reports_and_the_same_command_goes_on(tmp_path):
    command = (*QUICK, "--set", "args.n=1,2,3,4", sys.executable, "program.py", "--n={n}", "--sleep=0.6")
    process = start(tmp_path, *command)
    wait_for(tmp_path / "hypertune", lambda all: sum(one["kind"] == "end" for one in all) >= 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "goes on" in out and (tmp_path / "hypertune/record.csv").exists() and (tmp_path / "hypertune/report.html").exists()
    assert not (tmp_path / "hypertune/best.yaml").exists()
    rest = tune(tmp_path, *command)
    assert rest.returncode == 0 and "4.00x" in rest.stdout, rest.stderr
    check_nothing_lost(tmp_path, 4)


def wait_for(study, condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (study / "journal.jsonl").exists() and condition(records(study)):
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


def check_nothing_lost(folder, trials):
    """Each trial has one end and one run; the program ran to its end as often as that, the final pairs included."""
    all_records = records(folder / "hypertune")
    ends = [one["trial"] for one in all_records if one["kind"] == "end"]
    assert sorted(ends) == list(range(trials)), ends
    runs = [one for one in all_records if one["kind"] in ("run", "round")]
    assert len([one for one in runs if one["kind"] == "run"]) == trials
    return len((folder / "ran.txt").read_text().splitlines()) - len(runs)


def test_kill_9_loses_no_trial_and_leaves_no_process(tmp_path):
    command = (*QUICK, "--set", "args.n=1,2,3,4", sys.executable, "program.py", "--n={n}", "--sleep=0.2")
    kills = 0
    for pause in (0.15, 0.5, 0.9, 0.35, 0.7):
        process = start(tmp_path, *command)
        time.sleep(pause)
        if process.poll() is None:
            process.kill()
            kills += 1
        process.communicate()
    done = tune(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    more = check_nothing_lost(tmp_path, 4)
    assert 0 <= more <= kills  # a run that a kill hit after the program's end and before its record is made again
    time.sleep(0.3)
    assert not [line for line in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout.splitlines() if "program.py" in line and str(tmp_path) in line]


def test_two_workers_share_the_work(tmp_path):
    command = (*QUICK, "--set", "args.n=1,2,3,4", "--set", "env.A=1,2", sys.executable, "program.py", "--n={n}", "--sleep=0.2")
    workers = [start(tmp_path, *command), start(tmp_path, *command)]
    ended = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended
    assert check_nothing_lost(tmp_path, 9) == 0
    names = {one["worker"] for one in records(tmp_path / "hypertune") if one["kind"] == "start"}
    assert len(names) == 2


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_jobs_run_on_disjoint_cores(tmp_path):
    done = tune(tmp_path, *QUICK, "--jobs", "2", "--set", "env.A=1,2,3", "sh", "-c", "echo x=$A; grep Cpus_allowed_list /proc/self/status; sleep 0.3; echo \"@hypertune {'name': 'v'}\"; echo 1$A")
    assert done.returncode == 0, done.stderr
    masks = set()
    for log in (tmp_path / "hypertune/trials").rglob("*.log"):
        masks |= set(re.findall(r"Cpus_allowed_list:\t(.*)", log.read_text()))
    assert len(masks) == 2, masks
    assert "cores-list" not in (tmp_path / "hypertune/best.yaml").read_text()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_searches_on_other_cores_do_not_wait_for_each_other(tmp_path):
    """Whoever is bound to other cores than a trial under way begins at once; on the same core it waits."""
    here, there = sorted(os.sched_getaffinity(0))[:2]
    folders = [tmp_path / name for name in ("first", "elsewhere", "same")]
    for folder in folders:
        folder.mkdir()
    search = (*QUICK, "--max-trials", "1", "--set", "env.A=1,2")
    long = ("sh", "-c", "touch began; while [ ! -e done ]; do sleep 0.05; done; echo \"@hypertune {'name': 'v'}\"; echo 1")
    first = start(folders[0], *search, *long, preexec_fn=lambda: os.sched_setaffinity(0, {here}))
    while not (folders[0] / "began").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    short = ("sh", "-c", "echo \"@hypertune {'name': 'v'}\"; echo 1")
    elsewhere = start(folders[1], *search, *short, preexec_fn=lambda: os.sched_setaffinity(0, {there}))
    _, said = elsewhere.communicate(timeout=300)
    assert elsewhere.returncode == 0 and "waiting" not in said, said
    same = start(folders[2], *search, *short, preexec_fn=lambda: os.sched_setaffinity(0, {here}))
    time.sleep(1)
    assert same.poll() is None
    (folders[0] / "done").touch()
    assert first.wait(timeout=300) == 0
    _, said = same.communicate(timeout=300)
    assert same.returncode == 0 and "waiting: a trial of another search has these cores" in said, said


def test_a_full_disk_stops_it_and_keeps_what_was_there(tmp_path):
    study = tmp_path / "hypertune"
    study.mkdir()
    (study / "journal.jsonl").symlink_to("/dev/full")
    done = tune(tmp_path, *QUICK, "--set", "env.A=1,2", sys.executable, "program.py")
    assert done.returncode == 1 and "No space left" in done.stderr and "same command again" in done.stderr


def test_what_was_asked_for_may_not_change_in_a_study(tmp_path):
    command = ("--set", "env.A=1,2", sys.executable, "program.py")
    assert tune(tmp_path, *QUICK, "--objective", "throughput", *command).returncode == 0
    for other, said in (("latency", "another objective: throughput"), ("wall", "another objective")):
        done = tune(tmp_path, *QUICK, "--objective", other, *command)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    jobs = tune(tmp_path, *QUICK, "--jobs", "2", "--objective", "wall", *command)
    assert jobs.returncode == 2 and jobs.stderr.count("another objective") == 1, jobs.stderr  # said once, not by each worker


def test_what_no_trial_keeps_leaves_no_best(tmp_path):
    study = tmp_path / "hypertune"
    command = (*QUICK, "--constraint", "rate > 1000", "--set", "args.n=1,2", sys.executable, "program.py", "--n={n}")
    assert tune(tmp_path, *command).returncode == 1
    (study / "best.yaml").write_text("of an earlier end")
    done = tune(tmp_path, *command)
    assert done.returncode == 1 and "no trial meets the constraints" in done.stdout, done.stdout + done.stderr
    assert not (study / "best.yaml").exists() and "goes on where" not in done.stdout


@pytest.mark.parametrize("name, text", [("best.yaml", "a: 1\n"), ("record.csv", "x\n"), ("report.html", ""), ("journal.jsonl", '{"mine": 1}\n')])
def test_files_of_others_are_not_overwritten(tmp_path, name, text):
    mine = tmp_path / "out" / name
    mine.parent.mkdir()
    mine.write_text(text)
    for more in ((),) if name == "journal.jsonl" else ((), ("--fresh",)):  # which puts a journal aside, whosever it is
        done = tune(tmp_path, *QUICK, *more, "--output-dir", "out", "--set", "env.A=1,2", sys.executable, "program.py")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
        assert name in done.stderr and "--output-dir" in done.stderr, done.stderr
        assert mine.read_text() == text and os.listdir(mine.parent) == [name]


def test_a_journal_that_was_killed_at_its_first_line_is_ours(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "journal.jsonl").write_text('{"r":{"kind":"stu')
    assert tune(tmp_path, *QUICK, "--output-dir", "out", "--set", "env.A=1,2", sys.executable, "program.py").returncode == 0


def test_a_folder_that_is_gone_is_one_line(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", HYPERTUNE, "--max-trials", "1", "--set", "env.A=1,2", "true"], cwd=gone, env=CLEAN,
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "current folder is gone" in done.stderr, done.stderr


def test_a_program_that_fails_is_quoted_and_the_way_out_is_said_once(tmp_path):
    done = tune(tmp_path, "--set", "env.A=1,2,3", "sh", "-c", "exit 3")
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "failed in each of the first trials: exit code 3 (ipexrun runs it the same way" in last, done.stderr
    said = tune(tmp_path, "--fresh", "--set", "env.A=1,2,3", "sh", "-c", "echo why; exit 3")
    assert said.stderr.splitlines()[-1] == "why" and "--fresh begins anew)" in said.stderr.splitlines()[-2], said.stderr


def test_an_old_file_whose_best_is_slower_ends_at_the_default(tmp_path):
    (tmp_path / "conf.yaml").write_text("hyperparams: {launcher: {hp: [ninstances], ninstances: [1]}}\n")
    program = "echo \"@hypertune {'name': 'ms'}\"; if [ \"$A\" = 1 ]; then echo 50; else echo 10; fi"
    done = tune(tmp_path, "--conf_file", "conf.yaml", "--warmup", "0", "--output-dir", "out", "--set", "env.A=~,1", "sh", "-c", program)
    assert done.returncode == 0, done.stderr
    best = (tmp_path / "out/best.yaml").read_text()
    assert "nothing was shown to be better than the default" in done.stdout and "A:" not in best, done.stdout + best


def test_a_program_that_is_not_there_leaves_no_study(tmp_path):
    missing = tune(tmp_path, *QUICK, "--set", "env.A=1,2", "./progam.py")
    assert missing.returncode == 127 and "./progam.py" in missing.stderr and len(missing.stderr.splitlines()) == 1, missing.stderr
    assert not (tmp_path / "hypertune").exists()
    assert tune(tmp_path, *QUICK, "--set", "env.A=1,2", "./program.py").returncode == 0  # the mended command is no other study


def test_a_journal_that_lost_the_best_trial_ends_no_search(tmp_path):
    """ctrl-C while the trials are made again, when the verdict of an earlier end names one that is not there."""
    command = (*QUICK, "--set", "args.n=1,2,3", sys.executable, "program.py", "--n={n}", "--sleep=0.6")
    assert tune(tmp_path, *command).returncode == 0
    journal = tmp_path / "hypertune/journal.jsonl"
    lines = [line for line in journal.read_text().splitlines(True) if not ('"kind":"start"' in line and '"trial":0' not in line)]
    journal.write_text("".join(lines))
    process = start(tmp_path, *command)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and "goes on" in out, (process.returncode, errors)
    assert tune(tmp_path, *command).returncode == 0


def test_values_reach_the_program_as_they_were_given(tmp_path):
    program = "echo \"$1|$V\" >> seen.txt; echo \"@hypertune {'name': 'v'}\"; echo 1"
    done = tune(tmp_path, *QUICK, "--claim-pairs", "0", "--set", "args.a=1.10,007,1e-5", "--set", "env.V=3.0,inf", "sh", "-c", program, "sh", "{a}")
    assert done.returncode == 0, done.stderr
    seen = set((tmp_path / "seen.txt").read_text().split())
    assert seen >= {f"{a}|{v}" for a in ("1.10", "007", "1e-5") for v in ("3.0", "inf")}, seen


def test_two_expressions_are_two_objectives(tmp_path):
    done = tune(tmp_path, *QUICK, "--objective", "max:regex:a=([0-9]+)", "--objective", "min:regex:b=([0-9]+)", "--set", "args.n=1,2,3",
                "sh", "-c", "echo a=$0; echo b=10$0", "{n}")
    assert done.returncode == 0, done.stderr
    assert {(row["value"], row["value2"]) for row in rows(tmp_path / "hypertune")} == {("1", "101"), ("2", "102"), ("3", "103")}
    twice = tune(tmp_path, "--dry-run", "--objective", "wall", "--objective", "wall", "--set", "env.A=1,2", "true")
    assert twice.returncode == 2 and "'wall' is given twice" in twice.stderr


def test_ctrl_c_is_heard_while_nothing_can_be_launched(tmp_path):
    """100 million combinations, of which the planner refuses all."""
    command = (*QUICK, "--strategy", "grid", "--max-trials", "4", "--set", "ninstances=3000..12999", "--set", "ncores-per-instance=3000..12999", sys.executable, "program.py")
    process = start(tmp_path, *command)
    wait_for(tmp_path / "hypertune", lambda all: any(one["kind"] == "end" for one in all))
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=5)
    assert process.returncode == 130, errors


def test_nohup_is_respected(tmp_path):
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    process = start(tmp_path, *QUICK, "--set", "env.A=1,2", sys.executable, "program.py", "--sleep=0.3", preexec_fn=ignore)
    wait_for(tmp_path / "hypertune", lambda all: any(one["kind"] == "start" for one in all))
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


def test_dead_workers_leave_nothing_for_ever(tmp_path):
    command = (*QUICK, "--set", "env.A=1,2", sys.executable, "program.py", "--sleep=0.5")
    process = start(tmp_path, *command)
    wait_for(tmp_path / "hypertune", lambda all: any(one["kind"] == "start" for one in all))
    process.kill()
    process.communicate()
    assert len([one for one in (tmp_path / "hypertune/workers").iterdir() if one.name != ".gate"]) == 1
    assert tune(tmp_path, *command).returncode == 0
    assert [one.name for one in (tmp_path / "hypertune/workers").iterdir()] == [".gate"]


def test_compare_writes_files(tmp_path):
    assert tune(tmp_path, *QUICK, "--set", "args.n=1,2", sys.executable, "program.py", "--n={n}").returncode == 0
    for name, inside in (("x.md", "| "), ("x.html", "<table")):
        done = tune(tmp_path, "compare", "hypertune", "hypertune", "--output", name)
        assert done.returncode == 0 and inside in (tmp_path / name).read_text() and done.stdout == "", done.stderr
    assert tune(tmp_path, "compare", "hypertune", "hypertune", "--output", "x.pdf").returncode == 2


def test_wall_time_and_bench_need_no_edit(tmp_path):
    done = tune(tmp_path, *QUICK, "--objective", "wall", "--set", "env.S=0.1,0.9", "sh", "-c", "sleep ${S:-0.4}")
    assert done.returncode == 0, done.stderr
    assert 'S: "0.1"' in (tmp_path / "hypertune/best.yaml").read_text()
    by_line = tune(tmp_path, *QUICK, "--output-dir", "line", "--set", "env.S=1,9", "sh", "-c", "echo throughput: ${S:-4} images/sec")
    assert by_line.returncode == 0 and 'S: "9"' in (tmp_path / "line/best.yaml").read_text(), by_line.stderr


def test_ipexrun_tune_is_hypertune(tmp_path):
    for args, code in ((["--help"], 0), (["--max-trails", "3", "x"], 2), (["--", "no-such-program"], 127)):
        a = subprocess.run([IPEXRUN, "tune", *args], cwd=tmp_path, env=CLEAN, capture_output=True, text=True, timeout=60)
        b = subprocess.run([HYPERTUNE, *args], cwd=tmp_path, env=CLEAN, capture_output=True, text=True, timeout=60)
        assert (a.returncode, a.stdout, a.stderr) == (b.returncode, b.stdout, b.stderr)
        assert a.returncode == code, a.stderr


def python_with_optuna():
    for python in (os.environ.get("HYPERTUNE_PYTHON", ""), sys.executable):
        if python and subprocess.run([python, "-c", "import optuna"], capture_output=True).returncode == 0:
            return python
    pytest.skip("needs a Python with Optuna")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("strategy", ["tpe", "nsga2"])
def test_optuna_keeps_the_study_in_its_own_storage(tmp_path, strategy):
    python = python_with_optuna()
    command = (*QUICK, "--strategy", strategy, "--python", python, "--max-trials", "6", "--set", "args.n=1..8", "--set", "env.A=0,1", sys.executable, "program.py", "--n={n}")
    done = tune(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert len(rows(tmp_path / "hypertune")) == 7
    code = f"import optuna; s = optuna.load_study(study_name='hypertune', storage='sqlite:///{tmp_path}/hypertune/optuna.db'); print(sum(t.state.name == 'COMPLETE' for t in s.trials), s.direction.name)"
    shown = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    count, direction = shown.stdout.split()
    assert int(count) >= 6 and direction == "MAXIMIZE", shown.stderr
    if strategy == "tpe":
        other = tune(tmp_path, *command[:-3], sys.executable, "program.py", "--n={n}", "--sleep=0")
        assert other.returncode == 2  # another command line is another study
        same = tune(tmp_path, "--fresh", *command)
        first = [(row["args.n"], row["env.A"]) for row in rows(tmp_path / "hypertune")]
        again = tune(tmp_path, "--fresh", *command)
        assert (same.returncode, again.returncode) == (0, 0)
        assert first == [(row["args.n"], row["env.A"]) for row in rows(tmp_path / "hypertune")]  # same seed, same trials


def count_in(python, storage, states="COMPLETE"):
    """Points of the finished trials of the study in a storage."""
    code = ("import optuna, sys, json; from optuna.storages import JournalStorage; from optuna.storages.journal import JournalFileBackend; u = sys.argv[1];"
            "s = optuna.load_study(study_name='hypertune', storage=JournalStorage(JournalFileBackend(u[8:])) if u.startswith('journal:') else u);"
            "print(json.dumps([[t.number, t.state.name, t.params, t.user_attrs.get('hypertune_trial')] for t in s.trials]))")
    shown = subprocess.run([python, "-c", code, storage], capture_output=True, text=True, timeout=60)
    return json.loads(shown.stdout.splitlines()[-1])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["sqlite:///{}", "journal:{}"])
def test_two_journals_share_a_storage_without_double_work(tmp_path, form):
    """Two hosts without a shared folder: a folder and a journal each, one storage."""
    python, storage = python_with_optuna(), form.format(tmp_path / "shared.db")
    hosts = [tmp_path / "a", tmp_path / "b"]
    workers = []
    for host in hosts:
        host.mkdir()
        workers.append(start(host, *QUICK, "--claim-pairs", "0", "--strategy", "tpe", "--python", python, "--storage", storage, "--max-trials", "8", "--set", "args.n=1..16", "--set",
                             "env.A=0,1", sys.executable, "program.py", "--n={n}", "--sleep=0.2"))
    ended = [worker.communicate(timeout=240) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], ended
    points = [{(row["args.n"], row["env.A"]) for row in rows(host / "hypertune") if row["trial"] != "0"} for host in hosts]
    assert [len(one) for one in points] == [8, 8] and not points[0] & points[1], points
    known = count_in(python, storage)
    assert len([one for one in known if one[1] == "COMPLETE"]) >= 16 and not [one for one in known if one[1] == "RUNNING"]
    other = tune(hosts[0], *QUICK, "--output-dir", "other", "--strategy", "tpe", "--python", python, "--storage", storage, "--set", "args.n=1..9", sys.executable, "program.py", "--n={n}", "--sleep=0.2")
    assert other.returncode == 2 and "another space" in other.stderr and "--study-name" in other.stderr, other.stderr


def test_a_default_that_fails_does_not_stop_optuna(tmp_path):
    done = tune(tmp_path, *QUICK, "--strategy", "tpe", "--python", python_with_optuna(), "--max-trials", "4", "--set", "args.n=1,2,3,4", sys.executable, "program.py", "--n={n}", "--crash-at=1")
    assert done.returncode == 0 and "could not be measured" in done.stdout, done.stdout + done.stderr


TOP = Path(__file__).resolve().parents[2]
PAGES = [TOP / "docs/tuning.md", TOP / "README.md"]


def shown_commands():
    out = []
    for page in PAGES:
        out += re.findall(r"^    (?:\$ )?hypertune (.*)$", page.read_text(), re.M)
    out += re.findall(r"`hypertune ([^`]*)`", PAGES[0].read_text())
    return [re.split(r" {3,}| +# ", line)[0] for line in out if not re.search(r"PROGRAM|DIR|STUDY", line)]


@pytest.mark.parametrize("line", shown_commands())
def test_a_command_of_a_page_is_understood(tmp_path, line):
    block = re.search(r"^## The search space\n\n((?:    .*\n|\n)+)", PAGES[0].read_text(), re.M).group(1)
    (tmp_path / "space.yaml").write_text(re.sub("^    ", "", block, flags=re.M))
    (tmp_path / "old.yaml").write_text("hyperparams: {launcher: {hp: [ninstances]}}")
    for name in ("serve.py", "script.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "examples").symlink_to(TOP / "examples")
    words = [] if "--dry-run" in line else ["--dry-run", "--topology", "core:2 pu:2"]
    done = tune(tmp_path, *words, *shlex.split(line))
    assert done.returncode == 0 and "strategy: " in done.stdout, done.stderr
    block = re.search(re.escape("    $ hypertune " + line) + r"\n((?:    .*\n)+)", PAGES[0].read_text())
    for shown in block.group(1).splitlines() if block else []:
        assert shown[4:] in done.stdout, done.stdout


def test_without_optuna_the_way_out_is_said(tmp_path):
    done = tune(tmp_path, "--strategy", "tpe", "--python", "/usr/bin/env", "--set", "env.A=1,2", "true")
    assert done.returncode in (1, 2) and not (tmp_path / "hypertune/record.csv").exists()
