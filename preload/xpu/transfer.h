// Whole tensors between CPU and xpu, strided and sparse. What the CPU fallback is made of.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipexrun::preload::xpu {

/// The same on the CPU: sizes, strides where they do not overlap, dtype; conjugate and negative bits are resolved. `whole_storage`: with
/// everything that the storage holds, for operators that look beyond the view.
at::Tensor to_cpu(const at::Tensor& xpu, bool whole_storage = false);

/// The same on a device.
at::Tensor to_xpu(const at::Tensor& cpu, c10::Device device);

/// After an in-place operator ran on `cpu`, the copy of `xpu`: its values, and its sizes where they changed.
void write_back(const at::Tensor& xpu, const at::Tensor& cpu);

/// aten::copy_ where one of both is on xpu.
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking);

}  // namespace ipexrun::preload::xpu
