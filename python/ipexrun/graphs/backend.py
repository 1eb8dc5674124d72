"""The backend "ipex" of torch.compile: graphs of inference become programs of ours (compiler.py), those of training steps are run as captured or, where that
gains, in forms of their own.

Thread rule: under the interpreter lock."""

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .. import plugin
from ..problems import first_line, let_through
from . import choices, decompositions, fast_paths, graph_notes, number_results, raised, random_draws, unrounded
from .compiler import Compiled, function_of
from .translation import Translation, Unsupported

PLAIN = (torch.Tensor, torch.nn.Parameter)


def static_inputs(count):
    """Positions of parameters and buffers among the inputs of the graph that is being compiled."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return set() if metadata is None else {i for i in metadata.static_input_indices if i < count}


def compile_graph(module, example_inputs, dtype, made, timed, where):
    try:
        with torch._subclasses.fake_tensor.unset_fake_temporarily():
            plain, draw = random_draws.apart(module)
            tensors, numbers, places = number_results.apart(plain)
            compiled = compiled_of(tensors, static_inputs(len(example_inputs)), dtype, timed, where)
            compiled.draws = draw is not None
        if made is not None:
            made.append(compiled)
        whole = number_results.WithNumbers(compiled, numbers, places) if places else compiled
        return random_draws.WithDraws(whole, draw) if draw is not None else whole
    except Exception as problem:  # nothing of ours may end the program
        let_through(problem)
        graph_notes.new_note(where, nodes=len(module.graph.nodes), left_alone=first_line(problem))
        return _boxed(function_of(module))


def compiled_of(module, static, dtype, timed, where):
    source = unrounded.unrounded(module, static) if unrounded.rounds_operands(module) and not choices.steer(module.graph) else None
    if source is not None:
        try:
            return Compiled(module, Translation(source, static).run(), dtype, timed, where, source)
        except Unsupported:
            pass
    return Compiled(module, Translation(module, static).run(), dtype, timed, where)


def inside_of(compiled):
    while isinstance(compiled, (number_results.WithNumbers, random_draws.WithDraws)):
        compiled = compiled.compiled
    return compiled


def _boxed(function):
    from torch._functorch.aot_autograd import make_boxed_func

    return make_boxed_func(function)


def training_graph(module, example_inputs):
    """Graphs of a training step run as captured, their operators by the op tier: weights change with every step, so nothing can be packed."""
    graph_notes.new_note("torch.compile", nodes=len(module.graph.nodes), left_alone="part of a training step")
    return _boxed(function_of(module))


def forward_training_graph(module, example_inputs):
    """The same of a forward half. AOTAutograd runs it without grad mode, by which the op tier tells training from inference; autograd itself has no
    part in it."""
    run = training_graph(module, example_inputs)

    def recorded(arguments):
        with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad():
            return run(arguments)

    recorded._boxed_call = True
    return recorded


def backend(module, example_inputs, mode=None, options=None, made=None, timed=True, where="torch.compile"):
    """What torch.compile(model, backend="ipex") calls. Every mode of torch.compile means the same here; `options` may hold
    "dtype": "auto" | "float32" | "bfloat16", where bf16 may be used inside a float32 model (default: --dtype, else auto).
    The graphs that become programs of ours are appended to `made`; without `timed` they only have to be accurate. `where` names them in reports."""
    if mode not in (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        raise ValueError(f"mode {mode!r} is none of torch.compile's")
    options = dict(options or {})
    dtype = options.pop("dtype", None)
    if dtype not in (None, "auto", "float32", "bfloat16"):
        raise ValueError(f"option dtype {dtype!r}: use 'auto', 'float32' or 'bfloat16'")
    freezing = bool(options.pop("freezing", False))
    if options:
        raise ValueError(f"backend ipex has no option {sorted(options)[0]!r}; it has 'dtype' and, for xpu, 'freezing'")
    from .. import xpu_graphs

    if xpu_graphs.on_xpu(module, example_inputs):
        if dtype not in (None, "auto"):
            raise ValueError("backend ipex on xpu computes in the program's own types: use torch.autocast instead of option dtype")
        return xpu_graphs.backend(module, example_inputs, freezing)
    if not plugin.ready() or makes_quantized(module):
        return function_of(module)
    from torch._dynamo.backends.common import aot_autograd

    mine, held = [], held_by(module)
    values = [*held, *example_inputs]

    def inference_graph(captured, inputs):
        compiled = compile_graph(captured, inputs, dtype, made, timed, where)
        inside = inside_of(compiled)
        if isinstance(inside, Compiled):
            mine.append(inside)
        return compiled

    written, effects = [], []

    def watched_graph(captured, inputs):
        context = torch._guards.TracingContext.try_get()
        metadata = None if context is None else context.fw_metadata
        writes = metadata is None or any(one.mutates_data or one.mutates_metadata for one in metadata.input_info)
        if metadata is not None and any(one.mutates_data for one in metadata.input_info):
            fixed = static_inputs(len(values))
            parted = len(metadata.input_info) != len(values)  # tensors that consist of others were taken apart: who is who cannot be told
            written.append([i for i in range(len(values)) if parted or metadata.input_info[i].mutates_data or i not in fixed])
        effects.append((writes, random_draws.draws(captured)))
        compiled = inference_graph(captured, inputs)
        inside = inside_of(compiled)
        if isinstance(inside, Compiled):
            inside.writes = writes
        return compiled

    compiler = aot_autograd(fw_compiler=forward_training_graph, bw_compiler=training_graph, inference_compiler=watched_graph, decompositions=fast_paths.written_out(module))
    with decompositions.resizes_whole(), decompositions.draws_kept(values):
        compiled = compiler(module, example_inputs)
    retreat = Retreat(module, compiled, mine, written[0] if written else [], held)
    retreat.writes, retreat.draws = effects[0] if len(effects) == 1 else (True, None)
    if written and share_memory(values):
        retreat.compiled = function_of(module)
    if made is None:
        from ..training import step_graphs

        if step_graphs.wanted(example_inputs):
            builder = torch.classes.ipexrun.Graph()
            if builder.may_time() and builder.bf16_allowed(dtype or ""):
                return step_graphs.TrainingForms(module, retreat, dtype)
    return retreat


def makes_quantized(module):
    """Whether a graph of TorchDynamo's has an operator whose results are quantized tensors. torch's fakes of these are plain float32 (seen in 2.13), and AOTAutograd
    takes what is computed from one for the other: a program that goes on with the quantized tensor is handed the dequantized one. torch stops at what else makes
    such tensors. Those of quantized_decomposed are plain integers."""

    def name_of(target):
        return getattr(target, "_name", "") or getattr(target, "_qualified_op_name", "") or getattr(target, "__name__", "")

    names = [name_of(node.target).removeprefix("aten::").partition(".")[0] for node in module.graph.nodes if node.op == "call_function"]
    return "quantize_per_tensor" in names


def held_by(module):
    """Tensors that a graph of TorchDynamo's holds itself (those of an optimizer's step): AOTAutograd counts them before the inputs."""
    return [one for _, one in (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))]


def share_memory(values):
    """Whether two of the tensors do."""
    storages = [storage for value in values if isinstance(value, torch.Tensor) for storage in storages_of(value)]
    return len(set(storages)) < len(storages)


def storages_of(tensor):
    if type(tensor) not in PLAIN and is_traceable_wrapper_subclass(tensor):
        return [storage for name in tensor.__tensor_flatten__()[0] for storage in storages_of(getattr(tensor, name))]
    try:
        return [tensor.untyped_storage()._cdata]
    except NotImplementedError:  # sparse ones and oneDNN's, of which there are no views
        return []


class Retreat:
    """AOTAutograd's graph, or for good TorchDynamo's once that raises where TorchDynamo's does not: operators may give other strides than AOTAutograd
    was told, and a view of them is then none (stock torch 2.13 does so with backend "aot_eager"). What it does to its inputs it does at its
    end, so nothing has happened.

    `watched` are the inputs of a graph that writes: those that it writes and those that the program gives, counted behind those that the graph holds.
    AOTAutograd compiles for memory that they share or do not share and looks for neither again (stock torch 2.13 gives wrong results with "aot_eager"),
    so TorchDynamo's graph answers wherever some share memory."""

    def __init__(self, captured, compiled, graphs, watched=(), held=()):
        self.captured, self.compiled, self.graphs, self.watched, self.held = captured, compiled, graphs, watched, held
        self.writes, self.draws = True, None  # inputs or buffers; random numbers of torch's, None: it may do anything else
        self.alone = False  # it is all that a call of the captured module does: see raised.py

    def __call__(self, *arguments):
        if self.compiled == function_of(self.captured) or (self.watched and self.shares_memory(arguments)):
            return self.as_captured(arguments)
        stream = torch.get_rng_state() if self.alone and self.draws else None
        try:
            return self.compiled(*arguments)
        except Exception as problem:
            let_through(problem)
            if torch.is_grad_enabled():
                raise
            if raised.was_harmless(problem):  # nothing was written yet, which TorchDynamo's graph would do before it raises as well
                raise
            if self.alone and self.draws is not None and (self.writes or self.draws):
                if stream is not None:
                    torch.set_rng_state(stream)
                raised.by_graph(problem, True)
                raise
            result = self.as_captured(arguments)
            self.compiled = function_of(self.captured)
            for graph in self.graphs:
                graph.free()
                graph.note["choice"] = f"left alone: {first_line(problem)}"
            return result

    def as_captured(self, arguments):
        try:
            return function_of(self.captured)(*arguments)
        except Exception as problem:  # the program's own fault, which it may catch
            if self.alone and not self.writes and self.draws is False:
                raised.by_graph(problem, True)
            raise

    def shares_memory(self, arguments):
        values = [*self.held, *arguments] if self.held else arguments
        return share_memory([values[i] for i in self.watched])
