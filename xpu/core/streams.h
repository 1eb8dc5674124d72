// Which stream a thread works on, and the numbers of new ones. Knows neither torch nor OpenCL.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "xpu/core/memory_blocks.h"

namespace ipexrun::xpu {

inline constexpr std::size_t kMaxDevices = 64;
inline constexpr StreamId kStreamsPerDevice = 32;  ///< as many as torch makes for a GPU; further ones share them

/// Numbers 1 to kStreamsPerDevice in turn. Any thread.
class StreamNumbers {
 public:
  StreamId next() { return next_.fetch_add(1, std::memory_order_relaxed) % kStreamsPerDevice + 1; }

 private:
  std::atomic<StreamId> next_{0};
};

/// The calling thread's device, and its stream on each device.
struct ThreadPlace {
  int device = 0;
  std::array<StreamId, kMaxDevices> stream{};
};
inline ThreadPlace& thread_place() {
  thread_local ThreadPlace place;
  return place;
}

}  // namespace ipexrun::xpu
