// A machine as the planner sees it: all that is there (whole_machine.h) less what is not allowed (machine_limits.h), and a sentence
// about each thing that was left out.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "launcher/machine/machine_limits.h"
#include "launcher/machine/process_facts.h"
#include "launcher/machine/whole_machine.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

std::size_t count_pus(const Machine& machine) {
  std::size_t count = 0;
  for (const Core& core : machine.cores) count += core.pus.size();
  return count;
}

std::set<int> intersection(const std::set<int>& a, const std::vector<int>& b) {
  std::set<int> out;
  for (const int one : b)
    if (a.count(one) != 0) out.insert(one);
  return out;
}

void keep(const std::set<int>& allowed, Machine& machine) {
  for (Core& core : machine.cores) std::erase_if(core.pus, [&](int cpu) { return allowed.count(cpu) == 0; });
  std::erase_if(machine.cores, [](const Core& core) { return core.pus.empty(); });
}

/// Which of the two kept CPUs out, as far as it can be told.
std::string restriction_text(const WholeMachine& whole, const Limits& limits, std::size_t left) {
  std::set<int> all;
  for (const Core& core : whole.machine.cores) all.insert(core.pus.begin(), core.pus.end());
  std::set<int> by_cpuset = intersection(all, whole.allowed);
  if (limits.cpuset_cpus) by_cpuset = intersection(by_cpuset, *limits.cpuset_cpus);
  if (by_cpuset.size() == all.size()) return limits.cpuset_cpus ? "affinity" : "affinity and cpuset";
  return by_cpuset.size() == left ? "cpuset" : "affinity and cpuset";
}

void note_memory(const Limits& limits, Machine& machine) {
  machine.memory_limit_bytes = limits.memory ? limits.memory->value : limits.memory_total_bytes;
  machine.memory_available_bytes = limits.memory_available_bytes;
  if (limits.memory)
    machine.notes.push_back("a memory limit of " + bytes_text(limits.memory->value) + " holds (" + limits.memory->from + ")");
  std::vector<int> without;
  std::vector<int> left_out;
  for (NumaNode& node : machine.nodes) {
    if (!node.memory_allowed) without.push_back(node.os_index);
    if (!node.memory_allowed || !limits.mems_allowed) continue;
    const auto& allowed = *limits.mems_allowed;
    node.memory_allowed = std::find(allowed.begin(), allowed.end(), node.os_index) != allowed.end();
    if (!node.memory_allowed) left_out.push_back(node.os_index);
  }
  if (!without.empty()) machine.notes.push_back("NUMA node " + cpu_list_text(without) + " has no memory");
  if (!left_out.empty()) machine.notes.push_back("memory of NUMA node " + cpu_list_text(left_out) + " is not allowed (Mems_allowed)");
}

/// Fewer threads than this for each CPU, and a program may well need more than it can get.
constexpr long kFewThreadsACpu = 8;

void note_threads(const Limits& limits, Machine& machine) {
  if (!limits.threads) return;
  machine.max_threads = limits.threads->value;
  if (machine.max_threads < kFewThreadsACpu * static_cast<long>(count_pus(machine)))
    machine.notes.push_back("at most " + count_text(static_cast<std::size_t>(machine.max_threads), "more thread") + " may be made (" +
                            limits.threads->from + ")");
}

Result<Machine> restricted(WholeMachine whole, const Limits& limits, const ProcessFacts& facts) {
  std::set<int> allowed(whole.allowed.begin(), whole.allowed.end());
  // Cpus_allowed has the cpuset in it already; the cpuset's own files count where that is not known.
  for (const auto& list : {limits.cpus_allowed ? limits.cpus_allowed : limits.cpuset_cpus, facts.affinity})
    if (list) allowed = intersection(allowed, *list);
  Machine machine = whole.machine;
  keep(allowed, machine);
  if (machine.cores.empty())
    return Error{kExitFailure, "no CPU of this machine is allowed (" + cpu_list_text({allowed.begin(), allowed.end()}) + ")",
                 "check the cpuset of the container"};
  const std::size_t pus = count_pus(machine);
  if (pus < static_cast<std::size_t>(machine.total_pus))
    machine.notes.push_back(std::to_string(pus) + " of " + std::to_string(machine.total_pus) + " CPUs are allowed (" +
                            restriction_text(whole, limits, pus) + ")");
  machine.offline_cpus = static_cast<int>(whole.offline.size());
  if (!whole.offline.empty())
    machine.notes.push_back(count_text(whole.offline.size(), "CPU") + " switched off (" + cpu_list_text(whole.offline) + ")");
  if (!whole.homeless.empty())
    machine.notes.push_back("CPU " + cpu_list_text(whole.homeless) + " belongs to no NUMA node: planned for as on the first one");
  machine.quota_cpus = limits.quota_cpus;
  if (limits.quota_cpus > 0)
    machine.notes.push_back("a CPU quota of " + decimal_text(limits.quota_cpus) + (limits.quota_cpus == 1 ? " CPU" : " CPUs") + " holds (" +
                            limits.quota_from + ")");
  note_threads(limits, machine);
  note_memory(limits, machine);
  machine.memory_policy = facts.memory_policy;
  if (!facts.memory_policy.empty())
    machine.notes.push_back("the caller set a memory policy (" + facts.memory_policy + "); it is left as it is");
  machine.isa = facts.isa.value_or(0);
  machine.isa_process = facts.isa_process;
  machine.isa_kernels = facts.isa_kernels;
  machine.amx_refused = facts.amx_refused;
  if (facts.amx_refused)
    machine.notes.push_back(
        "the CPU has AMX, but this process may not use it (the kernel refused: seccomp, an old kernel, or a small signal stack)");
  return machine;
}

bool has_sys(const std::string& sysroot) {
  std::error_code failure;
  return std::filesystem::is_directory(sysroot + "/sys/devices/system/cpu", failure);
}

}  // namespace

Result<Machine> read_machine(const std::string& sysroot) {
  WholeMachine whole;
  std::optional<WholeMachine> from_cpuinfo;
  if (!has_sys(sysroot)) from_cpuinfo = read_cpuinfo(sysroot);
  if (from_cpuinfo) {
    whole = std::move(*from_cpuinfo);
  } else {
    Result<WholeMachine> from_hwloc = read_topology(TopologySource::kSystem, sysroot);
    if (!from_hwloc.ok()) return from_hwloc.error();
    whole = std::move(*from_hwloc);
    std::vector<int> cpus;
    for (const Core& core : whole.machine.cores) cpus.push_back(core.pus.front());
    const std::vector<int> small = small_cpus(sysroot, cpus);
    for (Core& core : whole.machine.cores) core.efficient = std::binary_search(small.begin(), small.end(), core.pus.front());
  }
  whole.offline = offline_cpus(sysroot);
  const ProcessFacts facts = read_process_facts(sysroot);
  Result<Machine> machine = restricted(std::move(whole), read_limits(sysroot, facts), facts);
  if (machine.ok()) machine->synthetic = !sysroot.empty();
  return machine;
}

Result<Machine> machine_from_topology(const std::string& text_or_path, const std::string& sysroot) {
  struct stat info {};
  const bool is_file = ::stat(text_or_path.c_str(), &info) == 0;
  if (is_file && !S_ISREG(info.st_mode)) return Error{kExitUsage, "--topology '" + text_or_path + "' is not a regular file", ""};
  if (!is_file && text_or_path.ends_with(".xml"))
    return Error{kExitUsage, "--topology file '" + text_or_path + "' does not exist", "lstopo machine.xml writes one"};
  Result<WholeMachine> whole = read_topology(is_file ? TopologySource::kXml : TopologySource::kSynthetic, text_or_path);
  if (!whole.ok()) return whole.error();
  ProcessFacts facts;
  Limits limits;
  if (!sysroot.empty()) {
    facts = read_process_facts(sysroot);
    limits = read_limits(sysroot, facts);
  }
  Result<Machine> machine = restricted(std::move(*whole), limits, facts);
  if (!machine.ok()) return machine;
  machine->synthetic = true;
  // hwloc makes up 1 GiB a node where the text names no memory.
  if (!is_file && text_or_path.find("memory=") == std::string::npos)
    for (NumaNode& node : machine->nodes) node.memory_bytes = 0;
  if (machine->name.empty() || !is_file) machine->name = text_or_path;
  return machine;
}

}  // namespace ipexrun::launcher
