"""Modules under `--graph-mode trace`: each case calls one many times. Run by test_trace.py as a plain program, on stock and under ipexrun, there
with forms that answer as soon as they are proved equal; writes {case: (results, what became of the module)} to the path that it is given.

One list, though long: a case is a dozen lines, and what follows from another in one process (caches, ids, threads) is part of what is tried."""

import dataclasses
import gc
import random
import sys
import threading
import typing
import warnings
import weakref
from collections import OrderedDict

import torch
from torch import nn

CALLS = 24
CASES = {}
MODULES = {}  # class name -> what report() says of it


def case(function):
    CASES[function.__name__] = function
    return function


def data(seed, *sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def called(model, inputs, **named):
    with torch.no_grad():
        return [model(*one, **named) if type(one) is tuple else model(one, **named) for one in inputs]


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.second(torch.nn.functional.gelu(self.first(x))))


def inputs(*sizes, calls=CALLS):
    return [data(i, *sizes) for i in range(calls)]


# What is traced.


@case
def plain():
    class Plain(Block):
        pass

    return called(Plain().eval(), inputs(8, 64))


@case
def embeddings():
    class Embeddings(Block):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(50, 64, padding_idx=1)

        def forward(self, x):
            return super().forward(self.words(x))

    return called(Embeddings().eval(), [torch.arange(8).reshape(2, 4) * (i % 6) for i in range(CALLS)])


@case
def convolutions():
    class Convolutions(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3))
            self.last = nn.Linear(32, 10)

        def forward(self, x):
            return self.last(self.layers(x).mean((2, 3)))

    return called(Convolutions().eval(), inputs(2, 3, 16, 16))


@case
def sizes_in_python():
    """They are plain numbers, in the traced call too, and may be kept."""
    kept = []

    class Sizes(Block):
        def forward(self, x):
            rows, width = x.shape
            assert isinstance(rows, int) and width > 10, "sizes are numbers"
            kept.append(type(rows).__name__ + type(x.size(0)).__name__ + type(x.numel()).__name__ + type(len(x)).__name__)
            if rows * width > 100:
                x = x * (rows / 7)
            return super().forward(x).view(rows, 2, width // 2).transpose(1, 2).reshape(-1)

    return called(Sizes().eval(), inputs(8, 64)) + [sorted(set(kept))]


@case
def sizes_asked_by_norms():
    """Group norm and batch norm without statistics of its own look at sizes, in functions that see them as tensors."""

    class Norms(nn.Module):
        def __init__(self):
            super().__init__()
            self.group, self.first = nn.GroupNorm(4, 16), nn.Conv2d(3, 16, 3)

        def forward(self, x):
            weight = torch.nn.functional.batch_norm(self.first.weight.reshape(1, 16, -1), None, None, training=True, momentum=0.0)
            return self.group(torch.nn.functional.conv2d(x, weight.reshape_as(self.first.weight)))

    return called(Norms().eval(), inputs(2, 3, 16, 16))


@case
def indices_that_the_module_holds():
    class Table(Block):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(data(1, 9, 64))
            self.register_buffer("places", torch.arange(8) % 5)

        def forward(self, x):
            return super().forward(x + self.table[self.places])

    return called(Table().eval(), inputs(8, 64))


@torch.jit.script
def halved(x, other):
    return x * 0.5 + other.mean(dim=-1, keepdim=True).expand([x.size(0), x.size(1)])


@case
def scripted_functions():
    class Scripted(Block):
        def forward(self, x):
            return super().forward(halved(x, x))

    return called(Scripted().eval(), inputs(8, 64))


@case
def masks_under_vmap():
    """As transformers makes masks of attention."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    class Masks(Block):
        def forward(self, x, seen):
            def visible(row, query, key):
                return (key <= query) & seen[row, key]

            for dims in ((None, None, 0), (None, 0, None), (0, None, None)):
                visible = torch.vmap(visible, in_dims=dims)
            places = torch.arange(x.shape[1])
            with TransformGetItemToIndex():
                mask = visible(torch.arange(x.shape[0]), places, places)
            x = super().forward(x)
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    # The first token is always seen: rows that see nothing are NaN on stock and elsewhere.
    return called(Masks().eval(), [(one, torch.cat([torch.ones(2, 1, dtype=torch.bool), data(i, 2, 7) > 0], 1)) for i, one in enumerate(inputs(2, 8, 64))])


@case
def masks_written_in_parts():
    """As older decoders of transformers make them."""

    class Parts(Block):
        def forward(self, x, seen):
            mask = torch.full((8, 8), -1e30).triu(1)
            mask *= torch.arange(8) > torch.arange(8).reshape(-1, 1)
            mask = mask[None, :, :].expand(x.shape[0], -1, -1).clone()
            hidden = mask[:, :, :7] + seen[:, None, :7] == 0
            mask[:, :, :7] = mask[:, :, :7].masked_fill(hidden, -1e30)
            mask[0, 1] = 0.0
            x = super().forward(x)
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask), mask

    return called(Parts().eval(), [(one, (data(i, 2, 8) > 0).float()) for i, one in enumerate(inputs(2, 8, 64))])


@dataclasses.dataclass
class Output(OrderedDict):
    last: typing.Any = None
    pooled: typing.Any = None
    missing: typing.Any = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)


class Pair(typing.NamedTuple):
    one: torch.Tensor
    other: typing.Any


@case
def structures():
    class Structures(Block):
        def forward(self, x, scale=1.0, *, more=None):
            y = super().forward(x) * scale
            if more is not None:
                y = y + more["bias"][0]
            return {"a": [y, (y * 2, None)], "n": 3, "pair": Pair(y + 1, "text"), "flag": x.shape[0] > 3}

    model = Structures().eval()
    out = called(model, inputs(8, 64), more={"bias": [data(99, 64)]})
    return out + called(model, inputs(8, 64), scale=0.5)


@case
def records():
    class Records(Block):
        def forward(self, x):
            y = super().forward(x)
            return Output(last=y, pooled=y.mean(0))

    out = called(Records().eval(), inputs(8, 64))
    return [(type(one).__name__, list(one), one.last, one.pooled, one.missing, one["pooled"]) for one in out]


@case
def values_in_arguments():
    class Arguments(Block):
        def forward(self, x, twice, how):
            x = super().forward(x)
            return (x * 2 if twice else x) + how

    model, out = Arguments().eval(), []
    for i in range(4 * CALLS):
        out += called(model, [(data(i, 8, 64), i % 2 == 0, (1, 1.0, 2, -0.0)[i % 4])])
    return out


@case
def shapes_that_change():
    class Shapes(Block):
        pass

    model, out = Shapes().eval(), []
    for i in range(8 * CALLS):
        out += called(model, [data(i, 2 + i % 6, 64)])
    return out


@case
def weights_that_change():
    class Weights(Block):
        pass

    model, out = Weights().eval(), []
    other = {name: data(7, *tensor.shape) for name, tensor in model.state_dict().items()}
    for i in range(6 * CALLS):
        if i == 50:
            with torch.no_grad():
                model.first.weight.add_(0.01 * data(i, 256, 64))
                model.second.weight.data.mul_(1.01)
        if i == 70:
            model.load_state_dict(other)
        if i == 90:
            model.second.bias = nn.Parameter(data(i, 64))
        if i == 120:
            model.first.weight.data = model.first.weight.data.clone() * 2
        if i == 130:
            model.double().float()
        out += called(model, [data(i, 8, 64)])
    return out


@case
def another_dtype():
    class Another(Block):
        def forward(self, x):
            return super().forward(x.to(self.first.weight.dtype))

    model, out = Another().eval(), []
    for i in range(3 * CALLS):
        if i == 40:
            model.double()
        out += called(model, [data(i, 8, 64)])
    return out


@case
def attributes_that_change():
    class Config:
        scale = 1.0

        def __init__(self):
            self.shift = 0.0

    class Attributes(Block):
        def __init__(self):
            super().__init__()
            self.factor, self.config, self.list, self.table = 1.0, Config(), [1.0], {"a": 1.0}

        def forward(self, x):
            return super().forward(x) * self.factor * self.list[0] * self.table["a"] + self.config.shift

    model, out = Attributes().eval(), []
    for i in range(5 * CALLS):
        if i == 40:
            model.factor = 2.5
        if i == 55:
            model.config.shift = 3.5
        if i == 70:
            model.list[0] = 4.5
        if i == 85:
            model.table["a"] = 5.5
        if i == 100:
            model.second = nn.Linear(256, 64)
        out += called(model, [data(i, 8, 64)])
    return out


@case
def training_and_back():
    class Training(Block):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(super().forward(x))

    model, out = Training().eval(), []
    for i in range(4 * CALLS):
        if i in (40, 41, 60):
            model.train()
            torch.manual_seed(i)
            out += called(model, [data(i, 8, 64)])
            model.eval()
        out += called(model, [data(i, 8, 64)])
    return out


@case
def hooks_that_come_later():
    class Hooked(nn.Sequential):
        pass

    model, out = Hooked(Block(), Block()).eval(), []
    for i in range(3 * CALLS):
        handle = model[1].first.register_forward_hook(lambda module, args, result: result * 3) if i in (40, 41, 50) else None
        out += called(model, [data(i, 8, 64)])
        if handle is not None:
            handle.remove()
    return out


@case
def gradients_now_and_then():
    class Gradients(Block):
        pass

    model, out = Gradients().eval(), []
    for i in range(2 * CALLS):
        if i % 10 == 9:
            result = model(data(i, 8, 64))
            result.sum().backward()
            out += [result.requires_grad, model.first.weight.grad.clone()]
        out += called(model, [data(i, 8, 64)])
        with torch.inference_mode():
            result = model(data(i, 8, 64))
        out += [result, result.is_inference()]
    return out


@case
def autocast_now_and_then():
    class Autocast(Block):
        pass

    model, out = Autocast().eval(), []
    for i in range(2 * CALLS):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=i % 5 == 4):
            out += [called(model, [data(i, 8, 64)])[0].dtype]
    return out


@case
def several_threads():
    class Threads(Block):
        pass

    model, out = Threads().eval(), {}

    def work(name):
        out[name] = called(model, [data(100 * name + i, 8, 64) for i in range(CALLS)])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [out[name] for name in range(4)]


@case
def exceptions_in_the_middle():
    class Raises(Block):
        def forward(self, x, fail=False):
            x = super().forward(x)
            if fail:
                raise ValueError("as asked for")
            return x

    model, out = Raises().eval(), []
    for i in range(2 * CALLS):
        try:
            out += called(model, [(data(i, 8, 64), i % 4 == 3)])
        except ValueError as problem:
            out.append(str(problem))
        try:
            out += called(model, [data(i, 8, 63)])
        except RuntimeError as problem:
            out.append(str(problem))
    return out


@case
def refused_operators_that_fail():
    """torch's tracer loses its state with an operator that raises, and ended the process."""

    class Tries(Block):
        def forward(self, x):
            try:
                x = x @ x
            except RuntimeError:
                x = x * 2
            return super().forward(x)

    return called(Tries().eval(), [data(i, 8, 64) for i in range(CALLS)])


@case
def warnings_of_the_program():
    class Warns(Block):
        def forward(self, x):
            warnings.warn("of the program", UserWarning, stacklevel=1)
            return super().forward(x)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        called(Warns().eval(), inputs(8, 64, calls=6))
    return [str(one.message) for one in seen if "of the program" in str(one.message)]


@case
def modules_die():
    class Dies(Block):
        pass

    model = Dies().eval()
    called(model, inputs(8, 64))
    weak = weakref.ref(model), weakref.ref(model.first.weight)
    del model
    gc.collect()
    return [one() is None for one in weak]


@case
def constants_of_numbers():
    class Constants(Block):
        def forward(self, x):
            mask = torch.tensor(1.0, dtype=x.dtype) - (x > 0).to(x.dtype)
            return super().forward(x).masked_fill(mask.bool(), -2.0) + torch.tensor([1.0, 2.0]).repeat(x.shape[1] // 2)

    return called(Constants().eval(), inputs(8, 64))


@case
def in_place_on_its_own():
    class InPlace(Block):
        def forward(self, x):
            y = super().forward(x).relu_()
            y[:, ::2] += 1
            out = torch.zeros(y.shape[0], 128)
            out[:, :64] = y
            out[:, 64:].copy_(y).mul_(2)
            return out

    return called(InPlace().eval(), inputs(8, 64))


# What is left to stock: the name of the case begins with `refused_`; REASONS in test_trace.py says why.


@case
def refused_values_in_python():
    class RefusedValues(Block):
        def forward(self, x):
            # A norm's sum would be zero but for rounding.
            return super().forward(x) * (1 if x.sum() > 0 else -2)

    return called(RefusedValues().eval(), inputs(8, 64))


@case
def refused_values_by_functions():
    class RefusedFunctions(Block):
        def forward(self, x):
            return super().forward(x) * (2 if torch.equal(x[0], x[1]) else 3)

    return called(RefusedFunctions().eval(), [data(i, 8, 64) * (i % 7 != 6) for i in range(CALLS)])


@case
def refused_sizes_by_values():
    class RefusedSizes(Block):
        def forward(self, x):
            kept = torch.nonzero(x[:, 0] > 0)
            return super().forward(x).sum(0) + kept.shape[0]

    return called(RefusedSizes().eval(), inputs(8, 64))


@case
def refused_masks():
    class RefusedMasks(Block):
        def forward(self, x):
            kept = super().forward(x)[x[:, 0] > 0]
            return kept.sum(0) / max(kept.shape[0], 1)

    return called(RefusedMasks().eval(), inputs(8, 64))


@case
def refused_random():
    class RefusedRandom(Block):
        def forward(self, x):
            return super().forward(x) + torch.rand_like(x)

    torch.manual_seed(5)
    return called(RefusedRandom().eval(), inputs(8, 64))


@case
def refused_random_of_python():
    class RefusedDice(Block):
        def forward(self, x):
            return super().forward(x) * (1 + (random.random() < 0.5))

    random.seed(5)
    return called(RefusedDice().eval(), inputs(8, 64))


@case
def refused_functional_dropout():
    class RefusedDropout(Block):
        def forward(self, x):
            return torch.nn.functional.dropout(super().forward(x), 0.5, training=True)

    torch.manual_seed(5)
    return called(RefusedDropout().eval(), inputs(8, 64))


@case
def refused_training_batch_norm():
    class RefusedNorm(nn.Sequential):
        pass

    model = RefusedNorm(nn.Linear(64, 64), nn.BatchNorm1d(64))
    return called(model, inputs(8, 64)) + [model[1].running_mean, model[1].num_batches_tracked]


@case
def refused_buffers_written():
    class RefusedBuffers(Block):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(64))

        def forward(self, x):
            self.seen.add_(x.mean(0))
            return super().forward(x) + self.seen

    model = RefusedBuffers().eval()
    return called(model, inputs(8, 64)) + [model.seen]


@case
def refused_data_written():
    """No version counter moves."""

    class RefusedData(Block):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(64))

        def forward(self, x):
            self.seen.data.view(8, 8).add_(1)
            return super().forward(x) + self.seen

    model = RefusedData().eval()
    return called(model, inputs(8, 64)) + [model.seen]


@case
def refused_arguments_written():
    class RefusedWrites(Block):
        def forward(self, x):
            x[0] = 1
            return super().forward(x)

    given = inputs(8, 64)
    return called(RefusedWrites().eval(), given) + given


@case
def refused_views():
    class RefusedViews(Block):
        def forward(self, x):
            return super().forward(x), x[0]

    model, out = RefusedViews().eval(), []
    for one in inputs(8, 64):
        y, view = called(model, [one])[0]
        view.zero_()
        out += [y, one]
    return out


@case
def refused_shared_results():
    class RefusedShared(Block):
        def forward(self, x):
            y = super().forward(x)
            return y, y[0]

    out = called(RefusedShared().eval(), inputs(8, 64))
    for y, row in out:
        row.zero_()
    return out


@case
def refused_counter():
    class RefusedCounter(Block):
        def __init__(self):
            super().__init__()
            self.count = 0

        def forward(self, x):
            self.count += x.shape[0]
            return super().forward(x) + self.count

    model = RefusedCounter().eval()
    return called(model, inputs(8, 64)) + [model.count]


@case
def refused_inner_list():
    class RefusedList(Block):
        def __init__(self):
            super().__init__()
            self.kept = []

        def forward(self, x):
            self.kept.append(len(x))
            return super().forward(x)

    model = RefusedList().eval()
    return called(model, inputs(8, 64)) + [model.kept]


@case
def refused_objects():
    class Thing:
        tensor = None

    class RefusedObjects(Block):
        def forward(self, x):
            thing = Thing()
            thing.tensor = super().forward(x)
            return thing

    return [one.tensor for one in called(RefusedObjects().eval(), inputs(8, 64))]


@case
def refused_arguments():
    class Thing:
        scale = 1.0

    class RefusedArguments(Block):
        def forward(self, x, thing):
            return super().forward(x) * thing.scale

    thing, out, model = Thing(), [], RefusedArguments().eval()
    for i in range(CALLS):
        thing.scale = 1.0 + i
        out += called(model, [(data(i, 8, 64), thing)])
    return out


@case
def refused_same_tensor_twice():
    class RefusedTwice(Block):
        def forward(self, x, y):
            return super().forward(x) + (1 if x is y else 2)

    model, out = RefusedTwice().eval(), []
    for one in inputs(8, 64):
        out += called(model, [(one, one)])
    return out


@case
def refused_overlap():
    class RefusedOverlap(Block):
        def forward(self, x, y):
            return super().forward(x) + y

    model, out = RefusedOverlap().eval(), []
    for i in range(CALLS):
        both = data(i, 12, 64)
        out += called(model, [(both[:8], both[4:])])
    return out


@case
def refused_hooks():
    class RefusedHooks(nn.Sequential):
        pass

    model, seen = RefusedHooks(Block(), Block()).eval(), []
    model[0].register_forward_hook(lambda module, args, result: seen.append(float(result.sum())))
    return called(model, inputs(8, 64)) + [len(seen)]


@case
def refused_results_of_state():
    TURN = [0]

    class RefusedTurns(Block):
        def forward(self, x):
            TURN[0] += 1
            return super().forward(x), TURN[0]

    return called(RefusedTurns().eval(), inputs(8, 64))


@case
def refused_globals_that_change():
    scale = [1.0]

    class RefusedGlobals(Block):
        def forward(self, x):
            scale[0] *= 1.05
            return super().forward(x) * scale[0]

    return called(RefusedGlobals().eval(), inputs(8, 64))


@case
def refused_tensors_of_others():
    table = data(3, 64)

    class RefusedOthers(Block):
        def forward(self, x):
            return super().forward(x) + table

    model, out = RefusedOthers().eval(), []
    for i in range(2 * CALLS):
        table.add_(i > 30)
        out += called(model, [data(i, 8, 64)])
    return out


@case
def refused_what_no_trace_can_hold():
    """Raises under torch's tracer alone."""

    class RefusedVmap(Block):
        def forward(self, x):
            places = torch.arange(8)
            mask = torch.vmap(torch.vmap(lambda i, j: i >= j, (None, 0)), (0, None))(places, places)
            return super().forward(x) + mask.sum()

    return called(RefusedVmap().eval(), inputs(8, 64))


@case
def refused_fast_paths():
    class RefusedAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0]

    model = RefusedAttention().eval()
    out = called(model, inputs(2, 8, 64))
    return out + [one.stride() for one in out]


@case
def refused_constructors():
    class RefusedConstructors(Block):
        def forward(self, x):
            return super().forward(x) + torch.tensor([x[0, 0], 2.0]).repeat(32)

    return called(RefusedConstructors().eval(), inputs(8, 64))


@case
def refused_numpy():
    class RefusedNumpy(Block):
        def forward(self, x):
            return super().forward(x) + torch.from_numpy(x.numpy() * 2)

    return called(RefusedNumpy().eval(), inputs(8, 64))


@case
def refused_totals_of_others():
    """The trace itself forgets such writes: nobody uses their results."""
    total = torch.zeros(64)

    class RefusedTotals(Block):
        def forward(self, x):
            total.add_(x.detach().sum(0))
            return super().forward(x)

    return called(RefusedTotals().eval(), inputs(8, 64)) + [total]


@case
def refused_dicts_written():
    """A streaming layer that leaves the end of what it got in the caller's dict, and lists inside of it."""

    class RefusedDict(Block):
        def forward(self, x, state):
            out = super().forward(x) + state["left"]
            state["left"] = x[-1:] * 0.5
            state["seen"][0] = out.shape[0]
            return out

    model, state, out = RefusedDict().eval(), {"left": torch.zeros(1, 64), "seen": [8]}, []
    for one in inputs(8, 64):
        out += called(model, [one], state=state) + [state["left"]]
    return out


@case
def refused_lists_written():
    class RefusedList(Block):
        def forward(self, x, kept):
            kept[0] = x + 1
            return super().forward(x)

    model, kept, out = RefusedList().eval(), [None], []
    for one in inputs(8, 64):
        kept[0] = one * 2
        out += called(model, [one], kept=kept) + [kept[0]]
    return out


@case
def refused_assertions():
    """torch's tracer forgets what gives nothing."""

    class RefusedAssertions(Block):
        def forward(self, x):
            torch._assert_async((x < 1e4).all(), "too large")
            return super().forward(x)

    model, out = RefusedAssertions().eval(), []
    for one in inputs(8, 64):
        out += called(model, [one])
    try:
        called(model, [inputs(8, 64)[0] * 1e6])
    except RuntimeError as problem:
        out.append(str(problem))
    return out


@case
def ways_of_exporters():
    """What asks whether it is traced goes another way: stock answers that call."""

    class Export(Block):
        def forward(self, x):
            return super().forward(x), None if torch.jit.is_tracing() else [x * 2]

    class Quiet(Block):
        def forward(self, x):
            if torch._C._get_tracing_state() is None and float(x.sum()) > 1e6:  # a short cut that a trace cannot take
                return x
            return super().forward(x)

    return [called(kind().eval(), inputs(8, 64)) for kind in (Export, Quiet)]


@case
def refused_code_for_exporters():
    """Sizes are tensors to an exporter's tracer."""

    class RefusedExport(Block):
        def forward(self, x):
            rows = torch.stack(list(x.shape))[0] if torch.jit.is_tracing() else x.shape[0]
            return super().forward(x) * rows

    return called(RefusedExport().eval(), inputs(8, 64))


@case
def refused_results_that_are_held():
    class RefusedHeld(Block):
        def __init__(self):
            super().__init__()
            self.out = {"extra": 1}

        def forward(self, x):
            return super().forward(x), self.out

    model = RefusedHeld().eval()
    out = called(model, inputs(8, 64))
    return [one[1] is model.out for one in out] + [one[0] for one in out]


@case
def refused_functions_of_autograd():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2

        @staticmethod
        def backward(context, grad):
            return grad * 2

    class RefusedFunction(Block):
        def forward(self, x):
            return Double.apply(super().forward(x))

    return called(RefusedFunction().eval(), inputs(8, 64))


@case
def refused_subclasses():
    class Mine(torch.Tensor):
        pass

    class RefusedSubclass(Block):
        pass

    return [one.as_subclass(torch.Tensor) for one in called(RefusedSubclass().eval(), [one.as_subclass(Mine) for one in inputs(8, 64)])]


@case
def refused_choices():
    class RefusedChoices(Block):
        def forward(self, x):
            y = super().forward(x)
            return y.gather(1, y.topk(4, 1).indices) * 2

    return called(RefusedChoices().eval(), inputs(8, 64))


@case
def refused_choices_by_numbers():
    class RefusedChoicesByNumbers(Block):
        def forward(self, x):
            y = super().forward(x)
            return x[(y[:, 0] * 4).long().abs() % 8] * 2

    return called(RefusedChoicesByNumbers().eval(), inputs(8, 64))


@case
def refused_choices_by_steps():
    class RefusedChoicesBySteps(Block):
        def forward(self, x):
            return super().forward(torch.sign(super().forward(x)))

    return called(RefusedChoicesBySteps().eval(), inputs(8, 64))


def main(path):
    try:
        import ipexrun
        from ipexrun.capture import tracing

        if ipexrun.is_active():
            tracing.RACE, tracing.WARMING = False, 12
        else:
            ipexrun = None
    except ImportError:
        ipexrun = None
    out = {}
    for name, function in CASES.items():
        torch.manual_seed(0)
        before = len(ipexrun.report()["modules"]) if ipexrun and "modules" in ipexrun.report() else 0
        results = function()
        notes = ipexrun.report().get("modules", [])[before:] if ipexrun else []
        out[name] = results, notes
    torch.save(out, path)


if __name__ == "__main__":
    main(sys.argv[1])
