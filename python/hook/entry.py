"""Run once inside the user's interpreter by the plugin (preload/plugin/python_entry.cpp), in a namespace of its own.

The plugin sets `lib_python` (our folder), `capsule` (its function table), `bench`, `capture_wait_s` (negative: nothing is captured) and `debug`. At this moment torch is usually half
imported: its shared libraries are mapped, `torch.nn` is not there yet. importlib clears `torch.__spec__._initializing` in the very
step that ends the import, so the spec gets a class, for that time only, in which clearing the attribute also loads our extension.
Nothing else of the interpreter changes: no path, no module besides `_ipexrun_hook`, and one finder that waits for torch._dynamo, to make
torch.compile's backend "ipex" known (registration.py).
"""

import _frozen_importlib
import _frozen_importlib_external
import _imp
import atexit
import posix
import sys
import time

HOOK = "_ipexrun_hook"


def say(text):
    if debug:
        posix.write(2, f"ipexrun: python hook: {text}\n".encode())


def load_extension():
    """Our extension, by absolute path and without a search: sys.path and sys.meta_path have no part in it."""
    suffix = _imp.extension_suffixes()[0]
    path = f"{lib_python}/{HOOK}{suffix}"
    loader = _frozen_importlib_external.ExtensionFileLoader(HOOK, path)
    spec = _frozen_importlib.ModuleSpec(HOOK, loader, origin=path)
    module = _imp.create_dynamic(spec)
    _imp.exec_dynamic(module)
    module.__spec__ = spec
    return module


def let_higher_order_ops_pass(torch, hook):
    """Operators that torch writes in Python look their kernel up by the thread's dispatch keys and know no fallback. The key that a drift check
    includes (docs/decisions/0013-drift.md) joins those that they skip, for the ones that exist and for those to come."""
    try:
        key = torch._C._parse_dispatch_key("TESTING_ONLY_GenericMode")
        skipped = torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS
        for operator in list(torch._ops._higher_order_ops.values()):
            operator.fallthrough(key)
        skipped.append(key)
    except Exception as problem:
        say(f"no drift checks: {type(problem).__name__}: {problem}")
    else:
        hook.higher_order_ops_pass()


def load_package():
    """Our package, by absolute path where the program cannot import it."""
    if "ipexrun" not in sys.modules:
        import importlib.util

        folder = f"{lib_python}/ipexrun"
        spec = importlib.util.spec_from_file_location("ipexrun", f"{folder}/__init__.py", submodule_search_locations=[folder])
        module = importlib.util.module_from_spec(spec)
        module._loaded_by_hook = True
        sys.modules["ipexrun"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules["ipexrun"]
            raise
    return sys.modules["ipexrun"]


def make_backend_known():
    """By our package, whose function has a name that pickle finds: compiled modules are saved, and sent to other processes."""
    namespace = registration()
    namespace["when_imported"](namespace["REGISTRY"], lambda registry: load_package())


def registration():
    namespace = {"__name__": "ipexrun.registration"}
    with open(f"{lib_python}/ipexrun/registration.py", encoding="utf-8") as file:
        exec(compile(file.read(), file.name, "exec"), namespace)
    return namespace


def keep_checks_out_of_compiled_code(hook):
    """Drift checks (preload/plugin/drift_check.h) put a dispatch key into the thread's, which guards of TorchDynamo compare, and see nothing of what compiled code
    writes: none is open where the program calls what it has compiled itself."""

    def when_imported(eval_frame):
        eval_frame.set_eval_frame, eval_frame._maybe_set_eval_frame = hook.around_eval_frame(eval_frame.set_eval_frame, eval_frame._maybe_set_eval_frame)

    registration()["when_imported"]("torch._dynamo.eval_frame", when_imported)


def attempt(module, seconds, records_gradients):
    from_package = load_package()
    import importlib

    if not _attention_ways:
        _attention_ways.append(attention_ways(sys.modules["torch"]))
    capture = importlib.import_module(from_package.__name__ + (".training.captured_steps" if records_gradients else ".capture.capture"))
    return capture.attempt(module, seconds)


def of_signal(problem):
    """Whether a signal handler of the program's raised it."""
    import importlib

    return importlib.import_module(load_package().__name__ + ".problems").of_signal(problem) is not None


def watch_optimizers(torch, by="training.optimizers"):
    """Steps of torch.optim's optimizers may run fused (training/optimizers.py, xpu_optimizers.py), which is loaded at the first of them. With selection switched off no
    timing may decide, and nothing is watched but for --split-sgd. Whether steps are watched."""
    if posix.environ.get(b"IPEXRUN_SELECT") == b"off" and posix.environ.get(b"IPEXRUN_SPLIT_SGD") != b"1":
        return False
    base = sys.modules["torch.optim.optimizer"]
    is_compiling = torch.compiler.is_compiling
    module = None
    resting, inside, step_ended = {}, {}, None  # of optimizers.py, once it is there

    def ours():
        nonlocal module, resting, inside, step_ended
        if module is None:
            import importlib

            package = load_package().__name__
            found = importlib.import_module(f"{package}.{by}")
            steppers = sys.modules[package + ".training.optimizers"]
            resting, inside, step_ended = steppers.resting, steppers.inside, found.step_ended
            module = found
        return module

    def tell(name, optimizer):
        getattr(ours(), name)(optimizer)

    def guarded(call, *arguments):
        try:
            call(*arguments)
        except Exception as problem:  # nothing of ours may end a step
            if of_signal(problem):
                raise  # but what is the program's own
            say(f"optimizers: {type(problem).__name__}: {problem}")

    # An optimizer at rest leaves its steps to stock for good: what is asked about each of them may cost as much as a small one. Not while a thread
    # is inside a step of ours, which may be one of this optimizer.
    def before(optimizer, args, kwargs):
        if is_compiling():
            return
        known = resting.get(id(optimizer))
        if known is None or inside or known[0]() is not optimizer:
            guarded(tell, "before", optimizer)
        elif known[1] is not None:
            known[1].steps += 1

    def after(optimizer, args, kwargs):
        if is_compiling():
            return
        known = resting.get(id(optimizer))
        if known is None or inside or known[0]() is not optimizer:
            guarded(tell, "after", optimizer)
        else:
            guarded(step_ended)

    base.register_optimizer_step_pre_hook(before)
    base.register_optimizer_step_post_hook(after)
    return True


def cpus_of(text):
    """The numbers of a list such as 0-3,8."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def is_loader_worker():
    """Whether this process was forked just now to be a worker of a DataLoader: multiprocessing forks it with the process object at hand."""
    frame = sys._getframe()
    while frame is not None:
        process = frame.f_locals.get("process_obj")
        if process is not None:
            target = getattr(process, "_target", None)
            return getattr(target, "__module__", None) == "torch.utils.data._utils.worker"
        frame = frame.f_back
    return False


def move_loader_workers():
    """Workers that DataLoaders fork go to the cores that the launcher kept for them (--loader-cores)."""
    text = posix.environ.get(b"IPEXRUN_LOADER_CPUS", b"").decode()
    if not text:
        return
    cpus = cpus_of(text)

    def in_child():
        try:
            if is_loader_worker():
                posix.sched_setaffinity(0, cpus)
        except Exception:  # cores that are gone: the worker stays where its parent is
            pass

    posix.register_at_fork(after_in_child=in_child)


def mind_forks(hook):
    """A forked child has the forking thread alone. What another one held just then for our work, which stock does not do, the child must not wait for."""

    def in_child():
        try:
            alone = not hook.after_fork_in_child()
            lock = getattr(sys.modules.get("torch._dynamo.convert_frame"), "compile_lock", None)
            if alone or lock is None:
                return
            if lock.acquire(blocking=False):
                lock.release()
            else:
                lock._at_fork_reinit()  # what the program compiles itself in the child would wait for it
        except Exception:
            pass

    hook.mind_imports(_frozen_importlib._module_locks)
    posix.register_at_fork(before=hook.before_fork, after_in_child=in_child)


def add_devices(torch):
    """Device xpu, for a program that `ipexrun xpu` started."""
    if posix.environ.get(b"IPEXRUN_XPU_START") != b"1":
        return
    import importlib

    problem = importlib.import_module(load_package().__name__ + ".xpu").install()
    if problem:
        posix.write(2, f"ipexrun: no device xpu of ours: {problem}\n".encode())
    else:
        watch_optimizers(torch, "xpu_optimizers")


_asks_fx = []


def symbolic_tracing():
    """Whether torch.fx.symbolic_trace() is calling modules with stand-ins for tensors."""
    if not _asks_fx:
        fx = sys.modules.get("torch.fx._symbolic_trace")
        if hasattr(fx, "_get_is_fx_tracing"):  # torch 2.14
            _asks_fx.append(fx._get_is_fx_tracing)
        elif hasattr(fx, "_is_fx_tracing_flag"):
            _asks_fx.append(lambda: fx._is_fx_tracing_flag)
        else:
            return False
    return _asks_fx[0]()


_attention_ways = []  # which kernels of attention the program allows, as seen when a module was first offered


def attention_ways(torch):
    ask = torch._C
    return ask._get_flash_sdp_enabled(), ask._get_math_sdp_enabled(), ask._get_mem_efficient_sdp_enabled(), ask._get_cudnn_sdp_enabled()


def asks_for_something_else(torch):
    """A function that says whether the program's calls mean something else than usual: derivatives forward, torch.compiler.set_stance(), or another choice
    of attention's kernels (torch.nn.attention.sdpa_kernel) than when capturing began."""
    forward_ad, loaded, seen = torch.autograd.forward_ad, sys.modules, _attention_ways
    ask = torch._C
    flash, plain, efficient, cudnn = (ask._get_flash_sdp_enabled, ask._get_math_sdp_enabled, ask._get_mem_efficient_sdp_enabled, ask._get_cudnn_sdp_enabled)

    def answer():  # in each call of a module that may be captured
        if forward_ad._current_level >= 0:
            return True
        dynamo = loaded.get("torch._dynamo.eval_frame")
        if dynamo is not None and dynamo._stance.stance != "default":
            return True
        return bool(seen) and (flash(), plain(), efficient(), cudnn()) != seen[0]

    answer()  # a torch whose insides are others says so here
    return answer


def functorch_transforms(torch):
    """A function that says whether one of functorch's transforms is at work. Asking for their stack would make it for the thread, and each backward pass
    copies what there is (3 us)."""
    from functools import partial

    return partial(torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode)


def only_cpu_by_default(torch):
    """Whether all modes for functions say that what is made without a device is made on the CPU, as it is without them: torch.set_default_device("cpu")
    and `with torch.device("cpu")` are such modes."""
    count, mode_at = torch._C._len_torch_function_stack, torch._C._get_function_stack_at

    def only_cpu():
        devices = sys.modules.get("torch.utils._device")
        modes = [mode_at(i) for i in range(count())]
        return devices is not None and all(type(one) is devices.DeviceContext and one.device.type == "cpu" for one in modes)

    return only_cpu


def followers():
    """Functions that say whether a debugger, or a measurement of coverage, follows lines by sys.monitoring (Python 3.12 and later); sys.settrace() is the
    extension's to see."""
    from functools import partial

    monitoring = getattr(sys, "monitoring", None)
    return () if monitoring is None else (partial(monitoring.get_tool, monitoring.DEBUGGER_ID), partial(monitoring.get_tool, monitoring.COVERAGE_ID))


def is_asked_for(asked):
    """Of an entry of capture_options()'s world."""
    answer, excuse = asked if type(asked) is tuple else (asked, None)
    return answer() and not (excuse and excuse())


def capture_options(torch, only_cpu):
    """What the extension needs to offer hot modules to capture.py; nothing where this torch has other insides, or the user wants no compiler."""
    environment = posix.environ
    if any(environment.get(name) == b"1" for name in (b"TORCH_COMPILE_DISABLE", b"TORCHDYNAMO_DISABLE")):
        return {}
    try:
        world = (
            torch._C._get_tracing_state,
            (torch._C._len_torch_function_stack, only_cpu),
            torch._C._len_torch_dispatch_stack,
            functorch_transforms(torch),
            torch._C._dynamo.eval_frame.get_eval_frame_callback,
            torch.are_deterministic_algorithms_enabled,
            torch.is_anomaly_enabled,
            symbolic_tracing,
            asks_for_something_else(torch),
            *followers(),
        )
        if any(map(is_asked_for, world)):
            return {}
    except Exception as problem:
        say(f"no capture: {type(problem).__name__}: {problem}")
        return {}
    return {"attempt": attempt, "world": world, "first_wait": capture_wait_s, "of_signal": of_signal}


def may_round(hook):
    """Whether results of operators may be rounded where whole passes allow it (--dtype auto): checks of these ask whether a module is running, and
    judge what it returns."""
    environment = posix.environ
    return hook.optimizing() and environment.get(b"IPEXRUN_DTYPE", b"auto") == b"auto" and environment.get(b"IPEXRUN_SELECT") != b"off"


def check_traces_by_stock(hook):
    """torch.jit.trace() holds what it made against the module, nearer than results in bf16 are, and warns: both are stock's meanwhile."""
    import functools

    namespace = sys.modules["torch.jit._trace"]
    check = namespace._check_trace

    @functools.wraps(check)
    def checked(*arguments, **named):
        was = hook.enabled()
        hook.set_enabled(False)
        try:
            return check(*arguments, **named)
        finally:
            hook.set_enabled(was)

    namespace._check_trace = checked


def leave(hook):
    """The program has ended. Python clears its modules one after the other, and rightly only those that nobody else holds: files are written to
    the end then, and finalizers find what they need. TorchDynamo keeps modules that it met, by name, in the globals of the module of ours whose
    calls it compiles, and in a cache."""
    if not hook.at_exit():
        return
    calls = vars(sys.modules.get("ipexrun.capture.dynamo_calls", sys))
    for name in [name for name in calls if name.startswith("__import_")]:
        calls.pop(name, None)
    cached = getattr(sys.modules.get("torch._dynamo.symbolic_convert"), "_import_module", None)
    if hasattr(cached, "cache_clear"):
        cached.cache_clear()


def start(torch):
    """Loads the extension into a process whose torch is complete. Never raises: the program goes on without us."""
    try:
        if HOOK in sys.modules:
            return
        hook = load_extension()
        hook.connect(capsule)
        if hook.optimizing():
            let_higher_order_ops_pass(torch, hook)
            try:
                make_backend_known()
            except Exception as problem:
                say(f"no backend ipex: {type(problem).__name__}: {problem}")
            try:
                if may_round(hook):
                    keep_checks_out_of_compiled_code(hook)
            except Exception as problem:
                say(f"compiled code is checked: {type(problem).__name__}: {problem}")
            try:
                if watch_optimizers(torch):
                    torch.classes.ipexrun.Training().steps_are_told()
            except Exception as problem:
                say(f"no fused optimizers: {type(problem).__name__}: {problem}")
            try:
                check_traces_by_stock(hook)
            except Exception as problem:
                say(f"traces are checked beside ours: {type(problem).__name__}: {problem}")
        try:
            mind_forks(hook)
        except Exception as problem:
            say(f"forks are not looked at: {type(problem).__name__}: {problem}")
        try:
            move_loader_workers()
        except Exception as problem:
            say(f"workers of DataLoaders stay: {type(problem).__name__}: {problem}")
        try:
            add_devices(torch)
        except Exception as problem:
            say(f"no device xpu: {type(problem).__name__}: {problem}")
        hook.started = time.perf_counter()  # how long the run is, to which the price of captures is held
        hook.only_cpu_by_default = only_cpu_by_default(torch)
        sys.modules[HOOK] = hook
        capture = capture_options(torch, hook.only_cpu_by_default) if capture_wait_s >= 0 else {}
        if bench or capture or may_round(hook):
            hook.install(
                module=torch.nn.Module,
                tensor=torch.Tensor,
                parameter=torch.nn.Parameter,
                tracing_state=torch._C._get_tracing_state,
                function_mode_count=torch._C._len_torch_function_stack,
                bench=bool(bench),
                **capture,
            )
            atexit.register(leave, hook)
        say("loaded" + ", module calls are timed" * bool(bench) + ", hot modules are captured" * bool(capture))
    except Exception as problem:
        sys.modules.pop(HOOK, None)  # creating it has registered it
        say(f"left out: {type(problem).__name__}: {problem}")


def start_when_initialized(torch, spec):
    original = type(spec)

    def get(self):
        return self.__dict__.get("_initializing", False)

    def put(self, value):
        self.__dict__["_initializing"] = value
        if value:
            return
        self.__class__ = original
        # importlib clears the attribute after a failed import too; the module is then no longer registered.
        if sys.modules.get("torch") is torch:
            start(torch)

    # The same name, so that a repr made meanwhile shows nothing unusual.
    spec.__class__ = type(original.__name__, (original,), {"__slots__": (), "_initializing": property(get, put)})


def main():
    torch = sys.modules.get("torch")
    spec = getattr(torch, "__spec__", None)
    if spec is None:
        say("left out: libtorch is mapped but no module `torch` is being imported")
    elif getattr(spec, "_initializing", False):
        start_when_initialized(torch, spec)
    else:
        start(torch)


try:
    main()
except Exception as problem:
    say(f"left out: {type(problem).__name__}: {problem}")
