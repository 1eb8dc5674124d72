"""Memory of device xpu as torch shows it. Risk covered: counts that lie, an out-of-memory error that ends more than one call."""

import pytest
import torch


def test_statistics():
    torch.xpu.empty_cache()
    before = torch.xpu.memory_allocated()
    torch.xpu.reset_peak_memory_stats()
    x = torch.empty(1 << 20, device="xpu")
    assert torch.xpu.memory_allocated() - before == 4 << 20
    assert torch.xpu.memory_reserved() >= torch.xpu.memory_allocated()
    del x
    assert torch.xpu.memory_allocated() == before and torch.xpu.max_memory_allocated() - before == 4 << 20
    assert torch.xpu.memory_stats()["num_ooms"] == 0
    free, total = torch.xpu.mem_get_info()
    assert 0 < free <= total
    assert torch.accelerator.memory_allocated() == before
    segments = torch.xpu.memory_snapshot()
    assert sum(one["total_size"] for one in segments) == torch.xpu.memory_reserved()
    torch.xpu.empty_cache()
    assert torch.xpu.memory_reserved() <= 2 << 20 or before > 0


def test_freed_memory_is_used_again():
    x = torch.empty(3 << 20, device="xpu")
    where = x.data_ptr()
    del x
    assert torch.empty(3 << 20, device="xpu").data_ptr() == where


def test_out_of_memory_is_one_error_and_work_goes_on():
    torch.xpu.set_per_process_memory_fraction(0.01)
    try:
        keep = torch.ones(1000, device="xpu")
        with pytest.raises(torch.OutOfMemoryError, match="tried to allocate .* this process may take"):
            torch.empty(torch.xpu.get_device_properties().total_memory // 8, device="xpu")
        assert torch.equal((keep + 1).cpu(), torch.full((1000,), 2.0))
    finally:
        torch.xpu.set_per_process_memory_fraction(1.0)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, device="xpu")
