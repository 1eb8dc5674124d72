// Runs the program once, launched as a point says. An interface, so that searches can be tested without processes and clocks.
#pragma once

#include <signal.h>

#include <functional>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/run/posix.h"
#include "tuner/objective/measured.h"
#include "tuner/run/launch.h"
#include "tuner/study/trial.h"

namespace ipexrun::tuner {

struct RunRequest {
  LaunchWords words;
  std::string folder;          ///< for logs; made by the runner, emptied if it is there
  double timeout_s = 0;        ///< 0 = none
  bool bench = true;           ///< measure by --bench
  double bench_seconds = 0;    ///< above 0: measure for so long, then end the program (--bench-stop)
  double give_up_after_s = 0;  ///< above 0: a run that takes longer is hopeless and ended: State::kPruned
};

struct RunReport {
  State state = State::kComplete;  ///< kComplete: the program ended with code 0, or was ended by bench_seconds
  int exit_code = 0;
  double seconds = 0;
  std::string why;
  RunOutput output;
  bool stopped = false;  ///< the user asked for an end meanwhile: the run does not count
};

class TrialRunner {
 public:
  virtual ~TrialRunner() = default;
  /// An Error means that the program could not be started at all.
  virtual Result<RunReport> run(const RunRequest& request) = 0;
};

/// SIGINT, SIGTERM and SIGHUP of this process, those apart that whoever started it had ignored, blocked and read from a descriptor. One in
/// the process, for its whole life.
class StopSignals {
 public:
  StopSignals();
  /// The last one that came, 0 = none.
  int pending();
  /// The same once more, later than the first: do not wait any longer.
  [[nodiscard]] bool impatient() const { return count_ > 1; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// In a child before execve.
  void restore() const;

 private:
  launcher::Fd fd_;
  sigset_t before_{};
  int last_ = 0;
  int count_ = 0;
};

/// The trial as a process group of its own: `ipexrun --config ... --log-dir ...`, killed by the kernel with this process.
class ProcessTrialRunner final : public TrialRunner {
 public:
  /// `ipexrun`: absolute path. `cpus`: what trials of this worker may use: no two trials of one user on this machine share one of them at a
  /// time; empty = all of the machine.
  ProcessTrialRunner(std::string ipexrun, std::vector<int> cpus, StopSignals& signals)
      : ipexrun_(std::move(ipexrun)), cpus_(std::move(cpus)), signals_(signals) {}

  Result<RunReport> run(const RunRequest& request) override;

 private:
  std::string ipexrun_;
  std::vector<int> cpus_;
  StopSignals& signals_;
};

/// The command line of a run. The report goes to FOLDER/bench.json, logs to FOLDER/logs.
std::vector<std::string> trial_command(const std::string& ipexrun, const RunRequest& request, const std::string& config);

/// For its life no other trial has these CPUs: byte locks of a file, which the kernel releases with the process.
class CpuLock {
 public:
  /// Waits; gives up when `stop` says so. A machine where no such file can be made has no locks.
  CpuLock(const std::vector<int>& cpus, const std::function<bool()>& stop);
  [[nodiscard]] bool taken() const { return taken_; }

 private:
  launcher::Fd fd_;
  bool taken_ = false;
};

}  // namespace ipexrun::tuner
