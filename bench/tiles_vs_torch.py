"""3 x 3 convolutions by tiles of 2 x 2 and 4 x 4 results (kernels/winograd.h) and by windows (kernels/linear.h, linear_f32.h) beside stock's prepacked oneDNN convolution.

All with a bias and relu on channels-last images: stock's is mkldnn::_convolution_pointwise with the weight reordered for this very input, and its relu a
call of its own (the fused one loses NaN), as captured graphs have it. float32, and bf16 inside (images and results bf16). They are called in turn by
the clock (one thread: by its CPU time); microseconds are medians, ratios those of stock's time to ours in the same round, "GFLOP/s" counts the multiply-adds of windows. Errors are relative
RMS beside torch in doubles, on the same images.

Run it in the Python that has torch: python bench/tiles_vs_torch.py build/dev/lib/libipexrun_kernels_capi.so --threads 2
"""

import argparse
import ctypes
import functools
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from gemm_vs_torch import I64, INT, VOID, Kernels, aligned
from linear_vs_torch import stock_packs

LAYERS = [(1, 64, 56), (1, 128, 28), (1, 256, 14), (1, 512, 7), (16, 64, 56), (16, 128, 28), (16, 256, 14), (16, 512, 7), (1, 64, 224), (1, 320, 64), (1, 512, 28)]

WAYS = ["windows", "F(2x2)", "F(4x4)"]


class Layer:
    def __init__(self, kernels, images, channels, size, bf16):
        self.tail, self.bf16, self.sizes = kernels.tail, int(bf16), (images, channels, channels, size, size)
        self.call = kernels.function("3x3", INT, INT, VOID, VOID, VOID, VOID, I64, I64, I64, I64, I64, INT, VOID, ctypes.c_char_p)
        size_of = kernels.function("3x3_bytes", INT, INT, I64, I64, result=ctypes.c_size_t)
        pack = kernels.function("3x3_pack", INT, INT, VOID, I64, I64, VOID, result=None)
        self.dtype = torch.bfloat16 if bf16 else torch.float32
        self.x = torch.randn(images, channels, size, size).relu().to(self.dtype, memory_format=torch.channels_last)
        self.weight = (torch.randn(channels, channels, 3, 3) / (4.5 * channels) ** 0.5).contiguous(memory_format=torch.channels_last)
        self.bias = torch.randn(channels)
        self.reordered = torch.ops.mkldnn._reorder_convolution_weight(self.weight.to(self.dtype), [1, 1], [1, 1], [1, 1], 1, list(self.x.shape))
        self.packs = {}
        for tiles in (0, 2, 4):
            size = size_of(tiles, self.bf16, channels, channels)
            self.packs[tiles] = aligned(size) if size else None
            if size:
                pack(tiles, self.bf16, self.weight.data_ptr(), channels, channels, self.packs[tiles].data_ptr())

    def stock(self):
        bias = self.bias.to(self.dtype)
        return torch.relu_(torch.ops.mkldnn._convolution_pointwise(self.x, self.reordered, bias, [1, 1], [1, 1], [1, 1], 1, "none", [], None))

    def ours(self, tiles):
        out = torch.empty_like(self.x)
        if self.call(tiles, self.bf16, self.x.data_ptr(), self.packs[tiles].data_ptr(), self.bias.data_ptr(), out.data_ptr(), *self.sizes, *self.tail) != 1:
            sys.exit("the kernel reports failure")
        return out

    def error(self, result):
        truth = F.conv2d(self.x.double(), self.weight.double(), self.bias.double(), padding=1).relu()
        return ((result.double() - truth).norm() / truth.norm()).item()

    def rounds(self, seconds, clock):
        ways = {"stock": self.stock, "windows": lambda: self.ours(0)}
        for tile in (2, 4):
            if self.packs[tile] is not None:
                ways[f"F({tile}x{tile})"] = functools.partial(self.ours, tile)
        times = {name: [] for name in ways}
        for call in ways.values():
            call()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times["stock"]) < 5:
            for name, call in ways.items():
                start = clock()
                call()
                times[name].append(clock() - start)
        return times, {name: self.error(call()) for name, call in ways.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--threads", type=int, default=1, help="of torch's pool, and of ours, which is the same (default 1)")
    parser.add_argument("--seconds", type=float, default=1.0, help="a row")
    parser.add_argument("--level", help="cap ours at this instruction level, for example avx2")
    parser.add_argument("--smoke", action="store_true", help="two small layers, to see that it runs")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    kernels = Kernels(options.library, options.threads, options.level)
    print(f"torch {torch.__version__}, {options.threads} thread(s)")
    print(f"{'inside':7} {'images':>6} {'channels':>8} {'size':>4} | {'stock us':>8} {'error':>8} | "
          + " | ".join(f"{way:>8} {'ratio':>5} {'GFLOP/s':>7} {'error':>8}" for way in WAYS))
    has_bf16 = stock_packs(torch.bfloat16)
    if not has_bf16:
        print("bf16 is left out: stock packs no such weights on this CPU", file=sys.stderr)
    for bf16 in (False, True) if has_bf16 else (False,):
        for images, channels, size in [(1, 32, 9), (2, 64, 6)] if options.smoke else LAYERS:
            times, errors = Layer(kernels, images, channels, size, bf16).rounds(0 if options.smoke else options.seconds, clock)
            flop = 18 * images * channels * channels * size * size
            line = f"{'bf16' if bf16 else 'float32':7} {images:6} {channels:8} {size:4} | {statistics.median(times['stock']) * 1e6:8.0f} {errors['stock']:8.1e}"
            for way in WAYS:
                if way not in times:
                    line += " |        -     -       -        -"
                    continue
                ratio = statistics.median(a / b for a, b in zip(times["stock"], times[way]))
                seconds = statistics.median(times[way])
                line += f" | {seconds * 1e6:8.0f} {ratio:5.2f} {flop / seconds / 1e9:7.0f} {errors[way]:8.1e}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
