#!/usr/bin/env python3
"""Steps a second of a training loop whose DataLoader works hard, with and without cores of its own for the workers (--loader-cores).

    python bench/loader_cores.py --build build/dev --workers 2 --cores 0 --cores 1 --rounds 7

Whole runs in turn, every second round in reverse order; prints the median steps/s of each and its ratio to the first, with a bootstrap interval.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import rounds  # noqa: E402

PROGRAM = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
workers, steps, passes = map(int, sys.argv[1:])
class Images(Dataset):
    def __len__(self): return 16 * (steps + 5)
    def __getitem__(self, i):
        image = torch.full((3, 64, 64), float(i % 7))
        for _ in range(passes): image = torch.nn.functional.avg_pool2d(image.sin().unsqueeze(0), 3, 1, 1).squeeze(0)
        return image, i % 10
def main():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
                              torch.nn.Flatten(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for step, (x, y) in enumerate(DataLoader(Images(), batch_size=16, num_workers=workers)):
        if step == 5: start = time.perf_counter()
        optimizer.zero_grad(); torch.nn.functional.cross_entropy(net(x), y).backward(); optimizer.step()
    print("throughput: %.3f steps/s" % (steps / (time.perf_counter() - start)))
main()
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build/dev")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--cores", action="append", help="values of --loader-cores")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--passes", type=int, default=4, help="of work on each image")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    if options.smoke:
        options.cores, options.steps, options.rounds = ["0"], 5, 1
    launcher = os.path.join(os.path.abspath(options.build), "bin", "ipexrun")
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write(PROGRAM)
        program.flush()

        def measure(cores):
            command = [launcher, "--loader-cores", cores, options.python, program.name, str(options.workers), str(options.steps), str(options.passes)]
            done = subprocess.run(command, capture_output=True, text=True)
            found = re.search(r"throughput: ([0-9.]+)", done.stdout)
            return float(found.group(1)) if found else None

        names = options.cores or ["0", "1"]
        figures = rounds.run_rounds(names, options.rounds, measure)
        for name in names:
            print(json.dumps({"loader_cores": name, "steps_per_s": sorted(figures[name])[len(figures[name]) // 2], "ratio": rounds.ratio(figures, name, names[0])}))


if __name__ == "__main__":
    main()
