// The devices of this process and their memory: found once, never given back. What the plugin's torch half talks to.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "xpu/core/caching_allocator.h"
#include "xpu/core/streams.h"
#include "xpu/opencl/device.h"

namespace ipexrun::xpu {

struct Unit {
  explicit Unit(std::unique_ptr<Device> opened) : device(std::move(opened)), memory(*device) {}
  std::unique_ptr<Device> device;
  CachingAllocator<Device> memory;
  StreamNumbers streams;
  std::atomic<bool> used{false};  ///< something was allocated here
};

/// Finds the devices, once; `reason` says why there are none. Any thread. Options come from the environment: IPEXRUN_XPU (gpu, any, off),
/// IPEXRUN_XPU_MEMORY (svm, buffers), IPEXRUN_CACHE.
bool start_runtime(std::string& reason);

/// Empty before start_runtime().
std::vector<std::unique_ptr<Unit>>& units();

/// The unit of a device index; throws DeviceError for one that is not there, or in a forked child, whose drivers do not work.
Unit& unit(int index);

/// True in a child that was forked after the runtime had started.
bool in_forked_child();

inline StreamId current_stream(int index) { return thread_place().stream[static_cast<std::size_t>(index)]; }

}  // namespace ipexrun::xpu
