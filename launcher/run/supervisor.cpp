#include "launcher/run/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>

#include "configs/base/log.h"

namespace ipexrun::launcher {
namespace {

using std::chrono::milliseconds;

/// How often log files are looked at. By time and not by inotify: a program that writes a million lines must not cost its own cores
/// a million wake-ups of the launcher.
constexpr milliseconds kFollowEvery{100};

double seconds(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); }

}  // namespace

bool Supervisor::any_alive() const {
  return std::any_of(instances_.begin(), instances_.end(), [](const Running& instance) { return instance.alive; });
}

void Supervisor::send(const Running& instance, int signal) const {
  if (instance.alive) ::kill(instance.own_group ? -instance.pid : instance.pid, signal);
}

void Supervisor::kill_all() {
  for (const Running& instance : instances_) send(instance, SIGKILL);
  kill_at_.reset();
}

void Supervisor::arm_grace() {
  if (!kill_at_) kill_at_ = Clock::now() + milliseconds(settings_.grace_ms);
}

void Supervisor::end_all(Ending why) {
  if (ending_ != Ending::kNo) {
    arm_grace();  // the instances were told already (by a signal): only the patience is limited now
    return;
  }
  ending_ = why;
  for (Running& instance : instances_) {
    if (!instance.alive) continue;
    instance.outcome.stopped_by_us = true;
    send(instance, SIGTERM);
    send(instance, SIGCONT);  // a stopped process does not see SIGTERM
  }
  arm_grace();
}

void Supervisor::forward(const signalfd_siginfo& info) {
  const int signal = static_cast<int>(info.ssi_signo);
  // A key press reaches the whole foreground process group: an instance that shares ours has the signal already.
  const bool from_terminal = info.ssi_code == SI_KERNEL;
  const bool many = instances_.size() > 1;
  if (asks_for_end(signal)) {
    stop_signal_ = signal;
    ++end_requests_;
    if (many && end_requests_ > 1) {
      kill_all();
      return;
    }
    if (many) {
      if (ending_ == Ending::kNo) ending_ = Ending::kSignal;
      arm_grace();
    }
  }
  for (Running& instance : instances_) {
    if (!instance.alive) continue;
    if (asks_for_end(signal)) instance.outcome.stopped_by_us = true;
    if (signal == SIGCONT) instance.stopped = false;
    if (instance.own_group || !from_terminal) send(instance, signal);
  }
}

void Supervisor::take_signals() {
  while (const auto info = signals_.next()) {
    if (info->ssi_signo == SIGCHLD) continue;  // reap() looks at every instance anyway: standard signals are merged
    forward(*info);
  }
}

void Supervisor::ended(Running& instance, int status, const struct rusage& usage) {
  instance.alive = false;
  InstanceOutcome& outcome = instance.outcome;
  outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  outcome.exit_code = outcome.signal != 0 ? 128 + outcome.signal : WEXITSTATUS(status);
  outcome.wall_seconds = std::chrono::duration<double>(Clock::now() - instance.started).count();
  outcome.max_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  outcome.user_seconds = seconds(usage.ru_utime);
  outcome.system_seconds = seconds(usage.ru_stime);
  const bool asked_for = ending_ == Ending::kTick && outcome.stopped_by_us;  // bench has what it wanted: no failure
  if (outcome.exit_code == 0 || asked_for) return;
  if (!failed_) {
    failed_ = true;
    exit_code_ = outcome.exit_code;
  }
  if (!any_alive()) return;
  if (ending_ == Ending::kNo) {
    log::warn(fmt::format("instance {} {} {}; ending the others", outcome.index,
                          outcome.signal != 0 ? "was ended by signal" : "exited with code",
                          outcome.signal != 0 ? outcome.signal : outcome.exit_code));
  }
  end_all(Ending::kFailure);
}

void Supervisor::reap() {
  for (Running& instance : instances_) {
    if (!instance.alive) continue;
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(instance.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    // Before it is reaped its number cannot be given to a stranger, so the rest of its group can be signalled safely.
    const bool failed = info.si_code != CLD_EXITED || info.si_status != 0;
    if (instance.own_group && (failed || ending_ != Ending::kNo)) ::kill(-instance.pid, SIGKILL);
    int status = 0;
    struct rusage usage {};
    if (::wait4(instance.pid, &status, 0, &usage) == instance.pid) ended(instance, status, usage);
  }
}

void Supervisor::mirror_stop() {
  bool all = any_alive();
  bool news = false;
  for (Running& instance : instances_) {
    if (!instance.alive) continue;
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(instance.pid), &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0) {
      instance.stopped = info.si_code == CLD_STOPPED && info.si_status == SIGTSTP;
      news = news || instance.stopped;
    }
    all = all && instance.stopped;
  }
  // ctrl-Z stopped the program: the shell waits for us, so we stop too. SIGCONT wakes us and is forwarded.
  if (all && news) ::raise(SIGSTOP);
}

void Supervisor::pass_output(bool last) {
  output_pending_ = false;
  for (Running& instance : instances_) {
    if (instance.pump && !instance.pump->step(out_)) output_pending_ = true;
    if (!instance.follower) continue;
    const bool at_end = instance.follower->step(out_);
    output_pending_ = output_pending_ || !at_end;
    if (last && at_end) instance.follower->finish(out_);
  }
  out_.pump();
}

void Supervisor::run_tick() {
  if (!settings_.tick || Clock::now() < next_tick_) return;
  next_tick_ = Clock::now() + milliseconds(settings_.tick_ms);
  if (ending_ == Ending::kNo && !settings_.tick()) end_all(Ending::kTick);
}

void Supervisor::wait_for_something() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
  bool following = false;
  for (const Running& instance : instances_) {
    following = following || instance.follower != nullptr;
    if (instance.pump && !instance.pump->at_end() && out_.has_room()) fds.push_back({instance.pump->fd(), POLLIN, 0});
  }
  if (!out_.closed() && !out_.empty()) fds.push_back({out_.fd(), POLLOUT, 0});

  auto wake = Clock::time_point::max();
  if (kill_at_) wake = *kill_at_;
  if (settings_.tick) wake = std::min(wake, next_tick_);
  if (following) wake = std::min(wake, Clock::now() + kFollowEvery);
  if (output_pending_ && out_.has_room()) wake = Clock::now();
  int timeout_ms = -1;
  if (wake != Clock::time_point::max()) {
    timeout_ms = static_cast<int>(std::max<long>(0, std::chrono::ceil<milliseconds>(wake - Clock::now()).count()));
  }
  ::poll(fds.data(), fds.size(), timeout_ms);
}

/// Everything has ended: pass the rest on, for as long as the reader of our stdout takes it and nobody asks for an end.
void Supervisor::drain() {
  do {
    pass_output(true);
    if (out_.closed() || (out_.empty() && !output_pending_)) return;
    if (!out_.empty()) {
      std::array<pollfd, 2> fds{{{signals_.fd(), POLLIN, 0}, {out_.fd(), POLLOUT, 0}}};
      ::poll(fds.data(), fds.size(), -1);
    }
    const int before = end_requests_;
    take_signals();
    if (end_requests_ != before) return;
  } while (true);
}

RunOutcome Supervisor::watch() {
  next_tick_ = Clock::now() + milliseconds(settings_.tick_ms);
  while (any_alive()) {
    wait_for_something();
    take_signals();
    reap();
    mirror_stop();
    pass_output(false);
    run_tick();
    if (kill_at_ && Clock::now() >= *kill_at_) kill_all();
  }
  drain();
  RunOutcome outcome;
  outcome.exit_code = exit_code_;
  outcome.stop_signal = stop_signal_;
  for (const Running& instance : instances_) outcome.instances.push_back(instance.outcome);
  return outcome;
}

}  // namespace ipexrun::launcher
