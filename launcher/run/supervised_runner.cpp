#include "launcher/run/supervised_runner.h"

#include <chrono>

namespace ipexrun::launcher {
namespace {

constexpr int kWatchMs = 1000;

}  // namespace

void SupervisedRunner::begin(const Options& options) {
  warden_ = split_off_warden();
  max_restarts_ = options.max_restarts;
  log_keep_ = options.log_keep;
  if (options.timeout_seconds > 0) {
    const std::chrono::duration<double> limit(options.timeout_seconds);
    time_limit_ = TimeLimit{std::chrono::steady_clock::now() + std::chrono::ceil<std::chrono::milliseconds>(limit), limit.count()};
  }
}

Result<RunOutcome> SupervisedRunner::run(const LaunchPlan& plan, const RunSettings& settings) {
  RunSettings all = settings;
  all.warden = &warden_;
  all.time_limit = time_limit_;
  all.max_restarts = max_restarts_;
  all.log_keep = log_keep_;
  std::signal(SIGPIPE, callers_);
  Result<RunOutcome> outcome = inner_.run(plan, all);
  std::signal(SIGPIPE, SIG_IGN);
  timed_out_ = timed_out_ || (outcome.ok() && outcome->timed_out);
  return outcome;
}

Result<RunOutcome> WatchingRunner::run(const LaunchPlan& plan, const RunSettings& settings) {
  RunSettings watched = settings;
  watched.tick_ms = settings.tick ? settings.tick_ms : kWatchMs;
  watched.tick = [&] { return watch_() && (!settings.tick || settings.tick()); };
  return inner_.run(plan, watched);
}

}  // namespace ipexrun::launcher
