"""What a graph computes from numbers alone is computed once.

Risk covered: a constant that the program may write into, that is not the same in every call, or that depends on sizes of a call.
"""

import torch
from test_programs import Captured, linear


def test_masks_and_positions():
    layer = linear()

    def function(x):
        seen = torch.tril(torch.ones(x.shape[0], x.shape[0]))
        return seen @ layer(x) + torch.arange(80).float().cos()

    captured = Captured(function, torch.randn(7, 48))
    assert "2 constants" in captured.fused()


def test_a_result_belongs_to_the_program():
    captured = Captured(lambda x: (x + 1, torch.zeros(3).cos(), torch.ones(4).cos().view(2, 2)), torch.randn(3))
    first = captured.graphs[-1].mine(True, captured.values)
    first[1].fill_(9)
    assert captured.graphs[-1].mine(True, captured.values)[1].eq(1).all()


def test_random_numbers_and_sizes_of_a_call_are_none():
    Captured(lambda x: x + torch.arange(x.shape[0]).float().cos()[:, None], torch.randn(5, 48), dynamic=True)(torch.randn(9, 48))
    captured = Captured(lambda x: x.sin() + torch.full((2048, 4096), 2.0).cos()[:1, :48], torch.randn(5, 48))
    assert "constants" not in captured.fused()  # of 32 MB
    assert "constants" not in captured.fused()  # of 32 MB


def test_the_default_dtype_is_that_of_the_capture():
    torch.set_default_dtype(torch.float64)
    try:
        Captured(lambda x: x + torch.arange(0, 1, 0.125).cos(), torch.randn(8))
    finally:
        torch.set_default_dtype(torch.float32)
