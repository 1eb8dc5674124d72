"""Which calls of a module are alike: those of one kind take about the same time, and one trace is likely to serve them. Functions of the arguments, of which
nothing of the program's runs, and nothing is kept alive."""

import torch

TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))  # whose sizes can be read without running something of the program's
CONTAINERS = frozenset((list, tuple, dict))
NAMES = frozenset((str, int, bool))  # of keys that are plain values
PLAIN = (torch.Tensor, str, bytes, int, float, complex, type(None), slice, range, torch.dtype, torch.device)
DEPTH = 32  # of containers within containers that are looked into
MOST = 512  # things in the arguments of one call: looking at more may take longer than the call
TOO_MANY = ("too many things",)  # what stands for such a call
OWN_CODE = ("tensors with code of their own",)  # and for one with tensors whose class answers for operators
LEFT = {TOO_MANY: "its arguments hold too many things", OWN_CODE: "its arguments are tensors with code of their own"}  # calls that are the module's


class TooMany(Exception):
    pass


class OwnCode(Exception):
    pass


def bucket(size):
    return size if size < 4 else 1 << (size - 1).bit_length()


def stops(value, count, met, depth):
    """0: a container is looked into. Else what stands for its contents: it lies too deep, or is the one that was met so manieth (it may be around itself).
    `met`: places of containers by identity, and how many things were met so far, as that of nobody."""
    met[0] += count
    if met[0] > MOST:
        raise TooMany
    place = len(met)
    first = met.setdefault(id(value), place)
    return first if first != place else -(depth > DEPTH)


def has_own_code(kind):
    """Of a tensor subclass: whether its own code answers for operators and whatever else is asked of it: a trace would run that where the module's call runs
    none, guards would ask it about each call, and what it does (counts, prints, refuses) would be done more often or less."""
    function = kind.__torch_function__
    plain = getattr(function, "__func__", function) is _FUNCTION or function is torch._C._disabled_torch_function_impl
    return not plain or kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


_FUNCTION = torch.Tensor.__torch_function__.__func__


def sizes_of(value, kind):
    """Of a tensor subclass; None: they are not to be asked for."""
    if has_own_code(kind) or value.is_nested:
        return None
    return (value.dtype, *value.shape)


def signature(value, met, depth=0):
    """Calls with equal ones take about the same time."""
    kind = type(value)
    if kind in TENSORS:
        if value.is_nested:  # whose sizes are no plain numbers
            return kind, value.dtype
        return (value.dtype, *map(bucket, value.shape))
    if kind in CONTAINERS:
        place = stops(value, len(value), met, depth) if value else 0
        if place:
            return kind, place
        if kind is dict:
            return tuple((key if type(key) in NAMES else type(key), signature(one, met, depth + 1)) for key, one in value.items())
        return tuple(signature(one, met, depth + 1) for one in value)
    if value is None or kind is bool:
        return value
    if issubclass(kind, torch.Tensor):
        if has_own_code(kind):
            raise OwnCode
        sizes = sizes_of(value, kind)
        return kind if sizes is None else (kind, sizes[0], *map(bucket, sizes[1:]))
    return kind


def has_state(value, met=None, depth=0):
    """Whether it holds more than tensors and plain values: an object that the program may change from call to call, such as a cache of keys
    and values. What was traced with one of its states seldom fits the next."""
    kind = type(value)
    if kind in TENSORS:
        return False
    if kind not in CONTAINERS and not issubclass(kind, (dict, list, tuple)):
        return not issubclass(kind, PLAIN)
    of = dict if issubclass(kind, dict) else tuple if issubclass(kind, tuple) else list  # whose methods are none of the program's
    met = {0: 0} if met is None else met
    try:
        place = stops(value, of.__len__(value), met, depth)
    except TooMany:
        return True
    if place:
        return place < 0
    return any(has_state(one, met, depth + 1) for one in (dict.values(value) if of is dict else of.__iter__(value)))


def signature_of_call(args, kwargs):
    met = {0: 0}
    try:
        return signature(args, met), signature(kwargs, met), torch.is_autocast_enabled("cpu")
    except TooMany:
        return TOO_MANY
    except OwnCode:
        return OWN_CODE
