// From an InstancePlan to a child that waits for its go.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/run/child.h"
#include "launcher/run/supervisor.h"

namespace ipexrun::launcher {

/// The environment of an instance as NAME=value strings: the caller's, less plan.unset_env, with plan.env on top and, when
/// `events_path` is not "", IPEXRUN_EVENTS; IPEXRUN_RESTART where it is not the first start.
std::vector<std::string> environment_of(const InstancePlan& plan, const std::vector<std::string>& caller, const std::string& events_path,
                                        int restarts = 0);

/// Forks the instances of a plan. They wait, bound and wired up, until go(); an instance that is not released never becomes the program.
class Starter {
 public:
  /// `callers_group`: the process group that a single instance belongs to, -1 = the one that this process is in.
  Starter(const LaunchPlan& plan, const RunSettings& settings, const SignalScope& signals, const FileLimit& files, pid_t callers_group);
  ~Starter();
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;

  /// Opens logs, creates event files and forks every instance; all are ready when it returns ok.
  Status prepare();
  /// Releases all. Error: execve failed in one of them, and all were ended.
  Status go();
  /// Starts instance i once more, as it was started before: same plan, same log file, a new event file.
  Status restart(std::size_t i);

  /// The started instances, for the supervisor.
  std::vector<Running>& running() { return running_; }

 private:
  struct Memory;  // of one instance: strings, masks and shared pages that the child uses

  Status prepare_files(const InstancePlan& plan, Memory& memory, Running& running);
  /// Output goes through a pipe to the supervisor, which keeps a copy.
  Status prepare_pipe(const InstancePlan& plan, Memory& memory, Running& running);
  Status prepare_log(const InstancePlan& plan, Running& running, Fd pipe);
  /// An event file that cannot be made costs the summary, not the run.
  Status make_event_file(const InstancePlan& plan, Memory& memory, Running& running);
  Status fork_one(const InstancePlan& plan, Memory& memory, Running& running);
  Status make_go_pipe();
  Status release(std::size_t instances);
  Status await_message(std::size_t i, bool after_go);
  void end_started();
  void report_binding() const;

  const LaunchPlan& plan_;
  const RunSettings& settings_;
  const SignalScope& signals_;
  const FileLimit& files_;
  pid_t callers_group_;
  std::vector<std::string> caller_env_;
  Fd go_read_;
  Fd go_write_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::vector<Running> running_;
  bool handed_over_ = false;
};

}  // namespace ipexrun::launcher
