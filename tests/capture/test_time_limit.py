"""A trace that would not end (python/ipexrun/capture/time_limit.py, dynamo_calls.py): it is ended, the module answers, and nothing is raised in the program.

Risk covered: a program that stands still while it is traced; an exception of ours that comes after the work it was meant for, or never.
"""

import contextlib
import os
import subprocess
import sys
import textwrap
import threading

import pytest

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
sys.path.insert(0, f"{BUILD}/lib/ipexrun/python")


def spin(until=lambda: False):
    while not until():
        pass


def test_work_that_does_not_end_is_ended():
    from ipexrun.capture import time_limit

    with pytest.raises(time_limit.TookTooLong):
        with time_limit.TimeLimit(0.0):
            spin()


def test_once_more_where_somebody_swallows_it():
    from ipexrun.capture import time_limit

    swallowed = 0
    with pytest.raises(time_limit.TookTooLong):
        with time_limit.TimeLimit(0.0):
            try:
                spin()
            except BaseException:
                swallowed += 1
            spin()
    assert swallowed == 1


def test_nothing_comes_after_work_that_ended():
    """However late that was: the exception may be on its way when the body ends."""
    from ipexrun.capture import time_limit

    for _ in range(20):
        with contextlib.suppress(time_limit.TookTooLong):
            with time_limit.TimeLimit(0.0) as limit:
                spin(lambda: limit.fired)
        for _ in range(1000):
            pass  # where one that is left would be raised
    with time_limit.TimeLimit(3600.0):
        pass


def test_others_go_on_meanwhile():
    from ipexrun.capture import time_limit

    ended, go = [], threading.Event()

    def other():
        go.wait()
        ended.append(sum(range(1000)))

    thread = threading.Thread(target=other)
    thread.start()
    before = threading.active_count()
    with pytest.raises(time_limit.TookTooLong):
        with time_limit.TimeLimit(0.0):
            assert threading.active_count() == before  # the one that looks is none of the program's
            go.set()
            spin()
    thread.join()
    assert ended == [sum(range(1000))]


@pytest.mark.parametrize("wrap", [lambda problem: problem, lambda problem: caused(RuntimeError("inside"), problem)])
def test_what_stands_for_it_is_known(wrap):
    from ipexrun.capture import time_limit

    assert time_limit.is_over(wrap(time_limit.TookTooLong()))
    assert not time_limit.is_over(wrap(KeyboardInterrupt()))


def caused(problem, cause):
    problem.__cause__ = cause
    return problem


PROGRAM = textwrap.dedent("""
    import json, sys, threading, torch
    from ipexrun.capture import prices
    prices.TIMES_LONGER, prices.LEAST_S = 0, 1.0

    class Long(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            for _ in range(3000):
                x = x + 1e-3
            return self.inside(x)

    torch.manual_seed(0)
    model, x = Long().eval(), torch.randn(8, 32)
    with torch.no_grad():
        results = [model(x) for _ in range(12)]
    assert model.calls == 12
    assert all(torch.allclose(one, results[0], rtol=1e-4, atol=1e-5) for one in results)
    assert threading.enumerate() == [threading.main_thread()]
    import ipexrun
    json.dump({one["module"]: one for one in ipexrun.report()["modules"]}, sys.stdout)
""")


@pytest.mark.parametrize("options", [("--graph-mode", "dynamo"), ()])
def test_a_module_whose_trace_takes_too_long_answers_itself(options):
    import json

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0", "PYTHONPATH": f"{BUILD}/lib/ipexrun/python"}
    command = [f"{BUILD}/bin/ipexrun", "--dtype", "float32", *options, sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    modules = json.loads(done.stdout)
    assert "its trace took too long" in modules["Long"]["state"]
    assert "Sequential" in modules  # looked at by itself


def test_what_python_cannot_raise_is_not_told(capfd):
    """It comes upon a `__del__`."""
    from ipexrun.capture import time_limit

    class Spins:
        def __del__(self):
            spin(lambda: limit.fired)
            for _ in range(1000):
                pass

    told = []
    before, sys.unraisablehook = sys.unraisablehook, told.append
    mine = sys.unraisablehook
    try:
        with contextlib.suppress(time_limit.TookTooLong):
            with time_limit.TimeLimit(0.0) as limit:
                Spins()
                spin()
        assert sys.unraisablehook == mine
    finally:
        sys.unraisablehook = before
    assert not told and not capfd.readouterr().err
