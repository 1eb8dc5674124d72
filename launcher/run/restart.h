// --max-restarts: which failed instance is started again, and when. Pure; the supervisor owns the clock and the processes.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

namespace ipexrun::launcher {

/// A program that fails at once must not be started hundreds of times a minute, and one that failed for a passing reason should be back
/// soon.
constexpr std::chrono::milliseconds kLongestPause{30'000};

/// Pause before restart n = 1, 2, ...: first, 2 first, 4 first, ..., kLongestPause at most.
std::chrono::milliseconds pause_before(int n, std::chrono::milliseconds first);

class Restarts {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Restarts(std::size_t instances, int most, std::chrono::milliseconds first_pause)
      : most_(most), first_pause_(first_pause), made_(instances), due_(instances) {}

  /// Instance i has failed. The pause until it is started again, nullopt = it has no restart left.
  std::optional<std::chrono::milliseconds> plan(std::size_t i, Time now);
  /// The instance to be started now, which is thereby no longer waiting.
  std::optional<std::size_t> take_due(Time now);
  /// The next point in time at which one is due.
  [[nodiscard]] std::optional<Time> next() const;
  /// Nothing is started any more; returns those that were waiting.
  std::vector<std::size_t> cancel();

  [[nodiscard]] bool waiting() const { return next().has_value(); }
  [[nodiscard]] bool waits(std::size_t i) const { return due_[i].has_value(); }
  [[nodiscard]] int made(std::size_t i) const { return made_[i]; }
  [[nodiscard]] int most() const { return most_; }

 private:
  int most_;
  std::chrono::milliseconds first_pause_;
  std::vector<int> made_;
  std::vector<std::optional<Time>> due_;
};

}  // namespace ipexrun::launcher
