// Watches started instances until all have ended: forwards signals, ends the rest after the first failure, passes output on.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/run/logs.h"
#include "launcher/run/runner.h"
#include "launcher/run/signals.h"

namespace ipexrun::launcher {

/// A started instance.
struct Running {
  pid_t pid = 0;
  bool own_group = false;  ///< leader of a process group of its own, which is signalled as a whole
  bool alive = true;
  bool stopped = false;  ///< by SIGTSTP
  std::chrono::steady_clock::time_point started;
  InstanceOutcome outcome;
  std::unique_ptr<LogFollower> follower;
  std::unique_ptr<PipePump> pump;
};

class Supervisor {
 public:
  /// All references must outlive the supervisor. `out` is the launcher's stdout, or a sink that swallows (quiet).
  Supervisor(std::vector<Running>& instances, const RunSettings& settings, SignalScope& signals, Sink& out)
      : instances_(instances), settings_(settings), signals_(signals), out_(out) {}

  /// Returns when every instance was reaped and its output passed on.
  RunOutcome watch();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Ending { kNo, kFailure, kTick, kSignal };

  void wait_for_something();
  void take_signals();
  void forward(const signalfd_siginfo& info);
  void reap();
  void ended(Running& instance, int status, const struct rusage& usage);
  void mirror_stop();
  void pass_output(bool last);
  void drain();
  void run_tick();
  void end_all(Ending why);
  void arm_grace();
  void send(const Running& instance, int signal) const;
  void kill_all();
  [[nodiscard]] bool any_alive() const;

  std::vector<Running>& instances_;
  const RunSettings& settings_;
  SignalScope& signals_;
  Sink& out_;
  Ending ending_ = Ending::kNo;
  int end_requests_ = 0;  ///< signals that asked for an end
  int stop_signal_ = 0;
  std::optional<Clock::time_point> kill_at_;
  Clock::time_point next_tick_;
  bool output_pending_ = false;  ///< there was more to read than the sink had room for
  bool failed_ = false;
  int exit_code_ = 0;
};

}  // namespace ipexrun::launcher
