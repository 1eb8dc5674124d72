// Watches started instances until all have ended: forwards signals, ends the rest after the first failure, passes output on.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/machine/oom_kills.h"
#include "launcher/run/logs.h"
#include "launcher/run/omp_watch.h"
#include "launcher/run/processes.h"
#include "launcher/run/progress.h"
#include "launcher/run/restart.h"
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
  std::unique_ptr<PipePump> pump;
};

class Supervisor {
 public:
  /// Starts instance i again, in place.
  using Restart = std::function<Status(std::size_t i)>;

  /// All references must outlive the supervisor. `out` is the launcher's stdout, or a sink that swallows (quiet).
  Supervisor(std::vector<Running>& instances, const RunSettings& settings, SignalScope& signals, Sink& out, Restart restart);

  /// Returns when every instance was reaped and its output passed on.
  RunOutcome watch();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Ending { kNo, kFailure, kTick, kSignal, kTimeLimit, kLauncherGone };

  void wait_for_something();
  [[nodiscard]] Clock::time_point next_wake() const;
  void take_signals();
  [[nodiscard]] bool is_by_warden(const signalfd_siginfo& info) const;
  [[nodiscard]] bool waits_for_warden(const signalfd_siginfo& info);
  void forward_late();
  void forward(const signalfd_siginfo& info);
  void reap();
  void ended(std::size_t i, int status, const struct rusage& usage);
  void failed(const Running& instance, const std::string& how);
  void restart_due();
  void check_time_limit();
  void mirror_stop();
  void pass_output(bool last);
  void drain();
  void run_tick();
  void look_inside();
  void end_all(Ending why);
  void cancel_restarts();
  void arm_grace();
  void send(const Running& instance, int signal) const;
  void kill_all();
  void end_left_over();
  void clear_the_place();
  void draw_progress();
  void say(const std::string& text);
  [[nodiscard]] int alive() const;

  std::vector<Running>& instances_;
  const RunSettings& settings_;
  SignalScope& signals_;
  Sink& out_;
  Restart restart_;
  Restarts restarts_;
  ProgressLine progress_;
  std::string news_;
  Clock::time_point began_ = Clock::now();
  std::optional<long> oom_kills_before_ = read_oom_kills("");
  Ending ending_ = Ending::kNo;
  int end_requests_ = 0;  ///< signals that asked for an end
  int stop_signal_ = 0;
  struct Late {
    signalfd_siginfo info;
    Clock::time_point until;
  };
  std::vector<Late> late_;                            ///< came to this process alone, or to all that have its name
  std::array<Clock::time_point, 65> by_warden_at_{};  ///< by number
  std::optional<Clock::time_point> kill_at_;
  Clock::time_point next_tick_;
  OmpWatch omp_;
  Clock::time_point next_draw_;
  Clock::time_point next_read_;         ///< pipes are left alone until then
  bool output_pending_ = false;         ///< there was more to read than the sink had room for
  std::optional<Reach> end_left_over_;  ///< what the program leaves running is ended too
  bool failed_ = false;
  int exit_code_ = 0;
};

/// "exited with code 3", "was ended by SIGSEGV"
std::string how_it_ended(const InstanceOutcome& outcome);

}  // namespace ipexrun::launcher
