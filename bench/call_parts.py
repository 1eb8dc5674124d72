"""What a captured module's call takes besides its graph's steps: our check of hooks, TorchDynamo's guards and code, AOTAutograd's wrapper, ours.

    IPEXRUN_GRAPH_WAIT=0 ipexrun python bench/call_parts.py --model resnet

Medians in microseconds; guards also alone, after a call (which fills the caches with weights) and once more at once. torch 2.13's insides are read,
so another version may need another look.
"""

import argparse
import collections
import statistics
import sys
import time

import torch


def model_of(name):
    from transformers import BertConfig, BertModel, ResNetConfig, ResNetModel

    torch.manual_seed(0)
    if name == "resnet":
        return ResNetModel(ResNetConfig()).eval(), {"pixel_values": torch.randn(1, 3, 224, 224)}
    small = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    length = 16 if name == "small" else 128
    return BertModel(BertConfig(**small if name == "small" else {})).eval(), {"input_ids": torch.randint(0, 30000, (1, length))}


def timed(function, times):
    def call(*args, **kwargs):
        start = time.perf_counter_ns()
        result = function(*args, **kwargs)
        times.append(time.perf_counter_ns() - start)
        return result

    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["resnet", "bert", "small"], default="resnet")
    parser.add_argument("--seconds", type=float, default=25, help="of calls before: it is captured, and its races end")
    parser.add_argument("--calls", type=int, default=150)
    options = parser.parse_args()
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    from ipexrun.capture import capturable, capture, module_notes

    from ipexrun.graphs import backend, compiler

    model, inputs = model_of(options.model)
    times = collections.defaultdict(list)
    with torch.no_grad():
        until = time.monotonic() + options.seconds
        while time.monotonic() < until:
            model(**inputs)
        said = [note["state"] for note in module_notes.report()]
        if "captured" not in said:
            sys.exit(f"call_parts: not captured but {said or 'not looked at'}; run it under ipexrun, with IPEXRUN_GRAPH_WAIT=0")
        (target,) = [one for one in capture.targets if one.note["state"] == "captured"]
        frame = target.run._torchdynamo_orig_callable
        guards = _debug_get_cache_entry_list(frame.__code__)[0].guard_manager.root
        for owner, name in ((compiler.Compiled, "mine"), (compiler.Compiled, "__call__"), (backend.Retreat, "__call__"), (capturable.Hooks, "are_these")):
            setattr(owner, name, timed(getattr(owner, name), times[owner, name]))
        target.run = timed(target.run, times["run"])
        call = timed(model.__call__, times["call"])
        for _ in range(options.calls):
            call(**inputs)
        for kind in ("guards alone, after a call", "guards alone, at once again"):
            check = timed(guards.check, times[kind])
            for _ in range(options.calls):
                if kind.endswith("call"):
                    model(**inputs)
                check({"module": model, "args": (), "kwargs": inputs})
    us = {kind: statistics.median(values) / 1e3 for kind, values in times.items()}
    mine, ours = us[compiler.Compiled, "mine"], us[compiler.Compiled, "__call__"]
    wrapped, run = us[backend.Retreat, "__call__"], us["run"]
    rows = [("the whole call", us["call"]), ("our check of hooks", us[capturable.Hooks, "are_these"]), ("TorchDynamo's guards and code", run - wrapped),
            ("AOTAutograd's wrapper", wrapped - ours), ("our choice of a form", ours - mine), ("the graph", mine),
            *((kind, value) for kind, value in us.items() if isinstance(kind, str) and kind.startswith("guards"))]
    for what, value in rows:
        print(f"{what:32s} {value:10.1f} us")


if __name__ == "__main__":
    main()
