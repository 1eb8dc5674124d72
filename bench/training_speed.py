#!/usr/bin/env python3
"""Steps of unedited training loops under ipexrun beside stock and the loop tuned by hand (training_loops.py), in processes that take turns.

"By hand, compiled" is the latter through torch.compile, that is Inductor.

    python bench/training_speed.py --build build/dev --model bert --model resnet --rounds 15

Each round every process does a few steps, every second round in reverse order; the figure of a round is the median step. Prints the median of
the rounds, the ratio of stock's time to each contender's with a bootstrap interval, and what ipexrun says it did.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import rounds  # noqa: E402
import training_options  # noqa: E402

SAID = "__import__('sys').modules['ipexrun'].report() if 'ipexrun' in __import__('sys').modules else {}"
MODULES = "__import__('sys').modules['ipexrun'].report().get('modules', []) if 'ipexrun' in __import__('sys').modules else []"


WARM = 4  # steps of contenders that measure nothing


class Contender:
    """A process that makes steps when it is asked to."""

    def __init__(self, command, folder, name, environment):
        path = os.path.join(folder, name)
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path)
            door.listen(1)
            door.settimeout(300)
            self.process = subprocess.Popen([*command[:-2], path, *command[-2:]], env=environment, stderr=open(path + ".err", "w"))
            self.line, _ = door.accept()
        self.talk = self.line.makefile("rw")
        self.talk.readline()

    def ask(self, **request):
        print(json.dumps(request), file=self.talk, flush=True)
        answer = json.loads(self.talk.readline())
        if isinstance(answer, dict) and "problem" in answer:
            raise RuntimeError(answer["problem"])
        return answer

    def step_s(self, steps, clock):
        return statistics.median(took for _, took in self.ask(do="calls", seconds=0, least=steps, clock=clock))

    def end(self):
        self.talk.close()
        self.line.close()
        self.process.wait(timeout=60)


def measure(options, model, folder):
    program = [options.python, os.path.join(HERE, "training_loops.py"), model]
    launcher = training_options.launcher(options)
    commands = {"stock": [*program, "plain"], "by hand": [*program, "hand"], "by hand, compiled": [*program, "hand_compiled"],
                "ipexrun": [*launcher, *program, "plain"],
                "ipexrun, compiled": [*launcher, *program, "compiled"],
                "ipexrun float32": [*launcher, "--dtype", "float32", *program, "plain"],
                "ipexrun, operators": [*launcher, "--graph-mode", "off", *program, "plain"],
                "ipexrun, captured": [*launcher, *program, "plain"]}  # at once, where it wins
    commands = {name: command for name, command in commands.items() if not options.contender or name in ("stock", "ipexrun", *options.contender)}
    environment = training_options.environment(PYTHONPATH=HERE)
    at_once = {"ipexrun, captured": {"IPEXRUN_GRAPH_WAIT": "0"}}
    contenders = {name: Contender(command, folder, f"{model}-{number}", {**environment, **at_once.get(name, {})})
                  for number, (name, command) in enumerate(commands.items())}
    try:
        for name, contender in contenders.items():
            contender.step_s(options.warm if name.startswith("ipexrun") else min(options.warm, WARM), options.clock)
        figures = rounds.run_rounds(contenders, options.rounds, lambda name: 1 / contenders[name].step_s(options.steps, options.clock))
        said = contenders["ipexrun"].ask(do="ask", expression=SAID)
        captured = contenders["ipexrun, captured"].ask(do="ask", expression=MODULES) if "ipexrun, captured" in contenders else []
    finally:
        for contender in contenders.values():
            contender.end()
    out = {name: {"ms": round(1e3 / statistics.median(seen), 1), "times_stock": rounds.ratio(figures, name, "stock")} for name, seen in figures.items()}
    sites = [site for site in said.get("sites", []) if "training=1" in site.get("site", "") or "backward" in site.get("site", "")]
    return {"model": model, "steps_a_round": options.steps, "clock": options.clock, "contenders": out, "optimizers": said.get("optimizers", []), "modules": captured,
            "sites": {choice: sum(site["choice"] == choice for site in sites) for choice in sorted({site["choice"] for site in sites})}}


def main():
    parser = training_options.parser(__doc__)
    parser.add_argument("--model", action="append", choices=["bert", "resnet", "mlp"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=2, help="of each process in a round")
    parser.add_argument("--warm", type=int, default=40, help="steps before the rounds: ipexrun explores")
    parser.add_argument("--contender", action="append", help="besides stock and ipexrun; default: all")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: for machines that do other work beside")
    parser.add_argument("--smoke", action="store_true", help="seconds: a small model, few rounds")
    options = parser.parse_args()
    if options.smoke:
        options.model, options.rounds, options.warm = ["mlp"], 2, 3
    with tempfile.TemporaryDirectory() as folder:
        for model in options.model or ["bert", "resnet"]:
            print(json.dumps(measure(options, model, folder)), flush=True)


if __name__ == "__main__":
    main()
