#include "launcher/run/signals.h"

namespace ipexrun::launcher {
namespace {

constexpr std::array kForwarded{SIGINT,   SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1,   SIGUSR2, SIGTSTP, SIGCONT,
                                SIGWINCH, SIGTTIN, SIGTTOU, SIGALRM, SIGVTALRM, SIGPROF, SIGIO,   SIGURG};

bool ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

SignalScope::SignalScope() {
  constexpr std::array kChanged{SIGPIPE, SIGXFSZ, SIGTTOU, SIGCHLD};
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < changed_.size(); ++i) {
    changed_[i].signal = kChanged[i];
    action.sa_handler = kChanged[i] == SIGCHLD ? SIG_DFL : SIG_IGN;
    ::sigaction(kChanged[i], &action, &changed_[i].before);
  }

  sigset_t taken;
  sigemptyset(&taken);
  sigaddset(&taken, SIGCHLD);
  sigemptyset(&ignored_before_);
  const auto take = [&](int signal) {
    sigaddset(&taken, signal);  // blocked, it comes here even where it is ignored
    if (ignored(signal)) sigaddset(&ignored_before_, signal);
  };
  for (const int signal : kForwarded) take(signal);
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; ++signal) take(signal);
  ::sigprocmask(SIG_BLOCK, &taken, &mask_before_);
  fd_ = Fd(::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));
}

SignalScope::~SignalScope() {
  while (next()) {  // what is still pending was meant for the instances; unblocked it would end the launcher
  }
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  for (const Disposition& one : changed_) ::sigaction(one.signal, &one.before, nullptr);
}

std::optional<signalfd_siginfo> SignalScope::next() {
  signalfd_siginfo info{};
  for (;;) {
    const ssize_t n = ::read(fd_.get(), &info, sizeof info);
    if (n == static_cast<ssize_t>(sizeof info)) return info;
    if (n < 0 && errno == EINTR) continue;
    return std::nullopt;
  }
}

}  // namespace ipexrun::launcher
