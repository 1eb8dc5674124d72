"""A TorchScript trace of one of the program's own calls, and the proof that it computes what the module does.

The call runs once, and its result is the program's. Sizes are plain numbers to it, as without a trace: what is traced holds for calls whose
tensors have exactly these sizes. Parameters, buffers and other tensors of the module are attributes of the trace that share the module's
memory, so that writes into them are seen; nothing is frozen into constants.
"""

import array
import contextlib
import logging
import random
import sys
import types as py_types

import torch

from ..graphs import choices, compiler
from ..problems import first_line, let_through
from ..quiet import record
from . import asked, capturable
from .structures import Taken, Unknown

# What a module in training does to itself or draws.
CHANGED_BY_TRAINING = (
    torch.nn.modules.dropout._DropoutNd,
    torch.nn.modules.batchnorm._NormBase,
    torch.nn.modules.rnn.RNNBase,
    torch.nn.RReLU,
)
WITHOUT_STATE = (py_types.FunctionType, py_types.BuiltinFunctionType, py_types.MethodType, py_types.ModuleType, logging.Logger)
# They take another way where somebody watches torch's functions.
WITH_FAST_PATHS = (torch.nn.MultiheadAttention, torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer)
# Functions of torch's own that ask for sizes alone; these are no plain numbers within them.
OF_SIZES = (torch.nn.functional.embedding, torch.nn.functional._verify_batch_size, torch.nn.functional._verify_spatial_size)
WRITES = "the call writes into a list or dict of its arguments"
MOST_CONTAINERS = 50000
MOST_IN_SETS = 256  # elements, which each call compares
OBJECT_BYTES, IMPL_BYTES, STORAGE_BYTES = 48, 192, 64  # of a tensor in Python, of what it stands for, of its storage: about what data_ptr() reads
PRIMS = {"prim::Constant", "prim::ListConstruct", "prim::ListUnpack", "prim::TupleConstruct", "prim::TupleUnpack", "prim::GetAttr",
         "prim::NumToTensor"}
OF_NUMBERS = {"aten::Int", "aten::ScalarImplicit", "aten::IntImplicit", "aten::FloatImplicit", "aten::Float", "aten::Bool"}
SIZES = {torch.Tensor.size, torch.Tensor.shape.__get__, torch.Tensor.numel, torch.Tensor.nelement, torch.Tensor.__len__, torch.numel}
CONSTRUCTORS = {torch.tensor, torch.as_tensor}
SIZES_BY_VALUES = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount", "pack_padded_sequence",
                   "pad_packed_sequence", "coalesce", "to_sparse", "histogram"}
NOT_IN_PLACE = {"__index__", "__int__", "__invert__", "__iter__", "__instancecheck__", "__init__"}
# Functions of tensors whose results are no tensors and do not depend on values.
OF_KIND = {"dim", "ndimension", "stride", "storage_offset", "element_size", "get_device", "__get__", "__hash__", "result_type", "can_cast",
           "broadcast_shapes", "type"}
NO_VALUES = (type(None), torch.Tensor, torch.Size, torch.dtype, torch.device, torch.layout)


class Refused(Exception):
    """Why a module is left to stock."""


class Plain(torch.overrides.TorchFunctionMode):
    """Sizes are plain numbers while a call is traced, tensors made of plain numbers are constants, and what reads values of tensors into Python
    is noted."""

    def __init__(self):
        super().__init__()
        self.read = ""
        self.constants = []  # tensors that the call made of plain numbers
        self.said = []  # what tracing warns of in this call
        self.places = {}  # of them: where the program's line is
        self.made = set()  # memory of results that was nobody's before
        self.problem = ""
        self.wrote = False  # into tensors that were there before

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in SIZES or (function in CONSTRUCTORS and args and of_numbers(args[0])):
            tracing = asked.tracing_state()
            torch._C._set_tracing_state(None)
            try:
                result = function(*args, **kwargs)
            finally:
                torch._C._set_tracing_state(tracing)
            if function in CONSTRUCTORS:
                self.constants.append(result)
                self.made.add(result.untyped_storage()._cdata)
            return result
        if function is torch.Tensor.__iter__ and args[0].dim() > 0:
            return iter(args[0].unbind(0))
        name = getattr(function, "__name__", "")
        places = self.before(name, args, kwargs)
        said = len(self.said)
        result = function(*args, **kwargs)
        self.after(function, name, result, places)
        if len(self.said) > said:
            frame = sys._getframe(1)
            self.places[said] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return result

    def before(self, name, args, kwargs):
        """Where the memory of the given tensors is."""
        try:
            given = tensors_in((args, kwargs))
            if name.startswith("_assert"):  # a trace forgets what gives nothing
                self.problem = f"{name} may raise"
            if sizes_by_values(name, args, given):
                self.problem = f"the size of what {name} gives depends on values"
            for one in written(name, args, kwargs):
                # The trace forgets a write whose result nobody uses.
                if one.untyped_storage()._cdata not in self.made:
                    self.wrote, self.problem = True, f"{name} writes into a tensor that was there before the call"
            return {one.untyped_storage()._cdata for one in given}
        except Exception as problem:  # nothing of ours may end the program
            let_through(problem)
            self.problem = f"{name}: {first_line(problem)}"
            return set()

    def after(self, function, name, result, places):
        try:
            self.made.update({one.untyped_storage()._cdata for one in tensors_in(result)} - places)
            if not isinstance(result, NO_VALUES) and not is_of_kind(function, result):
                self.read = name or "a function"
        except Exception as problem:
            let_through(problem)
            self.problem = f"{name}: {first_line(problem)}"


def plain_for(module):
    """torch notes where an operator of a trace was called, which is in the mode, and reports name what is found in the trace by that."""
    of = Plain.__torch_function__
    code = of.__code__.replace(co_filename=f"trace of {type(module).__name__}")
    renamed = py_types.FunctionType(code, globals(), of.__name__, of.__defaults__)
    return type("Plain", (Plain,), {"__torch_function__": renamed})()


def tensors_in(value):
    """Those of which memory can be named; inside of torch.vmap what a tensor of one sample stands for."""
    leaves = (one for one in torch.utils._pytree.tree_leaves(value) if isinstance(one, torch.Tensor))
    return [one for one in map(unwrapped, leaves) if one.layout is torch.strided]


def unwrapped(tensor):
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def plain_index(x, indices):
    return torch.ops.aten.index.Tensor(x, indices)


@contextlib.contextmanager
def traceable_indices():
    """`x[i]` in functions under torch.vmap goes by an autograd.Function, which torch's tracer cannot run (stock 2.13: "unordered_map::at"); what it
    computes and what its gradient is are those of aten::index."""
    module = sys.modules.get("torch._dynamo._trace_wrapped_higher_order_op")
    usual = getattr(module, "mod_index", None)
    if usual is None or usual is plain_index:  # another thread's
        yield
        return
    module.mod_index = plain_index
    try:
        yield
    finally:
        module.mod_index = usual


def written(name, args, kwargs):
    """Tensors that a function of this name writes into."""
    if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or (name.startswith("__i") and name not in NOT_IN_PLACE):
        return tensors_in(args[:1])
    return tensors_in(kwargs.get("out"))


def sizes_by_values(name, args, given):
    """Whether the size of the result depends on values: it is a plain number to the program, which no trace would question."""
    if name in SIZES_BY_VALUES or (name == "where" and len(given) == 1):
        return True
    if name == "repeat_interleave":
        return len(given) > 1 or len(args) == 1
    return name == "__getitem__" and any(one.dtype in (torch.bool, torch.uint8) for one in tensors_in(args[1:]))


def of_numbers(value):
    if isinstance(value, (list, tuple)):
        return all(map(of_numbers, value))
    return type(value) in (bool, int, float)


def is_of_kind(function, result):
    name = getattr(function, "__name__", "")
    if name in OF_KIND or (name.startswith("is_") and name != "is_nonzero"):
        return True
    return isinstance(result, (tuple, list)) and all(isinstance(one, (torch.Tensor, type(None), tuple, list)) for one in result)


class State:
    """All that a module and those inside it hold, as far as their attributes show it: what a trace takes for granted."""

    def __init__(self, module):
        self.hook = sys.modules["_ipexrun_hook"]
        self.kind = type(module)
        self.seen, self.tensors, containers = set(), [], []
        self.sets = []  # and what they held
        for one in module.modules():
            reason = capturable.is_taken_as_it_is(one)
            if reason:
                raise Refused(f"{type(one).__name__} inside: {reason}" if one is not module else reason)
            if one.training and isinstance(one, CHANGED_BY_TRAINING):
                raise Refused(f"{type(one).__name__} in training")
            if isinstance(one, WITH_FAST_PATHS):
                raise Refused(f"{type(one).__name__} computes in another way while it is traced")
            if one is not module:
                containers.append(one)  # its class
            for each in (vars(one), one._parameters, one._buffers, one._modules):
                self.seen.add(id(each))
                containers.append(each)
        for each in list(containers):
            if isinstance(each, dict):
                for name, value in list(each.items()):
                    if not (isinstance(name, str) and ("_hooks" in name or name == "_non_persistent_buffers_set")):
                        self.look_into(value, containers, 2)
        if sum(len(held) for _, held in self.sets) > MOST_IN_SETS:
            raise Refused("it holds too much to be watched")
        reason = capturable.is_not_plain(module)
        if reason:
            raise Refused(reason)
        self.hooks = capturable.Hooks(module)
        if self.hooks.traced or capturable.global_hooks():
            raise Refused("hooks")
        if len(containers) > MOST_CONTAINERS:
            raise Refused("it holds too much to be watched")
        self.containers = tuple(containers)
        self.contents = self.hook.snapshot(self.containers)
        self.versions = bytearray(8 * len(self.containers))  # hook.unchanged()
        for held in self.contents:
            for value in held:
                if value is module or getattr(value, "__self__", None) is module:
                    raise Refused("it holds itself")  # and would never die
        self.note_places(self.places())
        self.kinds = self.looks()

    def note_places(self, pointers):
        self.pointers = pointers
        self.objects = tuple(self.tensors)
        self.impls = array.array("Q", [one._cdata for one in self.tensors])
        self.watched = array.array("Q", pointers)
        offsets = {self.hook.word_in(one, one._cdata) for one in self.tensors}
        self.offset = offsets.pop() if len(offsets) == 1 else -1  # -1: each is asked in Python
        self.lines = array.array("Q")  # what places() reads, which a model's weights have put out of the caches since the last call
        for tensor in self.tensors:
            for address, size in ((id(tensor), OBJECT_BYTES), (tensor._cdata, IMPL_BYTES), (tensor.untyped_storage()._cdata, STORAGE_BYTES)):
                self.lines.extend(range(address & -64, address + size, 64))

    def look_into(self, value, containers, depth):
        """Containers and configurations that attributes hold, and tensors in them."""
        if isinstance(value, torch.Tensor):
            if id(value) not in self.seen:
                self.seen.add(id(value))
                self.tensors.append(value)
            return
        if id(value) in self.seen or isinstance(value, (torch.nn.Module, type)) or depth == 0:
            return
        if isinstance(value, set):
            self.seen.add(id(value))
            self.sets.append((value, frozenset(value)))
            return
        if isinstance(value, (dict, list)):
            self.seen.add(id(value))
            containers.append(value)
            inside = list(value.values() if isinstance(value, dict) else value)
            if isinstance(getattr(value, "__dict__", None), dict):  # a configuration that is a dict of its own kind
                containers.append(vars(value))
                inside += vars(value).values()
        elif isinstance(value, tuple):
            inside = value
        elif isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, WITHOUT_STATE):
            self.seen.add(id(value))
            containers.append(vars(value))
            inside = vars(value).values()
        else:
            return
        for one in list(inside):
            self.look_into(one, containers, depth - 1)

    def places(self):
        return [tensor.data_ptr() for tensor in self.tensors]

    def looks(self):
        return [(type(tensor), tensor.dtype, tensor.shape, tensor.stride()) for tensor in self.tensors]

    def holds(self, module):
        """Whether nothing was put in another's place. What was written into a tensor is no change."""
        self.hook.fetch(self.lines)
        if type(module) is not self.kind or not self.hook.unchanged(self.containers, self.contents, self.versions):
            return False
        try:
            if any(len(one) != len(held) or one != held for one, held in self.sets):
                return False
            if not self.hooks.are_these(module):
                return False
            if self.offset >= 0 and self.hook.same_tensors(self.objects, self.offset, self.impls, self.watched):
                return True
            if any(one._cdata != impl for one, impl in zip(self.tensors, self.impls)):  # torch.utils.swap_tensors(): the trace has the other one
                return False
            pointers = self.places()
            if pointers != self.pointers:  # `tensor.data = ..` leaves the object
                if self.looks() != self.kinds:
                    return False
                self.note_places(pointers)
        except Exception as problem:  # a tensor that has become none that can be read
            let_through(problem)
            return False
        return True


def asks_for_sizes(warning):
    return any(
        warning.filename == function.__code__.co_filename and warning.lineno in (line for _, _, line in function.__code__.co_lines())
        for function in OF_SIZES
    )


def storages(tensors):
    return {one.untyped_storage().data_ptr() for one in tensors if one.numel() > 0}


def versions(tensors):
    return [0 if one.is_inference() else one._version for one in tensors]


def random_states():
    states = [torch.get_rng_state().numpy().tobytes(), random.getstate()]
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        states.append(repr(numpy.random.get_state(legacy=False)["state"]))
    return states


def indices_of(node):
    """The arguments of an operator in which whole numbers say what is taken, lists among them."""
    declared = torch._C.parse_schema(node.schema()).arguments
    return [one for argument, one in zip(declared, node.inputs()) if argument.name in choices.SAY_WHAT]


class Trace:
    """Made inside a call, whose result is `result`. `problem`: what the call raised; `refused`: why it was of no use."""

    def __init__(self, module, args, kwargs, tensors, state, containers):
        self.problem = self.refused = self.result = None
        self.begun = False
        self.asked = False  # whether it is traced: its result may be another one than the program's
        self.clean = True  # a call that raised has changed nothing that we would see
        held = state.tensors
        plain = plain_for(module)
        holder = torch._C.ScriptModule("__torch__.Traced", torch._C.CompilationUnit(), True)
        for i, tensor in enumerate(held):
            holder._register_attribute(f"t{i}", torch._C.TensorType.get(), tensor)

        def call(*given):
            if any(one is not other for one, other in zip(given, tensors)):
                raise Refused("torch traces other tensors than the given ones")
            self.begun = True
            try:
                with plain, traceable_indices(), asked.Asked() as whether:
                    self.result = module(*args, **kwargs)
            except BaseException as problem:
                self.problem = problem
                raise
            self.asked = whether.by_the_program
            if torch._C._get_tracing_state() is None:  # and torch would end the process (stock 2.13: SIGSEGV in torch.jit.trace, too)
                raise Refused("an operator in it fails, and the module goes on")
            self.taken = Taken(self.result)
            return tuple(self.taken.tensors)

        before = versions(tensors + held), random_states()
        with record(torch.jit.TracerWarning) as said:
            plain.said = said
            try:
                holder._create_method_from_trace("forward", call, tuple(tensors), lambda value: "", True, False, [], False)
            except (Refused, Unknown) as why:
                self.refused = f"its result is or holds {why}" if isinstance(why, Unknown) else str(why)
            except Exception as problem:
                if self.problem is None:  # else of the call, about which tracing.Target.is_for_stock() decides
                    let_through(problem)
                self.refused = first_line(problem)
        try:
            if self.problem is not None or self.asked:
                self.clean = not plain.wrote and not containers.are_changed() and state.holds(module)
                self.clean = self.clean and (versions(tensors + held), random_states()) == before
            if self.refused is not None:
                return
            if not said.complete:
                raise Refused("filters of warnings were changed meanwhile")
            for i, one in enumerate(said):
                if not asks_for_sizes(one):
                    place = plain.places.get(i, f"{one.filename}:{one.lineno}")
                    raise Refused(f"{str(one.message).split('. ')[0]} at {place}")
            if plain.problem:
                raise Refused(plain.problem)
            if plain.read:
                raise Refused(f"values of tensors are read by {plain.read}")
            if not state.holds(module):
                raise Refused("the call changes attributes of the module")
            after = versions(tensors + held), random_states()
            if after[0] != before[0]:
                raise Refused("the call writes into its arguments, parameters or buffers")
            if after[1] != before[1]:
                raise Refused("the call draws random numbers")
            if containers.are_changed():
                raise Refused(WRITES)
            self.check_results(tensors + held + plain.constants, containers.identities(), state)
            self.method = holder._get_method("forward")
            torch._C._jit_pass_inline(self.method.graph)  # of functions that the program scripted
            Proof(self.method.graph, storages(plain.constants), held).run()
        except (Refused, Unknown) as why:
            self.refused = str(why)
        except Exception as problem:  # nothing of ours may end the program
            let_through(problem)
            self.refused = first_line(problem)

    def check_results(self, known, key_containers, state):
        results = self.taken.tensors
        if any(one.requires_grad or one.layout is not torch.strided or not one.is_cpu or one.dtype.is_complex for one in results):
            raise Refused("a result that is no plain tensor")
        places = storages(known)
        for one in results:
            place = one.untyped_storage().data_ptr()
            if one.numel() > 0 and place in places:
                raise Refused("results share memory with arguments, parameters or each other")
            places.add(place)
        inner = state.seen | key_containers
        if any(id(one) in inner for one in self.taken.containers):
            raise Refused("a result that is a container of the module's own")

    def drop(self):
        self.taken.tensors = []
        self.result = None


class Proof:
    """That a traced graph writes nothing that others see, draws nothing, knows its sizes beforehand and calls torch's own operators only."""

    def __init__(self, graph, constants, held):
        self.graph = graph
        self.constants = constants  # memory of tensors that the call made of numbers
        self.held = held  # by the number in the names of the trace's attributes

    def run(self):
        inputs = {one.debugName() for one in self.graph.inputs()}
        for node in self.graph.nodes():
            kind = node.kind()
            if list(node.blocks()):
                raise Refused(f"{kind} in the trace")
            if kind in PRIMS:
                if kind == "prim::Constant":
                    self.constant(node)
                continue
            if kind in OF_NUMBERS:
                if not self.is_number(next(node.inputs())):
                    raise Refused(f"{kind} of a tensor's values in the trace")
                continue
            if not kind.startswith("aten::"):
                raise Refused(f"{kind} in the trace")
            self.operator(node, kind, inputs)
        if self.steers():
            raise Refused("a choice among its values (topk, argmax, sort or a comparison) steers what follows")

    def constant(self, node):
        value = node.output().toIValue()
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.untyped_storage().data_ptr() not in self.constants:
            raise Refused("a tensor that is no argument and that the module does not hold")

    def is_number(self, value):
        node = value.node()
        if node.kind() in ("prim::NumToTensor", "prim::Constant", "aten::size"):
            return True
        inputs = list(node.inputs())
        return node.kind() in OF_NUMBERS | {"aten::mul", "aten::add", "aten::sub", "aten::floor_divide", "aten::div"} and all(map(self.is_number, inputs))

    @staticmethod
    def overload(schema):
        name = schema.split("(", 1)[0].removeprefix("aten::")
        packet, _, overload = name.partition(".")
        try:
            return getattr(getattr(torch.ops.aten, packet), overload or "default")
        except AttributeError:
            return None

    def operator(self, node, kind, inputs):
        schema = node.schema()
        overload = self.overload(schema)
        if overload is None:
            if kind in ("aten::size", "aten::floor_divide", "aten::mul", "aten::add", "aten::sub"):
                return
            raise Refused(f"{kind} in the trace")
        if not overload._schema.returns or "_assert" in kind:
            raise Refused(f"{kind} may raise")
        arguments = {argument.name: value for argument, value in zip(overload._schema.arguments, node.inputs())}
        if torch.Tag.nondeterministic_seeded in overload.tags and not self.draws_nothing(arguments):
            raise Refused(f"{kind} draws random numbers")
        if torch.Tag.data_dependent_output in overload.tags:
            raise Refused(f"{kind} reads values of tensors")
        if torch.Tag.dynamic_output_shape in overload.tags and not self.size_is_known(kind, node):
            raise Refused(f"the size of what {kind} gives depends on values")
        if overload._schema.is_mutable:
            for argument in overload._schema.arguments:
                if argument.alias_info is not None and argument.alias_info.is_write and not self.is_fresh(arguments[argument.name], inputs):
                    raise Refused(f"{kind} writes into what others may see")

    @staticmethod
    def draws_nothing(arguments):
        def is_constant(name, want):
            value = arguments.get(name)
            return value is not None and value.node().kind() == "prim::Constant" and value.toIValue() == want

        return is_constant("train", False) or is_constant("dropout_p", 0.0)

    def dtype(self, value):
        if value.node().kind() == "prim::GetAttr" and value.type().kind() == "TensorType":
            return self.held[int(value.node().s("name").removeprefix("t"))].dtype
        return value.type().dtype() if value.type().kind() == "TensorType" and value.isCompleteTensor() else None

    def size_is_known(self, kind, node):
        if kind not in ("aten::index", "aten::index_put_", "aten::index_put"):
            return False
        places = list(node.inputs())[1].node()
        if places.kind() != "prim::ListConstruct":
            return False
        for one in places.inputs():
            if one.type().kind() == "NoneType" or one.node().mustBeNone():
                continue
            if self.dtype(one) not in (torch.int64, torch.int32):
                return False
        return True

    def is_fresh(self, value, inputs):
        """Made by an operator of the trace, perhaps seen through views of it."""
        for _ in range(1000):
            node = value.node()
            kind = node.kind()
            if value.debugName() in inputs or kind in ("prim::GetAttr", "prim::Constant", "prim::Param"):
                return False
            if kind in ("prim::ListUnpack", "prim::TupleUnpack", "prim::ListConstruct", "aten::dropout", "aten::feature_dropout"):
                value = next(node.inputs())
            elif kind.startswith("aten::"):
                if "(a" not in node.schema().split("->")[1] and "(a" not in node.schema():
                    return True
                value = next(node.inputs())
            else:
                return False
        return False

    def steers(self):
        """As choices.steer() says of other graphs."""
        if not torch.classes.ipexrun.Graph().bf16_allowed("") or compiler.BF16_ASKED_FOR:
            return False
        masks, computed, steps = set(), set(), set()
        for node in self.graph.nodes():
            name = node.kind().split("::")[1]
            if self.is_stepped(node, name, computed, steps):
                if name in choices.PRODUCTS:
                    return True
                steps.update(one.debugName() for one in node.outputs())
            if name in choices.PRODUCTS or (any(one.debugName() in computed for one in node.inputs()) and not choices.is_of_shapes(name)):
                computed.update(one.debugName() for one in node.outputs())
            if node.kind().startswith("aten::") and not computed.isdisjoint(one.debugName() for one in indices_of(node)):
                return True
            values = [one for top in node.inputs() for one in (top.node().inputs() if top.node().kind() == "prim::ListConstruct" else [top])]
            found = any(self.is_floating(one) for one in node.inputs())
            outputs = list(node.outputs())
            if found and name in choices.POSITIONS:
                place = choices.POSITIONS[name] if len(outputs) > 1 else 0
                if not self.is_floating(outputs[place]) and any(use.user.kind() not in ("prim::Return", "prim::TupleConstruct") for use in outputs[place].uses()):
                    return True
            taken = any(one.debugName() in masks for one in values)
            if taken and name in choices.TAKE_BY_MASK:
                return True
            if outputs and ((found and name in choices.COMPARISONS) or taken and self.dtype(outputs[0]) == torch.bool):
                masks.add(outputs[0].debugName())
        return False

    def is_stepped(self, node, name, computed, steps):
        """As choices.is_stepped() says of other graphs; how many steps there are is not asked."""
        values = [one for one in node.inputs() if one.debugName() in computed]
        read = any(one.debugName() in steps for one in node.inputs())
        if name in choices.PRODUCTS:
            return read
        outputs = list(node.outputs())
        if not values or choices.is_of_shapes(name) or not outputs or not self.is_floating(outputs[0]):
            return False
        name = name.removesuffix("_")  # in place
        if name in choices.JUMPS or (name == "div" and len(list(node.inputs())) > 2):
            return True
        if name in choices.MEET and any(one.debugName() not in steps and self.is_floating(one) for one in values):
            return False
        return read or any(self.dtype(one) is not None and not self.is_floating(one) for one in values)

    def is_floating(self, value):
        dtype = self.dtype(value)
        return dtype is not None and dtype.is_floating_point
