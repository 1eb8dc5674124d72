// Carries a LaunchPlan out. The plan says everything; a runner adds nothing (ninja's Plan / CommandRunner split).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/event.h"
#include "configs/contract/plan.h"

namespace ipexrun::launcher {

/// How one instance ended.
struct InstanceOutcome {
  int index = 0;
  int pid = 0;
  int exit_code = 0;           ///< 128 + n for signal n
  int signal = 0;              ///< 0 = exited by itself
  bool stopped_by_us = false;  ///< ended because another instance failed or the launcher was told to stop
  double wall_seconds = 0;
  std::uint64_t max_rss_bytes = 0;
  double user_seconds = 0;
  double system_seconds = 0;
  std::string events_path;  ///< its event file, "" = none
  std::string output_path;  ///< its captured stdout (capture_output), or its log file, "" = none
};

struct RunOutcome {
  std::vector<InstanceOutcome> instances;
  int exit_code = 0;    ///< the first failing instance's code, else 0; an instance ended because tick said so does not fail
  int stop_signal = 0;  ///< the last signal that asked the launcher for an end (SIGINT, SIGTERM, SIGHUP, SIGQUIT), 0 = none
};

struct RunSettings {
  std::string run_dir;          ///< private folder (0700) for event files and captured output; must exist; "" = no events. A second
                                ///< run with the same folder replaces the files of the first
  bool capture_output = false;  ///< keep a copy of each instance's stdout in run_dir while passing it through
  bool quiet = false;           ///< pass nothing of the program's output through (used by --bench-compare's extra runs)
  int grace_ms = 5000;          ///< from the first failure, a stop by tick, or (several instances) a forwarded signal that asks
                                ///< for an end, to SIGKILL of what is left. One instance alone may take its time after a signal
  std::function<bool()> tick;   ///< called about every tick_ms while instances run; false = stop them (SIGTERM, then SIGKILL)
  int tick_ms = 200;
};

/// The event file of an instance; run() creates it and sets IPEXRUN_EVENTS to it. "" when run_dir is "".
std::string events_path_in(const std::string& run_dir, int instance);

class Runner {
 public:
  virtual ~Runner() = default;
  /// Starts every instance or none, forwards signals, waits for all. An Error means that nothing ran to its end because of us.
  virtual Result<RunOutcome> run(const LaunchPlan& plan, const RunSettings& settings) = 0;
};

/// fork, sched_setaffinity, set_mempolicy and execve; see runner_posix.cpp.
Runner& posix_runner();

}  // namespace ipexrun::launcher
