// What happens between fork and execve. Only async-signal-safe calls and memory prepared before the fork: another thread of the
// launcher may have held malloc's lock at the moment of the fork.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <cstddef>

#include "configs/contract/event.h"
#include "launcher/run/signals.h"

namespace ipexrun::launcher {

/// Where a child stands; it writes one ChildMessage a step to its status pipe. A successful execve closes the pipe instead.
enum class ChildStep : int {
  kReady = 1,       ///< bound and wired up, waits for the launcher's go
  kExecFailed = 2,  ///< execve (or the check before it) failed; `error` is errno
  kWireFailed = 3,  ///< a file descriptor or process group could not be set up
};

/// Room for a process number and its end.
constexpr std::size_t kPidBytes = 12;

struct ChildMessage {
  ChildStep step = ChildStep::kReady;
  int error = 0;
};

/// Read back inside the child, in memory shared with the launcher.
struct ChildReport {
  char mask[512];  ///< effective affinity, "0-3,8"
  char mems[128];  ///< nodes of a bound memory policy, "" = not bound
  char note[256];  ///< what could not be bound and why, "" = nothing
};

/// Everything a child needs, prepared before the fork. Pointers stay valid until execve.
struct ChildSpec {
  const char* executable = nullptr;
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  std::array<char*, 2> own_pids{};          ///< in envp, with room for a number: where the child writes its own
  const unsigned long* cpu_mask = nullptr;  ///< nullptr = affinity is left alone
  std::size_t cpu_mask_bytes = 0;
  const unsigned long* node_mask = nullptr;  ///< nullptr = memory policy is left alone
  unsigned long node_mask_bits = 0;
  int stdin_fd = -1;  ///< -1 = inherited, likewise for the next two
  int stdout_fd = -1;
  int stderr_fd = -1;
  int status_fd = -1;  ///< ChildMessages go here; close-on-exec
  int go_fd = -1;      ///< one byte read here starts the program, end of file means that it shall not start
  pid_t group = -1;    ///< process group to enter; 0 = one of its own, -1 = stay in the launcher's
  pid_t launcher = 0;
  sigset_t signal_mask{};                      ///< the caller's, before the launcher blocked anything
  const Dispositions* dispositions = nullptr;  ///< likewise what the launcher changed
  const rlimit* file_limit = nullptr;          ///< likewise
  ChildReport* report = nullptr;
  IpexrunEventHeader* header = nullptr;  ///< of the event file, nullptr = none
};

/// Binds, reports, waits for the go and becomes the program.
[[noreturn]] void run_child(const ChildSpec& spec) noexcept;

/// "0-3,8" for the set bits of `mask`; cut at a comma when it does not fit. Async-signal-safe.
void format_bits(const unsigned char* mask, std::size_t bytes, char* out, std::size_t room) noexcept;

}  // namespace ipexrun::launcher
