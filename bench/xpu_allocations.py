#!/usr/bin/env python3
"""The caching allocator of device xpu beside torch's for CUDA: both replay the allocations and frees that torch's profiler recorded of real steps.

    python bench/xpu_allocations.py --cuda-python /path/to/python-with-cuda-torch     # needs an NVIDIA GPU with an OpenCL driver
    IPEXRUN_XPU=any python bench/xpu_allocations.py --cuda-python ""                  # xpu alone, on whatever OpenCL has here

Traces: training steps of a convolutional network with batches of changing size, and training and inference of a transformer with sentences of
changing length. Prints microseconds of one allocation or free on the host (median of the rounds), the most bytes in use, the most bytes held, and
their ratio; and beside them what clSVMAlloc and clSVMFree take for 4 MiB.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


NO_DEVICE = 77  # exit code: nothing could be measured


def convolutional(torch, steps):
    nn = torch.nn
    layers, channels = [], 3
    for width in (32, 64, 128, 128):
        layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for batch in [(8, 16, 12, 16, 3, 16)[i % 6] for i in range(steps)]:
        loss = nn.functional.cross_entropy(model(torch.randn(batch, 3, 96, 96)), torch.zeros(batch, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def transformer(torch, steps):
    nn = torch.nn
    model = nn.Sequential(nn.Embedding(5000, 256), *(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(4)), nn.Linear(256, 5000))
    optimizer = torch.optim.AdamW(model.parameters())
    for length in [(64, 17, 120, 40, 99, 8)[i % 6] for i in range(steps)]:
        tokens = torch.randint(0, 5000, (8, length))
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model(tokens)


PROGRAMS = {"convolutional network": convolutional, "transformer": transformer}


def record(steps):
    """{program: [[number of the block, bytes; negative: freed]]}, in the order of time."""
    import torch

    out = {}
    for name, program in PROGRAMS.items():
        with torch.profiler.profile(profile_memory=True) as profile:
            program(torch, steps)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profile.export_chrome_trace(path)
            with open(path) as file:
                events = [event for event in json.load(file)["traceEvents"] if event.get("name") == "[memory]"]
        numbers, trace = {}, []
        for event in sorted(events, key=lambda event: event["ts"]):
            address, size = event["args"]["Addr"], event["args"]["Bytes"]
            if size > 0:
                numbers[address] = len(trace)
                trace.append([numbers[address], size])
            elif address in numbers:
                trace.append([numbers.pop(address), size])
        out[name] = trace
    return out


def replay(device, traces):
    import torch

    if device == "xpu":
        import ipexrun  # noqa: F401

        if not torch.xpu.is_available():
            sys.exit(NO_DEVICE)
    namespace = getattr(torch, device)
    torch.empty(1, device=device)
    rows = {}
    for name, trace in traces.items():
        for attempt in range(2):  # the second time with a filled cache: what a step after the first costs
            if attempt == 0:
                namespace.empty_cache()
                namespace.reset_peak_memory_stats()
            kept = {}
            namespace.synchronize()
            start = time.perf_counter()
            for number, size in trace:
                if size > 0:
                    kept[number] = torch.empty(size, dtype=torch.uint8, device=device)
                else:
                    del kept[number]
            took = time.perf_counter() - start
            del kept
        rows[name] = {"us": took / len(trace) * 1e6, "events": len(trace), "used": namespace.max_memory_allocated(), "held": namespace.max_memory_reserved()}
    return rows


def driver(size=4 << 20, times=50):
    """Seconds of clSVMAlloc and clSVMFree together on the first device that is no CPU, else the first; None where it has no shared virtual memory."""
    try:
        cl = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        return None
    cl.clCreateContext.restype = cl.clSVMAlloc.restype = ctypes.c_void_p
    cl.clSVMAlloc.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint]
    cl.clSVMFree.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    platforms, many = (ctypes.c_void_p * 8)(), ctypes.c_uint()
    cl.clGetPlatformIDs(8, platforms, ctypes.byref(many))
    found = []
    for kind in (4, 2):  # CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_CPU
        for platform in platforms[: many.value]:
            devices, count = (ctypes.c_void_p * 8)(), ctypes.c_uint()
            if cl.clGetDeviceIDs(ctypes.c_void_p(platform), ctypes.c_uint64(kind), 8, devices, ctypes.byref(count)) == 0:
                found += devices[: count.value]
    if not found:
        return None
    code = ctypes.c_int()
    context = cl.clCreateContext(None, 1, (ctypes.c_void_p * 1)(found[0]), None, None, ctypes.byref(code))
    start = time.perf_counter()
    for _ in range(times):
        block = cl.clSVMAlloc(context, 1, size, 0)  # CL_MEM_READ_WRITE
        if not block:
            return None
        cl.clSVMFree(context, block)
    return (time.perf_counter() - start) / times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuda-python", default="python3", help='has a torch for CUDA; "": xpu alone')
    parser.add_argument("--build", default=os.environ.get("IPEXRUN_BUILD_DIR", "build/dev"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--smoke", action="store_true", help="xpu alone, one round of few steps: does it run")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.smoke:
        options.cuda_python, options.rounds, options.steps = "", 1, 2
    if options.child:
        json.dump(replay(options.child, json.load(sys.stdin)), sys.stdout)
        return
    traces = record(options.steps)
    package = os.path.join(os.path.abspath(options.build), "lib", "ipexrun", "python")
    sides = {"xpu": (sys.executable, {**os.environ, "PYTHONPATH": package})}
    if options.cuda_python:
        sides["cuda"] = (options.cuda_python, dict(os.environ))
    found = {device: [] for device in sides}
    for number in range(options.rounds):
        for device in list(sides)[:: -1 if number % 2 else 1]:
            python, environment = sides[device]
            done = subprocess.run([python, os.path.abspath(__file__), "--child", device], input=json.dumps(traces), stdout=subprocess.PIPE, text=True, env=environment)
            if done.returncode == NO_DEVICE:
                print("xpu_allocations: no OpenCL device; CPUs count with IPEXRUN_XPU=any", file=sys.stderr)
                sys.exit(NO_DEVICE)
            if done.returncode:
                sys.exit(f"xpu_allocations: the process on {device} ended with {done.returncode}")
            found[device].append(json.loads(done.stdout))
    print(f"{'':24s} {'':6s} {'events':>8s} {'us each':>8s} {'MiB used':>9s} {'MiB held':>9s} {'held / used':>12s}")
    for name in traces:
        for device, runs in found.items():
            row = runs[0][name]
            each = statistics.median(run[name]["us"] for run in runs)
            print(f"{name:24s} {device:6s} {row['events']:8d} {each:8.2f} {row['used'] / 2**20:9.1f} {row['held'] / 2**20:9.1f} {row['held'] / row['used']:12.2f}")
    seconds = driver()
    print("clSVMAlloc and clSVMFree of 4 MiB: " + (f"{seconds * 1e6:.1f} us" if seconds else "no OpenCL device with shared virtual memory"))


if __name__ == "__main__":
    main()
