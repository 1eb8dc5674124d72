"""`ipexrun xpu --redirect cuda`: a program written for cuda runs on xpu (docs/redirect.md).

Devices written as text are read by C++ (preload/xpu/redirect.cpp): torch.device("cuda"), device="cuda", .to("cuda"), map_location. Here is what
else a program says: .cuda(), torch.cuda.*, torch.autocast("cuda"), GradScaler. cuda() changes torch for the rest of the process.
"""

import functools
import sys
import types

# torch.cuda.NAME is torch.xpu.NAME for every name that both have, but for these.
OWN = {"amp", "graphs", "memory", "random", "streams", "get_arch_list", "get_device_capability", "get_device_properties", "get_gencode_flags"}
CAPABILITY = (8, 0)  # what programs read out of it: bfloat16 is there
_done = False


def cuda(torch):
    """Makes the program's cuda xpu, whose library is open. "" or why not. Twice does what once does."""
    global _done
    if _done:
        return ""
    if torch.version.cuda is not None or torch.version.hip is not None:
        return "this torch has cuda built in"
    problem = torch.ops.ipexrun_xpu.redirect_cuda()
    if problem:
        return problem
    torch.xpu.init()
    _functions(torch)
    _tensors(torch)
    _mixed_precision(torch)
    _done = True
    return ""


def line(torch):
    """What is said once."""
    return f"--redirect cuda: this program's device cuda is xpu: {torch.xpu.get_device_name(0)}"


def _twin(value):
    """Another function that does the same: TorchDynamo keeps handlers by function and takes none twice. What is no function stays."""
    if not isinstance(value, types.FunctionType):
        return value
    twin = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, value.__closure__)
    twin.__kwdefaults__ = value.__kwdefaults__
    return functools.update_wrapper(twin, value)


def _functions(torch):
    core, own = torch.xpu, torch.cuda
    homes = [own, own.memory, own.random, own.streams, own._utils]

    def put(name, value):
        for home in homes:
            if home is own or hasattr(home, name):
                setattr(home, name, value)

    for name in sorted(set(own.__all__) & set(core.__all__) - OWN):
        put(name, _twin(getattr(core, name)))
    for name in ("_lazy_init", "_is_in_bad_fork", "is_initialized", "default_generators"):
        put(name, getattr(core, name))
    put("_get_device_index", core._utils._get_device_index)

    class DeviceProperties(type(core.get_device_properties(0))):
        """torch.xpu's, and what programs for cuda ask for."""

        def __init__(self, given):
            vars(self).update(vars(given))
            self.major, self.minor = CAPABILITY
            self.multi_processor_count = given.max_compute_units
            self.is_integrated = self.is_multi_gpu_board = False

    def default_stream(device=None):
        index = core._utils._get_device_index(device, optional=True)
        return core.Stream(stream_id=0, device_index=index, device_type=core.current_stream(index).device_type)

    def nothing(*args, **kwargs):
        return None

    values = {
        "get_device_properties": lambda device=None: DeviceProperties(core.get_device_properties(device)),
        "get_device_capability": lambda device=None: CAPABILITY,
        "get_arch_list": lambda: [],
        "get_gencode_flags": lambda: "",
        "default_stream": default_stream,
        "ipc_collect": nothing,
        "memory_cached": core.memory_reserved,
        "max_memory_cached": core.max_memory_reserved,
        "reset_max_memory_allocated": core.reset_peak_memory_stats,
        "reset_max_memory_cached": core.reset_peak_memory_stats,
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": nothing,
        "list_gpu_processes": lambda device=None: "",
    }
    for name, value in values.items():
        put(name, value)
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):  # marks for a profiler that does not run
        setattr(own.nvtx, name, nothing)


def _scatter(tensor, devices, chunk_sizes=None, dim=0, streams=None):
    """torch._C._scatter, which wheels for CPUs lack: pieces along a dimension, one a device. DataParallel calls it for one device, too."""
    pieces = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(chunk_sizes, dim)
    return [piece.to(f"xpu:{device}") for piece, device in zip(pieces, devices)]


def _tensors(torch):
    torch._C._scatter = _scatter
    torch.Tensor.cuda = torch.Tensor.xpu
    torch.Tensor.is_cuda = property(lambda tensor: tensor.is_xpu, doc="True for a tensor on xpu: --redirect cuda")


def _renamed(function, at):
    """The function with "cuda" as its argument number `at` (or device_type=, device=) read as "xpu"."""

    @functools.wraps(function)
    def called(*args, **kwargs):
        if len(args) > at and args[at] == "cuda":
            args = (*args[:at], "xpu", *args[at + 1:])
        for name in ("device_type", "device"):
            if kwargs.get(name) == "cuda":
                kwargs[name] = "xpu"
        return function(*args, **kwargs)

    return called


def _mixed_precision(torch):
    modes = torch.amp.autocast_mode
    modes.autocast.__init__ = _renamed(modes.autocast.__init__, 1)
    modes._cast = _renamed(modes._cast, 1)  # what custom_fwd casts with
    start = torch.amp.GradScaler.__init__

    @functools.wraps(start)
    def scaler(self, device="cuda", *args, **kwargs):
        start(self, "xpu" if device == "cuda" else device, *args, **kwargs)

    torch.amp.GradScaler.__init__ = scaler
    torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("xpu")
    torch.set_autocast_gpu_dtype = lambda dtype: torch.set_autocast_dtype("xpu", dtype)


def say(torch):
    import multiprocessing

    if multiprocessing.parent_process() is None:  # workers that the program starts say nothing again
        print("ipexrun: " + line(torch), file=sys.stderr, flush=True)
