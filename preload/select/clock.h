// Where selection gets its time from: an interface, so that unit tests decide how long everything took.
#pragma once

#include <cstdint>

namespace ipexrun::preload {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since an arbitrary start; never goes back. Thread-safe.
  virtual std::int64_t now_ns() noexcept = 0;
  /// Nanoseconds that the calling thread has run; stands still while it waits, is throttled by a quota or has lost the CPU.
  virtual std::int64_t thread_cpu_ns() noexcept = 0;
};

/// CLOCK_MONOTONIC and CLOCK_THREAD_CPUTIME_ID.
Clock& steady_clock();

}  // namespace ipexrun::preload
