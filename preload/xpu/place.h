// Between torch's devices, streams and tensors and the runtime's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "xpu/opencl/runtime.h"

namespace ipexrun::preload::xpu {

using ::ipexrun::xpu::Argument;
using ::ipexrun::xpu::Kernel;
using ::ipexrun::xpu::StreamId;
using ::ipexrun::xpu::Unit;

/// The unit of a device; index -1 means the thread's current one. Throws for one that is not there.
inline Unit& unit_of(c10::Device device) {
  return ::ipexrun::xpu::unit(device.has_index() ? device.index() : ::ipexrun::xpu::thread_place().device);
}
inline Unit& unit_of(const at::TensorBase& tensor) { return unit_of(tensor.device()); }

/// The stream that the calling thread gives work of this tensor's device to.
inline StreamId stream_of(const at::TensorBase& tensor) { return ::ipexrun::xpu::current_stream(tensor.device().index()); }

}  // namespace ipexrun::preload::xpu
