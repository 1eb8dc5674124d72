// The processes below this one: who they are, and how they are ended when nobody else is left to do it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ipexrun::launcher {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  bool zombie = false;
  unsigned long long started = 0;  ///< clock ticks since boot: tells a process from a later one of the same number
};

/// All processes that `proc` shows; empty where /proc is not mounted.
std::vector<Process> read_processes(const std::string& proc = "/proc");

/// Those below `ancestor`, it excluded.
std::vector<Process> descendants_of(pid_t ancestor, const std::vector<Process>& all);

constexpr char kIgnoredSignals[] = "SigIgn:";
constexpr char kPendingSignals[] = "ShdPnd:";

/// Whether `signal` is in that set of /proc/PID/status; false where it cannot be read.
bool has_signal(pid_t pid, const char* set, int signal);

/// Which descendants are to be ended. A process is detached when it made itself a session of its own (setsid: daemons, torchrun's workers).
enum class Reach { kAttached, kAll };

/// Ends this process's descendants by SIGKILL and reaps them, new ones included; for a process that adopts orphans (Adoption). Gives up
/// after two seconds (a process in uninterruptible sleep) and returns how many are left then.
std::size_t end_descendants(Reach reach);

/// For its life orphans among the descendants become children of this process instead of init's, so that they can be found and reaped.
class Adoption {
 public:
  Adoption();
  ~Adoption();
  Adoption(const Adoption&) = delete;
  Adoption& operator=(const Adoption&) = delete;

 private:
  int before_ = 0;
};

}  // namespace ipexrun::launcher
