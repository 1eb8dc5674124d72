"""The checks of torch.distributions stay as the program has them (python/ipexrun/capture/dynamo_calls.py), inside of captured modules and elsewhere.

Risk covered: TorchDynamo switches them off in the whole process when something is first compiled, so that wrong arguments become NaN without a word.
"""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch
from torch import nn
from torch.distributions import Distribution, Normal

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4))
        self.scale = nn.Parameter(torch.zeros(4))
    def forward(self, x, action, factor):
        return Normal(self.layers(x), self.scale.exp() * factor).log_prob(action).sum(-1)

def told(function, *values):
    try:
        return "nan" if function(*values).isnan().any() else "ok"
    except ValueError as problem:
        return str(problem)[:32]

torch.manual_seed(0)
net, policy = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)).eval(), Policy().eval()
said = []
with torch.no_grad():
    for _ in range(60):
        net(torch.randn(16, 32))
    said += [Distribution._validate_args, told(lambda: Normal(0.0, -1.0).sample())]
    for now in None, False, True:
        if now is not None:
            Distribution.set_default_validate_args(now)
        for i in range(30):
            said.append(told(policy, torch.randn(16, 32), torch.full((16, 4), float("nan") if i % 5 == 4 else 1.0), 1.0 if i % 3 else -1.0))
for _ in range(2):  # the program's own first compilation ends them, as ever
    torch.compile(nn.Linear(2, 2), backend="eager")
    said.append(Distribution._validate_args)
    Distribution.set_default_validate_args(True)
print(said)
"""


def run(*launcher):
    environment = {**os.environ, "IPEXRUN_CACHE": "off", "IPEXRUN_GRAPH_WAIT": "0"}
    done = subprocess.run([*launcher, sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def stock():
    return run()


@pytest.mark.parametrize("mode", ["auto", "dynamo", "trace"])
def test_checks_are_the_programs(stock, mode):
    assert "'Expected parameter scale" in stock and "'nan'" in stock and stock.endswith("False, True]\n")
    assert run(f"{os.environ['IPEXRUN_BUILD_DIR']}/bin/ipexrun", "--graph-mode", mode) == stock
