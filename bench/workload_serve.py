"""A program that works when it is asked to: requests and answers are lines of JSON over a Unix socket; between them it sleeps."""

import json
import os
import socket
import time


def memory():
    """MiB: most that was resident at once, and now."""
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return [int(fields[name].split()[0]) // 1024 for name in ("VmHWM", "VmRSS")]


def calls(call, seconds, least, clock):
    """(start, duration) of each call, the start in seconds of the system's monotonic clock."""
    now = {"wall": time.monotonic, "cpu": time.process_time}[clock]
    times = []
    end = time.monotonic() + seconds
    while len(times) < least or time.monotonic() < end:
        began, start = time.monotonic(), now()
        call()
        times.append((began, now() - start))
    return times


def save(result, path):
    import numpy

    numpy.save(path, result if isinstance(result, numpy.ndarray) else result.float().numpy())
    return path


def serve(path, call):
    """Until the other side ends. `ask` evaluates an expression, for what only this process knows of itself."""
    answers = {
        "calls": lambda request: calls(call, request["seconds"], request["least"], request["clock"]),
        "save": lambda request: save(call(), request["path"]),
        "memory": lambda request: memory(),
        "ask": lambda request: eval(request["expression"], {"call": call}),
    }
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        with line.makefile("rw") as talk:
            print(json.dumps({"pid": os.getpid()}), file=talk, flush=True)
            for request in map(json.loads, talk):
                try:
                    answer = answers[request["do"]](request)
                except Exception as problem:
                    answer = {"problem": f"{type(problem).__name__}: {problem}"}
                print(json.dumps(answer), file=talk, flush=True)
