"""What TorchDynamo hands to a program is what it rebuilds from what it followed. Of some kinds of objects that is another object than the program's own code
makes: iterators and generators, which have run to their end by then and come out as iterators of tuples; contexts that are entered (torch.no_grad() as a
value); scalars of NumPy, which come out as arrays. A frame that gives such a one to the program stays the program's.

Thread rule: every function runs under the interpreter lock; NumPy is left to itself for the thread that asks.
"""

import contextlib
import contextvars
import dis
import functools
import weakref

from .interrupts import let_through

GET_ITER, LOOPS = dis.opmap["GET_ITER"], (dis.opmap["FOR_ITER"], dis.opmap["EXTENDED_ARG"])
REASON = "what it gives to the program would come out as another kind of object"


class NotAsItIs(Exception):
    pass


def kinds(contexts):
    """Classes of TorchDynamo's for values that come out otherwise."""
    from torch._dynamo.variables import ctx_manager, functions, iter as iterators, tensor

    names = [
        (iterators, ("IteratorVariable", "ItertoolsVariable")),
        (functions, ("LocalGeneratorObjectVariable",)),
        (tensor, ("NumpyNdarrayVariable",)),
        (ctx_manager, ("ContextWrappingVariable", "GenericContextWrappingVariable") if contexts else ()),
    ]
    return tuple(kind for module, of in names for kind in (getattr(module, name, None) for name in of) if kind is not None)


def comes_out_otherwise():
    """Inside the call of a backend: whether what the frame returns, what the rest of a frame that is split goes on with, or what was put into objects that
    were there before holds such a value."""
    from torch._dynamo.symbolic_convert import InstructionTranslator
    from torch._dynamo.variables.base import AttributeMutationNew, ValueMutationNew, VariableTracker

    translator = InstructionTranslator.current_tx()
    output, effects = translator.output, translator.output.side_effects
    is_split = output.compile_subgraph_reason.graph_break
    given = [one for one in list(effects.id_to_variable.values())
             if effects.is_modified(one) and not isinstance(one.mutation_type, (AttributeMutationNew, ValueMutationNew))]
    given += [list(attributes.values()) for attributes in effects.store_attr_mutations.values()]  # of new objects, too: torch has forgotten those that were dropped
    while translator is not None:
        given += translator.stack
        if is_split:
            given += translator.symbolic_locals.values()
        translator = translator.parent if is_split else None
    of_these, found = kinds(contexts=not is_split), []  # contexts that are left behind a split are entered anew

    def look(variable):
        if isinstance(variable, of_these) and variable.source is None:  # what it only passes on is the object itself
            found.append(variable)

    VariableTracker.visit(look, given)
    return bool(found)


def makes_iterators(converted, names):
    """Of what became of a frame, whose globals are `names`: the same of one without an operator, for which no backend is asked. Loops of the program's are in
    none of TorchDynamo's code: it has followed them, or left them to functions that go on behind."""
    code = getattr(getattr(converted, "guarded_code", None), "code", None)
    if code is None:
        return False
    operations = code.co_code[::2]
    kept = any(one == GET_ITER and then not in LOOPS for one, then in zip(operations, operations[1:]))  # it fills dicts in loops
    return kept or any(names.get(one) is iter for one in code.co_names)


def refused(backend, target):
    """The backend, which is not asked for frames that TorchDynamo would give back otherwise."""
    target = weakref.ref(target)

    @functools.wraps(backend)
    def as_it_is(graph, inputs):
        try:
            otherwise = comes_out_otherwise()
        except Exception as problem:  # a torch whose insides are others than expected
            let_through(problem)
            otherwise = True
        if otherwise:
            asked = target()
            if asked is not None:
                asked.problems.append(REASON)
            raise NotAsItIs(REASON)
        return backend(graph, inputs)

    return as_it_is


def is_numpys(function):
    """A call of NumPy's that TorchDynamo has put into a graph as one of torch's."""
    return type(function).__name__.startswith("numpy_") or "numpy" in str(function)


def leaving_numpy_alone():
    """TorchDynamo ends a graph where NumPy begins, instead of taking torch for it: random numbers would be torch's, and scalars arrays. Nothing where the
    setting is none of the thread's own: rules.md forbids those of the whole process."""
    from torch._dynamo import config

    setting = getattr(config, "_config", {}).get("trace_numpy")
    if isinstance(getattr(setting, "user_override", None), contextvars.ContextVar):
        return config.patch(trace_numpy=False)
    return contextlib.nullcontext()
