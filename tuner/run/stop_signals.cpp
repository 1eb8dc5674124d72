#include <sys/signalfd.h>
#include <unistd.h>

#include "tuner/run/trial_runner.h"

namespace ipexrun::tuner {

StopSignals::StopSignals() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    // nohup and a shell's & ignore some of them, which a blocked signal would forget.
    if (::sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) ::sigaddset(&wanted, signal);
  }
  ::sigprocmask(SIG_BLOCK, &wanted, &before_);
  fd_ = launcher::Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
}

int StopSignals::pending() {
  signalfd_siginfo info{};
  while (fd_.open() && ::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    last_ = static_cast<int>(info.ssi_signo);
    ++count_;
  }
  return last_;
}

void StopSignals::restore() const { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace ipexrun::tuner
