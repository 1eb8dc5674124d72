#!/usr/bin/env python3
"""Convolutions of ResNet-50 in a bf16 training step, one by one: forward, gradient of the image, gradient of the weight, images channels last.

    OMP_NUM_THREADS=1 python bench/training_convolutions.py

Of torch's own kernels (oneDNN), and where a window is one pixel of torch's products of matrices beside them; no ipexrun. Prints a line of json for each
size: how often a step has it, least CPU milliseconds of a pass, and each pass as a share of what it would take at the rate of a product of 2048^3 in bf16;
then the sums over a step.
"""

import argparse
import json
import time

import torch

LAST, BF16 = torch.channels_last, torch.bfloat16
PASSES = ("forward", "image", "weight")


def sizes():
    """{(channels in, out, window, stride, height in): how many of ResNet-50's}"""
    found, channels, height = {(3, 64, 7, 2, 224): 1}, 64, 56
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            ones = [(channels, width, 1, 1, height), (width, width, 3, stride, height), (width, 4 * width, 1, 1, height // stride)]
            for one in ones + [(channels, 4 * width, 1, stride, height)] * (block == 0):
                found[one] = found.get(one, 0) + 1
            channels, height = 4 * width, height // stride
    return found


def least_ms(call, times):
    call()
    found = []
    for _ in range(times):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return 1e3 * min(found)


def measured(images, size, times):
    channels, out, window, stride, height = size
    x = torch.randn(images, channels, height, height).to(BF16).contiguous(memory_format=LAST)
    w = torch.randn(out, channels, window, window).to(BF16)
    settings = ([stride] * 2, [window // 2] * 2, [1, 1], False, [0, 0], 1)
    y = torch.ops.aten.convolution(x, w, None, *settings)
    g = torch.randn_like(y)

    def backward(*mask):
        return lambda: torch.ops.aten.convolution_backward(g, x, w, None, *settings, [*mask, False])

    calls = {"forward": lambda: torch.ops.aten.convolution(x, w, None, *settings), "image": backward(True, False), "weight": backward(False, True)}
    if channels == 3:
        del calls["image"]  # nobody asks for it
    found = {name: least_ms(call, times) for name, call in calls.items()}
    products = {}
    if window == stride == 1:
        rows, given, of = x.permute(0, 2, 3, 1).reshape(-1, channels), g.permute(0, 2, 3, 1).reshape(-1, out), w.view(out, channels)
        products = {name: least_ms(call, times) for name, call in (("forward", lambda: rows @ of.t()), ("image", lambda: given @ of),
                                                                   ("weight", lambda: given.t() @ rows))}
    return found, products, 2e-9 * y.numel() * channels * window * window


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--times", type=int, default=4, help="of which the least counts")
    parser.add_argument("--smoke", action="store_true", help="seconds: one image, two sizes")
    options = parser.parse_args()
    chosen = sizes()
    if options.smoke:
        options.images, options.times, chosen = 1, 1, dict(list(chosen.items())[-2:])
    a, b = (torch.randn(2048, 2048).to(BF16) for _ in range(2))
    rate = 2e-9 * 2048**3 / least_ms(lambda: a @ b, options.times) * 1e3
    sums = {"convolutions": dict.fromkeys(PASSES, 0.0), "products where a window is one pixel": dict.fromkeys(PASSES, 0.0), "at the rate": dict.fromkeys(PASSES, 0.0)}
    for size, count in chosen.items():
        found, products, gflop = measured(options.images, size, options.times)
        print(json.dumps({"size": size, "count": count, "ms": {name: round(ms, 2) for name, ms in found.items()},
                          "of_the_rate": {name: round(1e3 * gflop / ms / rate, 2) for name, ms in found.items()},
                          "products_ms": {name: round(ms, 2) for name, ms in products.items()}}), flush=True)
        for name, ms in found.items():
            sums["convolutions"][name] += count * ms
            sums["products where a window is one pixel"][name] += count * products.get(name, ms)
            sums["at the rate"][name] += count * 1e3 * gflop / rate
    print(json.dumps({"gflops": round(rate), "ms": {what: {name: round(ms, 1) for name, ms in row.items()} for what, row in sums.items()}}))


if __name__ == "__main__":
    main()
