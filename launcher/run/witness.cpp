#include "launcher/run/witness.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/run/processes.h"

namespace ipexrun::launcher {
namespace {

/// Nothing of the caller's stays open in it: a pipe's reader waits for the last one that may write.
void close_all() {
#ifdef SYS_close_range
  if (::syscall(SYS_close_range, 0u, ~0u, 0u) == 0) return;
#endif
  for (int fd = static_cast<int>(::sysconf(_SC_OPEN_MAX)) - 1; fd >= 0; --fd) ::close(fd);
}

[[noreturn]] void wait_for_ever(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);
  ::prctl(PR_SET_NAME, "witness");
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  close_all();
  for (;;) ::pause();
}

}  // namespace

void Witness::start() {
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) wait_for_ever(parent);
}

void Witness::end() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

bool Witness::saw(int signal) {
  constexpr int kLooks = 20;
  constexpr timespec kPause{0, 1'000'000};
  if (pid_ <= 0) return false;
  bool pending = has_signal(pid_, kPendingSignals, signal);
  for (int look = 0; look < kLooks && !pending; ++look) {
    ::nanosleep(&kPause, nullptr);
    pending = has_signal(pid_, kPendingSignals, signal);
  }
  if (pending) {  // and stays so: the next one is seen by another
    end();
    start();
  }
  return pending;
}

}  // namespace ipexrun::launcher
