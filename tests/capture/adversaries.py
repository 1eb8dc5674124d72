"""Modules that a capture must not change: each case calls one many times and gives what a user would see. Run by test_capture.py as a plain
program, on stock and under ipexrun; writes a dict of case name -> list of results to the path that it is given.

One list, though long: cases are a few lines each, and what follows from another in one process is part of what is tried."""

import collections
import random
import sys
import threading
import warnings

import numpy
import torch
from torch import nn

CALLS = 12
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def data(seed, *sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Linear(width, 4 * width)
        self.second = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.second(torch.nn.functional.gelu(self.first(x)))


def called(model, inputs):
    with torch.no_grad():
        return [model(*one) if type(one) is tuple else model(one) for one in inputs]


@case
def plain():
    return called(Block().eval(), [data(i, 8, 64) for i in range(CALLS)])


@case
def control_flow_by_data():
    class Model(Block):
        def forward(self, x):
            if x.sum() > 0:
                return super().forward(x)
            return super().forward(-x) * 2

    return called(Model().eval(), [data(i, 8, 64) for i in range(CALLS)])


@case
def loops_by_data():
    class Model(Block):
        def forward(self, x):
            steps = 0
            while x.norm() > 10 and steps < 5:
                x = super().forward(x) * 0.3
                steps += 1
            return x, steps

    return called(Model().eval(), [data(i, 8, 64) * (i + 1) for i in range(CALLS)])


@case
def hooks_that_change_and_keep():
    model, seen = nn.Sequential(Block(), Block()).eval(), []
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    model[1].register_forward_hook(lambda module, args, result: seen.append(result.sum().item()))
    model[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return called(model, [data(i, 8, 64) for i in range(CALLS)]) + [torch.tensor(seen)]


@case
def hooks_that_come_and_go():
    model, out = nn.Sequential(Block(), Block()).eval(), []
    for i in range(CALLS):
        handle = model[0].register_forward_hook(lambda module, args, result: result * 3) if i % 3 == 0 else None
        out += called(model, [data(i, 8, 64)])
        if handle is not None:
            handle.remove()
    return out


@case
def methods_of_classes_that_change():
    """Libraries put other methods into classes of live models; TorchDynamo does not look for them."""

    class Gain:
        def of(self, x):
            return x

    class Scaled(Block):
        def __init__(self):
            super().__init__()
            self.gain = Gain()

        @classmethod
        def factor(cls):
            return 0.5

        def forward(self, x):
            return self.gain.of(super().forward(x)) * self.factor()

    model, out = nn.Sequential(Scaled(), Scaled()).eval(), []
    changes = [
        (Scaled, "forward", lambda self, x: x - self.second(self.first(x))),
        (Block, "forward", lambda self, x: self.second(self.first(x).relu())),
        (Scaled, "factor", classmethod(lambda cls: 3.0)),
        (Gain, "of", lambda self, x: x * 2),
        (nn.Linear, "forward", lambda self, x: x @ self.weight.t()),
    ]
    for kind, name, method in changes:
        out += called(model, [data(i, 8, 64) for i in range(CALLS)])
        old = vars(kind)[name]
        setattr(kind, name, method)
        out += called(model, [data(i, 8, 64) for i in range(3)])
        setattr(kind, name, old)
    code = Block.forward.__code__
    Block.forward.__code__ = (lambda self, x: x + 1).__code__  # as autoreload does
    out += called(model, [data(i, 8, 64) for i in range(3)])
    Block.forward.__code__ = code
    return out + called(model, [data(i, 8, 64) for i in range(CALLS)])


@case
def a_call_of_its_own():
    class Model(Block):
        def __call__(self, x):
            return super().__call__(x) + 1

    class Within(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Model()

        def forward(self, x):
            return self.inner(x) * 2

    return called(Model().eval(), [data(i, 8, 64) for i in range(CALLS)]) + called(Within().eval(), [data(i, 8, 64) for i in range(CALLS)])


@case
def several_threads():
    model, out = Block().eval(), {}

    def work(name):
        out[name] = called(model, [data(100 * name + i, 8, 64) for i in range(CALLS)])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [out[name] for name in range(4)]


@case
def shapes_of_every_call():
    return called(Block().eval(), [data(i, 1 + 3 * i % 17, 5 + i, 64) for i in range(2 * CALLS)])


@case
def weights_that_change():
    model, out = Block().eval(), []
    for i in range(3 * CALLS):
        if i % 10 == 9:
            with torch.no_grad():
                model.first.weight.add_(0.01 * data(i, 256, 64))
                model.second.weight.data.mul_(1.01)
        if i % 13 == 12:
            model.second.bias = nn.Parameter(data(i, 64))
        out += called(model, [data(i, 8, 64)])
    return out


@case
def exceptions_in_the_middle():
    class Sometimes(nn.Module):
        def forward(self, x):
            if x.shape[0] == 7:
                raise ValueError("seven rows")
            return x * 2

    model, out = nn.Sequential(Block(), Sometimes(), Block()).eval(), []
    for i in range(2 * CALLS):
        try:
            out += called(model, [data(i, 7 if i % 4 == 3 else 8, 64)])
        except ValueError as problem:
            out.append(str(problem))
    return out


@case
def mistakes_of_the_caller():
    model, out = Block().eval(), []
    for i in range(CALLS):
        try:
            out += called(model, [data(i, 8, 63 if i % 3 == 2 else 64)])
        except RuntimeError as problem:
            out.append(str(problem))
    return out


@case
def recursion():
    class Tree(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.block = Block()
            self.child = Tree(depth - 1) if depth else None

        def forward(self, x, again=1):
            x = self.block(x)
            if self.child is not None:
                x = self.child(x, again)
            return self(x, again - 1) if again > 0 and self.child is not None else x

    return called(Tree(2).eval(), [data(i, 4, 64) for i in range(CALLS)])


@case
def writes_into_inputs():
    class Model(Block):
        def forward(self, x):
            x.mul_(2)
            return super().forward(x)

    inputs = [data(i, 8, 64) for i in range(CALLS)]
    return called(Model().eval(), inputs) + inputs


@case
def writes_into_inputs_that_share_memory():
    class Model(Block):
        def forward(self, x, y):
            z = super().forward(x)
            y.add_(1)
            return z + x * y

    out = []
    for order in ((0, 1, 2), (2, 1, 0), (1, 2), (2, 1)):
        model = Model().eval()
        for i in range(2 * CALLS):
            x = data(i, 8, 64)
            y = (x, x[:], data(i + 100, 8, 64))[order[i % len(order)]]
            out += [*called(model, [(x, y)]), x, y]
    return out


@case
def results_that_are_inputs():
    class Model(Block):
        def forward(self, x):
            return x, x[:2], super().forward(x), x.t()

    out = []
    for i in range(CALLS):
        x = data(i, 8, 64)
        same, part, _, turned = results = called(Model().eval(), [x])[0]
        out += [*results, same is x, part.data_ptr() == x.data_ptr(), turned.stride()]
    return out


@case
def state_of_its_own():
    class Model(Block):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(64))
            self.count = 0
            self.last = None

        def forward(self, x):
            self.count += 1
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.last = x
            return super().forward(x - self.mean)

    model = Model().eval()
    return called(model, [data(i, 8, 64) for i in range(CALLS)]) + [model.count, model.mean.clone(), model.last, sorted(model.state_dict())]


@case
def a_cache_that_grows():
    class Model(Block):
        def forward(self, x, cache):
            cache.append(x)
            seen = torch.cat(cache, 0)
            return super().forward(seen)[-1:], cache

    model, cache, out = Model().eval(), [], []
    for i in range(2 * CALLS):
        result, cache = called(model, [(data(i, 1, 64), cache)])[0]
        out.append(result)
    return out + [len(cache)]


@case
def random_numbers():
    class Model(Block):
        def forward(self, x):
            return super().forward(nn.functional.dropout(x, 0.3, training=True)) + torch.rand(64) + random.random() + float(numpy.random.rand())

    torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
    return called(Model().eval(), [data(i, 8, 64) for i in range(CALLS)]) + [torch.rand(3), random.random(), numpy.random.rand()]


@case
def globals_that_it_counts():
    global counted
    counted = 0

    class Model(Block):
        def forward(self, x):
            global counted
            counted += 1
            return super().forward(x) * (2 if counted % 2 else 1)

    return called(Model().eval(), [data(i, 8, 64) for i in range(CALLS)]) + [counted]


@case
def nested_inputs_and_results():
    class Model(Block):
        def forward(self, pack, *, flags=None):
            out = {name: Block.forward(self, value) for name, value in pack["xs"].items()}
            return {"all": [out, (pack["y"] * 2,)], "n": len(out) if flags is None else flags}

    model, out = Model().eval(), []
    with torch.no_grad():
        for i in range(CALLS):
            out.append(model({"xs": {"a": data(i, 4, 64), "b": data(i + 1, 4, 64)}, "y": data(i, 3)}, flags=None if i % 2 else i))
    return out


@case
def forward_called_by_name():
    model = nn.Sequential(Block(), Block()).eval()
    with torch.no_grad():
        return [model.forward(data(i, 8, 64)) for i in range(CALLS)]


@case
def a_generator():
    class Model(Block):
        def forward(self, x):
            for i in range(3):
                x = super().forward(x)
                yield x

    model = Model().eval()
    with torch.no_grad():
        return [list(model(data(i, 8, 64))) for i in range(CALLS)]


@case
def warnings_and_prints():
    class Model(Block):
        def forward(self, x):
            warnings.warn("once a call")
            said.append("forward")
            return super().forward(x)

    said = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = called(Model().eval(), [data(i, 8, 64) for i in range(CALLS)])
    return out + [len(said), sum(str(one.message) == "once a call" for one in caught)]


@case
def training_and_evaluation_in_turn():
    model, out = nn.Sequential(Block(), nn.BatchNorm1d(64), nn.Dropout(0.1)), []
    step = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(3)
    for i in range(CALLS):
        model.train()
        model(data(i, 8, 64)).pow(2).mean().backward()
        step.step()
        step.zero_grad()
        out += called(model.eval(), [data(i, 8, 64)])
    return out + [model[1].running_mean.clone()]


@case
def inference_mode_and_no_grad():
    model, out = Block().eval(), []
    for i in range(2 * CALLS):
        with torch.inference_mode() if i % 2 else torch.no_grad():
            out.append(model(data(i, 8, 64)))
    return out + [out[0].is_inference(), out[1].is_inference()]


@case
def autocast_of_the_users():
    model, out = Block().eval(), []
    for i in range(CALLS):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=i % 3 == 2):
            result = model(data(i, 8, 64))
        out += [str(result.dtype), result.float() if i % 3 != 2 else None]
    return out


@case
def modules_that_come_and_go():
    import gc
    import weakref

    gone = []
    for i in range(4):
        torch.manual_seed(i)
        model = Block().eval()
        called(model, [data(i, 8, 64) for i in range(10)])
        gone.append(weakref.ref(model))
        del model
    gc.collect()
    return [one() is None for one in gone]


class Counted:
    ended = []

    def __init__(self, name):
        self.name = name

    def __del__(self):
        Counted.ended.append(self.name)


@case
def objects_with_finalizers():
    class Model(Block):
        def forward(self, x):
            used = Counted("used")
            x = super().forward(x)
            self.kept = Counted("kept")
            return x if used.name else -x

    failed, was = [], sys.unraisablehook
    sys.unraisablehook = failed.append
    try:
        model = Model().eval()
        out = called(model, [data(i, 8, 64) for i in range(3 * CALLS)])
    finally:
        sys.unraisablehook = was
    said = [Counted.ended.count("used"), Counted.ended.count("kept"), len(failed)]
    return [*out, *said]


@case
def frames_that_are_looked_at():
    class Model(Block):
        def forward(self, x):
            one, two = 1, 2
            frame = sys._getframe()
            return super().forward(x) * one * two, frame.f_code.co_name, len(frame.f_code.co_varnames), frame.f_back.f_code.co_name

    return [one for i in range(3 * CALLS) for one in Model().eval()(data(i, 8, 64)) if not isinstance(one, torch.Tensor)] + called(Model().eval(), [data(i, 8, 64) for i in range(3 * CALLS)])


@case
def modes_of_the_users():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            counts.append(str(function))
            return function(*args, **(kwargs or {}))

    model, counts = Block().eval(), []
    called(model, [data(i, 8, 64) for i in range(CALLS)])
    with Count():
        called(model, [data(1, 8, 64)])
    jacobian = torch.func.vmap(model)(data(2, 3, 8, 64))
    traced = torch.jit.trace(model, data(3, 8, 64))
    return [sorted(counts), jacobian.detach(), str(traced.graph).count("aten::gelu"), list(torch.fx.symbolic_trace(nn.ReLU()).graph.nodes)[1].op]


@case
def compiled_by_the_user():
    calls = []

    def backend(graph, inputs):
        calls.append(len(graph.graph.nodes))
        return graph.forward

    fast = torch.compile(Block().eval(), backend=backend)
    return called(fast, [data(i, 8, 64) for i in range(CALLS)]) + [len(calls)]


@case
def hooks_on_every_module():
    from torch.nn.modules.module import register_module_forward_hook

    model, out, seen = Block().eval(), [], []
    for i in range(2 * CALLS):
        handle = register_module_forward_hook(lambda module, args, result: seen.append(type(module).__name__)) if i % 5 == 4 else None
        out += called(model, [data(i, 8, 64)])
        if handle is not None:
            handle.remove()
    return out + [seen]


@case
def hooks_that_were_there_and_go():
    model, out = nn.Sequential(Block(), Block()).eval(), []
    handle = model[1].first.register_forward_hook(lambda module, args, result: result * 0.5)
    for i in range(2 * CALLS):
        if i == CALLS:
            handle.remove()
        out += called(model, [data(i, 8, 64)])
    return out


@case
def methods_that_are_replaced():
    model, out = nn.Sequential(Block(), Block()).eval(), []
    for i in range(3 * CALLS):
        if i == CALLS:
            model[0].forward = lambda x: x * 2
        if i == 2 * CALLS:
            model[1].__class__ = type("Other", (Block,), {"forward": lambda self, x: self.first(x)[:, :64]})
        out += called(model, [data(i, 8, 64)])
    return out


@case
def modules_that_are_replaced():
    model, out = nn.Sequential(Block(), nn.ReLU(), Block()).eval(), []
    for i in range(3 * CALLS):
        if i == CALLS:
            model[1] = nn.Sigmoid()
        if i == 2 * CALLS:
            model[0].first, model[2].first = model[2].first, model[0].first
        out += called(model, [data(i, 8, 64)])
    return out


@case
def attributes_that_change():
    class Model(Block):
        scale, flags = 1.0, {"double": False}

        def forward(self, x):
            return super().forward(x * self.scale) * (2 if self.flags["double"] else 1)

    model, out = Model().eval(), []
    for i in range(3 * CALLS):
        model.scale = 1.0 + i // CALLS
        Model.flags["double"] = i % 7 == 6
        out += called(model, [data(i, 8, 64)])
    return out


@case
def results_that_share_memory():
    class Model(Block):
        def forward(self, x):
            y = super().forward(x)
            return y, y[0], y.t()

    model, out = Model().eval(), []
    for i in range(CALLS):
        (y, first, turned), = called(model, [data(i, 8, 64)])
        first.zero_()
        out += [y, turned]
    return out


@case
def models_that_change_their_dtype():
    model, out = Block().eval(), []
    for i in range(3 * CALLS):
        if i == CALLS:
            model.double()
        if i == 2 * CALLS:
            model.float()
        x = data(i, 8, 64)
        out += called(model, [x.double() if i // CALLS == 1 else x])
    return out


@case
def a_copy_and_a_pickle():
    import copy
    import io

    model = Block().eval()
    called(model, [data(i, 8, 64) for i in range(CALLS)])
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    return called(copy.deepcopy(model), [data(9, 8, 64)]) + [sorted(vars(model)), len(buffer.getvalue()) > 0]


class Rows(Block):
    """Some of the rows that a product gives; one that is not there raises what the operator raises."""

    def forward(self, x, rows):
        return super().forward(x)[rows]


def called_or_told(model, inputs, kind):
    """Of each call its results, or what it raised."""
    out = []
    for one in inputs:
        try:
            out += called(model, [one])
        except kind as problem:
            out.append(str(problem))
    return out


def rows(i):
    return torch.tensor([3, 99 if i % 4 == 3 else 7])


@case
def a_forward_that_catches_what_an_operator_raises():
    class Model(Rows):
        def forward(self, x, rows):
            try:
                return super().forward(x, rows)
            except IndexError:
                return x[:2] * 2

    return called(Model().eval(), [(data(i, 8, 64), rows(i)) for i in range(3 * CALLS)])


@case
def a_forward_that_catches_what_an_operator_raises_when_it_is_traced():
    """The first call of all raises: cholesky's check keeps such a graph from being ours."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 16)

        def forward(self, x):
            x = self.linear(x) @ self.linear(x).T
            try:
                return torch.linalg.cholesky(x) + 1
            except torch.linalg.LinAlgError:
                return x * 2

    return called_or_told(Model().eval(), [(data(i, 4 if i % 4 == 3 else 40, 16),) for i in range(3 * CALLS)], torch.linalg.LinAlgError)


@case
def a_forward_of_several_graphs_that_catches_what_an_operator_raises():
    class Model(Rows):
        calls = 0

        def forward(self, x, rows):
            self.calls += 1
            x = super().forward(x, slice(None))
            if x.sum() < 1e9:  # a graph ends here
                x = x + 1
            try:
                return x[rows]
            except IndexError:
                return x[:2] * 2

    model = Model().eval()
    return called(model, [(data(i, 8, 64), rows(i)) for i in range(3 * CALLS)]) + [model.calls]


@case
def attributes_that_are_set_before_an_operator_raises():
    class Model(Rows):
        calls, last = 0, None

        def forward(self, x, rows):
            self.calls += 1
            self.last = x
            return super().forward(x, rows)

    model, out = Model().eval(), []
    for i in range(3 * CALLS):
        x = data(i, 8, 64)
        try:
            out += called(model, [(x, rows(i))])
        except IndexError as problem:
            frames, at = [], problem.__traceback__
            while at is not None:
                frames.append(at.tb_frame.f_code.co_name)
                at = at.tb_next
            out.append(f"{problem} in {frames[-1]}")
        out += [model.calls, model.last is x]
    return out


@case
def buffers_that_are_written_before_an_operator_raises():
    class Model(Rows):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x, rows):
            self.calls.add_(1)
            return super().forward(x, rows)

    model, out = Model().eval(), []
    for i in range(3 * CALLS):
        out += called_or_told(model, [(data(i, 8, 64), rows(i))], IndexError)
        out.append(model.calls.clone())
    return out


@case
def what_is_raised_from_an_end():
    class Model(Rows):
        def forward(self, x, rows):
            try:
                if float(x[0, 0]) > 0:  # the graph ends here
                    raise SystemExit("enough")
                return super().forward(x, rows)
            except SystemExit as end:
                raise RuntimeError("no more") from end

    return called_or_told(Model().eval(), [(data(i, 8, 64), torch.tensor([1])) for i in range(3 * CALLS)], RuntimeError)


@case
def inference_mode_within_what_cannot_be_compiled():
    class Model(Block):
        def forward(self, x, rows):
            z = self.first(x)
            with torch.inference_mode():
                y = torch.relu(self.second(z.detach()))[rows]
            return y

    model, out = Model().eval(), []
    for i in range(3 * CALLS):
        out += called_or_told(model, [(data(i, 8, 64), rows(i)), (data(i, 8, 64), rows(0))], IndexError)
        out.append(torch.is_inference_mode_enabled())
    return out


@case
def symbolic_traces_of_what_was_used():
    outer = nn.Sequential(Block(), Block()).eval()
    out = called(outer[0], [data(i, 8, 64) for i in range(CALLS)])
    for _ in range(2):
        out += called(torch.fx.symbolic_trace(outer), [data(9, 8, 64)])
    return out + called(outer[0], [data(10, 8, 64)])


@case
def what_parameters_hold():
    model = Block()
    called(model.eval(), [data(i, 8, 64) for i in range(CALLS)])
    for i in range(CALLS):
        model.train()(data(i, 8, 64)).sum().backward()
    return [sorted(vars(one)) for one in model.parameters()]


@case
def symbolic_traces_between_training_steps():
    outer, out = nn.Sequential(Block(), Block()), []
    for i in range(2 * CALLS):
        outer[0](data(i, 8, 64)).sum().backward()
        out += called(torch.fx.symbolic_trace(outer), [data(i, 8, 64)])
    return out


@case
def derivatives_forward():
    model, x = Block().eval(), data(0, 8, 64)
    out, forward_ad = called(model, [x] * CALLS), torch.autograd.forward_ad
    with torch.no_grad(), forward_ad.dual_level():
        for i in range(CALLS):
            out += forward_ad.unpack_dual(model(forward_ad.make_dual(x, data(i, 8, 64))))
    return out + called(model, [x])


@case
def nested_tensors():
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU()).eval()
    nested = torch.nested.nested_tensor([data(0, 5, 64), data(1, 9, 64)], layout=torch.jagged)
    out = [one.values() for one in called(model, [nested] * CALLS)]
    return out + called(model, [data(i, 8, 64) for i in range(CALLS)]) + [one.values() for one in called(model, [nested])]


@case
def what_torch_computes_otherwise_where_it_compiles():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model, padding = nn.TransformerEncoder(layer, 2).eval(), torch.zeros(4, 12, dtype=torch.bool)
    padding[1, 8:] = True
    with torch.no_grad():
        return [model(data(i, 4, 12, 64), src_key_padding_mask=padding) for i in range(CALLS)]


@case
def random_numbers_drawn_before_it_raises():
    class Model(Block):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 64)

        def forward(self, places):
            return super().forward(nn.functional.dropout(self.table(places), 0.3, training=True) + torch.randn(64))

    torch.manual_seed(1)
    model, out = Model().eval(), []
    for i in range(2 * CALLS):
        try:
            out += called(model, [torch.tensor([i % 8, 9 if i % 5 == 4 else 1, i % 3])])
        except IndexError as problem:
            out.append(str(problem))
        out.append(torch.rand(2))
    return out


@case
def layers_that_are_never_left_out():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                left_out = torch.rand([])
                if not (self.training and left_out < 0.5):
                    x = layer(x)
            return x + torch.rand_like(x) * 0.1

    torch.manual_seed(1)
    return called(Model().eval(), [data(i, 4 + i % 3, 64) for i in range(2 * CALLS)]) + [torch.rand(3)]


@case
def random_numbers_that_nobody_reads():
    functional = nn.functional
    draws = [lambda x: functional.dropout(x, 0.3, training=True), torch.randn_like, lambda x: torch.empty(4).normal_(), lambda x: torch.randperm(5),
             lambda x: functional.rrelu(x, training=True), lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)]

    class Model(Block):
        def __init__(self, draw):
            super().__init__()
            self.draw = draw

        def forward(self, x):
            self.draw(x)
            return super().forward(x)

    out = []
    for draw in draws:
        torch.manual_seed(1)
        out += called(Model(draw).eval(), [data(i, 2, 8, 64) for i in range(CALLS)]) + [torch.rand(3)]
    return out


@case
def what_a_program_computes_otherwise_where_it_is_compiled():
    class Model(Block):
        def forward(self, x):
            x = super().forward(x)
            return torch.cat([x[:-1], x[-1:] * 0]) if torch.compiler.is_compiling() else x  # one row of many

    return called(Model().eval(), [data(i, 256, 64) for i in range(CALLS)])


@case
def another_choice_of_attention():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(64, 64)

        def forward(self, x):
            x = self.first(x).view(2, -1, 4, 16).transpose(1, 2)
            return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    model, backends = Model().eval(), torch.nn.attention.SDPBackend
    out = called(model, [data(i, 2, 32, 64) for i in range(2 * CALLS)])
    for backend in (backends.MATH, backends.EFFICIENT_ATTENTION, backends.FLASH_ATTENTION):
        with torch.nn.attention.sdpa_kernel(backend):
            try:
                out += called(model, [data(1, 2, 32, 64)])
            except RuntimeError as problem:
                out.append(str(problem))
    return out


@case
def a_stance_that_comes_later():
    model, x = Block().eval(), data(0, 8, 64)
    out = called(model, [x] * CALLS)
    with torch.compiler.set_stance("fail_on_recompile"):
        out += called(model, [x.view(2, 4, 64)] * CALLS + [x.double().float()])
    return out + called(model, [x])


@case
def a_deque_that_is_full():
    """TorchDynamo does not know that such a one drops elements, in pieces of a forward without operators neither."""

    class Model(Block):
        def __init__(self):
            super().__init__()
            self.last, self.lengths = collections.deque([torch.zeros(8, 64)] * 3, maxlen=3), collections.deque([0.0] * 2, maxlen=2)

        def forward(self, x):
            y = super().forward(x)
            self.last.append(y)
            torch._dynamo.graph_break()
            self.lengths.appendleft(float(len(self.lengths)))
            torch._dynamo.graph_break()
            return y - self.last[0], len(self.last)

    model = Model().eval()
    return [*called(model, [data(i, 8, 64) for i in range(CALLS)]), list(model.last), list(model.lengths), model.last.maxlen]


@case
def what_a_metaclass_gives():
    class Single(type):
        def __call__(cls, *arguments):
            if "one" not in vars(cls):
                cls.one = super().__call__(*arguments)
            return cls.one

    class Settings(metaclass=Single):
        def __init__(self):
            self.scale = 1.0

    class Model(Block):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x) * Settings().scale

    Settings().scale = 3.0
    model = Model().eval()
    return [*called(model, [data(i, 8, 64) for i in range(CALLS)]), model.calls]


@case
def nested_tensors_behind_plain_ones():
    """Guards of TorchDynamo's ask these for strides, and what that raises ended the process."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    model, plain = Model().eval(), [data(i, 4, 8, 64) for i in range(CALLS)]
    nested = torch.nested.nested_tensor([data(1, 3, 64), data(2, 5, 64)])
    out = called(model, plain)
    for x in (nested, [nested]):
        with torch.no_grad():
            out.append([one.clone() for one in (model(x) if x is nested else model(*x)).unbind()])
    return out + called(model, plain)


@case
def padding_that_comes_later():
    """nn.TransformerEncoder fills rows of padding with zeros, but under torch.compile."""

    class Model(nn.Module):
        def __init__(self, looks):
            super().__init__()
            self.inside, self.last, self.looks = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2), nn.Linear(64, 8), looks

        def forward(self, x, padding):
            y = self.inside(x, src_key_padding_mask=padding)
            if self.looks and y[:, 0].abs().max() > 1e4:
                raise ValueError
            return self.last(y)

    none = torch.zeros(4, 20, dtype=torch.bool)
    some = none.clone()
    some[1:, 15:] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [Model(looks).eval() for looks in (False, True)]
        return [one for model in models for one in called(model, [(data(i, 4, 20, 64), some if i > 6 and i % 2 else none) for i in range(2 * CALLS)])]


if __name__ == "__main__":
    torch.manual_seed(0)
    names = sys.argv[2:] or list(CASES)
    results = {}
    for name in names:
        torch.manual_seed(0)
        results[name] = CASES[name]()
    if "ipexrun" in sys.modules:
        import ipexrun

        results["modules"] = ipexrun.report().get("modules", [])
    torch.save(results, sys.argv[1])
