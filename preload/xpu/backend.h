// What torch asks a device type for besides operators: memory, streams, hooks, generators.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace ipexrun::preload::xpu {

/// Registers allocator, guard and hooks. Once, after start_runtime().
void register_backend();

/// The default generator of a device.
const at::Generator& default_generator(c10::DeviceIndex index);

c10::DeviceAllocator& device_allocator();

}  // namespace ipexrun::preload::xpu
