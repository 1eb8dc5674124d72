// All that is there, allowed or not, before any limit is applied: from hwloc, or without /sys from /proc/cpuinfo.
#pragma once

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

/// CPUs of cores that are smaller than the others, as the kernel shows them to performance counters: Intel's Atom and low-power cores.
/// hwloc's reader of Linux does not look there.
std::vector<int> small_cpus(const std::string& sysroot);

}  // namespace ipexrun::launcher
