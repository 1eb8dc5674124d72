// A clock that tests move, and a call whose candidates take the times that a test says.
#pragma once

#include <array>
#include <functional>

#include "preload/select/selector.h"

namespace ipexrun::preload::testing {

/// Each thread has a time of its own, as if on a core of its own: what a test says a call takes is what that call is seen to take.
class FakeClock final : public Clock {
 public:
  std::int64_t now_ns() noexcept override { return now_; }
  std::int64_t thread_cpu_ns() noexcept override { return now_ - stood_still_; }
  void advance(std::int64_t ns) { now_ += ns; }
  /// The thread waits, for instance because a quota is used up.
  void stand_still(std::int64_t ns) {
    now_ += ns;
    stood_still_ += ns;
  }

 private:
  static inline thread_local std::int64_t now_ = 1'000'000;
  static inline thread_local std::int64_t stood_still_ = 0;
};

class FakeTrial final : public Trial {
 public:
  explicit FakeTrial(FakeClock& clock) : clock_(clock) {}

  std::function<std::int64_t(int)> cost = [](int) { return 1000; };  ///< nanoseconds of kStock and of each candidate
  std::function<bool(int)> accurate = [](int) { return true; };
  std::function<bool(int)> works = [](int) { return true; };
  bool waits = false;  ///< may run beside, but not answer yet
  Readiness readiness = Readiness::kReady;
  std::uint64_t weight_id = 7;
  std::array<bool, 8> verified{};
  std::array<int, 8> runs{};
  int stock_runs = 0;
  int taken = kStock;

  void run_stock() override {
    taken = kStock;
    ++stock_runs;
    clock_.advance(cost(kStock));
  }
  Readiness prepare(int candidate, Purpose purpose) noexcept override {
    if (purpose == Purpose::kAnswer && waits) return Readiness::kNotNow;
    if (readiness != Readiness::kReady) return readiness;
    return verified[static_cast<std::size_t>(candidate)] ? Readiness::kReady : Readiness::kUnverified;
  }
  bool run(int candidate) noexcept override {
    ++runs[static_cast<std::size_t>(candidate)];
    clock_.advance(cost(candidate));
    return works(candidate);
  }
  bool verify(int candidate) noexcept override {
    verified[static_cast<std::size_t>(candidate)] = accurate(candidate);
    return accurate(candidate);
  }
  void take(int candidate) noexcept override { taken = candidate; }
  std::uint64_t weight() noexcept override { return weight_id; }

 private:
  FakeClock& clock_;
};

}  // namespace ipexrun::preload::testing
