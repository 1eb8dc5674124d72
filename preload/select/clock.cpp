#include "preload/select/clock.h"

#include <ctime>

namespace ipexrun::preload {
namespace {

std::int64_t read_ns(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

class SteadyClock final : public Clock {
 public:
  std::int64_t now_ns() noexcept override { return read_ns(CLOCK_MONOTONIC); }
  std::int64_t thread_cpu_ns() noexcept override { return read_ns(CLOCK_THREAD_CPUTIME_ID); }
};

}  // namespace

Clock& steady_clock() {
  static SteadyClock clock;
  return clock;
}

}  // namespace ipexrun::preload
