#include "launcher/run/warden.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdlib>

#include "configs/base/log.h"
#include "launcher/run/processes.h"
#include "launcher/run/signals.h"
#include "launcher/run/witness.h"

namespace ipexrun::launcher {
namespace {

void pass_on(pid_t launcher, const signalfd_siginfo& info, Witness& witness) {
  sigval value{};
  const int signal = static_cast<int>(info.ssi_signo);
  const bool by_terminal = info.ssi_code == SI_KERNEL && is_of_terminal(signal);
  if (by_terminal && (signal == SIGTTIN || signal == SIGTTOU)) {
    ::raise(SIGSTOP);  // as by itself: the program in its group has stopped, and the shell is to know
    return;
  }
  value.sival_int = by_terminal || witness.saw(signal) ? kToWholeGroup : 0;
  ::sigqueue(launcher, signal, value);
}

/// Stops with the launcher, so that the shell gets the terminal back.
void mirror_stop(pid_t launcher) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(launcher), &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0) ::raise(SIGSTOP);
}

/// Waits for the launcher. Returns its exit code.
int wait_for(pid_t launcher, SignalScope& signals) {
  Witness witness;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(launcher, &status, WNOHANG);
    if (ended == launcher && WIFEXITED(status)) return WEXITSTATUS(status);
    if (ended == launcher) {
      witness.end();  // no descendant of the launcher's
      const std::size_t left = end_descendants(Reach::kAll);
      if (asks_for_end(WTERMSIG(status)) && left == 0) return 128 + WTERMSIG(status);  // before the program was started: no news
      log::error(fmt::format("the launcher itself was ended by signal {}; {}", WTERMSIG(status),
                             left == 0 ? "what it had started was ended" : fmt::format("{} processes could not be ended", left)));
      return 128 + WTERMSIG(status);
    }
    if (ended < 0 && errno != EINTR) return 1;
    mirror_stop(launcher);
    pollfd entry{signals.fd(), POLLIN, 0};
    ::poll(&entry, 1, -1);
    while (const auto info = signals.next()) {
      if (info->ssi_signo != SIGCHLD) pass_on(launcher, *info, witness);
    }
  }
}

}  // namespace

Warden split_off_warden() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  Warden warden;
  warden.life = Fd(ends[0]);
  Fd held(ends[1]);
  const pid_t self = ::getpid();
  int code = 0;
  {
    SignalScope signals;  // before the fork: what arrives from now on is passed on or, in the launcher, taken as it was before
    const Adoption adoption;
    const pid_t launcher = signals.fd() < 0 ? -1 : ::fork();
    if (launcher < 0) return {};
    if (launcher > 0) {
      warden.life.reset();
      code = wait_for(launcher, signals);
      ::_exit(code);
    }
  }
  held.reset();
  // Another name than the warden's, so that killall and pkill -9 of that name leave this one to end everything.
  ::prctl(PR_SET_NAME, "supervisor");
  warden.pid = self;
  return warden;
}

OwnGroup::OwnGroup(const Warden* warden) {
  if (warden == nullptr || warden->pid == 0) return;
  const pid_t group = ::getpgrp();
  if (::setpgid(0, 0) == 0) before_ = group;
}

OwnGroup::~OwnGroup() {
  if (before_ >= 0) ::setpgid(0, before_);
}

}  // namespace ipexrun::launcher
