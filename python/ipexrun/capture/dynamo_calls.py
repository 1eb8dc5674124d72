"""How TorchDynamo is asked to trace one module's calls: from a frame of our own, and with whatever it raises kept from the program.

Thread rule: every function runs under the interpreter lock.
"""

import contextlib
import inspect
import itertools
import sys
import threading
import traceback
import weakref

import torch

from ..problems import first_line, is_being_handled, let_through
from ..quiet import no_progress_bars, quiet
from . import capturable, collector, interrupts, rebuilt, time_limit
from .importing import no_traces_in_environment

MARK = "_dynamo_static_input_type"
TOO_LONG = "its trace took too long"

_names = itertools.count(1)


class Region:
    """Where TorchDynamo keeps what it compiles for us, on torches that keep it by regions (2.13): apart from what the program compiles itself, for what is
    counted per code object.

    Which region a thread is in is one number of the whole process there, set when a compiled function is entered and set back when it is left: of two threads
    in different ones the first that leaves takes the other's away, whose next frame finds nothing, and what is being traced meanwhile is kept where
    nobody looks. So all modules have one region, and the number stands while the program is outside of its own compiled functions, which set it themselves."""

    def __init__(self):
        self.number, self.modules = None, 0

    def enter(self, *ways):
        """One more module, of these ways of being called."""
        from torch._dynamo import eval_frame

        self.modules += 1
        numbers = getattr(eval_frame, "_next_isolate_recompiles_id", None)
        if numbers is None or not hasattr(eval_frame, "set_eval_frame_isolate_recompiles_id"):
            return
        if self.number is None:
            self.number = next(numbers)
        for way in ways:
            way._isolate_recompiles_id = self.number
        eval_frame.set_eval_frame_isolate_recompiles_id(self.number)

    def limit(self):
        """How often a code object may be compiled: as often for each module as the program allows for one."""
        from torch._dynamo import config

        return config.recompile_limit * max(self.modules, 1) if self.number is not None else None


region = Region()


def keys_as_they_were():
    """A trace that fails where the program enters inference mode leaves dispatch keys of the compiler's set for the thread (seen in torch 2.13), and the
    program's next operator ends in an internal assertion: the mode is left when its frame goes, and sets what it found."""
    guard = getattr(torch._C, "_ForceDispatchKeyGuard", None)
    if guard is None:
        return contextlib.nullcontext()
    return guard(torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())


def end_frames(problem):
    """What frames of the compiler hold goes now, rather than when somebody collects it; not those of an exception that the program is handling."""
    seen = set()
    while problem is not None and id(problem) not in seen and (not seen or not is_being_handled(problem)):
        seen.add(id(problem))
        traceback.clear_frames(problem.__traceback__)
        problem = problem.__cause__ or problem.__context__


class Convert:
    """Dynamo's frame converter, between Dynamo and the one that torch made: whatever it raises leaves the frame as it is, which has not begun
    to run; outside an attempt of ours it is not asked, nor once a trace has taken the CPU time that it may (target.limit_s)."""

    def __init__(self, converter, target):
        self.converter = converter  # makes one for each frame, since what it may compile grows with the modules there are
        self.target = weakref.ref(target)
        self._torchdynamo_orig_backend = converter()._torchdynamo_orig_backend

    def __call__(self, frame, *rest, **options):
        with keys_as_they_were():
            return self.convert(frame, rest, options)

    def convert(self, frame, rest, options):
        from torch._dynamo.types import ConvertFrameReturn

        target = self.target()
        started = None if target is None else target.clock()
        try:
            if target is None or target.capture_s >= target.limit_s or target.refused:
                return ConvertFrameReturn()
            if capturable.looks_at_frames(frame.f_code):
                target.problems.append(capturable.OF_FRAMES)
                return ConvertFrameReturn()
            if rebuilt.names_finalized(frame, target.module() if frame.f_code is target.code else None):
                target.problems.append(rebuilt.FINALIZED)
                return ConvertFrameReturn()
            with quiet(), no_progress_bars(), no_traces_in_environment(), collector.seldom(), interrupts.heard(), interrupts.late(), \
                    time_limit.TimeLimit(target.limit_s - target.capture_s):
                target.saw(frame.f_code)
                converted = self.converter()(frame, *rest, **options)
            if rebuilt.makes_otherwise(converted, frame.f_globals):
                target.problems.append(rebuilt.REASON)
                return ConvertFrameReturn()
            if rebuilt.may_fill(converted, list(frame.f_locals.values())):
                target.problems.append(rebuilt.LIMITED)
                return ConvertFrameReturn()
            return converted
        except BaseException as problem:
            if time_limit.is_over(problem):
                target.problems.append(TOO_LONG)
            elif isinstance(problem, Exception):
                let_through(problem)
                target.problems.append(first_line(getattr(problem, "inner_exception", problem)))
            else:
                raise
            end_frames(problem)
            return ConvertFrameReturn()
        finally:
            if target is not None:
                target.capture_s += target.clock() - started


def ways_of_calling(target, backend):
    """(a function that calls and traces with `backend`, one that calls what was traced and traces no more), for one target's modules."""
    from torch._dynamo import convert_frame, eval_frame
    from torch._dynamo import hooks as dynamo_hooks

    hooks = dynamo_hooks.Hooks()
    refused = rebuilt.refused(backend, target)
    limited = "recompile_limit" in inspect.signature(convert_frame.convert_frame).parameters

    def converter():
        limit = region.limit() if limited else None
        return convert_frame.convert_frame(refused, hooks, **({} if limit is None else {"recompile_limit": limit}))

    convert = Convert(converter, target)
    call = frame_of_its_own()
    target.code = call.__code__
    module = target.module()
    if module is not None:
        weakref.finalize(module, forget, target.code).atexit = False
    with distributions_as_they_are():
        tracing = eval_frame._optimize_catch_errors(convert, hooks)
    running = eval_frame.RunOnlyContext()
    region.enter(tracing, running)
    return tracing(call), running(call)


class PatchOfTorch:
    """torch._dynamo.eval_frame.TorchPatcher.patch, called when something is to be compiled: the first time, it ends the checks of arguments in torch.distributions, in
    the whole process. Ours puts these back; the program's first one ends them as ever."""

    def __init__(self, patch):
        self.patch, self.ours = patch, threading.local()
        self.as_stock = patch.cache_info().currsize > 0  # the program has compiled something itself

    def __call__(self):
        kind = torch.distributions.Distribution
        before = kind._validate_args
        self.patch()
        if getattr(self.ours, "here", False):
            kind._validate_args = before
        elif not self.as_stock:
            self.as_stock = True
            kind.set_default_validate_args(False)


@contextlib.contextmanager
def distributions_as_they_are():
    from torch._dynamo.eval_frame import TorchPatcher

    if not isinstance(TorchPatcher.patch, PatchOfTorch):
        TorchPatcher.patch = PatchOfTorch(TorchPatcher.patch)
    ours = TorchPatcher.patch.ours
    ours.here = True
    try:
        yield
    finally:
        ours.here = False


def forget(code):
    """What TorchDynamo compiled from it. It hangs on the code object, which its guards hold: the two would keep each other for good. Called when a module has
    died: nothing is imported, and no frame runs the code, which would hold the module."""
    drop = getattr(sys.modules.get("torch._C._dynamo.eval_frame"), "reset_code", None)
    if drop is not None:
        drop(code)
    sizes = getattr(sys.modules.get("torch._dynamo.pgo"), "_CODE_STATE", None) or {}
    for one in [one for one in sizes.copy() if one.name == code.co_name]:
        sizes.pop(one, None)


@contextlib.contextmanager
def no_marks(module):
    """TorchDynamo writes an attribute into each parameter that it meets and looks at it while it traces alone: the program would find it in its tensors and
    in what it pickles of them."""

    def marked():
        held = (*torch.nn.Module.parameters(module), *torch.nn.Module.buffers(module))  # not by a method of the program's
        return [one for one in held if getattr(one, MARK, None) == "unguarded"]

    before = set(map(id, marked()))
    try:
        yield
    finally:
        for one in marked():
            if id(one) not in before:
                vars(one).pop(MARK, None)  # another thread may have been here


def frame_of_its_own():
    """TorchDynamo begins with a frame of the program's, which the forward of torch's own modules is not."""

    def captured_module(module, /, *args, **kwargs):
        return module(*args, **kwargs)

    # What is compiled is kept with the code object; which sizes changed from call to call, and so are traced as unknown ones, with the code's name.
    captured_module.__code__ = captured_module.__code__.replace(co_name=f"captured_module_{next(_names)}")
    return captured_module
