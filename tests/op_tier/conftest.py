"""One process with the plugin inside. Candidates are forced, so that OpInfo compares them with stock and not stock with stock."""

import importlib.util
import os
import sys
import types
import unittest

os.environ.setdefault("IPEXRUN_SELECT", "off")  # nothing depends on how fast this machine is
os.environ.setdefault("IPEXRUN_CACHE", "off")  # nor on what earlier processes measured

if importlib.util.find_spec("expecttest") is None:
    # torch's table of operator samples imports it only for the base class of torch's own tests.
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase

import pytest  # noqa: E402
import torch  # noqa: E402
from plugin_fixtures import hook, plugin  # noqa: E402, F401

CANDIDATES = ["own_bf16", "onednn_bf16_packed", "onednn_f32_packed", "mkl_f32_packed", "own_f32", "onednn_bf16_cast", "f32_cast"]  # of products


# Candidates with bf16 inside are offered where the CPU has what they multiply with; without it calls stay stock's.
HAS_BF16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
needs_bf16 = pytest.mark.skipif(not HAS_BF16, reason="no bf16 products on this CPU")


@pytest.fixture(params=CANDIDATES)
def candidate(request, hook):
    assert hook.force(request.param)
    return request.param


@pytest.fixture
def stock(hook):
    """Runs a function on stock kernels."""

    def run(function, *args, **kwargs):
        hook.set_enabled(False)
        try:
            return function(*args, **kwargs)
        finally:
            hook.set_enabled(True)

    return run


def bound(candidate, dtype=torch.float32):
    """What the accuracy rule lets a candidate of this kind be away from stock, with stock's own error."""
    if dtype == torch.float16:
        return 2e-3
    return 3e-2 if "bf16" in candidate or dtype == torch.bfloat16 else 4e-6


def relative(result, expected):
    """RMS of the difference over RMS of what was expected; 0/0 = 0."""
    result, expected = result.detach().double(), expected.detach().double()
    apart = (result - expected).norm().item()
    return 0.0 if apart == 0 else apart / max(expected.norm().item(), 1e-300)


def same_face(result, expected):
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert result.stride() == expected.stride()
    assert result.requires_grad == expected.requires_grad
    assert result.is_inference() == expected.is_inference()


DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def all_opinfo(name):
    """A function that torch's tables list in several variants."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if op.name == name]


def opinfo(*names):
    """torch's own tables of samples for these functions."""
    from torch.testing._internal.common_methods_invocations import op_db

    found = [op for op in op_db if op.name in names and not op.variant_test_name]
    assert {op.name for op in found} == set(names), "torch renamed a function"
    return found


def opinfo_results(op, dtype, stock):
    """(result, stock's) of every output of every sample, with and without gradients; each result has stock's face already."""
    if dtype not in op.dtypes:
        pytest.skip("stock does not support it")
    for requires_grad in (False, True) if dtype.is_floating_point else (False,):
        for sample in op.sample_inputs("cpu", dtype, requires_grad=requires_grad):
            expected = stock(op, sample.input, *sample.args, **sample.kwargs)
            result = op(sample.input, *sample.args, **sample.kwargs)
            for mine, theirs in zip(result, expected, strict=True) if isinstance(expected, tuple) else [(result, expected)]:
                same_face(mine, theirs)
                yield mine, theirs


def refused_as_by_stock(call, stock, *kinds):
    """The same exception, which is a RuntimeError or one of `kinds`, with the same words."""
    with pytest.raises((RuntimeError, *kinds)) as theirs:
        stock(call)
    with pytest.raises(type(theirs.value)) as mine:
        call()
    assert str(mine.value) == str(theirs.value)


def report(hook):
    """tier_report_json() of this process."""
    import json

    answer = hook.report()
    return json.loads(answer) if isinstance(answer, (str, bytes)) else answer
