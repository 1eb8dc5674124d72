// What the kernel allows this process: CPUs, memory nodes, CFS quota, threads, memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/machine/process_facts.h"

namespace ipexrun::launcher {

/// A limit and the file that set it, as the process sees it.
template <typename T>
struct Bound {
  T value{};
  std::string from;
};

struct Limits {
  std::optional<std::vector<int>> cpus_allowed;  ///< Cpus_allowed_list: affinity and cpuset together; nullopt = not readable
  std::optional<std::vector<int>> cpuset_cpus;   ///< CPUs of the process's cpuset alone; nullopt = none or not readable
  std::optional<std::vector<int>> mems_allowed;  ///< Mems_allowed_list; nullopt = not readable
  double quota_cpus = 0;                         ///< the least CFS quota of the process's cgroup and all ancestors; 0 = none
  std::string quota_from;                        ///< the file that set it
  std::optional<Bound<long>> threads;            ///< threads that may still be made, at least 1; nullopt = no limit that could matter
  std::optional<Bound<std::uint64_t>> memory;    ///< the least memory limit of a cgroup, in bytes; nullopt = none below MemTotal
  std::uint64_t memory_total_bytes = 0;          ///< MemTotal; 0 = not readable
  std::uint64_t memory_available_bytes = 0;      ///< free or reclaimable within MemTotal and all limits; 0 = not readable
};

/// Reads <sysroot>/proc/{meminfo,self/{status,cgroup,mountinfo,limits}} and the cgroup files (v1 and v2). What cannot be read or
/// understood limits nothing. `sysroot` "" is the live system; `facts` are those of the same sysroot.
Limits read_limits(const std::string& sysroot, const ProcessFacts& facts);

// The parts of read_limits(), by where they read: limits_process.cpp, and limits_cgroup.cpp after it.
void read_process_limits(const std::string& sysroot, const ProcessFacts& facts, Limits& out);
void read_cgroup_limits(const std::string& sysroot, Limits& out);

/// Takes `value` when it is less than what is there.
template <typename T>
void lower(std::optional<Bound<T>>& bound, T value, const std::string& from) {
  if (!bound || value < bound->value) bound = Bound<T>{value, from};
}

}  // namespace ipexrun::launcher
