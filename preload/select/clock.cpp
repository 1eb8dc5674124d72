#include "preload/select/clock.h"

#include <ctime>

namespace ipexrun::preload {
namespace {

class SteadyClock final : public Clock {
 public:
  std::int64_t now_ns() noexcept override {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  }
};

}  // namespace

Clock& steady_clock() {
  static SteadyClock clock;
  return clock;
}

}  // namespace ipexrun::preload
