// Runners around a runner: what holds for all runs of one command, and what holds for a rank.
#pragma once

#include <csignal>
#include <functional>
#include <optional>

#include "launcher/options.h"
#include "launcher/run/runner.h"
#include "launcher/run/warden.h"

namespace ipexrun::launcher {

/// Adds to each run what holds for all of them (several in a comparison): the warden, the time limit, restarts. And SIGPIPE: a closed pipe
/// on stdout or stderr must end our output, not the supervisor of running instances, but programs inherit what is ignored, so while they
/// are started and supervised the caller's own disposition is back (the runner does its own ignoring).
class SupervisedRunner final : public Runner {
 public:
  using SignalHandler = void (*)(int);

  /// `callers`: what the caller had done about SIGPIPE; this process ignores it by now.
  SupervisedRunner(Runner& inner, SignalHandler callers) : inner_(inner), callers_(callers) {}

  /// From now on there are two processes (warden.h), and the clock of --timeout runs.
  void begin(const Options& options);

  Result<RunOutcome> run(const LaunchPlan& plan, const RunSettings& settings) override;

  /// A run was ended at the time limit, whatever came of it.
  [[nodiscard]] bool timed_out() const { return timed_out_; }

 private:
  Runner& inner_;
  SignalHandler callers_;
  Warden warden_;
  int max_restarts_ = 0;
  int log_keep_ = 0;
  std::optional<TimeLimit> time_limit_;
  bool timed_out_ = false;
};

/// Ends a run as soon as `watch` says so. A rank ends with its engine: nobody else is left to end it when another rank fails.
class WatchingRunner final : public Runner {
 public:
  WatchingRunner(Runner& inner, std::function<bool()> watch) : inner_(inner), watch_(std::move(watch)) {}

  Result<RunOutcome> run(const LaunchPlan& plan, const RunSettings& settings) override;

 private:
  Runner& inner_;
  std::function<bool()> watch_;
};

}  // namespace ipexrun::launcher
