// The launcher's signals while instances run: blocked and read from a signalfd, everything put back at the end.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>

#include <optional>

#include "launcher/run/posix.h"

namespace ipexrun::launcher {

/// Asks a program to end: the first one starts the grace period of several instances, the second one ends it.
constexpr bool asks_for_end(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT; }

/// Blocks the signals that are forwarded to the program, and SIGCHLD; ignores SIGPIPE. A signal that the caller ignores (nohup) is
/// left alone. For the thread that starts and awaits the instances; not nestable.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The next pending signal, nullopt when none is.
  std::optional<signalfd_siginfo> next();

  /// State of the caller, for the child to restore.
  [[nodiscard]] const sigset_t& mask_before() const { return mask_before_; }
  [[nodiscard]] const struct sigaction& sigpipe_before() const { return sigpipe_before_; }
  [[nodiscard]] const struct sigaction& sigchld_before() const { return sigchld_before_; }

 private:
  sigset_t mask_before_{};
  struct sigaction sigpipe_before_ {};
  struct sigaction sigchld_before_ {};
  Fd fd_;
};

}  // namespace ipexrun::launcher
