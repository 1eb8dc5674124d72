"""Risk: the plugin is not alone in the process, or the process is not alone: other libraries, other threads, forks, other torches."""

import os
import subprocess
import sys
import textwrap
import threading

import plugin_loader
import programs
import torch
from conftest import needs_bf16, relative


def run_python(code, **environment):
    """Runs `code` in a new interpreter that can import plugin_loader; returns its stdout."""
    here = os.path.dirname(__file__)
    prelude = f"import sys; sys.path.insert(0, {here!r})\nimport torch, plugin_loader, os\nx, w = torch.randn(64, 512), torch.randn(512, 512)\n"
    done = programs.run([sys.executable, "-c", prelude + textwrap.dedent(code)], timeout=120, env={**os.environ, "IPEXRUN_SELECT": "off", **environment})
    assert done.returncode == 0, done.stderr
    return done


def test_one_openmp_runtime_is_mapped(hook):
    hook.force("own_bf16")
    x = torch.randn(256, 512)
    torch.mm(x, torch.randn(512, 512))  # the kernel has used torch's pool
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        runtimes = {line.split()[-1] for line in maps if any(name in line for name in ("libgomp", "libiomp", "libomp"))}
    assert len(runtimes) == 1, runtimes


def test_the_plugin_needs_no_openmp_and_has_no_run_path():
    dynamic = subprocess.run(["readelf", "-dW", plugin_loader.plugin_path()], capture_output=True, text=True, check=True).stdout
    assert "libgomp" not in dynamic and "libomp" not in dynamic
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    exports = subprocess.run(["nm", "-D", "--defined-only", plugin_loader.plugin_path()], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in exports.splitlines()] == ["ipexrun_plugin_start"]


def test_starting_twice_is_starting_once(hook):
    assert plugin_loader.start() == (0, "")


def test_another_torch_and_another_shim_are_refused_with_a_reason():
    result, reason = plugin_loader.start(torch_version=0x0101000000000000)
    assert result == 1 and "1.1" in reason
    result, reason = plugin_loader.start(abi=99)
    assert result == 1 and "ABI 99" in reason


def test_nothing_is_said_while_kernels_are_replaced():
    done = run_python("assert plugin_loader.start()[0] == 0; torch.mm(x, w)")
    assert done.stdout == "" and done.stderr == ""


def test_whoever_overrode_the_op_first_keeps_it():
    done = run_python(
        """
        import warnings
        warnings.simplefilter("ignore")
        library = torch.library.Library("aten", "IMPL")
        library.impl("mm", lambda a, b: torch.full((a.shape[0], b.shape[1]), 7.0), "CPU")
        plugin_loader.start()
        sys.modules["_ipexrun_hook"].force("onednn_f32_packed")
        print(torch.mm(x, w)[0, 0].item(), torch.addmm(w[0], x, w).shape[0])
        """
    )
    assert done.stdout.split() == ["7.0", "64"]


def test_the_levels_of_cpu_binary_and_process_are_reported():
    package = os.path.join(os.path.dirname(__file__), "..", "..", "python")
    done = run_python(f"""
        sys.path.insert(0, {package!r})
        import ipexrun
        assert ipexrun.isa() is None
        assert all(ipexrun.report()[name] == [] for name in ("graphs", "modules", "optimizers"))
        plugin_loader.start()
        assert all(ipexrun.report()[name] == [] for name in ("graphs", "modules", "optimizers"))
        print(*ipexrun.isa().values(), list(ipexrun.isa()))
    """, IPEXRUN_MAX_ISA="avx2")
    cpu, binary, process, keys = done.stdout.strip().split(" ", 3)
    assert keys == "['cpu', 'binary', 'process']"
    assert process in ("default", "avx2") and binary != "" and cpu != ""


def test_observe_mode_registers_nothing():
    done = run_python(
        """
        before = torch._C._dispatch_dump("aten::addmm")
        plugin_loader.start()
        print(before == torch._C._dispatch_dump("aten::addmm"))
        """,
        IPEXRUN_MODE="observe",
    )
    assert done.stdout.strip() == "True"


def test_float32_stays_within_rounding():
    done = run_python(
        """
        exact = x.double() @ w.double()
        plugin_loader.start()
        for name in ("own_bf16", "onednn_bf16_packed", "onednn_f32_packed"):
            sys.modules["_ipexrun_hook"].force(name)
            print(((torch.mm(x, w).double() - exact).norm() / exact.norm()).item() < 1e-6)
        """,
        IPEXRUN_DTYPE="float32",
    )
    assert done.stdout.split() == ["True"] * 3


def test_float16_acts_as_float32_with_one_line():
    done = run_python("plugin_loader.start(); torch.mm(x, w)", IPEXRUN_DTYPE="float16")
    assert done.stderr.count("float16") == done.stderr.count("\n") * 2 == 2


def test_a_forked_child_uses_packs_and_makes_none(hook):
    hook.force("own_bf16")
    x, w, other = torch.randn(64, 512), torch.randn(512, 512), torch.randn(512, 512)
    expected = torch.mm(x, w)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            same = relative(torch.mm(x, w), expected) < 2e-2
            plain = relative(torch.mm(x, other), x.double() @ other.double()) < 1e-5
            code = 0 if same and plain else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_forked_beside_a_busy_thread_does_not_wait_for_it():
    """oneDNN's cache promises a kernel to whoever asks while another thread compiles it; here that happens all the time."""
    done = run_python(
        """
        import threading, time
        plugin_loader.start()
        sys.modules["_ipexrun_hook"].force("onednn_f32_packed")
        torch.set_num_threads(1)
        layers = [torch.nn.Linear(32 + 8 * i, 64 + 8 * i) for i in range(6)]
        for layer in layers:  # torch's autograd has a lock in each tensor that wants gradients, which another thread may hold while one forks
            for name in ("weight", "bias"):
                setattr(layer, name, torch.nn.Parameter(torch.rand(getattr(layer, name).shape), requires_grad=False))
        inputs = [torch.randn(4, 32 + 8 * i) for i in range(6)]
        def run():
            with torch.no_grad():
                for layer, x in zip(layers, inputs): layer(x)
        for _ in range(3): run()
        going = True
        def work():
            while going: run()
        thread = threading.Thread(target=work)
        thread.start()
        hung = 0
        for _ in range(60):
            child = os.fork()
            if child == 0:
                run()
                os._exit(0)
            until = time.monotonic() + 30
            while (ended := os.waitpid(child, os.WNOHANG)[0]) == 0 and time.monotonic() < until: time.sleep(0.002)
            if ended == 0:
                hung += 1
                os.kill(child, 9)
                os.waitpid(child, 0)
                break
        going = False
        thread.join()
        print(hung)
        """,
        ONEDNN_PRIMITIVE_CACHE_CAPACITY="1",
        LRU_CACHE_CAPACITY="1",
    )
    assert done.stdout.strip() == "0"


def test_threads_share_weights(candidate, stock):
    layers = [torch.nn.Linear(256, 256) for _ in range(3)]
    x = torch.randn(32, 256)
    with torch.no_grad():
        expected = [stock(layer, x) for layer in layers]
    wrong = []

    def work():
        with torch.no_grad():
            for i in range(60):
                if relative(layers[i % 3](x), expected[i % 3]) > 2e-2:
                    wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@needs_bf16
def test_the_pack_memory_bound_holds():
    done = run_python(
        """
        import json
        plugin_loader.start()
        hook = sys.modules["_ipexrun_hook"]
        hook.force("own_bf16")
        weights = [torch.randn(512, 512) for _ in range(6)]
        for w in weights:
            torch.mm(x, w)
            assert json.loads(hook.report())["pack_bytes"] <= 1200 * 1024
        print(json.loads(hook.report())["pack_bytes"])
        """,
        IPEXRUN_PACK_MEMORY="1200K",
    )
    assert int(done.stdout) == 2 * 512 * 512 * 2


@needs_bf16
def test_the_profiler_shows_the_candidate(hook):
    hook.force("own_bf16")
    x, w = torch.randn(64, 512), torch.randn(512, 512)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.mm(x, w)
    assert "own_bf16" in {event.key for event in profile.key_averages()}


def test_onednn_is_not_asked_where_it_would_end_the_program():
    """It builds what describes a product in memory that it may not have been given. A call ends right, or as stock ends it."""
    done = run_python(
        """
        import resource
        plugin_loader.start()
        hook = sys.modules["_ipexrun_hook"]
        hook.force("onednn_f32_packed")
        x @ w
        pairs, right, none = [(torch.randn(32, 64 * i), torch.randn(64 * i, 256)) for i in range(2, 42)], 0, 0
        hook.force("")
        expected = [left @ right for left, right in pairs]
        hook.force("onednn_f32_packed")
        for i, (left, right_hand) in enumerate(pairs):
            filled, free = [], bytearray(i << 20)
            size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
            try:
                while True: filled.append(bytearray(3000))
            except MemoryError:
                pass
            del free
            try:
                for _ in range(3): result = left @ right_hand
                right += torch.allclose(result, expected[i], rtol=1e-4, atol=1e-3)
            except RuntimeError as problem:
                none += "memory" in str(problem)
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(right + none, right > 0)
        """
    )
    assert done.stdout.split() == ["40", "True"]


@needs_bf16
def test_without_memory_for_a_pack_all_packs_are_given_back():
    done = run_python(
        """
        import json, resource
        plugin_loader.start()
        hook = sys.modules["_ipexrun_hook"]
        hook.force("onednn_bf16_packed")
        x, large = torch.randn(2, 8192), torch.randn(8192, 8192)
        expected = x @ large[:, :64]
        hook.force("own_bf16")
        for _ in range(2): torch.mm(torch.randn(64, 512), w)
        before = json.loads(hook.report())["pack_bytes"]
        size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), resource.RLIM_INFINITY))
        result = torch.mm(x, large)
        after = json.loads(hook.report())["pack_bytes"]
        print(before > 0, after, ((result[:, :64] - expected).norm() / expected.norm()).item() < 2e-2)
        """
    )
    assert done.stdout.split() == ["True", "0", "True"]


def test_how_fast_bf16_is_follows_the_instructions():
    program = "plugin_loader.start(); print(torch.classes.ipexrun.Graph().bf16_speed())"
    speed, capped = float(run_python(program).stdout), float(run_python(program, ATEN_CPU_CAPABILITY="avx2").stdout)
    assert capped == 0
    assert 0.2 < speed < 20 if "avx512_bf16" in open("/proc/cpuinfo", encoding="ascii").read() else speed == 0, speed
