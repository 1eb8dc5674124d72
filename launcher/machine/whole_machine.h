// All that is there, allowed or not, before any limit is applied: from hwloc, or without /sys from /proc/cpuinfo.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

struct WholeMachine {
  Machine machine;            ///< every core with all of its PUs
  std::vector<int> allowed;   ///< CPUs that hwloc found allowed (its own reading of the cpuset); ascending
  std::vector<int> offline;   ///< CPUs that exist and are switched off; ascending
  std::vector<int> homeless;  ///< CPUs that no NUMA node claims; ascending
};

enum class TopologySource { kSystem, kSynthetic, kXml };

/// `text` is the sysroot ("" = live), the synthetic description, or the path of the XML file.
Result<WholeMachine> read_topology(TopologySource source, const std::string& text);

/// Cores by "physical id" and "core id" of /proc/cpuinfo, on one NUMA node. nullopt when it shows no processor.
std::optional<WholeMachine> read_cpuinfo(const std::string& sysroot);

/// CPUs that the kernel shows as present and not online.
std::vector<int> offline_cpus(const std::string& sysroot);

/// CPUs of `cpus` whose cores are smaller than the others: Intel's Atom and low-power cores as the kernel shows them to performance
/// counters, elsewhere those of a small capacity. hwloc would read three files of each CPU for the second and not look at the first.
std::vector<int> small_cpus(const std::string& sysroot, const std::vector<int>& cpus);

/// By the kernel's cpu_capacity: favoured cores and the middle cores of three-kind Arm parts lie above 0.7 of the largest, little cores
/// (0.25 to 0.6) below.
inline bool is_small_capacity(std::uint64_t capacity, std::uint64_t largest) {
  constexpr double kSmall = 0.7;
  return capacity > 0 && static_cast<double>(capacity) < kSmall * static_cast<double>(largest);
}

}  // namespace ipexrun::launcher
