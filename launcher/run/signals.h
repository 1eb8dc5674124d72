// The launcher's signals while instances run: blocked and read from a signalfd, everything put back at the end.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>

#include <array>
#include <optional>

#include "launcher/run/posix.h"

namespace ipexrun::launcher {

/// Asks a program to end: the first one starts the grace period of several instances, the second one ends it.
constexpr bool asks_for_end(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT; }

/// Sent by a terminal, to its whole foreground process group (SIGTTIN and SIGTTOU: to one in the background).
constexpr bool is_of_terminal(int signal) {
  return signal == SIGINT || signal == SIGQUIT || signal == SIGHUP || signal == SIGTSTP || signal == SIGCONT || signal == SIGWINCH ||
         signal == SIGTTIN || signal == SIGTTOU;
}

/// What a signal did before the launcher changed it.
struct Disposition {
  int signal = 0;
  struct sigaction before {};
};

/// Those that the launcher changes: SIGPIPE, SIGXFSZ and SIGTTOU (a closed stdout, a full quota and a terminal of another job are errors of
/// write(2) here, not the end of the run), and SIGCHLD (ignored, it would reap the instances before their exit code is read).
using Dispositions = std::array<Disposition, 4>;

/// Blocks the signals that are forwarded to the program, and SIGCHLD. Those that the caller ignores (nohup, a job in the background of a
/// script) are forwarded, too: the program inherits that, and may have a handler of its own by then. For the thread that starts and awaits
/// the instances; not nestable.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The next pending signal, nullopt when none is.
  std::optional<signalfd_siginfo> next();

  /// Such a one asks the launcher for nothing: it is the program's alone.
  [[nodiscard]] bool was_ignored(int signal) const { return sigismember(&ignored_before_, signal) == 1; }

  /// State of the caller, for the child to restore.
  [[nodiscard]] const sigset_t& mask_before() const { return mask_before_; }
  [[nodiscard]] const Dispositions& dispositions_before() const { return changed_; }

 private:
  sigset_t mask_before_{};
  sigset_t ignored_before_{};
  Dispositions changed_;
  Fd fd_;
};

}  // namespace ipexrun::launcher
