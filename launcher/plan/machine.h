// A machine as the planner sees it: plain data, so that machines that are not there can be planned for and tests need none.
// Filled by launcher/machine/, the only code that reads topology, limits and devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/isa.h"
#include "configs/base/result.h"

namespace ipexrun::launcher {

/// One physical core: its hardware threads (PUs) by OS CPU number, in hwloc's logical order, allowed ones only.
struct Core {
  int package = 0;         ///< socket, logical index
  int node = 0;            ///< OS number of the NUMA node it belongs to
  std::vector<int> pus;    ///< pus[0] is "the first PU": the one that is used unless logical cores are asked for
  int l3 = -1;             ///< logical index of the L3 cache that it shares (an AMD CCX has its own); -1 = none or unknown
  bool efficient = false;  ///< an E-core of a hybrid CPU
};

struct NumaNode {
  int os_index = 0;
  std::uint64_t memory_bytes = 0;  ///< 0 = unknown
  bool memory_allowed = true;      ///< within Mems_allowed
  bool has_cores = true;           ///< false: memory only (high-bandwidth memory, CXL), no CPU of the machine belongs to it
};

/// An Intel GPU.
struct Gpu {
  int index = 0;            ///< number in `ipexrun topology` and --devices: as Level Zero counts, discrete ones first, then by address
  std::string address;      ///< on the PCI bus: "0000:4d:00.0"
  std::string name;         ///< "Intel Data Center GPU Max (0x0bd5)"
  std::string driver;       ///< i915 or xe; "" = none
  std::string render_node;  ///< "/dev/dri/renderD128", "" = none
  int node = -1;            ///< OS number of the nearest NUMA node; -1 = the firmware does not say
  int tiles = 1;            ///< compute tiles
  std::uint64_t memory_bytes = 0;  ///< of its own; 0 = unknown or none
  bool integrated = false;
  std::string problem;  ///< why programs cannot use it, one line; "" = they can
};

/// The order of PCI addresses. They have one width but for the domain: "0000:4d:00.0", "10000:e1:00.0".
inline bool address_before(const std::string& a, const std::string& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; }

/// What the process may use (already restricted to affinity, cpuset and Mems_allowed) and what was left out and why.
struct Machine {
  std::vector<Core> cores;      ///< ordered by node, then logical core order; cores without an allowed PU are absent
  std::vector<NumaNode> nodes;  ///< ascending OS number
  int packages = 1;
  int total_cores = 0;  ///< of the whole machine, allowed or not
  int total_pus = 0;
  int offline_cpus = 0;                      ///< CPUs that exist and are switched off
  double quota_cpus = 0;                     ///< CFS quota in CPUs (the least of all ancestors); 0 = none
  long max_threads = 0;                      ///< threads that may still be made (ulimit -u, pids.max of any ancestor); 0 = no limit
  std::uint64_t memory_limit_bytes = 0;      ///< the least of MemTotal and the memory limits of all ancestors; 0 = unknown
  std::uint64_t memory_available_bytes = 0;  ///< what of it is free or can be freed; 0 = unknown
  std::string memory_policy;                 ///< the caller's own memory policy ("bind:0", "interleave:0-1"); "" = the default one
  bool amx_refused = false;                  ///< the CPU has AMX, but the kernel does not let this process use it
  IsaSet isa = 0;                            ///< what the CPU has
  std::optional<IsaSet> isa_process;         ///< what a process may use of it; nullopt = not known
  std::optional<IsaSet> isa_kernels;         ///< what our kernels were built for
  bool synthetic = false;                    ///< from --topology: nothing can be started on it
  std::vector<Gpu> gpus;                     ///< ordered by Gpu::index; read for `ipexrun xpu` and `ipexrun topology` only
  std::string name;                          ///< CPU model, or the --topology text
  std::vector<std::string> notes;            ///< what was restricted, one sentence each ("2 of 4 CPUs allowed by affinity")
};

/// This machine. `sysroot` replaces "/" for /sys, /proc and cgroup files (tests, replay); "" = the live system.
Result<Machine> read_machine(const std::string& sysroot = "");

/// "node:2 core:28 pu:2" (hwloc's synthetic syntax) or the path of an hwloc XML file. A `sysroot` that is not "" adds the limits
/// (Cpus_allowed, Mems_allowed, CFS quota) found below it.
Result<Machine> machine_from_topology(const std::string& text_or_path, const std::string& sysroot = "");

/// "2.8.0": the API version of the hwloc this program runs with.
std::string topology_library_version();

}  // namespace ipexrun::launcher
