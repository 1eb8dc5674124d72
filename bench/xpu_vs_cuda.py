#!/usr/bin/env python3
"""Operators on device xpu (our OpenCL kernels) beside the same operators on torch's CUDA device, on one GPU, in processes that take turns.

    python bench/xpu_vs_cuda.py --cuda-python /path/to/python-with-cuda-torch          # needs an NVIDIA GPU with an OpenCL driver
    IPEXRUN_XPU=any python bench/xpu_vs_cuda.py --beside cpu --scale 16                # PoCL: beside torch's CPU operators, smaller sizes

Prints per operator the microseconds of one call on each (median of the rounds; the host waits once after many calls), GB/s or TFLOP/s of ours,
and how many times as fast as the other ours is. Memory rates count each operand once. Matrix products are without TF32.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time


NO_DEVICE = 77  # exit code: nothing could be measured


def cases(torch, device, scale):
    """Yields (name, function, bytes moved, floating-point operations); a function enqueues one call."""
    F = torch.nn.functional
    torch.manual_seed(0)

    def new(*shape, dtype=torch.float32):
        return torch.randn(*shape).to(device).to(dtype)

    n = (64 << 20) // scale
    x, y = new(n), new(n)
    out = torch.empty_like(x)
    yield "copy", lambda: out.copy_(x), 8 * n, 0
    yield "add", lambda: torch.add(x, y, out=out), 12 * n, 0
    yield "mul by a number", lambda: torch.mul(x, 0.5, out=out), 8 * n, 0
    yield "relu", lambda: torch.relu(x), 8 * n, 0
    yield "gelu", lambda: F.gelu(x), 8 * n, 0
    yield "where", lambda: torch.where(x > 0, x, y), 17 * n, 0
    half, other = x.half(), y.half()
    yield "add float16", lambda: half + other, 6 * n, 0
    yield "gelu float16", lambda: F.gelu(half), 4 * n, 0
    yield "to float16", lambda: x.half(), 6 * n, 0
    rows, columns = 16384 // scale, 4096
    z, row, weight = x[: rows * columns].view(rows, columns), new(columns), new(columns)
    m = rows * columns
    yield "add of a row", lambda: z + row, 8 * m, 0
    yield "copy of a transpose", lambda: z.t().contiguous(), 8 * m, 0
    yield "sum", lambda: x.sum(), 4 * n, 0
    yield "sum of rows", lambda: z.sum(-1), 4 * m, 0
    yield "sum of columns", lambda: z.sum(0), 4 * m, 0
    yield "softmax", lambda: z.softmax(-1), 8 * m, 0
    yield "layer norm", lambda: F.layer_norm(z, (columns,), weight, row), 8 * m, 0
    labels = torch.randint(0, columns, (rows,)).to(device)
    yield "cross entropy", lambda: F.cross_entropy(z, labels), 12 * m, 0
    table, which = new(32768, 768), torch.randint(0, 32768, (32768 // scale,)).to(device)
    yield "embedding", lambda: F.embedding(which, table), 2 * 4 * which.numel() * 768, 0
    image = new(max(1, 64 // scale), 64, 112, 112)
    mean, variance = new(64), new(64).abs()
    yield "batch norm", lambda: F.batch_norm(image, mean, variance), 8 * image.numel(), 0
    yield "max pool", lambda: F.max_pool2d(image, 3, 2, 1), 5 * image.numel(), 0
    for size in (1024, 2048, 4096):
        if size > 1024 and scale > 1:
            break
        a, b = new(size, size), new(size, size)
        yield f"mm {size}", lambda a=a, b=b: a @ b, 0, 2 * size**3
        a, b = a.half(), b.half()
        yield f"mm {size} float16", lambda a=a, b=b: a @ b, 0, 2 * size**3
    tokens, wide, bias = new(16384 // scale, 768), new(3072, 768), new(3072)
    yield "linear 768 to 3072", lambda: F.linear(tokens, wide, bias), 0, 2 * tokens.shape[0] * 768 * 3072
    q = new(max(1, 16 // scale), 12, 512, 64)
    yield "attention 512", lambda: F.scaled_dot_product_attention(q, q, q), 0, 4 * q.shape[0] * 12 * 512 * 512 * 64
    photo, filters = new(max(1, 32 // scale), 64, 56, 56), new(64, 64, 3, 3)
    yield "conv 3x3, 64 channels", lambda: F.conv2d(photo, filters, padding=1), 0, 2 * photo.numel() * 64 * 9
    size = (1 << 20) // scale
    parameters = [torch.nn.Parameter(new(size)) for _ in range(50)]
    for one in parameters:
        one.grad = torch.randn(size).to(device)
    yield "AdamW fused, 50 tensors", torch.optim.AdamW(parameters, lr=1e-3, fused=True).step, 28 * 50 * size, 0
    small = new(16)
    yield "launch (add of 16)", lambda: small.add_(1.0), 0, 0
    yield "allocation, 4 MiB", lambda: torch.empty(1 << 20, device=device), 0, 0


def child(device, scale, seconds):
    import torch

    if device == "xpu":
        import ipexrun  # noqa: F401

        if not torch.xpu.is_available():
            sys.exit(NO_DEVICE)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    wait = (lambda: None) if device == "cpu" else getattr(torch, device).synchronize
    rows = {}
    with torch.no_grad():
        for name, function, moved, flops in cases(torch, device, scale):
            try:
                for _ in range(3):
                    function()
                wait()
                calls, took = 1, 0.0
                while took < seconds and calls < 1 << 16:
                    if took:
                        calls = min(max(calls * 2, int(calls * seconds / took * 1.2)), 1 << 16)
                    start = time.perf_counter()
                    for _ in range(calls):
                        function()
                    wait()
                    took = time.perf_counter() - start
                rows[name] = {"seconds": took / calls, "bytes": moved, "flops": flops}
            except (RuntimeError, torch.OutOfMemoryError) as problem:
                rows[name] = {"problem": str(problem).splitlines()[0][:120]}
    name = "CPU" if device == "cpu" else getattr(torch, device).get_device_name()
    json.dump({"device": name, "torch": torch.__version__, "rows": rows}, sys.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda-python", default="python3", help="has a torch for CUDA")
    parser.add_argument("--beside", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--build", default=os.environ.get("IPEXRUN_BUILD_DIR", "build/dev"))
    parser.add_argument("--scale", type=int, default=1, help="divides the sizes; for slow devices")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one operator in a round, at least")
    parser.add_argument("--json", default="")
    parser.add_argument("--smoke", action="store_true", help="beside the CPU, small sizes, one round: does it run")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.smoke:
        options.beside, options.scale, options.rounds, options.seconds = "cpu", 1024, 1, 0.001
    if options.child:
        return child(options.child, options.scale, options.seconds)
    package = os.path.join(os.path.abspath(options.build), "lib", "ipexrun", "python")
    interpreters = {"xpu": (sys.executable, {**os.environ, "PYTHONPATH": package}),
                    options.beside: (options.cuda_python if options.beside == "cuda" else sys.executable, dict(os.environ))}
    found = {device: [] for device in interpreters}
    for number in range(options.rounds):
        for device in list(interpreters)[:: -1 if number % 2 else 1]:
            python, environment = interpreters[device]
            done = subprocess.run([python, os.path.abspath(__file__), "--child", device, "--scale", str(options.scale), "--seconds", str(options.seconds)],
                                  stdout=subprocess.PIPE, text=True, env=environment)
            if done.returncode == NO_DEVICE:
                print("xpu_vs_cuda: no OpenCL device; CPUs count with IPEXRUN_XPU=any", file=sys.stderr)
                sys.exit(NO_DEVICE)
            if done.returncode:
                sys.exit(f"xpu_vs_cuda: the process on {device} ended with {done.returncode}")
            found[device].append(json.loads(done.stdout))
    for device, runs in found.items():
        print(f"{device}: {runs[0]['device']}, torch {runs[0]['torch']}")
    print(f"{'':26s} {'xpu us':>10s} {options.beside + ' us':>10s} {'times as fast':>14s}   rate of xpu")
    for name, first in found["xpu"][0]["rows"].items():
        problems = [run["rows"][name]["problem"] for runs in found.values() for run in runs if "problem" in run["rows"][name]]
        if problems:
            print(f"{name:26s} {problems[0]}")
            continue
        ours, theirs = (statistics.median(run["rows"][name]["seconds"] for run in found[device]) for device in interpreters)
        rate = f"{first['bytes'] / ours / 1e9:.0f} GB/s" if first["bytes"] else f"{first['flops'] / ours / 1e12:.2f} TFLOP/s" if first["flops"] else ""
        print(f"{name:26s} {ours * 1e6:10.1f} {theirs * 1e6:10.1f} {theirs / ours:14.2f}   {rate}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
