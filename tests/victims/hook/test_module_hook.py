"""The risk: a program that behaves differently because its module calls are timed. Each test is a use of nn.Module.__call__ that a
wrapper would break, run with the hook in place; the hook's own answers are checked along the way."""

import asyncio
import copy
import functools
import inspect
import os
import pickle
import sys
import threading
import traceback

import pytest
import torch
from torch import nn

sys.path.insert(0, os.path.dirname(__file__))
import fake

PLUGIN = fake.load()
BEFORE = (nn.Module.__call__, inspect.signature(nn.Module.__call__), nn.Module.__call__.__code__)
fake.start(PLUGIN)
HOOK = sys.modules["_ipexrun_hook"]


@pytest.fixture(autouse=True)
def forget():
    fake.calls(PLUGIN)
    yield
    assert HOOK.installed()
    # Whatever the test did, the depth is back at 0: a plain call is a top-level call.
    fake.calls(PLUGIN)
    nn.Identity()(torch.zeros(1))
    assert [c.name for c in fake.calls(PLUGIN)] == ["Identity"]


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.inner(x))


def test_function_object_is_the_same():
    assert nn.Module.__call__ is BEFORE[0]
    assert inspect.signature(nn.Module.__call__) == BEFORE[1]
    assert nn.Module.__call__.__code__ is BEFORE[2]
    assert type(nn.Module.__call__) is type(lambda: 0)
    assert type(torch.__spec__).__name__ == "ModuleSpec"


def test_only_top_level_calls_are_reported():
    model = Outer()
    model(torch.randn(3, 4))
    model(torch.randn(5, 4))
    assert [(c.name, c.batch) for c in fake.calls(PLUGIN)] == [("Outer", 3), ("Outer", 5)]


def test_duration_contains_the_work():
    class Sleeper(nn.Module):
        def forward(self, x):
            threading.Event().wait(0.02)
            return x

    Sleeper()(torch.zeros(1))
    (call,) = fake.calls(PLUGIN)
    assert 20e6 <= call.ns < 5e9


def test_training_flag():
    model = Outer()
    x = torch.randn(2, 4)
    model(x)
    with torch.no_grad():
        model(x)
    model.eval()(x)
    assert [c.flags & fake.TRAINING for c in fake.calls(PLUGIN)] == [fake.TRAINING, 0, 0]


def test_exploring_flag():
    class Explores(nn.Module):
        def forward(self, x):
            PLUGIN.fake_explore()
            return x

    Explores()(torch.zeros(1))
    nn.Identity()(torch.zeros(1))
    assert [c.flags & fake.EXPLORING for c in fake.calls(PLUGIN)] == [fake.EXPLORING, 0]


@pytest.mark.parametrize(
    "args, kwargs, batch",
    [
        ((torch.zeros(7, 2),), {}, 7),
        ((), {"input_ids": torch.zeros(6, 3)}, 6),
        ((None, "text", torch.zeros(2)), {}, 2),
        (([torch.zeros(9, 1), torch.zeros(8)],), {}, 9),
        (((None, torch.zeros(4)),), {}, 4),
        (({"mask": torch.zeros(3, 3)},), {}, 3),
        ((nn.Parameter(torch.zeros(5, 2)),), {}, 5),
        ((torch.zeros(()),), {}, 0),
        ((1, 2.0), {}, 0),
        ((), {}, 0),
        (([[torch.zeros(3)]],), {}, 0),  # only one level of containers
    ],
)
def test_batch_size(args, kwargs, batch):
    class Takes(nn.Module):
        def forward(self, *_, **__):
            return None

    Takes()(*args, **kwargs)
    assert [c.batch for c in fake.calls(PLUGIN)] == [batch]


def test_sizes_of_subclasses_and_under_modes_are_not_read():
    seen = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = torch.zeros(3, 2).as_subclass(Watched)
    seen.clear()
    nn.Identity()(x)
    with Mode():
        nn.Identity()(torch.zeros(1).detach())
    assert not [f for f in seen if "shape" in getattr(f, "__name__", "") or "__get__" in getattr(f, "__name__", "")]
    assert [c.batch for c in fake.calls(PLUGIN)] == [0, 0]


def test_exceptions_reach_the_user_with_their_traceback():
    class Raises(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    class Wraps(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = Raises()

        def forward(self, x):
            return self.child(x)

    with pytest.raises(KeyError, match="mine") as caught:
        Wraps()(torch.zeros(2))
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[1:] == ["_wrapped_call_impl", "_call_impl", "forward"] * 2
    (call,) = fake.calls(PLUGIN)
    assert (call.name, call.flags & fake.FAILED) == ("Wraps", fake.FAILED)


def test_wrong_arguments_raise_as_before():
    with pytest.raises(TypeError):
        nn.Linear(2, 2)()
    with pytest.raises(TypeError):
        nn.Module.__call__()
    assert fake.calls(PLUGIN)[0].name == "Linear"  # the second never becomes a call: there is no module


@pytest.mark.parametrize("style", ["positional", "starred"])
def test_overridden_call_with_super(style):
    class Overrides(Outer):
        if style == "positional":

            def __call__(self, x):
                return super().__call__(x)
        else:

            def __call__(self, *args, **kwargs):
                return super().__call__(*args, **kwargs)

    Overrides()(torch.zeros(2, 4))
    assert [(c.name, c.batch) for c in fake.calls(PLUGIN)] == [("Overrides", 2)]


def test_call_by_name_and_unbound():
    model = Outer()
    x = torch.zeros(2, 4)
    for _ in range(50):  # often enough for the interpreter to specialise the call site
        model.__call__(x)
        nn.Module.__call__(model, x)
        functools.partial(model, x)()
    assert [c.name for c in fake.calls(PLUGIN)] == ["Outer"] * 150


def test_direct_forward_counts_the_children():
    Outer().forward(torch.zeros(2, 4))
    assert [c.name for c in fake.calls(PLUGIN)] == ["Inner", "Linear"]


def test_program_that_patches_call_itself(monkeypatch):
    original = nn.Module.__call__
    seen = []

    @functools.wraps(original)
    def patched(self, *args, **kwargs):
        seen.append(type(self).__name__)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "__call__", patched)
    Outer()(torch.zeros(2, 4))
    assert seen == ["Outer", "Inner", "Linear", "Linear"]
    assert [c.name for c in fake.calls(PLUGIN)] == ["Outer"]


def test_hooks_of_the_user_run_once():
    seen = []
    model = Outer()
    model.register_forward_pre_hook(lambda m, a: seen.append("pre"))
    model.register_forward_hook(lambda m, a, o: seen.append("post"))
    model(torch.zeros(2, 4))
    assert seen == ["pre", "post"]


def test_copy_and_pickle():
    model = Outer()
    x = torch.randn(2, 4)
    expected = model(x)
    assert torch.equal(copy.deepcopy(model)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(nn.Sequential(nn.Flatten())))(x), x)
    assert pickle.loads(pickle.dumps(nn.Module.__call__)) is nn.Module.__call__


def test_fx_symbolic_trace():
    model = Outer().eval()
    x = torch.randn(2, 4)
    traced = torch.fx.symbolic_trace(model)
    assert [n.op for n in traced.graph.nodes] == ["placeholder", "call_module", "call_function", "call_module", "output"]
    fake.calls(PLUGIN)
    assert torch.equal(traced(x), model(x))
    assert len(fake.calls(PLUGIN)) == 2


def kinds(traced):
    return [node.kind() for node in traced.inlined_graph.nodes()]


def test_jit_trace_and_script():
    model = Outer().eval()
    x = torch.randn(2, 4)
    HOOK.uninstall()
    try:
        without = kinds(torch.jit.trace(model, x))
    finally:
        reinstall()
    traced = torch.jit.trace(model, x)
    assert kinds(traced) == without
    assert torch.equal(traced(x), model(x))
    assert torch.equal(torch.jit.script(model)(x), model(x))


def reinstall(**capture):
    HOOK.install(
        module=nn.Module,
        tensor=torch.Tensor,
        parameter=nn.Parameter,
        tracing_state=torch._C._get_tracing_state,
        function_mode_count=torch._C._len_torch_function_stack,
        **capture,
    )


def test_install_twice_is_refused_and_uninstall_restores():
    with pytest.raises(RuntimeError):
        reinstall()
    HOOK.uninstall()
    try:
        nn.Identity()(torch.zeros(1))
        assert fake.calls(PLUGIN) == []
    finally:
        reinstall()


def test_few_of_many_short_calls_are_counted_and_stand_for_the_others():
    looks, spent = [], []

    class Long(nn.Module):
        def forward(self, x):
            for _ in range(200_000):
                pass
            return x

    def attempt(module, seconds, grad):
        spent.append(seconds)
        return 1e6  # not again

    HOOK.uninstall()
    try:
        reinstall(attempt=attempt, world=(lambda: looks.append(1),), first_wait=0.0)
        tiny = nn.Identity()
        x = torch.zeros(1)
        for _ in range(1000):
            tiny(x)
        assert spent == [0.0] and 1000 / 24 <= len(looks) <= 1000 / 7, len(looks)
        looks.clear()
        long = Long()
        for _ in range(20):
            long(x)
        assert len(looks) == 20 and len(spent) == 2
    finally:
        HOOK.uninstall()
        reinstall()


def test_a_handler_may_leave_out_calls():
    class Handler:
        asked = 0

        def __call__(self, module, *args):
            self.asked += 1
            return HOOK.EAGER

        def took(self, nanoseconds, result, explored):
            return {1: 5, 2: 0, 3: -1, 4: 10**30, 5: None}.get(self.asked, False)

    handler = Handler()
    HOOK.uninstall()
    try:
        reinstall(attempt=lambda module, seconds, grad: handler, world=(), first_wait=0.0)
        layer = nn.Identity()
        x = torch.zeros(1)
        asked = []
        for _ in range(14):
            assert layer(x) is x
            asked.append(handler.asked)
        assert asked == [1] * 6 + [2, 3, 4, 5, 6, 6, 6, 6]  # numbers that are none leave out nothing
    finally:
        HOOK.uninstall()
        reinstall()


def graphs_and_breaks(model, x):
    report = torch._dynamo.explain(model)(x)
    return report.graph_count, report.graph_break_count


def test_dynamo_top_level_and_nested():
    model = Outer().eval()
    x = torch.randn(2, 4)
    expected = model(x)
    assert graphs_and_breaks(model, x) == (1, 0)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    fake.calls(PLUGIN)
    for _ in range(3):
        assert torch.equal(compiled(x), expected)
    assert [c.name for c in fake.calls(PLUGIN)] == ["OptimizedModule"] * 3
    nested = Outer().eval()
    nested.inner.compile(backend="eager", fullgraph=True)
    fake.calls(PLUGIN)
    nested(x)
    nested(x)
    assert [c.name for c in fake.calls(PLUGIN)] == ["Outer"] * 2
    torch._dynamo.reset()

    @torch.compile(backend="eager", fullgraph=True)
    def function(value):
        return model(value) + 1

    assert torch.equal(function(x), expected + 1)
    torch._dynamo.reset()


def test_dynamo_recompiles_are_not_caused_by_the_hook():
    model = Outer().eval()
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(model, backend=counter)
    for _ in range(5):
        compiled(torch.randn(2, 4))
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_export():
    program = torch.export.export(Outer().eval(), (torch.randn(2, 4),))
    assert program.module()(torch.zeros(2, 4)).shape == (2, 2)


def test_functional_call_and_vmap():
    model = Outer().eval()
    x = torch.randn(3, 4)
    parameters = dict(model.named_parameters())
    out = torch.func.vmap(lambda row: torch.func.functional_call(model, parameters, (row,)))(x)
    assert torch.allclose(out, model(x))


def test_generator_forward_is_timed_until_it_returns():
    class Generates(nn.Module):
        def forward(self, x):
            for i in range(3):
                yield nn.Identity()(x + i)

    stream = Generates()(torch.zeros(2))
    assert [c.name for c in fake.calls(PLUGIN)] == ["Generates"]
    assert [int(v[0]) for v in stream] == [0, 1, 2]
    assert [c.name for c in fake.calls(PLUGIN)] == ["Identity"] * 3


def test_async_forward():
    class Waits(nn.Module):
        async def forward(self, x):
            await asyncio.sleep(0)
            return nn.Identity()(x)

    async def both():
        return await asyncio.gather(Waits()(torch.zeros(1)), Waits()(torch.ones(1)))

    assert [int(v[0]) for v in asyncio.run(both())] == [0, 1]
    assert sorted(c.name for c in fake.calls(PLUGIN)) == ["Identity", "Identity", "Waits", "Waits"]


def test_threads_have_their_own_depth():
    model = Outer().eval()
    barrier = threading.Barrier(4)

    class Meets(nn.Module):
        def forward(self, x):
            barrier.wait(10)  # all four are inside a top-level call at once
            return model(x)

    meets = Meets()
    threads = [threading.Thread(target=meets, args=(torch.zeros(2, 4),)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [c.name for c in fake.calls(PLUGIN)] == ["Meets"] * 4


def test_fork_inside_a_call():
    class Forks(nn.Module):
        def forward(self, x):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    code = 0 if nn.Identity()(x).shape == (2,) else 2
                finally:
                    os._exit(code)
            return os.waitpid(pid, 0)[1]

    assert Forks()(torch.zeros(2)) == 0
    assert [c.name for c in fake.calls(PLUGIN)] == ["Forks"]


def test_deep_recursion_still_raises():
    class Recurses(nn.Module):
        def forward(self, x):
            return self(x)

    with pytest.raises(RecursionError):
        Recurses()(torch.zeros(1))


def test_profiler_and_settrace_see_the_users_frames():
    frames = []

    def tracer(frame, event, arg):
        if event == "call" and frame.f_code.co_name == "forward":
            frames.append(frame.f_code.co_filename)

    sys.setprofile(tracer)
    try:
        Outer()(torch.zeros(2, 4))
    finally:
        sys.setprofile(None)
    assert len(frames) == 4


def test_class_dies_during_its_own_call():
    def build():
        class Temporary(nn.Module):
            def forward(self, x):
                return x

        return Temporary()

    build()(torch.zeros(3))
    assert [(c.name, c.batch) for c in fake.calls(PLUGIN)] == [("Temporary", 3)]


def test_public_package():
    sys.path.insert(0, str(fake.LIB / "python"))
    try:
        import ipexrun
    finally:
        sys.path.pop(0)
    assert ipexrun.is_active()
    assert ipexrun.set_enabled(False) and not ipexrun.is_active()
    assert ipexrun.set_enabled(True) and ipexrun.is_active()
    assert ipexrun.force("known") and not ipexrun.force("unknown")
    for wrong in (None, 3, b"known"):
        with pytest.raises(TypeError, match="takes the name of a candidate, and not"):
            ipexrun.force(wrong)
    report = ipexrun.report()
    assert report["module_calls_timed"] and report["taken"] == 3 and len(report["long"]) == 10000
