#!/usr/bin/env python3
"""Graphs of backend "ipex" beside the same model converted to bf16 by hand, in calls in turn, in CPU time of one thread.

    OMP_NUM_THREADS=1 python bench/graph_vs_hand.py build/dev/lib bert_b1 llama_s128

The graph's bf16 form answers from the first call on: nothing is explored. Models have random weights. Two builds are compared by running this
once with each and dividing their ratios; the machine's own speed cancels out. The tenth of the calls that were fastest counts: about once a
second a call hashes all weights (docs/limits-op-tier.md), and a shared machine disturbs others.
"""

import argparse
import copy
import sys
import time

import torch


def llama(tokens):
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=32000, hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4
    )
    return LlamaModel(config), {"input_ids": torch.randint(0, 30000, (1, tokens)), "use_cache": False}


def bert(batch, **sizes):
    from transformers import BertConfig, BertModel

    ids = torch.randint(0, 30000, (batch, 128))
    return BertModel(BertConfig(**sizes)), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def vit(batch):
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig()), {"pixel_values": torch.randn(batch, 3, 224, 224)}


SMALL = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
MODELS = {
    "bert_b1": lambda: bert(1),
    "bert_b8": lambda: bert(8),
    "minilm_b1": lambda: bert(1, **SMALL),
    "vit_b4": lambda: vit(4),
    "llama_s128": lambda: llama(128),
    "llama_s1": lambda: llama(1),
}


def converted(inputs):
    floating = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor) and value.is_floating_point()}
    return {**inputs, **{name: value.bfloat16() for name, value in floating.items()}}


def compiled(model, compiler):
    from ipexrun.graphs import backend
    from torch._dynamo.backends.common import aot_autograd

    class Answers(compiler.Compiled):
        def __call__(self, arguments):
            values = list(arguments)
            arguments.clear()
            return self.mine(True, values)

    def inference(module, example_inputs):
        with torch._subclasses.fake_tensor.unset_fake_temporarily():
            translation = compiler.Translation(module, backend.static_inputs(len(example_inputs))).run()
            graph = Answers(module, translation, "bfloat16")
        print("  ", graph.fused[True])
        return graph

    return torch.compile(model, backend=aot_autograd(fw_compiler=inference, inference_compiler=inference))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", help="folder lib of a build")
    parser.add_argument("models", nargs="+", choices=MODELS)
    parser.add_argument("--calls", type=int, default=20)
    options = parser.parse_args()
    sys.path.insert(0, f"{options.library}/ipexrun/python")
    from ipexrun import plugin
    from ipexrun.graphs import compiler

    assert plugin.ready()
    for name in options.models:
        torch.manual_seed(0)
        torch._dynamo.reset()
        model, inputs = MODELS[name]()
        model.eval()
        by_hand, half = copy.deepcopy(model).bfloat16(), converted(inputs)
        fast = compiled(lambda **given: model(**given).last_hidden_state, compiler)
        forms = {"graph": lambda: fast(**inputs), "by hand": lambda: by_hand(**half).last_hidden_state}
        times = {form: [] for form in forms}
        with torch.no_grad():
            want = model(**inputs).last_hidden_state
            off = {form: ((call().float() - want).norm() / want.norm()).item() for form, call in forms.items()}
            for i in range(options.calls + 2):
                for form, call in forms.items():
                    for _ in range(3 if form == "graph" else 1):
                        started = time.thread_time_ns()
                        call()
                        if i > 1:
                            times[form].append(time.thread_time_ns() - started)
        ms = {form: sorted(all_times)[len(all_times) // 10] / 1e6 for form, all_times in times.items()}
        print(
            f"{name}: graph {ms['graph']:.2f} ms (error {off['graph']:.1e}), by hand {ms['by hand']:.2f} ms ({off['by hand']:.1e}), "
            f"by hand / graph {ms['by hand'] / ms['graph']:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
