// Carries a LaunchPlan out. The plan says everything; a runner adds nothing (ninja's Plan / CommandRunner split).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/event.h"
#include "configs/contract/plan.h"

namespace ipexrun::launcher {

struct Warden;

/// How one instance ended.
struct InstanceOutcome {
  int index = 0;
  int pid = 0;
  int exit_code = 0;           ///< 128 + n for signal n
  int signal = 0;              ///< 0 = exited by itself
  bool core_dumped = false;    ///< the kernel wrote a core file, or handed it to a collector
  bool stopped_by_us = false;  ///< ended because another instance failed or the launcher was told to stop
  int restarts = 0;            ///< how often it was started again; all else here is about its last start
  double wall_seconds = 0;
  std::uint64_t max_rss_bytes = 0;
  double user_seconds = 0;
  double system_seconds = 0;
  std::vector<std::string> omp_runtimes;  ///< OpenMP runtimes seen together in one of its processes (omp_watch.h)
  std::string events_path;                ///< its event file, "" = none
  std::string output_path;                ///< its captured stdout (capture_output), or its log file, "" = none
  std::uint64_t output_lost_bytes = 0;    ///< what could not be written there
};

/// Of the system, as far as it can be read.
struct CrashSurroundings {
  bool core_files_allowed = false;       ///< RLIMIT_CORE is not 0
  std::string core_pattern;              ///< /proc/sys/kernel/core_pattern, "" = unknown
  std::optional<long> oom_kills;         ///< processes that the kernel ended for want of memory during the run; nullopt = unknown
  std::uint64_t memory_limit_bytes = 0;  ///< 0 = none, or unknown
};

struct RunOutcome {
  std::vector<InstanceOutcome> instances;
  int exit_code = 0;       ///< the first failing instance's code, else 0; an instance ended because tick said so does not fail
  int stop_signal = 0;     ///< the last signal that asked the launcher for an end (SIGINT, SIGTERM, SIGHUP, SIGQUIT), 0 = none
  bool timed_out = false;  ///< ended at the time limit
  CrashSurroundings surroundings;
};

/// --timeout: of everything that is run, so a point in time that several runs share.
struct TimeLimit {
  std::chrono::steady_clock::time_point end;
  double seconds = 0;  ///< as it was asked for
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
  int max_restarts = 0;         ///< of each instance
  int restart_pause_ms = 1000;  ///< before the first restart; doubled before each further one, at most 30 s (restart.h)
  std::optional<TimeLimit> time_limit;
  int log_keep = 0;                ///< 0 = all, else remove log files of all but so many runs, this one included
  int progress_after_ms = 2000;    ///< a status line on a terminal that the program does not write to; -1 = never
  const Warden* warden = nullptr;  ///< see warden.h; outlives the run
};

/// The event file of an instance; run() creates it and sets IPEXRUN_EVENTS to it. "" when run_dir is "".
std::string events_path_in(const std::string& run_dir, int instance);

class Runner {
 public:
  virtual ~Runner() = default;
  /// Starts every instance or none, forwards signals, waits for all. An Error means that nothing ran to its end because of us. While it
  /// runs this process must have no children of its own: all that end are reaped.
  virtual Result<RunOutcome> run(const LaunchPlan& plan, const RunSettings& settings) = 0;
};

/// fork, sched_setaffinity, set_mempolicy and execve; see runner_posix.cpp.
Runner& posix_runner();

}  // namespace ipexrun::launcher
