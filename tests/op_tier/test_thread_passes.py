"""Risk: a server that answers each request in a thread of its own never gets bf16, since no thread sees a pass come back; or gets it unchecked."""

import pytest
from test_drift import needs_bf16, outcome  # noqa: F401: a fixture that every test here uses

REQUESTS = """
def request(work):
    result = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start(); thread.join()
    return result[0]
"""


def served(tmp_path, body):
    return outcome(tmp_path, REQUESTS + body)


@pytest.mark.parametrize("layers", [20, 3], ids=["a pass that is checked by itself", "passes that are checked together"])
def test_a_thread_for_each_request(tmp_path, layers):
    report = served(tmp_path, f"""
plugin_loader.start()
model, x = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range({layers})]).eval(), torch.randn(64, 256)
expected = stock(lambda: model(x).detach())
def work():
    with torch.no_grad(): return error(model(x), expected)
errors = [request(work) for _ in range(120)]
print(json.dumps({{**report(), "errors": errors}}))
""")
    assert report["drift"]["checks"] >= 1 and report["drift"]["failed"] == report["drift"]["aborted"] == 0
    assert report["drift"]["fine"] == layers
    assert report["errors"][0] == 0.0 and 1e-4 < report["errors"][-1] < 1e-2


def test_requests_of_two_kinds_take_turns(tmp_path):
    report = served(tmp_path, """
plugin_loader.start()
models, x = [torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(layers)]).eval() for layers in (20, 24)], torch.randn(64, 256)
expected = [stock(lambda: model(x).detach()) for model in models]
def work(kind):
    with torch.no_grad(): return error(models[kind](x), expected[kind])
errors = [request(lambda: work(i % 2)) for i in range(160)]
print(json.dumps({**report(), "errors": errors}))
""")
    assert report["drift"]["fine"] == 44 and report["drift"]["aborted"] == 0
    assert 1e-4 < min(report["errors"][-2:]) and max(report["errors"]) < 1e-2


def test_a_model_in_which_rounding_grows_keeps_the_rule(tmp_path):
    report = served(tmp_path, """
plugin_loader.start()
model, x = chaotic()
with torch.no_grad(): expected = stock(lambda: model(x))
def work():
    with torch.no_grad(): return error(model(x), expected)
errors = [request(work) for _ in range(120)]
print(json.dumps({**report(), "errors": errors}))
""")
    assert report["drift"]["failed"] >= 1
    assert max(report["errors"]) < 3e-2


def test_a_state_that_goes_from_request_to_request_stays_exact(tmp_path):
    """Its steps are not known to hang together, as those of one thread are."""
    report = served(tmp_path, """
plugin_loader.start()
model, state = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(20)]).eval(), torch.randn(64, 256)
exact = state
def work(given):
    with torch.no_grad(): return model(given) + given
apart = 0.0
for _ in range(80):
    state = request(lambda: work(state))
    exact = stock(lambda: work(exact))
    apart = max(apart, error(state, exact))
# Passes of one thread are looked at all the same.
other = torch.randn(64, 256)
with torch.no_grad():
    for _ in range(80): model(other)
print(json.dumps({**report(), "apart": apart}))
""")
    assert report["apart"] == 0.0
    assert report["drift"]["aborted"] == 0 and report["drift"]["fine"] == 20


def test_threads_that_end_earlier_than_those_before(tmp_path):
    report = served(tmp_path, """
plugin_loader.start()
model, x = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(24)]).eval(), torch.randn(64, 256)
def work(layers):
    with torch.no_grad(): return model[:layers](x).sum().item()
for i in range(60): request(lambda: work(20 if i % 3 else 4 + i % 7))
with torch.no_grad():
    for _ in range(80): model(x)
print(json.dumps(report()))
""")
    assert report["drift"]["aborted"] == 0 and report["drift"]["fine"] == 24


def test_a_fork_between_two_threads_of_a_check(tmp_path):
    report = served(tmp_path, """
import os, time
plugin_loader.start()
model, x = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(3)]).eval(), torch.randn(64, 256)
expected = stock(lambda: model(x).detach())
def work():
    with torch.no_grad(): return error(model(x), expected)
children = []
for i in range(60):
    request(work)
    if i % 4 == 0:
        while len(os.listdir("/proc/self/task")) > 1: time.sleep(0.001)  # MKL's own lock is held while a joined thread still ends
        pid = os.fork()
        if pid == 0:
            os._exit(0 if max(request(work) for _ in range(20)) < 1e-2 else 1)
        children.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps({**report(), "children": children}))
""")
    assert set(report["children"]) == {0}
    assert report["drift"]["fine"] == 3
