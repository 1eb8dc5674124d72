"""`--split-sgd`: weights of linear layers and convolutions that torch.optim.SGD trains are bfloat16 parameters, whose low 16 bits are kept here.

After an optimizer's first step its weights are split: the parameter, the same object as before, holds the nearest bfloat16, and a table beside
the optimizer holds what is left of the float32 number, exactly (kernels/split_float.h). A step joins the two, lets torch's own SGD step on the
float32 number, and splits it again, one weight at a time. Products and convolutions with such a weight go on in float32 activations
(preload/plugin/split_weights.h); gradients arrive in bfloat16.

What leaves the process is float32: Module.state_dict() has joined numbers, and loading into a module or an optimizer joins for good; the next
step splits afresh. So have copies and pickles of a parameter. The functions of torch.nn.Module and Parameter that do this are replaced
when an SGD makes its first step, and only under this option.

Thread rule: under the interpreter lock; a step belongs to the thread that called before().
"""

import functools
import gc
import sys

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from .. import plugin
from . import optimizers

MODULES = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)  # exactly these: others may use a weight in other ways
SMALLEST = 4096  # elements of a weight

_halves = WeakTensorKeyDictionary()  # split parameter -> Half
_facts = None


class Half:
    """What is kept of a split parameter beside it."""

    def __init__(self, parameter, value):
        self.low = torch.empty_like(value, dtype=torch.int16, memory_format=torch.preserve_format)
        high = torch.empty_like(value, dtype=torch.bfloat16, memory_format=torch.preserve_format)
        _facts.split(value, high, self.low)
        parameter.data = high
        self.note_write(parameter)

    def note_write(self, parameter):
        torch.autograd.graph.increment_version([parameter])
        self.version, self.place = parameter._version, parameter.data_ptr()

    def is_of(self, parameter):
        """Whether nobody else wrote the parameter: what it was joined with is then still its low half."""
        return parameter.dtype is torch.bfloat16 and (parameter._version, parameter.data_ptr()) == (self.version, self.place)


def value_of(parameter):
    """The float32 number of a split parameter, a new tensor."""
    half = _halves[parameter]
    data = parameter.detach()
    if half.is_of(parameter):
        return _facts.joined(data, half.low)
    return data.to(torch.float32, copy=True)  # the program's own number


def join_for_good(parameter):
    """A float32 parameter again, until a step splits it."""
    if parameter not in _halves:
        return
    if parameter.dtype is torch.bfloat16:
        parameter.data = value_of(parameter)
        torch.autograd.graph.increment_version([parameter])
    del _halves[parameter]


def used_by_layers_alone(parameters):
    """Those of the parameters that every module holding them knows as the weight of an exact linear layer or convolution."""
    wanted = {id(one) for one in parameters}
    good, bad = set(), set()
    for module in [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]:
        state = module.__dict__
        for name, parameter in state.get("_parameters", {}).items():
            if id(parameter) in wanted:
                (good if type(module) in MODULES and name == "weight" else bad).add(id(parameter))
        if isinstance(module, torch.nn.TransformerEncoderLayer):  # its inference hands weights to an operator of its own
            bad.update(id(one) for one in module.parameters())
    return good - bad


def why_not():
    """Why nothing is split in this process now; "" = it is."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "one of several ranks: gradients are exchanged in float32"
    if not _facts.multiply_mixed():
        return "another library's kernels answer products or convolutions"
    return ""


class SplitStepper(optimizers.Stepper):
    """An SGD whose weights are split."""

    def __init__(self, optimizer, kind):
        super().__init__(optimizer, kind)
        global _facts
        _facts = self.facts
        self.phase = "split"
        self.layers = set()  # numbers of the parameters that may be split
        self.looked_at = 0  # groups of which they were looked for
        self.split_elements = self.split_weights = 0
        replace_functions()
        optimizer.register_load_state_dict_pre_hook(before_load)

    def begin(self, optimizer):
        self.steps += 1
        self.enter(optimizer)

    def end(self, raised=False):
        if raised and self.is_inside() and is_stepping(self.of()):
            return  # its closure steps another optimizer
        if self.leave():
            self.tell_saved()

    def function(self, *lists, **settings):
        """In the place of torch.optim.sgd.sgd, for the time of a step."""
        if not self.is_inside() or len(lists) != 3 or not lists[0] or not self.is_mine(lists[0][0]):
            return self.stock(*lists, **settings)
        parameters, gradients, buffers = lists
        chosen = [i for i, one in enumerate(parameters) if one in _halves or self.may_split(one, gradients[i])]
        others = [i for i in range(len(parameters)) if i not in set(chosen)]
        if others:
            rest = [[one[i] for i in others] if one else one for one in lists]
            self.stock(*rest, **settings)
            for i, buffer in zip(others, rest[2]):
                buffers[i] = buffer
        for i in chosen:
            buffer = [buffers[i]] if buffers else []
            self.step_one(parameters[i], gradients[i], buffer, settings)
            if buffers:
                buffers[i] = buffer[0]

    def step_one(self, parameter, gradient, buffer, settings):
        half = _halves.get(parameter)
        value = parameter.detach() if parameter.dtype is torch.float32 else value_of(parameter)
        if gradient.dtype is torch.bfloat16:
            gradient = gradient.float()
        self.stock([value], [gradient], buffer, **settings)
        if half is None or parameter.dtype is torch.float32:
            _halves[parameter] = Half(parameter, value)
            self.split_weights += half is None
            self.split_elements += parameter.numel() if half is None else 0
        else:
            _facts.split(value, parameter.detach(), half.low)
            half.note_write(parameter)

    def may_split(self, parameter, gradient):
        """A weight that is float32 so far."""
        groups = self.of().param_groups
        if self.looked_at != len(groups):
            self.looked_at = len(groups)
            self.layers = used_by_layers_alone([one for group in groups for one in group["params"]])
            if why_not():
                self.refuse(why_not())
        return (
            id(parameter) in self.layers
            and type(parameter) is torch.nn.Parameter
            and parameter.dtype is torch.float32
            and parameter.numel() >= SMALLEST
            and not parameter.is_inference()
            and self.facts.are_dense([parameter])
            and gradient.layout is torch.strided
        )

    def refuse(self, why):
        self.layers, self.reason = set(), why
        plugin.say(f"--split-sgd: weights stay float32: {why}")

    def tell_saved(self):
        if self.split_weights and not self.reason:
            saved = 2 * self.split_elements / 1e6
            self.reason = f"{self.split_weights} weights in bfloat16, {saved:.1f} MB saved"
            plugin.say(
                f"--split-sgd: {self.split_weights} weights of {self.split_elements / 1e6:.2f} million numbers are bfloat16, their low halves are kept"
                f" by SGD: gradients take {saved:.1f} MB less than stock's (bfloat16 copies beside float32 weights would take {saved:.1f} MB more)"
            )

    def choice(self):
        return "split" if self.split_weights else "stock"

    def note(self):
        return {**super().note(), "split_weights": self.split_weights, "saved_bytes": 2 * self.split_elements}


def before_load(optimizer, state):
    """torch casts what it loads to the dtype of the parameters."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            join_for_good(parameter)


_replaced = False


def replace_functions():
    """state_dict() of modules goes on in float32."""
    global _replaced
    if _replaced:
        return
    _replaced = True
    module, kind = torch.nn.Module, torch.nn.Parameter
    save, load, apply = module._save_to_state_dict, module._load_from_state_dict, module._apply
    deepcopy, reduce = kind.__deepcopy__, kind.__reduce_ex__

    @functools.wraps(save)
    def _save_to_state_dict(self, destination, prefix, keep_vars):
        save(self, destination, prefix, keep_vars)
        for name, parameter in self._parameters.items():
            if parameter is not None and parameter in _halves and not keep_vars:
                destination[prefix + name] = value_of(parameter)

    @functools.wraps(load)
    def _load_from_state_dict(self, *arguments, **named):
        join_own(self)
        load(self, *arguments, **named)

    @functools.wraps(apply)
    def _apply(self, *arguments, **named):  # float(), to(), share_memory()
        join_own(self)
        return apply(self, *arguments, **named)

    @functools.wraps(deepcopy)
    def __deepcopy__(self, memo):
        if id(self) not in memo and is_split(self):
            memo[id(self)] = whole(self)
        return deepcopy(self, memo)

    @functools.wraps(reduce)
    def __reduce_ex__(self, protocol):
        return reduce(whole(self) if is_split(self) else self, protocol)

    module._save_to_state_dict, module._load_from_state_dict, module._apply = _save_to_state_dict, _load_from_state_dict, _apply
    kind.__deepcopy__, kind.__reduce_ex__ = __deepcopy__, __reduce_ex__


def join_own(module):
    for parameter in module._parameters.values():
        if parameter is not None:
            join_for_good(parameter)


def whole(parameter):
    """What stands for a split parameter outside: a float32 one, with its attributes."""
    one = torch.nn.Parameter(value_of(parameter), parameter.requires_grad)
    one.__dict__.update(parameter.__dict__)
    return one


def is_stepping(optimizer):
    """Whether this thread is inside the optimizer's step()."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "step" and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False


def is_split(parameter):
    return parameter in _halves and parameter.dtype is torch.bfloat16
