#!/usr/bin/env python3
"""Our float32 products on an OpenCL device beside CLBlast's, and our kernels beside each other: is what device xpu picks the fastest?

    python bench/xpu_clblast.py                                   # the first GPU, else the first device
    python bench/xpu_clblast.py --clblast DIR/libclblast.so.1     # where CLBlast is not installed (Debian: libclblast1)
    python bench/xpu_clblast.py --lanes                           # on a CPU's device (PoCL) the kernels of GPUs

Needs an OpenCL driver and nothing else: no torch, no build; xpu/kernels/*.cl are read from this tree. Without CLBlast ours are compared alone.
All take turns on one queue: a few calls each, then the host waits; medians of the rounds, in microseconds of a call. "svm": CLBlast gets buffers
that lie over the shared virtual memory (CL_MEM_USE_HOST_PTR) that our kernels take by address, as it would have to in device xpu. Our kernels'
arguments are set before, CLBlast sets its own (in C++) in each call. Each result is checked at some places against sums made here.
"""

import argparse
import array
import ctypes
import json
import math
import os
import statistics
import struct
import sys
import time

NOTHING = 77  # exit code: nothing could be measured
HERE = os.path.dirname(os.path.abspath(__file__))
GPU, ALL = 1 << 2, 0xFFFFFFFF  # CL_DEVICE_TYPE_*
P, SIZE = ctypes.c_void_p, ctypes.c_size_t

# batch, m, n, k, b is given transposed (as weights of a linear layer are)
SHAPES = [
    (1, 256, 256, 256, False), (1, 512, 512, 512, False), (1, 1024, 1024, 1024, False), (1, 2048, 2048, 2048, False), (1, 4096, 4096, 4096, False),
    (1, 1000, 1000, 1000, False), (1, 4100, 4100, 500, False), (1, 4096, 4096, 64, False), (1, 128, 128, 16384, False), (1, 64, 64, 4096, True), (1, 64, 1000, 2048, True),
    (1, 16, 3072, 768, True), (1, 128, 768, 768, True), (1, 512, 3072, 768, True), (1, 4096, 768, 3072, True), (1, 16384, 3072, 768, True),
    (1, 1, 4096, 4096, True), (1, 8, 4096, 4096, True), (96, 128, 128, 64, True), (192, 512, 512, 64, True), (192, 512, 64, 512, False),
]


class Device:
    """A device of OpenCL, its context and one queue."""

    def __init__(self, want):
        self.cl = ctypes.CDLL("libOpenCL.so.1")
        for name in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer", "clCreateProgramWithSource", "clCreateKernel", "clSVMAlloc"):
            getattr(self.cl, name).restype = P
        count = ctypes.c_uint()
        self.cl.clGetPlatformIDs(0, None, ctypes.byref(count))
        platforms = (P * count.value)()
        self.cl.clGetPlatformIDs(count, platforms, None)
        found = []
        for kind in (GPU, ALL):
            for platform in platforms:
                n = ctypes.c_uint()
                if self.cl.clGetDeviceIDs(P(platform), ctypes.c_ulong(kind), 0, None, ctypes.byref(n)) == 0:
                    devices = (P * n.value)()
                    self.cl.clGetDeviceIDs(P(platform), ctypes.c_ulong(kind), n, devices, None)
                    found += [one for one in devices if one not in found]
        if not found:
            raise OSError("OpenCL has no device here")
        self.id = P(found[want])
        self.name, self.driver = self.text(0x102B), self.text(0x102D)
        kind, units = ctypes.c_ulong(), ctypes.c_uint()
        self.cl.clGetDeviceInfo(self.id, 0x1000, SIZE(8), ctypes.byref(kind), None)
        self.cl.clGetDeviceInfo(self.id, 0x1002, SIZE(4), ctypes.byref(units), None)
        self.cpu, self.units = bool(kind.value & 2), units.value
        code = ctypes.c_int()
        self.context = P(self.cl.clCreateContext(None, 1, ctypes.byref(self.id), None, None, ctypes.byref(code)))
        self.check(code.value, "a context")
        self.queue = P(self.cl.clCreateCommandQueue(self.context, self.id, ctypes.c_ulong(0), ctypes.byref(code)))
        self.check(code.value, "a queue")

    def check(self, code, what):
        if code != 0:
            raise OSError(f"{what}: code {code} of OpenCL")

    def text(self, what):
        out = ctypes.create_string_buffer(512)
        self.cl.clGetDeviceInfo(self.id, what, SIZE(512), out, None)
        return out.value.decode(errors="replace")

    def finish(self):
        self.check(self.cl.clFinish(self.queue), "waiting")

    def buffer(self, size, over=None):
        code = ctypes.c_int()
        out = P(self.cl.clCreateBuffer(self.context, ctypes.c_ulong(1 | (8 if over else 0)), SIZE(size), P(over) if over else None, ctypes.byref(code)))
        self.check(code.value, "a buffer")
        return out

    def build(self, options):
        folder = os.path.join(os.path.dirname(HERE), "xpu", "kernels")
        text = b"".join(open(os.path.join(folder, name), "rb").read() for name in ("common.cl", "gemm.cl"))
        code, source = ctypes.c_int(), ctypes.c_char_p(text)
        program = P(self.cl.clCreateProgramWithSource(self.context, 1, ctypes.byref(source), None, ctypes.byref(code)))
        if self.cl.clBuildProgram(program, 1, ctypes.byref(self.id), options.encode(), None, None) != 0:
            log = ctypes.create_string_buffer(20000)
            self.cl.clGetProgramBuildInfo(program, self.id, 0x1183, SIZE(20000), log, None)
            raise OSError(log.value.decode(errors="replace"))
        return program

    def kernel(self, program, name):
        code = ctypes.c_int()
        out = P(self.cl.clCreateKernel(program, name.encode(), ctypes.byref(code)))
        self.check(code.value, name)
        return out


class Operand:
    """`count` floats of a pattern, as a buffer and (svm) as the address under it."""

    def __init__(self, device, pattern, count, svm):
        self.device, self.count, size = device, count, 4 * count
        self.values = (pattern * (count // len(pattern) + 1))[:count]
        self.address = device.cl.clSVMAlloc(device.context, ctypes.c_ulong(1), SIZE(size), 0) if svm else None
        if svm and not self.address:
            raise OSError("no shared virtual memory")
        raw = (ctypes.c_char * size).from_buffer(self.values)
        if svm:
            device.check(device.cl.clEnqueueSVMMemcpy(device.queue, 1, P(self.address), raw, SIZE(size), 0, None, None), "writing")
        self.handle = device.buffer(size, self.address)
        if not svm:
            device.check(device.cl.clEnqueueWriteBuffer(device.queue, self.handle, 1, SIZE(0), SIZE(size), raw, 0, None, None), "writing")

    def read(self):
        raw = (ctypes.c_char * (4 * self.count)).from_buffer(self.values)
        if self.address:
            code = self.device.cl.clEnqueueSVMMemcpy(self.device.queue, 1, raw, P(self.address), SIZE(4 * self.count), 0, None, None)
        else:
            code = self.device.cl.clEnqueueReadBuffer(self.device.queue, self.handle, 1, SIZE(0), SIZE(4 * self.count), raw, 0, None, None)
        self.device.check(code, "reading")
        return self.values

    def release(self):
        self.device.cl.clReleaseMemObject(self.handle)
        if self.address:
            self.device.cl.clSVMFree(self.device.context, P(self.address))


def ours(device, lanes):
    """{name: (kernel, results of a group by columns and rows, items of a group)} of gemm.cl."""
    words = "-cl-std=CL1.2 -DT=float" + (" -DGPU=1" if lanes else "")
    program = device.build(words)
    out = {"plain": (device.kernel(program, "gemm"), (64, 8), (64, 1))}
    if not lanes:
        return {"vectors": (device.kernel(program, "gemm_vectors"), (32, 32), (2, 4)), "rows": (device.kernel(program, "gemm_rows"), (64, 8), (64, 1)), **out}
    small = device.build(words + " -DBLOCK=64")
    return {"blocks 128": (device.kernel(program, "gemm_blocks"), (128, 128), (16, 16)),
            "blocks 64": (device.kernel(small, "gemm_blocks"), (64, 64), (8, 8)),
            "64, parts": (device.kernel(small, "gemm_blocks"), (64, 64), (8, 8), device.kernel(small, "gemm_sum")),
            "tiles": (device.kernel(program, "gemm_tiles"), (64, 64), (16, 16)), **out}


def picked(device, lanes, batch, m, n, k, transposed):
    """What device xpu takes without measuring (preload/xpu/products.cpp)."""
    if not lanes:
        return "rows" if transposed and m <= 8 else "vectors"
    if parts_of(device, batch, m, n, k) >= 8:
        return "64, parts"
    if m <= 8:
        return "plain"
    large, small = (math.ceil(m / side) * math.ceil(n / side) for side in (128, 64))
    return "blocks 128" if large * batch >= device.units and 40 * large <= 12 * small else "blocks 64"


def parts_of(device, batch, m, n, k):
    """As parts_for() of preload/xpu/products.cpp."""
    parts = min(4 * device.units // (math.ceil(m / 64) * math.ceil(n / 64)), k // 64, 64, max(1, 2 * k * (m + n) // (m * n))) if batch == 1 else 1
    while parts > 1 and k % parts:
        parts -= 1
    return max(parts, 1)


def ready_in_parts(device, kernels, shape, out, a, b, sums):
    """As ready(), of the two kernels that compute k in parts and add them up."""
    _, m, n, k, transposed = shape
    parts = sums.count // (m * n)
    each = k // parts
    words = struct.pack("15q", m, n, each, k, 1, each, *((1, k) if transposed else (n, 1)), each * (1 if transposed else n), n, 1, m * n, n, 1, m * n)
    blocks, group, local, total = kernels
    first = ready(device, blocks, group, local, (parts, m, n, each, transposed), sums, a, b, words)
    words = struct.pack("15q", m, n, parts, n, 1, m * n, 0, 0, 0, n, 1, m * n, n, 1, m * n)
    second = ready(device, total, (64, 1), (64, 1), (1, m, n, parts, False), out, sums, sums, words)
    return lambda: (first(), second())


def ready(device, kernel, group, local, shape, out, a, b, words=None):
    """Sets the arguments and returns what launches the kernel: setting them from here, one by one, takes longer than a small product."""
    batch, m, n, k, transposed = shape
    words = words or struct.pack("15q", m, n, k, k, 1, m * k, *((1, k) if transposed else (n, 1)), n * k, n, 1, m * n, n, 1, m * n)
    at = 0
    for one in (out, a, b, out):
        if one.address:
            code = device.cl.clSetKernelArgSVMPointer(kernel, at, P(one.address))
        else:
            code = device.cl.clSetKernelArg(kernel, at, SIZE(8), ctypes.byref(one.handle))
        device.check(code or device.cl.clSetKernelArg(kernel, at + 1, SIZE(8), ctypes.byref(ctypes.c_ulong(0))), "an argument")
        at += 2
    for value in (words, struct.pack("f", 1), struct.pack("f", 0)):
        device.check(device.cl.clSetKernelArg(kernel, at, SIZE(len(value)), value), "an argument")
        at += 1
    groups = (SIZE * 3)(math.ceil(n / group[0]) * local[0], math.ceil(m / group[1]) * local[1], batch)
    items, three = (SIZE * 3)(*local, 1), ctypes.c_uint(3)
    enqueue = device.cl.clEnqueueNDRangeKernel
    return lambda: device.check(enqueue(device.queue, kernel, three, None, groups, items, 0, None, None), "a launch")


def multiply_by_clblast(library, device, shape, out, a, b):
    batch, m, n, k, transposed = shape
    one, zero, by = ctypes.c_float(1), ctypes.c_float(0), SIZE(0)
    head = (101, 111, 112 if transposed else 111, SIZE(m), SIZE(n), SIZE(k), one)  # rows side by side
    a_ld, b_ld, out_ld = SIZE(k), SIZE(k if transposed else n), SIZE(n)
    queue = ctypes.byref(device.queue)
    if batch == 1:
        code = library.CLBlastSgemm(*head, a.handle, by, a_ld, b.handle, by, b_ld, zero, out.handle, by, out_ld, queue, None)
    else:
        code = library.CLBlastSgemmStridedBatched(*head, a.handle, by, a_ld, SIZE(m * k), b.handle, by, b_ld, SIZE(n * k), zero, out.handle, by, out_ld,
                                                  SIZE(m * n), SIZE(batch), queue, None)
    device.check(code, "CLBlast")


def is_right(shape, out, a, b):
    batch, m, n, k, transposed = shape
    found = out.read()
    for i in range(12):
        z, row, column = i * (batch - 1) // 11, i * (m - 1) // 11, (11 - i) * (n - 1) // 11
        left = a.values[(z * m + row) * k:(z * m + row + 1) * k]
        start = z * n * k
        right = b.values[start + column * k:start + column * k + k] if transposed else b.values[start + column:start + n * k:n]
        products = [x * y for x, y in zip(left, right)]
        if not abs(found[(z * m + row) * n + column] - math.fsum(products)) <= 1e-5 * sum(map(abs, products)):
            return False
    return True


def measure(device, library, kernels, shape, svm, rounds, seconds):
    """{name: median microseconds}"""
    batch, m, n, k, _ = shape
    state, pattern = 1, array.array("f")
    for _ in range(65521):  # the same on every machine
        state = (1103515245 * state + 12345) & 0x7FFFFFFF
        pattern.append(state / 0x40000000 - 1)
    a, b, out = (Operand(device, pattern[start:], batch * size, svm) for start, size in ((0, m * k), (7, n * k), (0, m * n)))
    todo = {name: ready(device, *one, shape, out, a, b) for name, one in kernels.items() if len(one) == 3}
    parts = parts_of(device, *shape[:4])
    sums = Operand(device, array.array("f", [0]), parts * m * n, svm)
    if parts > 1:
        todo.update({name: ready_in_parts(device, one, shape, out, a, b, sums) for name, one in kernels.items() if len(one) == 4})
    if library:
        todo["CLBlast"] = lambda: multiply_by_clblast(library, device, shape, out, a, b)
    calls, times = {}, {name: [] for name in todo}
    for name, call in todo.items():
        call()  # programs are built
        device.finish()
        if not is_right(shape, out, a, b):
            times[name] = None
        start = time.perf_counter()
        call()
        device.finish()
        calls[name] = max(1, min(200, int(seconds / max(time.perf_counter() - start, 1e-6))))
    for number in range(rounds):
        for name in list(todo)[:: -1 if number % 2 else 1]:
            if times[name] is None:
                continue
            start = time.perf_counter()
            for _ in range(calls[name]):
                todo[name]()
            device.finish()
            times[name].append((time.perf_counter() - start) / calls[name] * 1e6)
    for one in (a, b, out, sums):
        one.release()
    return {name: statistics.median(values) if values is not None else None for name, values in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clblast", default="libclblast.so.1", help="CLBlast's library")
    parser.add_argument("--device", type=int, default=0, help="number of the device, GPUs first")
    parser.add_argument("--lanes", action="store_true", help="on a CPU's device: the kernels of GPUs")
    parser.add_argument("--memory", default="buffers,svm", help="buffers, svm or both")
    parser.add_argument("--most", type=float, default=0, help="leave out products of more than so many GFLOP (CPUs: 1.1)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.02, help="of one measurement, about")
    parser.add_argument("--json", default="")
    parser.add_argument("--smoke", action="store_true", help="one small product: does it run")
    options = parser.parse_args()
    try:
        device = Device(options.device)
    except OSError as problem:
        print(f"xpu_clblast: {problem}", file=sys.stderr)
        return NOTHING
    try:
        library = ctypes.CDLL(options.clblast)
    except OSError as problem:
        print(f"xpu_clblast: ours alone: {problem}", file=sys.stderr)
        library = None
    if options.smoke:
        options.most, options.rounds, options.seconds = 0.05, 1, 0.001
    most = options.most or (1.1 if device.cpu else 1e9)
    lanes = options.lanes or not device.cpu
    print(f"{device.name}, driver {device.driver}, {device.units} units", flush=True)
    kernels, rows = ours(device, lanes), []
    print(f"{'batch x m x n x k':26s} {'memory':8s}" + "".join(f"{name:>12s}" for name in kernels) + f"{'CLBlast':>12s}   "
          "picked; best of ours and CLBlast, times as fast as it")
    for memory in options.memory.split(","):
        for shape in SHAPES:
            batch, m, n, k, transposed = shape
            # gemm_vectors wants b's columns side by side, gemm_rows k; device xpu lays a transposed b anew where there are rows enough.
            if 2e-9 * batch * m * n * k > most or (transposed and not lanes and m > 8):
                continue
            fit = {name: one for name, one in kernels.items() if name != ("vectors" if transposed else "rows")}
            try:
                found = measure(device, library, fit, shape, memory == "svm", options.rounds, options.seconds)
            except OSError as problem:
                print(f"{batch} x {m} x {n} x {k} {memory}: {problem}", flush=True)
                continue
            pick = picked(device, lanes, batch, m, n, k, transposed)
            mine = {name: value for name, value in found.items() if name != "CLBlast" and value}
            best = min(mine, key=mine.get)
            say = f"   {pick}; {best} {mine[pick] / mine[best]:.2f}"
            if found.get("CLBlast"):
                say += f", CLBlast {mine[pick] / found['CLBlast']:.2f}"
            label = f"{batch} x {m} x {n} x {k}" + (" t" if transposed else "")
            cells = [f"{found[name]:.1f}" if found.get(name) else "wrong" if name in found else "-" for name in [*kernels, "CLBlast"]]
            print(f"{label:26s} {memory:8s}" + "".join(f"{cell:>12s}" for cell in cells) + say, flush=True)
            rows.append({"shape": shape, "memory": memory, "picked": pick, "us": found})
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": device.name, "driver": device.driver, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
