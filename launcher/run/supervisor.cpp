#include "launcher/run/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>

#include "configs/base/log.h"
#include "launcher/run/crash_note.h"
#include "launcher/run/processes.h"
#include "launcher/run/warden.h"

namespace ipexrun::launcher {
namespace {

using std::chrono::milliseconds;

/// After a read the pipes are left to fill: a program that writes a million lines must not cost its own cores a million wake-ups of the
/// launcher. A pipe of 1 MiB fills this fast only at 200 MB/s, and then the program waits for no more than this.
constexpr milliseconds kReadEvery{5};
/// How often a log file that is behind what is shown is looked at.
constexpr milliseconds kShowEvery{100};
constexpr milliseconds kDrawEvery{1000};

double seconds(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); }

/// The status line is drawn only where no instance writes to the terminal by itself: all their output comes through pipes.
int terminal_for(const std::vector<Running>& instances, const RunSettings& settings) {
  const bool ours = std::all_of(instances.begin(), instances.end(), [](const Running& one) { return one.pump && one.pump->reads_ahead(); });
  return ours && !settings.quiet && settings.progress_after_ms >= 0 ? progress_terminal() : -1;
}

std::string number_list(const std::vector<int>& numbers) {
  std::string out;
  for (const int number : numbers) out += (out.empty() ? "" : ", ") + std::to_string(number);
  return out;
}

bool is_outer_gone(const Warden* warden) {
  if (warden == nullptr || !warden->life.open()) return false;
  pollfd entry{warden->life.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

std::string how_it_ended(const InstanceOutcome& outcome) {
  if (outcome.signal == 0) return fmt::format("exited with code {}", outcome.exit_code);
  const char* name = ::sigabbrev_np(outcome.signal);
  return name != nullptr ? fmt::format("was ended by SIG{}", name) : fmt::format("was ended by signal {}", outcome.signal);
}

Supervisor::Supervisor(std::vector<Running>& instances, const RunSettings& settings, SignalScope& signals, Sink& out, Restart restart)
    : instances_(instances),
      settings_(settings),
      signals_(signals),
      out_(out),
      restart_(std::move(restart)),
      restarts_(instances.size(), settings.max_restarts, milliseconds(settings.restart_pause_ms)),
      progress_(terminal_for(instances, settings),
                settings.warden != nullptr && settings.warden->pid != 0 ? ::getpgid(settings.warden->pid) : ::getpgrp()) {
  if (progress_.possible()) out_.before_write([this] { progress_.hide(); });
}

int Supervisor::alive() const {
  return static_cast<int>(std::count_if(instances_.begin(), instances_.end(), [](const Running& instance) { return instance.alive; }));
}

void Supervisor::say(const std::string& text) {
  progress_.hide();
  log::warn(text);
}

void Supervisor::send(const Running& instance, int signal) const {
  if (instance.alive) ::kill(instance.own_group ? -instance.pid : instance.pid, signal);
}

void Supervisor::kill_all() {
  for (const Running& instance : instances_) send(instance, SIGKILL);
  kill_at_.reset();
  end_left_over_ = Reach::kAll;
}

void Supervisor::arm_grace() {
  if (!kill_at_) kill_at_ = Clock::now() + milliseconds(settings_.grace_ms);
}

/// An instance that waits to be started again has failed after all.
void Supervisor::cancel_restarts() {
  for (const std::size_t i : restarts_.cancel()) {
    if (!failed_) exit_code_ = instances_[i].outcome.exit_code;
    failed_ = true;
  }
}

void Supervisor::end_all(Ending why) {
  cancel_restarts();
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
  // A key press reaches the whole foreground process group, as does what is sent to a group: an instance that is in it has the signal
  // already.
  const bool to_group = (info.ssi_code == SI_KERNEL && is_of_terminal(signal)) || (is_by_warden(info) && info.ssi_int == kToWholeGroup);
  const bool many = instances_.size() > 1;
  // What the caller ignores is for those instances that have made it their own, as servers do.
  const auto heard_by = [&](const Running& instance) {
    return instance.alive && !(signals_.was_ignored(signal) && has_signal(instance.pid, kIgnoredSignals, signal));
  };
  if (std::none_of(instances_.begin(), instances_.end(), heard_by) && signals_.was_ignored(signal)) return;
  if (asks_for_end(signal)) {
    stop_signal_ = signal;
    ++end_requests_;
    cancel_restarts();
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
    if (!heard_by(instance)) continue;
    if (asks_for_end(signal)) instance.outcome.stopped_by_us = true;
    if (signal == SIGCONT) instance.stopped = false;
    if (instance.own_group || !to_group) send(instance, signal);
  }
}

bool Supervisor::is_by_warden(const signalfd_siginfo& info) const {
  return settings_.warden != nullptr && settings_.warden->pid != 0 && info.ssi_code == SI_QUEUE &&
         static_cast<pid_t>(info.ssi_pid) == settings_.warden->pid;
}

/// What is sent to every process of a command line (pkill -f) or of a control group (systemd) comes to the warden, to this process and to
/// the program: the warden's is passed on, and tells whether the program has it. This process's own counts where none follows.
bool Supervisor::waits_for_warden(const signalfd_siginfo& info) {
  constexpr milliseconds kPatience{300};  // the warden looks for 20 ms whether its group got it
  const auto now = Clock::now();
  auto& last = by_warden_at_.at(info.ssi_signo);
  const auto same = [&](const Late& one) { return one.info.ssi_signo == info.ssi_signo; };
  if (is_by_warden(info)) {
    last = now;
    late_.erase(std::remove_if(late_.begin(), late_.end(), same), late_.end());
    return false;
  }
  if (settings_.warden == nullptr || settings_.warden->pid == 0 || info.ssi_code != SI_USER) return false;
  if (now - last >= kPatience && std::none_of(late_.begin(), late_.end(), same)) late_.push_back({info, now + kPatience});
  return true;
}

void Supervisor::take_signals() {
  while (const auto info = signals_.next()) {
    if (info->ssi_signo == SIGCHLD) continue;  // reap() looks at every instance anyway: standard signals are merged
    if (!waits_for_warden(*info)) forward(*info);
  }
  forward_late();
}

void Supervisor::forward_late() {
  while (!late_.empty() && late_.front().until <= Clock::now()) {
    const signalfd_siginfo info = late_.front().info;
    late_.erase(late_.begin());
    forward(info);
  }
}

void Supervisor::failed(const Running& instance, const std::string& how) {
  if (!failed_) exit_code_ = instance.outcome.exit_code;
  failed_ = true;
  if (alive() == 0 && !restarts_.waiting()) return;
  if (ending_ == Ending::kNo) say(fmt::format("instance {} {}; ending the others", instance.outcome.index, how));
  end_all(Ending::kFailure);
}

void Supervisor::ended(std::size_t i, int status, const struct rusage& usage) {
  Running& instance = instances_[i];
  InstanceOutcome& outcome = instance.outcome;
  instance.alive = false;
  if (instance.pump) instance.pump->expect_end();
  outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  outcome.core_dumped = outcome.signal != 0 && WCOREDUMP(status);
  outcome.exit_code = outcome.signal != 0 ? 128 + outcome.signal : WEXITSTATUS(status);
  outcome.wall_seconds = std::chrono::duration<double>(Clock::now() - instance.started).count();
  outcome.max_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  outcome.user_seconds = seconds(usage.ru_utime);
  outcome.system_seconds = seconds(usage.ru_stime);
  if (outcome.signal == SIGKILL) end_left_over_ = Reach::kAll;  // it could not end its children itself
  if (outcome.signal != 0 && !end_left_over_) end_left_over_ = Reach::kAttached;
  news_ = fmt::format("instance {} ended ({})", outcome.index, outcome.exit_code);
  const bool asked_for = ending_ == Ending::kTick && outcome.stopped_by_us;  // bench has what it wanted: no failure
  if (outcome.exit_code == 0 || asked_for) return;
  const bool by_itself = ending_ == Ending::kNo && !outcome.stopped_by_us;
  const auto pause = by_itself ? restarts_.plan(i, Clock::now()) : std::nullopt;
  if (!pause) {
    failed(instance, how_it_ended(outcome));
    return;
  }
  say(fmt::format("instance {} {} after {:.1f} s; starting it again in {:.1f} s ({} of {})", outcome.index, how_it_ended(outcome),
                  outcome.wall_seconds, static_cast<double>(pause->count()) / 1000, restarts_.made(i), restarts_.most()));
}

void Supervisor::restart_due() {
  while (const auto i = restarts_.take_due(Clock::now())) {
    Running& instance = instances_[*i];
    clear_the_place();
    if (instance.pump) instance.pump->step(out_);
    if (Status started = restart_(*i); !started) {
      instance.outcome.exit_code = started.error().code;
      failed(instance, "cannot be started again: " + started.error().line());
      if (alive() == 0) say(fmt::format("instance {} cannot be started again: {}", instance.outcome.index, started.error().line()));
      return;
    }
    news_ = fmt::format("instance {} was started again", instance.outcome.index);
  }
}

void Supervisor::reap() {
  for (std::size_t i = 0; i < instances_.size(); ++i) {
    const Running& instance = instances_[i];
    if (!instance.alive) continue;
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(instance.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) continue;
    // Before it is reaped its number cannot be given to a stranger, so the rest of its group can be signalled safely.
    const bool failed = info.si_code != CLD_EXITED || info.si_status != 0;
    if (instance.own_group && (failed || ending_ != Ending::kNo)) ::kill(-instance.pid, SIGKILL);
    int status = 0;
    struct rusage usage {};
    if (::wait4(instance.pid, &status, 0, &usage) == instance.pid) ended(i, status, usage);
  }
  // Orphans that this process adopted. An instance that has ended since the loop above stays for the next round.
  siginfo_t info{};
  while (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    const bool ours =
        std::any_of(instances_.begin(), instances_.end(), [&](const Running& one) { return one.alive && one.pid == info.si_pid; });
    if (ours || ::waitpid(info.si_pid, nullptr, WNOHANG) <= 0) break;
    info = {};
  }
}

void Supervisor::mirror_stop() {
  bool all = alive() > 0;
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
  if (!all || !news) return;
  // ctrl-Z stopped the program: the shell waits for us, so we stop too, and SIGCONT to us is forwarded. With a warden it is that which
  // the shell waits for.
  progress_.hide();
  if (settings_.warden != nullptr && settings_.warden->pid != 0) {
    ::kill(settings_.warden->pid, SIGSTOP);
  } else {
    ::raise(SIGSTOP);
  }
}

void Supervisor::pass_output(bool last) {
  output_pending_ = false;
  for (Running& instance : instances_) {
    if (!instance.pump) continue;
    const bool at_end = instance.pump->step(out_);
    output_pending_ = output_pending_ || !at_end;
    if (last && at_end) instance.pump->finish(out_);
    LogFile* copy = instance.pump->copy();
    if (const int error = copy != nullptr ? copy->take_error() : 0; error != 0) {
      say(fmt::format("instance {} goes on, but its output cannot be written to '{}': {}", instance.outcome.index, copy->path(),
                      errno_text(error)));
    }
  }
  out_.pump();
}

void Supervisor::run_tick() {
  if (!settings_.tick || Clock::now() < next_tick_) return;
  next_tick_ = Clock::now() + milliseconds(settings_.tick_ms);
  if (ending_ == Ending::kNo && !settings_.tick()) end_all(Ending::kTick);
}

void Supervisor::look_inside() {
  if (settings_.quiet || !omp_.due(Clock::now())) return;
  for (Running& instance : instances_) {
    if (instance.alive) omp_.look(instance.pid, instance.outcome.omp_runtimes);
  }
  omp_.looked(Clock::now());
}

void Supervisor::check_time_limit() {
  const bool ending_anyway = ending_ != Ending::kNo && ending_ != Ending::kSignal;
  if (!settings_.time_limit || ending_anyway || Clock::now() < settings_.time_limit->end) return;
  std::vector<int> running;
  for (const Running& instance : instances_) {
    if (instance.alive) running.push_back(instance.outcome.index);
  }
  say(fmt::format("the time limit of {} s is over; ending {}", settings_.time_limit->seconds,
                  running.empty() ? "the run, no instance was running" : "instance " + number_list(running) + ", which still ran"));
  end_all(Ending::kTimeLimit);
  ending_ = Ending::kTimeLimit;
  if (!end_left_over_) end_left_over_ = Reach::kAttached;
}

Supervisor::Clock::time_point Supervisor::next_wake() const {
  auto wake = Clock::time_point::max();
  if (kill_at_) wake = *kill_at_;
  if (!late_.empty()) wake = std::min(wake, late_.front().until);
  if (settings_.tick) wake = std::min(wake, next_tick_);
  if (!settings_.quiet) wake = std::min(wake, omp_.next());
  if (const auto restart = restarts_.next()) wake = std::min(wake, *restart);
  if (settings_.time_limit && (ending_ == Ending::kNo || ending_ == Ending::kSignal)) wake = std::min(wake, settings_.time_limit->end);
  if (progress_.possible()) wake = std::min(wake, next_draw_);
  const bool piped = std::any_of(instances_.begin(), instances_.end(), [](const Running& one) { return one.pump && !one.pump->at_end(); });
  if (piped && next_read_ > Clock::now()) wake = std::min(wake, next_read_);
  if (output_pending_) wake = std::min(wake, out_.has_room() ? Clock::now() : Clock::now() + kShowEvery);
  return wake;
}

void Supervisor::wait_for_something() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
  if (settings_.warden != nullptr && settings_.warden->life.open() && ending_ != Ending::kLauncherGone)
    fds.push_back({settings_.warden->life.get(), POLLIN, 0});
  if (!out_.closed() && !out_.empty()) fds.push_back({out_.fd(), POLLOUT, 0});
  const std::size_t pipes = fds.size();
  for (const Running& instance : instances_) {
    const bool wanted = instance.pump && !instance.pump->at_end() && (instance.pump->reads_ahead() || out_.has_room());
    if (wanted && Clock::now() >= next_read_) fds.push_back({instance.pump->fd(), POLLIN, 0});
  }
  const auto wake = next_wake();
  int timeout_ms = -1;
  if (wake != Clock::time_point::max()) {
    timeout_ms = static_cast<int>(std::clamp<long>(std::chrono::ceil<milliseconds>(wake - Clock::now()).count(), 0, 1'000'000));
  }
  ::poll(fds.data(), fds.size(), timeout_ms);
  if (std::any_of(fds.begin() + static_cast<std::ptrdiff_t>(pipes), fds.end(), [](const pollfd& one) { return one.revents != 0; }))
    next_read_ = Clock::now() + kReadEvery;
}

void Supervisor::draw_progress() {
  if (!progress_.possible() || Clock::now() < next_draw_) return;
  next_draw_ = Clock::now() + kDrawEvery;
  if (!out_.at_line_start()) return;  // an unfinished line of the program stands there
  ProgressFacts facts;
  facts.running = alive();
  facts.instances = static_cast<int>(instances_.size());
  for (std::size_t i = 0; i < instances_.size(); ++i) facts.restarting += restarts_.waits(i) ? 1 : 0;
  facts.age = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - began_);
  facts.news = news_;
  progress_.show(facts);
}

/// Whatever the program left running, where it had no chance to end it.
void Supervisor::end_left_over() {
  if (!end_left_over_) return;
  if (const std::size_t left = end_descendants(*end_left_over_); left != 0)
    say(fmt::format("{} process{} started by the program cannot be ended", left, left == 1 ? "" : "es"));
}

/// What a failed start left running would hold ports, memory and cores that the next one needs. Where there are several instances each has
/// a process group, which was ended with it, and other descendants cannot be told apart.
void Supervisor::clear_the_place() {
  if (instances_.size() > 1) return;
  end_descendants(end_left_over_.value_or(Reach::kAttached));
  end_left_over_.reset();
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
  next_draw_ = Clock::now() + milliseconds(settings_.progress_after_ms);
  while (alive() > 0 || restarts_.waiting()) {
    wait_for_something();
    take_signals();
    reap();
    mirror_stop();
    pass_output(false);
    run_tick();
    look_inside();
    check_time_limit();
    restart_due();
    if (ending_ != Ending::kLauncherGone && is_outer_gone(settings_.warden)) {
      cancel_restarts();
      ending_ = Ending::kLauncherGone;
      kill_all();
    }
    if (kill_at_ && Clock::now() >= *kill_at_) kill_all();
    draw_progress();
  }
  progress_.hide();
  end_left_over();
  drain();
  out_.before_write({});
  RunOutcome outcome;
  outcome.timed_out = ending_ == Ending::kTimeLimit;
  outcome.exit_code = outcome.timed_out ? kExitTimeLimit : exit_code_;
  outcome.stop_signal = stop_signal_;
  const bool crashed = std::any_of(instances_.begin(), instances_.end(), [](const Running& one) { return one.outcome.signal != 0; });
  if (crashed) outcome.surroundings = read_crash_surroundings(oom_kills_before_);
  for (const Running& instance : instances_) {
    outcome.instances.push_back(instance.outcome);
    const LogFile* copy = instance.pump ? instance.pump->copy() : nullptr;
    if (copy != nullptr) outcome.instances.back().output_lost_bytes = copy->lost_bytes();
  }
  return outcome;
}

}  // namespace ipexrun::launcher
