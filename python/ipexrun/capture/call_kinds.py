"""Which calls of a module are alike: those of one kind take about the same time, and one trace is likely to serve them. Pure functions of the
arguments; nothing is kept alive."""

import torch


def bucket(size):
    return size if size < 4 else 1 << (size - 1).bit_length()


DEPTH = 32  # of containers within containers that are looked into


def ends(value, around):
    """Whether a container is looked into no further: it lies too deep, or is one of those around it."""
    return len(around) > DEPTH or any(one is value for one in around)


def signature(value, around=()):
    """Calls with equal ones take about the same time."""
    if isinstance(value, torch.Tensor):
        if value.is_nested:  # whose sizes are no plain numbers
            return type(value), value.dtype
        return (value.dtype, *map(bucket, value.shape))
    if type(value) in (list, tuple, dict):
        if ends(value, around):
            return type(value)
        around = (*around, value)
        if type(value) is dict:
            return tuple((key, signature(one, around)) for key, one in value.items())
        return tuple(signature(one, around) for one in value)
    return value if value is None or type(value) is bool else type(value)


def has_state(value, depth=0):
    """Whether it holds more than tensors and plain values: an object that the program may change from call to call, such as a cache of keys
    and values. What was traced with one of its states seldom fits the next."""
    if depth > DEPTH:
        return True
    if isinstance(value, (dict, list, tuple)):
        return any(has_state(one, depth + 1) for one in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, (torch.Tensor, str, bytes, int, float, complex, type(None), slice, range, torch.dtype, torch.device))


def signature_of_call(args, kwargs):
    return signature(args), signature(kwargs), torch.is_autocast_enabled("cpu")
