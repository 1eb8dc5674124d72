"""What TorchDynamo hands to a program is what it rebuilds from what it followed. Of some kinds of objects that is another object than the program's own code
makes: iterators and generators, which have run to their end by then and come out as iterators of tuples; contexts that are entered (torch.no_grad() as a
value); scalars of NumPy, which come out as arrays; subclasses of set, which come out empty. A frame that gives such a one to the program stays the program's,
and so does one whose graph would compute NumPy's part in torch's way, hold quantized tensors as plain ones, or draw from a random stream of the program's own.
Of some objects TorchDynamo does not know what Python does with them: a deque that is full drops an element for each new one, and a metaclass with a
`__call__` decides what calling its classes gives (a singleton's gives the same object each time); a frame that meets such a deque, or calls such a class,
stays the program's, too.

Thread rule: every function runs under the interpreter lock.
"""

import collections
import dis
import functools
import types
import weakref

import torch

from ..graphs.backend import makes_quantized
from ..problems import let_through
from .capturable import forwards_of

GET_ITER, LOOPS = dis.opmap["GET_ITER"], (dis.opmap["FOR_ITER"], dis.opmap["EXTENDED_ARG"])
SWITCH, OF_A_CALL = "set_grad_enabled", ("PUSH_NULL", "SWAP", "LOAD_CONST", "PRECALL")
MASK_TYPE = 19  # which argument of a layer of nn.TransformerEncoder it is
ENTERS = ("BEFORE_WITH", "SETUP_WITH")
REASON = "what it gives to the program would come out as another kind of object"
OWN_STREAM = "a random stream of its own"
NUMPY = "NumPy inside: its numbers are its own"
QUANTIZED = "quantized tensors, which a graph takes for plain ones"
LIMITED = "a deque that drops elements, of which TorchDynamo does not know"
METACLASS = "a class whose metaclass has a __call__ of its own, of which TorchDynamo does not know"
FINALIZED = "it makes objects with finalizers, of which none are made in a compiled call"
PADDED = "nn.TransformerEncoder with a mask of padding: torch fills those rows with zeros, but under torch.compile"
ASSERTS = "an assertion about values of tensors, which raises another exception in a graph"
OF_NUMBERS = {"sqrt", "prod", "log", "log2", "exp", "power", "square", "ceil", "floor"}  # of plain numbers these give torch's kernels what NumPy's scalar would


class NotAsItIs(Exception):
    pass


@functools.cache
def kinds(contexts):
    """Classes of TorchDynamo's for values that come out otherwise, and those among them that do not."""
    from torch._dynamo.variables import ctx_manager, functions, tensor, user_defined
    from torch._dynamo.variables import iter as iterators

    names = [
        (iterators, ("IteratorVariable", "ItertoolsVariable")),
        (functions, ("LocalGeneratorObjectVariable",)),
        (tensor, ("NumpyNdarrayVariable",)),
        (user_defined, ("UserDefinedSetVariable",)),
        (ctx_manager, ("ContextWrappingVariable", "GenericContextWrappingVariable") if contexts else ()),
    ]
    found = tuple(kind for module, of in names for kind in (getattr(module, name, None) for name in of) if kind is not None)
    return found, getattr(ctx_manager, "NullContextVariable", ())


def is_dynamos(value):
    """An object of a class, or a function, with which TorchDynamo stands in for Python's own."""
    module = getattr(value if isinstance(value, type) or callable(value) else type(value), "__module__", None)
    return isinstance(module, str) and module.startswith("torch._dynamo")


def looked_into():
    """Inside the call of a backend: the values that reach the program, as TorchDynamo knows them: what the frame returns, what the rest of a frame that is
    split goes on with, and what was put into objects."""
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch._dynamo.variables.base import AttributeMutationNew, ValueMutationNew

    translator = InstructionTranslator.current_tx()
    output, effects = translator.output, translator.output.side_effects
    is_split = output.compile_subgraph_reason.graph_break
    changed = [one for one in list(effects.id_to_variable.values())
               if effects.is_modified(one) and not isinstance(one.mutation_type, (AttributeMutationNew, ValueMutationNew))]
    given = [changed, *(list(attributes.values()) for attributes in effects.store_attr_mutations.values())]  # of new objects, too: those that were dropped are gone
    while translator is not None:
        given.append(list(translator.stack))
        if is_split:
            given.append(list(translator.symbolic_locals.values()))
        translator = translator.parent if is_split else None
    return given, changed, is_split, effects


def comes_out_otherwise():
    """Inside the call of a backend: why the program would not get what its own code makes, or ""."""
    from torch._dynamo.variables.base import VariableTracker

    given, changed, is_split, effects = looked_into()
    if any(type(one).__name__ == "RandomVariable" for one in effects.id_to_variable.values()):
        return OWN_STREAM
    unknown = behaves_otherwise(effects)
    if unknown:
        return unknown
    (otherwise, but), found = kinds(contexts=not is_split), []  # contexts that are left behind a split are entered anew
    sets = tuple(one for one in otherwise if one.__name__ == "UserDefinedSetVariable")

    def look(variable):
        # By its type alone: to ask by isinstance() takes in values that nobody has used, for which the graph, which is closed, has no inputs.
        kind = type(variable)
        if variable.source is not None and type(variable.source).__name__ != "TempLocalSource":  # what it only passes on is the object itself
            return
        if issubclass(kind, otherwise) and not issubclass(kind, but):
            found.append(variable)
        elif kind.__name__ in ("UserDefinedObjectVariable", "UserDefinedClassVariable", "UserFunctionVariable"):
            held = getattr(variable, "value", None) if kind.__name__ != "UserFunctionVariable" else getattr(variable, "fn", None)
            if is_dynamos(held):
                found.append(variable)

    VariableTracker.visit(look, given)
    written = [one for one in list(effects.id_to_variable.values()) if issubclass(type(one), sets) and is_written(one, changed, effects)]
    return REASON if found or written else ""


def is_limited(value):
    return isinstance(value, collections.deque) and value.maxlen is not None


def behaves_otherwise(effects):
    """Of what the frame met and made: why Python would do something else with it, or ""."""
    for one in list(effects.keepalive):
        if is_limited(one):
            return LIMITED
        is_made = getattr(effects.id_to_variable.get(id(one)), "source", None) is None
        if is_made and type(type(one)).__call__ is not type.__call__:
            return METACLASS
        if is_made and hasattr(type(one), "__del__") and not issubclass(type(one), types.GeneratorType):
            leave_unfinalized(one)
            return FINALIZED
    return ""


def names_finalized(frame, module):
    """Whether the frame's code names a class of that kind, or, of our own frame around a module's call, that of a forward inside of it. To try one is too late:
    TorchDynamo makes stand-ins, and drops them, while it traces."""
    named = [frame.f_globals.get(name) for name in frame.f_code.co_names]
    for function in forwards_of(module) if module is not None else ():
        named += [function.__globals__.get(name) for name in function.__code__.co_names]
    return any(isinstance(one, type) and hasattr(one, "__del__") for one in named)


def leave_unfinalized(one):
    """TorchDynamo's stand-in for an object of the program's, which no __init__ has seen: its finalizer would count what never was, or fail."""
    try:
        object.__setattr__(one, "__class__", Inert)
    except TypeError:  # slots, or what is written in C
        pass


class Inert:
    pass


def may_fill(converted, values):
    """Of what became of a frame, whose locals are `values`: whether its new code computes nothing, so that no backend was asked, and may still change a
    deque that drops elements."""
    code = getattr(getattr(converted, "guarded_code", None), "code", None)
    if code is None or any(name.startswith("__compiled_fn") for name in code.co_names):
        return False
    held = [one for value in values for one in (value, *getattr(value, "__dict__", {}).values())]
    return any(map(is_limited, held))


def is_written(variable, changed, effects):
    inside = getattr(variable, "_base_vt", None)
    return variable in changed or (inside is not None and effects.is_modified(inside))


def makes_otherwise(converted, names):
    """Of what became of a frame, whose globals are `names`: whether its new code makes iterators or contexts for the program, also where it has no operator
    and no backend was asked. Loops of the program's are in none of TorchDynamo's code: it has followed them, or left them to functions that go on behind."""
    code = getattr(getattr(converted, "guarded_code", None), "code", None)
    if code is None:
        return False
    operations = code.co_code[::2]
    kept = any(one == GET_ITER and then not in LOOPS for one, then in zip(operations, operations[1:]))  # it fills dicts in loops
    return kept or any(names.get(one) is iter for one in code.co_names) or switches_gradients(code)


def switches_gradients(code):
    """Whether it makes a context of gradients that it does not enter (`context = torch.no_grad()` in front of a split, entered behind it or never): it makes
    torch.set_grad_enabled(...) for it, which switches them where it is made. One that is entered across a split goes into a local of a known name first."""
    if SWITCH not in code.co_names:
        return False
    operations = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "NOP", "EXTENDED_ARG")]
    for i, one in enumerate(operations):
        if one.opname not in ("LOAD_ATTR", "LOAD_METHOD") or one.argval != SWITCH:
            continue
        then = i + 1
        while operations[then].opname in OF_A_CALL:
            then += 1
        if not operations[then].opname.startswith("CALL"):
            continue  # the class alone, which is called behind
        kept = operations[then + 1]
        is_entered = kept.opname.startswith("STORE_FAST") and "___context_manager" in str(kept.argval) or kept.opname in ENTERS
        if not is_entered and kept.opname != "POP_TOP":
            return True
    return False


def refused(backend, target):
    """The backend, which is not asked for frames that TorchDynamo would give back otherwise."""
    target = weakref.ref(target)

    @functools.wraps(backend)
    def as_it_is(graph, inputs):
        try:
            why = comes_out_otherwise() or (NUMPY if computes_for_numpy(graph) else ASSERTS if asserts(graph) else QUANTIZED if makes_quantized(graph) else "")
        except Exception as problem:  # a torch whose insides are others than expected
            let_through(problem)
            why = REASON
        asked = target()
        if not why and fills_padding(graph):
            why = PADDED
            if asked is not None:
                asked.refused = why  # its layers would be given nested tensors by what is not followed, about which TorchDynamo cannot ask
        if why:
            if asked is not None:
                asked.problems.append(why)
            raise NotAsItIs(why)
        return backend(graph, inputs)

    return as_it_is


def fills_padding(graph):
    """Whether outside of torch.compile the call would go by way of nested tensors, where its mask says that padding stands at the ends: an encoder asks
    torch.compiler.is_compiling(), and what its values say in another call is not in the graph."""
    layer = torch.ops.aten._transformer_encoder_layer_fwd.default
    of_padding = False
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target in (layer, layer.overloadpacket, torch._transformer_encoder_layer_fwd):
            kinds_of_mask = node.args[MASK_TYPE:] or (node.kwargs.get("mask_type"),)
            of_padding = of_padding or kinds_of_mask[0] not in (None, 0)
    if not of_padding:
        return False
    from torch._dynamo.symbolic_convert import InstructionTranslator

    met = [vars(one).get("value") for one in InstructionTranslator.current_tx().output.side_effects.id_to_variable.values()]
    return any(isinstance(one, torch.nn.TransformerEncoder) and getattr(one, "use_nested_tensor", True) for one in met)


def asserts(graph):
    """Of values of tensors. For one of sizes (`_assert_scalar`) TorchDynamo has a guard."""
    names = [getattr(node.target, "__name__", "") for node in graph.graph.nodes if node.op == "call_function"]
    return any(name.startswith("_assert") and not name.startswith("_assert_scalar") for name in names)


def is_numpys(function):
    """A call of NumPy's that TorchDynamo has put into a graph as one of torch's."""
    return type(function).__name__.startswith("numpy_") or getattr(function, "__name__", "").startswith("numpy_")


def computes_for_numpy(graph):
    """Whether torch computes something in NumPy's place that it may compute otherwise: anything but a few functions of plain numbers."""
    of_numbers = set()
    for node in graph.graph.nodes:
        if node.op != "call_function" or not is_numpys(node.target):
            continue
        name = getattr(getattr(node.target, "f", None), "__name__", "")
        if type(node.target).__name__ != "numpy_operator_wrapper" and name not in OF_NUMBERS:
            return True
        if any(one not in of_numbers for one in node.all_input_nodes):
            return True
        of_numbers.add(node)
    return False
