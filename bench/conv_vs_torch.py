"""Is our convolution faster than stock's best, a prepacked oneDNN convolution on channels-last images?

By kernels/conv.h; layers with windows of one pixel, in bf16, by kernels/linear.h, as the op tier does. Layers that are not depthwise are
computed in bf16: those in f32 have images of it, which stock converts before and after.
Stock is mkldnn::_convolution_pointwise with the weight reordered for this very input, what stock's compiler emits; ours has its weight
packed as well. Bias is in both. The two are called in turn, back and forth, by the thread's CPU time: "fastest" compares the fastest
calls, "pairs" is the median of stock / ours of neighbouring calls. Weights rotate over --cold MiB (more than L2), the images
are the same at each call, as after a layer before; ours allocates its output with torch, as stock does.
Before the race both are held against torch in doubles. Prints a table, or JSON with --json.

Run it in the Python that has torch: python bench/conv_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so
"""

import argparse
import ctypes
import itertools
import json
import statistics
import sys
import time

import torch

from linear_vs_torch import stock_packs

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
VOID, I32, F64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_double
LAYERS = {
    # name: (batch, channels in, channels out, image, kernel, stride, padding, groups, dilation where it is not 1)
    "MobileNetV2 112 32 3x3": (1, 32, 32, (112, 112), 3, 1, 1, 32),
    "MobileNetV2 112 96 3x3/2": (1, 96, 96, (112, 112), 3, 2, 1, 96),
    "MobileNetV2 56 144 3x3": (1, 144, 144, (56, 56), 3, 1, 1, 144),
    "MobileNetV2 28 192 3x3": (1, 192, 192, (28, 28), 3, 1, 1, 192),
    "MobileNetV2 14 384 3x3": (1, 384, 384, (14, 14), 3, 1, 1, 384),
    "MobileNetV2 14 576 3x3/2": (1, 576, 576, (14, 14), 3, 2, 1, 576),
    "MobileNetV2 7 960 3x3": (1, 960, 960, (7, 7), 3, 1, 1, 960),
    "MobileNetV2 7 960 3x3, batch 8": (8, 960, 960, (7, 7), 3, 1, 1, 960),
    "EfficientNet 56 144 5x5/2": (1, 144, 144, (56, 56), 5, 2, 2, 144),
    "EfficientNet 28 240 5x5": (1, 240, 240, (28, 28), 5, 1, 2, 240),
    "EfficientNet 14 672 5x5": (1, 672, 672, (14, 14), 5, 1, 2, 672),
    "EfficientNet 7 1152 5x5": (1, 1152, 1152, (7, 7), 5, 1, 2, 1152),
    "ConvNeXt 56 96 7x7": (1, 96, 96, (56, 56), 7, 1, 3, 96),
    "ConvNeXt 28 192 7x7": (1, 192, 192, (28, 28), 7, 1, 3, 192),
    "ConvNeXt 14 384 7x7": (1, 384, 384, (14, 14), 7, 1, 3, 384),
    "ConvNeXt 7 768 7x7": (1, 768, 768, (7, 7), 7, 1, 3, 768),
    "Conformer 250 512 31": (1, 512, 512, (250,), 31, 1, 15, 512),
    "Mamba 128 1536 4": (1, 1536, 1536, (128,), 4, 1, 3, 1536),
    "X3D 8x14x14 128 3x3x3": (1, 128, 128, (8, 14, 14), 3, 1, 1, 128),
    "tiny 4 32 3x3": (1, 32, 32, (4, 4), 3, 1, 1, 32),
    "dense ResNet-50 56 64 3x3": (1, 64, 64, (56, 56), 3, 1, 1, 1),
    "dense ResNet-50 28 128 3x3": (1, 128, 128, (28, 28), 3, 1, 1, 1),
    "dense ResNet-50 14 256 3x3": (1, 256, 256, (14, 14), 3, 1, 1, 1),
    "dense ResNet-50 7 512 3x3": (1, 512, 512, (7, 7), 3, 1, 1, 1),
    "dense ResNet-50 56 128 3x3/2": (1, 128, 128, (56, 56), 3, 2, 1, 1),
    "dense ResNet-50 28 256 3x3/2": (1, 256, 256, (28, 28), 3, 2, 1, 1),
    "dense ResNet-50 14 512 3x3/2": (1, 512, 512, (14, 14), 3, 2, 1, 1),
    "dense ResNet-50 56 256 1x1/2": (1, 256, 512, (56, 56), 1, 2, 0, 1),
    "dense ResNet-50 stem 7x7/2": (1, 3, 64, (224, 224), 7, 2, 3, 1),
    "dense MobileNetV2 stem 3x3/2": (1, 3, 32, (224, 224), 3, 2, 1, 1),
    "dense ConvNeXt stem 4x4/4": (1, 3, 96, (224, 224), 4, 4, 0, 1),
    "dense ViT 16x16/16": (1, 3, 768, (224, 224), 16, 16, 0, 1),
    "dense 56 64 3x3, batch 8": (8, 64, 64, (56, 56), 3, 1, 1, 1),
    "dense 14 256 3x3, batch 8": (8, 256, 256, (14, 14), 3, 1, 1, 1),
    "dense 7 512 3x3, batch 8": (8, 512, 512, (7, 7), 3, 1, 1, 1),
    "dense UNet 64 320 3x3": (1, 320, 320, (64, 64), 3, 1, 1, 1),
    "dense UNet 8 1280 3x3": (1, 1280, 1280, (8, 8), 3, 1, 1, 1),
    "dense dilated 28 256 3x3": (1, 256, 256, (28, 28), 3, 1, 2, 1, 2),
    "dense 8x28x28 64 3x3x3": (1, 64, 64, (8, 28, 28), 3, 1, 1, 1),
    "dense wav2vec 16000 1 10/5": (1, 1, 512, (16000,), 10, 5, 0, 1),
    "dense wav2vec 3199 512 3/2": (1, 512, 512, (3199,), 3, 2, 0, 1),
    "dense Whisper 3000 80 3": (1, 80, 384, (3000,), 3, 1, 1, 1),
    "dense Whisper 3000 384 3/2": (1, 384, 384, (3000,), 3, 2, 1, 1),
    "dense ResNeXt 56 32 of 4": (1, 128, 128, (56, 56), 3, 1, 1, 32),
    "dense ResNeXt 28 32 of 8": (1, 256, 256, (28, 28), 3, 1, 1, 32),
    "dense ResNeXt 7 32 of 32": (1, 1024, 1024, (7, 7), 3, 1, 1, 32),
    "dense wav2vec 49 16 of 48 128": (1, 768, 768, (49,), 128, 1, 64, 16),
    "dense tiny 14 32 3x3": (1, 32, 32, (14, 14), 3, 1, 1, 1),
    "ResNet-50 56 64 to 64": (1, 64, 64, (56, 56), 1, 1, 0, 1),
    "ResNet-50 56 64 to 256": (1, 64, 256, (56, 56), 1, 1, 0, 1),
    "ResNet-50 56 256 to 64": (1, 256, 64, (56, 56), 1, 1, 0, 1),
    "ResNet-50 28 512 to 128": (1, 512, 128, (28, 28), 1, 1, 0, 1),
    "ResNet-50 14 1024 to 256": (1, 1024, 256, (14, 14), 1, 1, 0, 1),
    "ResNet-50 14 256 to 1024": (1, 256, 1024, (14, 14), 1, 1, 0, 1),
    "ResNet-50 7 2048 to 512": (1, 2048, 512, (7, 7), 1, 1, 0, 1),
    "ResNet-50 7 512 to 2048": (1, 512, 2048, (7, 7), 1, 1, 0, 1),
    "MobileNetV2 56 144 to 24": (1, 144, 24, (56, 56), 1, 1, 0, 1),
    "MobileNetV2 28 192 to 32": (1, 192, 32, (28, 28), 1, 1, 0, 1),
    "MobileNetV2 14 96 to 576": (1, 96, 576, (14, 14), 1, 1, 0, 1),
    "MobileNetV2 7 960 to 320": (1, 960, 320, (7, 7), 1, 1, 0, 1),
}


def padded(values, fill):
    return [fill] * (3 - len(values)) + list(values)


def numbers(values):
    return (ctypes.c_int64 * len(values))(*values)


class Layer:
    """`ours` and `stock` compute it with the next of their weights."""

    def __init__(self, lib, layer, dtype, level, cold):
        batch, channels_in, channels_out, image, kernel, stride, padding, groups, *dilation = layer
        dilation = dilation[0] if dilation else 1
        product = groups == 1 and kernel == stride == 1
        dense = not product and (groups != channels_in or groups != channels_out)
        if len(image) == 1:  # stock puts a dimension in front of a single one as well
            image, kernel, stride, padding, dilation = (1, *image), (1, kernel), (1, stride), (0, padding), (1, dilation)
        else:
            kernel, stride, padding, dilation = ((v,) * len(image) for v in (kernel, stride, padding, dilation))
        last = torch.channels_last if len(image) == 2 else torch.channels_last_3d
        x = torch.randn(batch, channels_in, *image).to(dtype).contiguous(memory_format=last)
        bias = torch.randn(channels_out).to(dtype)
        inside = torch.bfloat16 if dense else dtype
        weight = torch.randn(channels_out, channels_in // groups, *kernel).to(inside)
        bf16, packed = int(dtype == torch.bfloat16), int(inside == torch.bfloat16)
        sizes = numbers([channels_in, channels_out, groups, *padded(kernel, 1)])
        if product:
            size = lib.ipexrun_bench_packed_bytes(channels_in, channels_out)
        else:
            size = lib.ipexrun_bench_pack_conv(packed, packed, weight.data_ptr(), sizes, None)
        copies = max(1, min(2000, cold // max(size, weight.numel() * weight.itemsize)))
        reordered = [torch.ops.mkldnn._reorder_convolution_weight(weight, padding, stride, dilation, groups, x.shape) for _ in range(copies)]
        memory = torch.empty(copies * (size + 63) // 64 * 64 + 64 * copies, dtype=torch.uint8)
        first = -memory.data_ptr() % 64 + memory.data_ptr()
        packs = [first + i * ((size + 63) // 64 * 64) for i in range(copies)]
        weight_f32 = weight.float()
        for pack in packs:
            if product:
                lib.ipexrun_bench_pack(weight_f32.data_ptr(), channels_in, channels_out, pack)
                continue
            lib.ipexrun_bench_pack_conv(packed, packed, weight.data_ptr(), sizes, pack)
        stock_weights, packs = itertools.cycle(reordered), itertools.cycle(packs)

        stock_bias = bias.to(inside)

        def stock():
            return torch.ops.mkldnn._convolution_pointwise(x.to(inside), next(stock_weights), stock_bias, padding, stride, dilation, groups,
                                                           "none", [], "").to(dtype)

        result = stock()
        axes = zip(*(padded(values, fill) for values, fill in
                     ((image, 1), (result.shape[2:], 1), (kernel, 1), (stride, 1), (padding, 0), (dilation, 1))))
        description = numbers([batch, channels_in, channels_out, groups, *itertools.chain(*axes), 0, 0])

        bias_f32 = bias.float()

        def as_product():
            out = torch.empty_like(result)
            pixels = x.numel() // channels_in
            if not lib.ipexrun_bench_linear(x.data_ptr(), 1, next(packs), bias_f32.data_ptr(), 0, None, out.data_ptr(), 1, pixels,
                                            channels_out, channels_in, 1, None, level):
                sys.exit("not computed")
            return out

        def ours():
            out = torch.empty_like(result)
            if not lib.ipexrun_bench_conv(bf16, packed, x.data_ptr(), next(packs), bias.data_ptr(), None, out.data_ptr(), description, 0.0, 0.0,
                                          1, None, level):
                sys.exit("not computed")
            return out

        self.ours, self.stock, self.keep = as_product if product else ours, stock, (memory, reordered)
        convolve = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[len(image)]
        self.truth = convolve(x.to(inside).double(), weight.double(), bias.double(), stride, padding, dilation, groups)
        self.flops = 2 * result.numel() * weight[0].numel()


def error(result, truth):
    return float((result.double() - truth).norm() / truth.norm())


def race(stock, ours, seconds):
    """Microseconds of the fastest calls of both, and the median ratio of neighbours."""
    best, ratios = [float("inf")] * 2, []
    stock(), ours()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(ratios) < 5:
        pair = [0, 0]
        for i in (0, 1) if len(ratios) % 2 else (1, 0):
            start = time.thread_time_ns()
            (stock, ours)[i]()
            pair[i] = time.thread_time_ns() - start
            best[i] = min(best[i], pair[i] / 1e3)
        ratios.append(pair[0] / max(pair[1], 1))
    return *best, statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--seconds", type=float, default=0.3, help="a row")
    parser.add_argument("--level", help="cap ours at this instruction level, for example avx2")
    parser.add_argument("--layers", default="", help="only those whose name has this in it")
    parser.add_argument("--cold", type=int, default=16, help="MiB of weights")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--smoke", action="store_true", help="small shapes, to see that it runs")
    args = parser.parse_args()
    if args.smoke:
        args.seconds, args.layers, args.cold = 0.01, "tiny", 0
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    lib = ctypes.CDLL(args.library)
    lib.ipexrun_bench_pack_conv.argtypes = [I32, I32, VOID, VOID, VOID]
    lib.ipexrun_bench_pack_conv.restype = ctypes.c_size_t
    lib.ipexrun_bench_conv.argtypes = [I32, I32, VOID, VOID, VOID, VOID, VOID, VOID, F64, F64, I32, VOID, ctypes.c_char_p]
    i64 = ctypes.c_int64
    lib.ipexrun_bench_packed_bytes.argtypes, lib.ipexrun_bench_packed_bytes.restype = [i64, i64], ctypes.c_size_t
    lib.ipexrun_bench_pack.argtypes = [VOID, i64, i64, VOID]
    lib.ipexrun_bench_linear.argtypes = [VOID, I32, VOID, VOID, I32, VOID, VOID, I32, i64, i64, i64, I32, VOID, ctypes.c_char_p]
    rows = []
    if not args.json:
        print(f"torch {torch.__version__}, 1 thread; stock/ours above 1 means ours is faster")
        print("layer                            dtype   stock us    ours us  ours GFLOP/s | fastest  pairs")
    has_bf16 = stock_packs(torch.bfloat16)
    if not has_bf16:
        print("left out: bf16, and all that is dense, whose weights are bf16 inside; stock packs none on this CPU", file=sys.stderr)
    for name, shape in LAYERS.items():
        for dtype_name, dtype in DTYPES.items():
            if args.layers not in name or (" to " in name and dtype != torch.bfloat16):
                continue
            if not has_bf16 and (dtype == torch.bfloat16 or name.startswith("dense")):
                continue
            layer = Layer(lib, shape, dtype, args.level.encode() if args.level else None, args.cold << 20)
            errors = error(layer.ours(), layer.truth), error(layer.stock(), layer.truth)
            if not errors[0] <= 2 * errors[1] + (1e-6 if dtype == torch.float32 else 8e-3):
                sys.exit(f"{name} in {dtype_name} is wrong: relative error {errors[0]:.2g}, stock {errors[1]:.2g}")
            stock, ours, pairs = race(layer.stock, layer.ours, args.seconds)
            row = {"layer": name, "dtype": dtype_name, "stock_us": stock, "us": ours, "gflops": layer.flops / ours / 1e3,
                   "fastest": stock / ours, "pairs": pairs, "error": errors}
            rows.append(row)
            if not args.json:
                print(f"{name:32} {dtype_name:>5} {stock:10.1f} {ours:10.1f} {row['gflops']:13.1f} | {row['fastest']:7.2f} {pairs:6.2f}", flush=True)
    if args.json:
        json.dump({"torch": torch.__version__, "rows": rows}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
