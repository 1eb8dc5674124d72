"""How fast do networks of convolutions run by torch.compile(backend="ipex")?

Beside the untouched model (float32) and the model that somebody converted by hand (bf16, channels last), all in one process, in blocks of
calls that take turns: a block begins with a call that is not counted, so each form finds the caches as it left them. Random weights, batch
norms with statistics of their own. The clock is the thread's CPU time on one thread, else the wall's. Relative error and cosine are those of
the results beside float32's. Prints a table, or JSON with --json.

Run it in the Python that has torch and transformers: python bench/compiled_images.py --build build/dev --model resnet50 --batch 1
"""

import argparse
import copy
import json
import os
import statistics
import sys
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/dev")
    parser.add_argument("--model", default="resnet50", choices=["resnet50", "mobilenet_v2", "regnet", "efficientnet", "small"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--calls", type=int, default=8, help="in a block, with the one that is not counted")
    parser.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="a small model, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.model, args.blocks, args.calls = "small", 2, 3
    return args


def model_of(name):
    import torch
    import transformers as t

    torch.manual_seed(0)
    model = {
        "resnet50": lambda: t.ResNetForImageClassification(t.ResNetConfig()),
        "mobilenet_v2": lambda: t.MobileNetV2ForImageClassification(t.MobileNetV2Config()),
        "regnet": lambda: t.RegNetForImageClassification(t.RegNetConfig()),
        "efficientnet": lambda: t.EfficientNetForImageClassification(t.EfficientNetConfig(image_size=224)),
        "small": lambda: t.ResNetForImageClassification(t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1])),
    }[name]().eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return model


def main():
    args = arguments()
    sys.path.insert(0, os.path.join(args.build, "lib", "ipexrun", "python"))
    os.environ.setdefault("IPEXRUN_CACHE", "off")
    import ipexrun
    import torch

    torch.set_num_threads(args.threads)
    model = model_of(args.model)
    size = 64 if args.model == "small" else 224
    x = torch.randn(args.batch, 3, size, size)
    by_hand = copy.deepcopy(model).bfloat16().to(memory_format=torch.channels_last)
    x_by_hand = x.bfloat16().to(memory_format=torch.channels_last)
    compiled = torch.compile(model, backend="ipex", options={"dtype": args.dtype})
    forms = {
        "stock float32": lambda: model(x).logits,
        "by hand bf16": lambda: by_hand(x_by_hand).logits,
        "backend ipex": lambda: compiled(x).logits,
    }
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    times = {name: [] for name in forms}
    with torch.no_grad():
        for _ in range(60):  # until the race is over
            compiled(x)
        truth = forms["stock float32"]().float()
        results = {name: form().float() for name, form in forms.items()}
        for block in range(args.blocks):
            for name in list(forms)[:: 1 if block % 2 == 0 else -1]:
                for call in range(args.calls):
                    start = clock()
                    forms[name]()
                    if call > 0:
                        times[name].append(clock() - start)
    rows = []
    for name in forms:
        off = (results[name] - truth).norm() / truth.norm()
        rows.append(
            {
                "form": name,
                "median_ms": statistics.median(times[name]) * 1e3,
                "fastest_ms": min(times[name]) * 1e3,
                "times_ours": statistics.median(times[name]) / statistics.median(times["backend ipex"]),
                "error": off.item(),
            }
        )
    if args.json:
        print(json.dumps({"model": args.model, "batch": args.batch, "rows": rows, "graphs": ipexrun.report()["graphs"]}))
        return
    print(f"{args.model}, batch {args.batch}, {args.threads} threads; {ipexrun.report()['graphs']}")
    for row in rows:
        print(
            f"{row['form']:14s} median {row['median_ms']:8.2f} ms, fastest {row['fastest_ms']:8.2f}; "
            f"times ours {row['times_ours']:.2f}; error {row['error']:.1e}"
        )


main()
