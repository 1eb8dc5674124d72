// What the kernel allows this process beside its CPU affinity: cpuset, memory nodes, CFS quota.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ipexrun::launcher {

struct Limits {
  std::optional<std::vector<int>> cpus_allowed;  ///< Cpus_allowed_list; nullopt = not readable
  std::optional<std::vector<int>> mems_allowed;  ///< Mems_allowed_list; nullopt = not readable
  double quota_cpus = 0;                         ///< the least CFS quota of the process's cgroup and all ancestors; 0 = none
  std::string quota_from;                        ///< the file that set it
};

/// Reads <sysroot>/proc/self/{status,cgroup,mountinfo} and the cpu controller's files (cgroup v1 and v2). What cannot be read or
/// understood limits nothing. `sysroot` "" is the live system.
Limits read_limits(const std::string& sysroot);

}  // namespace ipexrun::launcher
