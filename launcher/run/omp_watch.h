// Looks from outside which OpenMP runtimes are mapped into an instance, through /proc/PID/maps. It works for every program, with and
// without the shim, and puts no code into it; docs/decisions/0008-omp-and-allocators.md says why not from inside.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace ipexrun::launcher {

/// The OpenMP runtimes among the files of a /proc/PID/maps text, each path once.
std::vector<std::string> omp_runtimes_in(const std::string& maps);

/// Those of `runtimes` that can be at work at the same time. One that is preloaded answers the calls of the others' users: Intel's and
/// LLVM's those of GNU's as well, GNU's only those of its other copies. `preload` is LD_PRELOAD's text.
std::vector<std::string> omp_rivals(const std::vector<std::string>& runtimes, const std::string& preload);

class OmpWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit OmpWatch(std::string proc = "/proc") : proc_(std::move(proc)) {}

  /// When the instances are to be looked at next: often while programs still import, then ever more rarely, at last once a minute.
  [[nodiscard]] Clock::time_point next() const { return next_; }
  [[nodiscard]] bool due(Clock::time_point now) const { return now >= next_; }
  void looked(Clock::time_point now);

  /// Looks into `pid` and its descendants; `found` becomes the runtimes of the process that has the most of them.
  void look(pid_t pid, std::vector<std::string>& found) const;

 private:
  std::string proc_;
  std::chrono::milliseconds pause_{250};
  Clock::time_point next_ = Clock::now();
};

}  // namespace ipexrun::launcher
