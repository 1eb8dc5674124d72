"""What TorchDynamo hands to a program is what it rebuilds from what it followed. Of some kinds of objects that is another object than the program's own code
makes: iterators and generators, which have run to their end by then and come out as iterators of tuples; contexts that are entered (torch.no_grad() as a
value); scalars of NumPy, which come out as arrays; subclasses of set, which come out empty. A frame that gives such a one to the program stays the program's,
and so does one whose graph would compute NumPy's part in torch's way, hold quantized tensors as plain ones, or draw from a random stream of the program's own.

Thread rule: every function runs under the interpreter lock.
"""

import dis
import functools
import weakref

from ..graphs.backend import makes_quantized
from ..problems import let_through

GET_ITER, LOOPS = dis.opmap["GET_ITER"], (dis.opmap["FOR_ITER"], dis.opmap["EXTENDED_ARG"])
SWITCH, OF_A_CALL = "set_grad_enabled", ("PUSH_NULL", "SWAP", "LOAD_CONST", "PRECALL")
ENTERS = ("BEFORE_WITH", "SETUP_WITH")
REASON = "what it gives to the program would come out as another kind of object"
OWN_STREAM = "a random stream of its own"
NUMPY = "NumPy inside: its numbers are its own"
QUANTIZED = "quantized tensors, which a graph takes for plain ones"
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
        if why:
            asked = target()
            if asked is not None:
                asked.problems.append(why)
            raise NotAsItIs(why)
        return backend(graph, inputs)

    return as_it_is


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
