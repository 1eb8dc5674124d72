// What only a system call, or looking at all processes, can tell about this process. `ipexrun gather` writes it down as text
// (ipexrun/process.txt in the archive), and a sysroot is asked that file instead of the kernel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/base/isa.h"

namespace ipexrun::launcher {

struct ProcessFacts {
  std::optional<std::vector<int>> affinity;  ///< sched_getaffinity
  std::string memory_policy;                 ///< get_mempolicy: "bind:0", "interleave:0-1", ...; "" = the default one
  bool any_number_of_tasks = false;          ///< RLIMIT_NPROC does not hold: root or CAP_SYS_RESOURCE of the first user namespace
  std::optional<long> user_tasks;            ///< threads of all processes of this user; nullopt = not counted, the limit is far away
  std::optional<IsaSet> isa;                 ///< what the CPU has
  std::optional<IsaSet> isa_process;         ///< what a process may use of it: caps of the environment, permission for AMX
  std::optional<IsaSet> isa_kernels;         ///< what our kernels were built for
  bool amx_refused = false;                  ///< ... and the kernel does not let this process use its AMX
};

/// Asks the kernel (`sysroot` "") or <sysroot>/ipexrun/process.txt; without that file nothing is known.
ProcessFacts read_process_facts(const std::string& sysroot);

/// As read_process_facts(sysroot) reads it back.
std::string process_facts_text(const ProcessFacts& facts);

/// "bind:0-1" from the mode and nodes of get_mempolicy(2).
std::string memory_policy_text(int mode, const std::vector<int>& nodes);

/// The soft limit "Max processes" of /proc/self/limits; nullopt = unlimited or not readable.
std::optional<long> max_processes(const std::string& sysroot);

/// Threads of all processes of `user` that the folder `proc` shows, as RLIMIT_NPROC counts them. Processes of the same user in other
/// containers are not visible.
long count_user_tasks(const std::string& proc, unsigned user);

/// A machine has fewer CPUs than this, and a program needs few threads a CPU: more of them are as good as no limit.
inline constexpr long kPlentyOfThreads = 65536;

}  // namespace ipexrun::launcher
