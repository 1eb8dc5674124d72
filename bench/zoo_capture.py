"""One model family in one process, as an unedited program under ipexrun that captures modules (docs/capture.md). Started by zoo.py with a JSON
request on the command line; writes one JSON object to the file named there. Without ipexrun in the process it makes the same calls on stock,
so that what the two print can be compared.
"""

import copy
import dataclasses
import json
import sys
import time
import warnings

import torch
import zoo_child
import zoo_rule
from models.zoo import SIZES

ALTERNATING = 12  # calls of all sizes in turn, the first of them
OTHER_EVERY = 8  # afterwards every such call is one of another size
AT_THE_END = 2  # calls of each size
TOKENS = 8
QUIET = 4  # calls in a row in which no kernel was tried
OPEN = ("being captured", "trying its graphs", "racing stock")
OPTIONS = ({"output_hidden_states": True}, {"return_dict": False}, {"output_hidden_states": True, "return_dict": False})


def hook_of_this_process():
    return sys.modules.get("_ipexrun_hook")


def with_tail(generated):
    return {"tokens": generated if isinstance(generated, torch.Tensor) else generated.sequences}


class Question:
    """Arguments, and what stock answers to them."""

    def __init__(self, name, inputs, stock, kind, truth, noise):
        self.name, self.inputs, self.stock, self.kind, self.truth, self.noise = name, inputs, stock, kind, truth, noise
        self.batch = next(iter(inputs.values())).shape[0]


class Program(zoo_child.Comparison):
    def __init__(self, request):
        super().__init__(request)
        self.hook = hook_of_this_process()
        self.forced, self.stock_bf16 = [], {}
        self.model.eval()
        self.base = copy.deepcopy(self.model)  # what stock answers with: the model itself is called as a program would
        self.record |= {"threads": torch.get_num_threads(), "module": type(self.model).__name__}

    def report(self):
        import ipexrun

        return ipexrun.report()

    def on_stock(self, function):
        """As if ipexrun were not there."""
        if self.hook is not None:
            self.hook.set_enabled(False)
        try:
            with torch.no_grad():
                return function()
        finally:
            if self.hook is not None:
                self.hook.set_enabled(True)

    # ---- what is asked -----------------------------------------------------------------------------------------------------------------

    def other_inputs(self):
        """The family's inputs, with another batch, and of another length where it has one."""
        size = SIZES[self.request["size"]]
        for name, more in (("batch", {"batch": size.batch + 1}), ("length", {"length": 3 * size.length // 4, "samples": 3 * size.samples // 4})):
            zoo_child.seed_all(self.seed + 1)
            inputs = self.family.build(dataclasses.replace(size, **more))[1]
            if [v.shape for v in inputs.values()] != [v.shape for v in self.inputs.values()]:
                yield name, inputs

    def question(self, name, inputs):
        """None where stock refuses."""
        self.inputs, self.batch = inputs, next(iter(inputs.values())).shape[0]
        try:
            raw = self.on_stock(lambda: self.base(**inputs))
        except (TypeError, ValueError, RuntimeError, IndexError, AttributeError) as problem:
            self.record.setdefault("refused", {})[name] = str(problem)[:120]
            return None
        model, self.model = self.model, self.base
        try:
            stock = self.on_stock(lambda: self.call(inputs=inputs))
            truth, noise = self.on_stock(lambda: self.find_truth(stock, self.call, lambda: self.call(self.nudged_copy())))
        finally:
            self.model = model
        return Question(name, inputs, stock, type(raw), truth, noise)

    def questions(self):
        own = self.inputs
        sizes = [self.question("own", own)] + [self.question(name, inputs) for name, inputs in self.other_inputs()]
        options = [self.question(", ".join(more), own | more) for more in OPTIONS]
        return [one for one in sizes if one], [one for one in options if one]

    # ---- what is answered --------------------------------------------------------------------------------------------------------------

    def ask(self, question):
        self.inputs, self.batch, self.spread = question.inputs, question.batch, None
        self.stock, self.truth, self.noise = question.stock, question.truth, question.noise
        zoo_child.seed_all(self.seed)
        with torch.no_grad():
            raw = self.model(**question.inputs)
        if type(raw) is not question.kind:
            self.judge(question.name, {"kind": f"{type(raw).__name__} instead of {question.kind.__name__}"}, float("inf"))
        mode = f"{question.name}, call {self.calls}"
        self.calls += 1
        before = len(self.record["wrong"])
        wrong = self.compare(zoo_rule.tensors_of(raw), question.stock, question.truth, question.noise)
        self.worst = max(self.worst, wrong[1])
        if wrong[0]:
            self.on_stock(lambda: self.judge_inference(mode, zoo_rule.tensors_of(raw), question.stock, question.truth, question.noise))
            if len(self.record["wrong"]) > before:
                self.record.setdefault("wrong_while", {})[mode] = [one["state"] for one in self.modules()]

    def nudged_copy(self, seed=None):
        model, self.model = self.model, self.base
        try:
            return super().nudged_copy(seed)
        finally:
            self.model = model

    def modules(self):
        return self.report().get("modules", []) if self.hook is not None else []

    def settle(self, sizes):
        """Until its modules are decided, and the kernels inside of their graphs, which a form that won goes on to choose in the calls that it answers."""
        until = time.monotonic() + self.request["select_seconds"]
        graph = torch.classes.ipexrun.Graph() if self.hook is not None else None
        quiet, runs = 0, -1
        for i in range(self.request["select_calls"]):
            if graph is None or time.monotonic() > until:
                return
            now = graph.choosing_runs()
            quiet, runs = quiet + 1 if now == runs else 0, now
            if i > 3 and quiet >= QUIET and not any(one["state"] in OPEN for one in self.modules()):
                return
            self.ask(sizes[(i // OTHER_EVERY) % len(sizes)] if i % OTHER_EVERY == OTHER_EVERY - 1 else sizes[0])

    # ---- decoders ------------------------------------------------------------------------------------------------------------------------

    def writer(self):
        """The model, or its sibling with a head, where it writes text; and the model's arguments for that."""
        module = sys.modules[type(self.model).__module__]
        plain = type(self.model).__name__.removesuffix("Model")
        inputs = {name: value for name, value in self.own.items() if not name.startswith("decoder_")}
        for name in (type(self.model).__name__, f"{plain}ForCausalLM", f"{plain}ForConditionalGeneration", f"{plain}LMHeadModel"):
            kind = getattr(module, name, None)
            if "decod" in self.family.kind or any(one.startswith("decoder_") for one in self.own):
                if kind is not None and hasattr(kind, "generate") and kind.can_generate():
                    zoo_child.seed_all(self.seed)
                    return kind(copy.deepcopy(self.model.config)).eval(), inputs
        return None, {}

    def write(self):
        model, inputs = self.writer()
        if model is None:
            return
        settings = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False, "use_cache": True}

        def generated(inputs):
            with torch.no_grad():
                return with_tail(model.generate(**inputs, **settings))

        asked = [inputs, {name: value[:1] for name, value in inputs.items()}]
        try:
            stock = [self.on_stock(lambda one=one: generated(one)) for one in asked]
        except Exception as problem:  # of this family's own
            self.record["cannot_write"] = f"{type(problem).__name__}: {str(problem)[:120]}"
            return
        for i in range(self.request["texts"]):
            wrong, _ = zoo_rule.compare(generated(asked[i % 2]), stock[i % 2], None, "float32")
            if wrong and self.dtype == "float32":
                self.judge(f"generate {i}", wrong, 1.0)
            elif wrong:  # bf16 may choose another word
                self.record["other_words"] = self.record.get("other_words", 0) + 1
        self.record["wrote"] = [one["state"] for one in self.modules() if one["module"] == type(model).__name__]

    def run(self):
        self.calls, self.worst, self.own = 0, 0.0, self.inputs
        sizes, options = self.questions()
        for i in range(ALTERNATING):
            self.ask(sizes[i % len(sizes)])
        self.settle(sizes)
        for question in 2 * options + AT_THE_END * sizes:
            self.ask(question)
        self.record["error"]["all"] = self.worst
        self.inputs = self.own
        if self.hook is not None and self.request["speed_seconds"] > 0:
            with torch.no_grad():
                for _ in range(3):
                    self.model(**self.own)
            self.speed()
            self.hook.set_enabled(True)
            self.record |= {"calls": self.calls, "modules": self.modules()}
        self.write()
        if self.hook is not None:
            said = self.report()
            self.record["all_modules"] = said.get("modules", [])
            self.record["graphs"] = said.get("graphs", [])
        self.record["equal"] = not self.record["wrong"]
        return self.record


def main():
    request = json.loads(sys.argv[1])
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    record = Program(request).run()
    with open(request["answer"], "w", encoding="utf-8") as file:
        json.dump(record, file)


if __name__ == "__main__":
    main()
