"""Device "xpu" on a stock torch, over OpenCL (docs/xpu.md).

torch.xpu is complete in every wheel but for the functions of torch._C that it calls. attach() puts ours there; the library that knows OpenCL is
opened at the first of them that needs a device, so a program that uses none opens nothing. install() does so at once.
"""

import atexit
import ctypes
import glob
import json
import os
import sys
import types

from . import autograd_threads, plugin, registration

reason = ""  # why there is no device
_count = None  # devices; None: nobody has asked yet
_attached = False
_forked = False


def is_possible():
    """Whether this machine may have a device, without opening a library: a driver that is named to the OpenCL loader, and a GPU or the wish for
    any device."""
    choice = os.environ.get("IPEXRUN_XPU") or "gpu"
    if choice == "off" or os.environ.get("IPEXRUN_DISABLE") == "1":
        return False
    vendors = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH") or "/etc/OpenCL/vendors"
    named = os.path.isfile(vendors) or bool(glob.glob(os.path.join(vendors, "*.icd"))) or bool(os.environ.get("OCL_ICD_FILENAMES"))
    gpu = any(glob.glob(pattern) for pattern in ("/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/dxg", "/dev/kfd"))
    return named and (gpu or choice == "any")


def start():
    """Opens the library once; the number of devices. Never raises: `reason` says why there are none."""
    global _count, reason
    if _count is None:
        try:
            _count, reason = _open()
        except OSError as problem:
            missing = "libOpenCL.so.1" in str(problem)
            _count, reason = 0, "no OpenCL loader is installed (libOpenCL.so.1; Debian: ocl-icd-libopencl1)" if missing else str(problem)
        except Exception as problem:
            _count, reason = 0, f"{type(problem).__name__}: {problem}"
        if _count > 0:
            os.register_at_fork(after_in_child=_in_child)
            atexit.register(autograd_threads.settle)
            if os.environ.get("IPEXRUN_XPU_REPORT") == "1":
                measure()
                atexit.register(_print_report)
    return _count


def _open():
    path, version, problem = plugin.library("ipexrun_xpu")
    if path is None:
        return 0, problem
    words = ctypes.create_string_buffer(512)
    library = ctypes.PyDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    library.ipexrun_xpu_start.argtypes = (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint32)
    count = library.ipexrun_xpu_start(version, words, len(words))
    return max(count, 0), words.value.decode(errors="replace")


def _in_child():
    global _forked
    _forked = True


def _is_in_bad_fork():
    return _forked


def attach():
    """Makes torch.xpu ours; "" or why not. torch must be imported. Opens no library."""
    global _attached, reason
    import torch

    if _attached:
        return ""
    if torch._C._has_xpu:
        return "this torch has XPU built in"
    if os.environ.get("IPEXRUN_DISABLE") == "1" or os.environ.get("IPEXRUN_XPU") == "off":
        return "switched off"
    asked_for = os.environ.get("IPEXRUN_XPU") or os.environ.get("IPEXRUN_XPU_START") == "1"
    if torch.cuda._is_compiled() and not asked_for and glob.glob("/dev/nvidia[0-9]*"):
        return "this torch computes on CUDA devices, and knows one kind of accelerator (IPEXRUN_XPU=gpu for this one)"
    path, _, problem = plugin.library("ipexrun_xpu")
    if path is None:
        return problem
    try:
        _fill(torch)
    except AttributeError as problem:
        return f"torch {torch.__version__} has another torch.xpu: {problem}"
    _attached = True
    if torch.cuda._is_compiled():
        registration.when_imported("torch._subclasses.fake_tensor", _know_both)
    if os.environ.get("IPEXRUN_XPU_REDIRECT") == "cuda":
        _redirect(torch)
    return ""


def _know_both(fake_tensor):
    """A torch built for CUDA, as PyPI's is, refuses to make tensors without memory (TorchDynamo, export) where it finds XPU compiled in as well."""
    import torch

    mode = fake_tensor.FakeTensorMode
    if isinstance(getattr(mode, "avoid_device_init", None), property):
        mode.avoid_device_init = property(lambda self: not (torch.cuda.is_available() or torch.xpu.is_available()))


def _redirect(torch):
    """`ipexrun xpu --redirect cuda`, and one line about it."""
    from . import redirect

    try:
        problem = redirect.cuda(torch) if start() else f"no device xpu: {reason}"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem:
        print(f"ipexrun: --redirect cuda was left out: {problem}", file=sys.stderr, flush=True)
    else:
        redirect.say(torch)


def install():
    """attach() and start() at once; "" or why there is no device. Never raises."""
    try:
        problem = attach()
        if not problem and start() == 0:
            problem = reason
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    return problem


def report():
    """What ran on the devices and what fell back to the CPU, the costliest first, as a dict; {} while no device was used."""
    if not _count:
        return {}
    import torch

    return json.loads(torch.ops.ipexrun_xpu.report())


def measure(on=True):
    """Kernels are timed by the device from now on (report()["kernels"], what was counted before is forgotten), or no longer. A fallback waits for them
    first, so that its time is its own."""
    if start():
        import torch

        forget_fallbacks()
        torch.ops.ipexrun_xpu.measure(bool(on))


def share_in_kernels():
    """Time in kernels / time in kernels and fallbacks since measure(), or None where neither took any."""
    rows = report()
    if not rows:
        return None
    kernels, fallbacks = (sum(row["seconds"] for row in rows[name]) for name in ("kernels", "fallbacks"))
    return kernels / (kernels + fallbacks) if kernels + fallbacks > 0 else None


def report_text(most=12):
    """The table that --report prints: time in kernels and in fallbacks, the costliest of each."""
    rows = report()
    if not rows:
        return ""
    lines = []
    share = share_in_kernels()
    times = {name: sum(row["seconds"] for row in rows[name]) * 1e3 for name in ("kernels", "fallbacks")}
    if share is not None:
        lines.append(f"xpu: {times['kernels']:.1f} ms in kernels, {times['fallbacks']:.1f} ms in fallbacks to the CPU: {share:.1%} in kernels")
    lines.append(f"xpu: {rows['launches']} launches; programs built {rows['programs_from_source']}, from the cache {rows['programs_from_cache']}, "
                 f"built ahead of time {rows['programs_ahead_of_time']}, "
                 f"{rows['program_seconds'] * 1e3:.0f} ms")
    lines += _reduced_lines(rows["reduced"]) + _product_lines(rows["products"]) + _optimizer_lines()
    for name, title in (("fallbacks", "ran on the CPU"), ("kernels", "kernel")):
        if rows[name]:
            lines.append(f"  {title:<44} {'calls':>8} {'ms':>10}")
        for row in rows[name][:most]:
            lines.append(f"  {row['name']:<44} {row['calls']:>8} {row['seconds'] * 1e3:>10.2f}")
        if len(rows[name]) > most:
            rest = rows[name][most:]
            lines.append(f"  {f'{len(rest)} others':<44} {sum(row['calls'] for row in rest):>8} {sum(row['seconds'] for row in rest) * 1e3:>10.2f}")
    return "\n".join(lines)


def _reduced_lines(kinds):
    """What `--dtype` came to: by choice and reason, kinds of calls and the calls of these that computed with 16 bits inside."""
    groups = {}
    for row in kinds:
        reason = f"measured {'faster' if row['choice'] == 'reduced' else 'slower'}" if "speed" in row["reason"] else row["reason"]
        found = groups.setdefault((row["choice"], row["inside"], reason), [0, 0, 0])
        for i, more in enumerate((1, row["answered"], row["calls"])):
            found[i] += more
    return [
        f"xpu: {inside if choice == 'reduced' else 'float32'} inside {count} kind{'s' * (count > 1)} of products and convolutions"
        + (f", {answered} of {calls} calls" if choice == "reduced" else f", {calls} calls") + f": {reason}"
        for (choice, inside, reason), (count, answered, calls) in sorted(groups.items(), reverse=True)
    ]


def _product_lines(kinds):
    """Which kernels of products and convolutions were measured to be faster than what is taken without measuring."""
    groups = {}
    for row in kinds:
        if row["choice"] != row["first"]:
            groups.setdefault((row["op"], row["choice"], row["first"]), []).append(row)
    lines = [
        f"xpu: {op} by {choice} instead of {first} in {len(rows)} kind{'s' * (len(rows) > 1)}, {sum(row['answered'] for row in rows)} of "
        f"{sum(row['calls'] for row in rows)} calls: measured {min(row['gain'] for row in rows):.2f}"
        + (f" to {max(row['gain'] for row in rows):.2f}" if len(rows) > 1 else "") + " times as fast"
        for (op, choice, first), rows in sorted(groups.items())
    ]
    kept = [row for row in kinds if row["choice"] == row["first"] and row["pairs"]]
    if kept:
        lines.append(f"xpu: {len(kept)} kind{'s' * (len(kept) > 1)} of products and convolutions measured, and left as they were")
    return lines


def _optimizer_lines():
    steppers = sys.modules.get(__package__ + ".xpu_optimizers")
    return steppers.report_lines() if steppers else []


def _print_report():
    text = "" if _forked else report_text()
    if text:
        print("\n".join("ipexrun: " + line for line in text.splitlines()), file=sys.stderr, flush=True)


def forget_fallbacks():
    """Counts of fallbacks start from zero."""
    if _count:
        import torch

        torch.ops.ipexrun_xpu.forget_fallbacks()


class DeviceProperties:
    """What torch.xpu.get_device_properties() answers; attributes as torch documents them where OpenCL tells them."""

    def __init__(self, facts):
        self.name = facts["name"]
        self.platform_name = facts["platform_name"]
        self.vendor = facts["vendor"]
        self.driver_version = facts["driver_version"]
        self.version = facts["version"]
        self.type = facts["type"]
        self.total_memory = facts["total_memory"]
        self.local_mem_size = facts["local_mem_size"]
        self.max_work_group_size = facts["max_work_group_size"]
        self.max_compute_units = self.gpu_eu_count = facts["max_compute_units"]
        self.has_fp16 = facts["has_fp16"]
        self.has_fp64 = facts["has_fp64"]
        self.has_atomic64 = False
        self.has_bfloat16_conversions = False
        self.has_subgroup_matrix_multiply_accumulate = facts["matrix_lanes"] > 0
        self.has_subgroup_matrix_multiply_accumulate_tensor_float32 = False
        self.has_subgroup_2d_block_io = False
        self.memory = facts["memory"]

    def __repr__(self):
        inside = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("has_"))
        return f"_XpuDeviceProperties({inside})"


def _fill(torch):
    core, xpu = torch._C, torch.xpu
    functions = torch.ops

    def index_of(device):
        return torch._C._accelerator_getDeviceIndex() if device is None or device < 0 else device

    def init():
        if start() == 0:
            raise RuntimeError(f"No XPU devices are available: {reason}")
        xpu.default_generators = tuple(functions.ipexrun_xpu.default_generator(i) for i in range(_count))

    def needs_device(function):
        def called(*args, **kwargs):
            xpu._lazy_init()
            return function(*args, **kwargs)

        return called

    def properties(device):
        return DeviceProperties(json.loads(functions.ipexrun_xpu.properties(index_of(device))))

    def current_stream(device):
        stream = core._accelerator_getStream(index_of(device))
        return stream.stream_id, stream.device_index, stream.device_type

    def set_stream(stream_id, device_index, device_type):
        core._accelerator_setStream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

    def snapshot(mempool_id=None):
        segments = [one for i in range(_count) for one in json.loads(functions.ipexrun_xpu.snapshot(i))]
        return {"segments": segments, "device_traces": [[] for _ in range(_count)], "allocator_settings": {}, "external_annotations": []}

    limits = {}

    def set_fraction(fraction, device):
        if not 0 <= fraction <= 1:
            raise ValueError(f"invalid fraction: {fraction}. Valid range is between 0 and 1")
        device = index_of(device)
        limits[device] = fraction
        functions.ipexrun_xpu.set_limit(device, int(fraction * properties(device).total_memory))

    def unsupported(what):
        def called(*args, **kwargs):
            raise RuntimeError(f"{what} is not supported by xpu over OpenCL")

        return called

    # The count and the query of a bad fork must work without a device; whatever else is asked for makes one.
    values = {
        "_xpu_init": init,
        "_xpu_isInBadFork": _is_in_bad_fork,
        "_xpu_getDeviceCount": start,
        "_xpu_getDevice": needs_device(lambda: core._accelerator_getDeviceIndex()),
        "_xpu_setDevice": needs_device(lambda device: core._accelerator_setDeviceIndex(device)),
        "_xpu_exchangeDevice": needs_device(lambda device: core._accelerator_exchangeDevice(device)),
        "_xpu_maybeExchangeDevice": needs_device(lambda device: core._accelerator_maybeExchangeDevice(device)),
        "_xpu_synchronize": needs_device(lambda device: core._accelerator_synchronizeDevice(index_of(device))),
        "_xpu_getCurrentRawStream": needs_device(lambda device: current_stream(device)[0]),
        "_xpu_getCurrentStream": needs_device(current_stream),
        "_xpu_setStream": needs_device(set_stream),
        "_xpu_getStreamFromExternal": unsupported("a stream of another library"),
        "_xpu_emptyCache": lambda: core._accelerator_emptyCache() if _count else None,
        "_xpu_memoryStats": needs_device(lambda device: core._accelerator_getDeviceStats(index_of(device))),
        "_xpu_resetPeakMemoryStats": needs_device(lambda device: core._accelerator_resetPeakStats(index_of(device))),
        "_xpu_resetAccumulatedMemoryStats": needs_device(lambda device: core._accelerator_resetAccumulatedStats(index_of(device))),
        "_xpu_getMemoryInfo": needs_device(lambda device: core._accelerator_getMemoryInfo(index_of(device))),
        "_xpu_memorySnapshot": needs_device(snapshot),
        "_xpu_setMemoryFraction": needs_device(set_fraction),
        "_xpu_getMemoryFraction": needs_device(lambda device: limits.get(index_of(device), 1.0)),
        "_xpu_recordMemoryHistory": unsupported("a history of memory"),
        "_xpu_getAllocator": unsupported("another allocator"),
        "_xpu_customAllocator": unsupported("another allocator"),
        "_xpu_changeCurrentAllocator": unsupported("another allocator"),
        "_xpu_canDeviceAccessPeer": needs_device(lambda device, peer: device == peer),
        "_xpu_getArchFlags": lambda: None,
        "_xpu_isCurrentStreamCapturing": lambda: False,
        "_XpuDeviceProperties": DeviceProperties,
    }
    for name in ("_accelerator_getDeviceIndex", "_accelerator_setDeviceIndex", "_accelerator_exchangeDevice", "_accelerator_getDeviceStats"):
        getattr(core, name)  # AttributeError: a torch with other insides, and nothing has changed yet
    bindings = {
        "_exchange_device": values["_xpu_exchangeDevice"],
        "_maybe_exchange_device": values["_xpu_maybeExchangeDevice"],
        "_is_in_bad_fork": _is_in_bad_fork,
        "_XpuDeviceProperties": DeviceProperties,
        "_get_device_properties": needs_device(properties),
        "is_current_stream_capturing": values["_xpu_isCurrentStreamCapturing"],
    }
    for name in ("_exchange_device", "_maybe_exchange_device", "_is_in_bad_fork", "_lazy_init"):
        getattr(xpu, name)
    for name, value in values.items():
        setattr(core, name, value)
    for name, value in bindings.items():
        setattr(xpu, name, value)
    _add_classes(torch)
    _compile_with_our_kernels(torch)
    core._has_xpu = True


def _compile_with_our_kernels(torch):
    from . import xpu_graphs

    xpu_graphs.instead_of_inductor(torch)


def _add_classes(torch):
    """torch.xpu.Stream and Event, whose bases a stock wheel has as dummies, and torch.xpu.amp, which programs of IPEX use."""
    xpu = torch.xpu

    class Stream(torch.Stream):
        """A queue of an xpu device; torch.Stream's methods."""

        def __new__(cls, device=None, priority=0, **kwargs):
            if "stream_id" in kwargs:
                return super().__new__(cls, **kwargs)
            xpu._lazy_init()
            if device is None or isinstance(device, int):
                device = torch.device("xpu", xpu.current_device() if device is None or device < 0 else device)
            return super().__new__(cls, device=device, priority=priority)

        def record_event(self, event=None):
            event = Event() if event is None else event
            event.record(self)
            return event

        def __repr__(self):
            return f"torch.xpu.Stream(device={self.device}, stream_id={self.stream_id})"

    class EventType(type):
        def __instancecheck__(cls, value):
            return isinstance(value, torch.Event) and value.device is not None and value.device.type == "xpu"

    class Event(metaclass=EventType):
        """A moment of a stream: torch.Event on xpu. (torch compares times of that very class alone, so none is derived from it.)"""

        def __new__(cls, enable_timing=False, **others):
            xpu._lazy_init()
            return torch.Event(device="xpu", enable_timing=enable_timing, **others)

    for one in (Stream, Event):
        one.__module__, one.__qualname__ = "torch.xpu", one.__name__
        setattr(xpu, one.__name__, one)
        setattr(xpu.streams, one.__name__, one)

    if not hasattr(xpu, "amp"):
        amp = types.ModuleType("torch.xpu.amp", "Mixed precision on xpu, as programs for Intel Extension for PyTorch write it.")

        class autocast(torch.amp.autocast):
            def __init__(self, enabled=True, dtype=torch.bfloat16, cache_enabled=True):
                super().__init__("xpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

        class GradScaler(torch.amp.GradScaler):
            def __init__(self, *args, **kwargs):
                super().__init__("xpu", *args, **kwargs)

        amp.autocast, amp.GradScaler = autocast, GradScaler
        xpu.amp = sys.modules["torch.xpu.amp"] = amp
