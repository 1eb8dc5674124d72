// `ipexrun topology` as text and as JSON.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/plan/show.h"
#include "launcher/plan/show_gpus.h"
#include "launcher/plan/table.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

/// CPUs of the cores that satisfy `wanted(core, pu index)`.
template <typename Wanted>
std::string cpus_where(const Machine& machine, Wanted wanted) {
  std::vector<int> out;
  for (const Core& core : machine.cores)
    for (std::size_t pu = 0; pu < core.pus.size(); ++pu)
      if (wanted(core, pu)) out.push_back(core.pus[pu]);
  return dash_if_empty(cpu_list_text(out));
}

/// L3 caches that the usable cores of `node` share; -1 (none, or not known) is none.
std::set<int> caches_of(const Machine& machine, int node) {
  std::set<int> out;
  for (const Core& core : machine.cores)
    if (core.node == node && core.l3 >= 0) out.insert(core.l3);
  return out;
}

bool isa_known(const Machine& machine) { return !machine.synthetic || machine.isa != 0; }

Table facts_of(const Machine& machine) {
  std::size_t pus = 0;
  std::size_t threads_per_core = 0;
  for (const Core& core : machine.cores) {
    pus += core.pus.size();
    threads_per_core = std::max(threads_per_core, core.pus.size());
  }
  const std::string off = machine.offline_cpus > 0 ? ", " + std::to_string(machine.offline_cpus) + " switched off" : "";
  Table out = {{"machine", dash_if_empty(machine.name)},
               {"packages", std::to_string(machine.packages)},
               {"cores", std::to_string(machine.cores.size()) + " usable of " + std::to_string(machine.total_cores)},
               {"CPUs", std::to_string(pus) + " usable of " + std::to_string(machine.total_pus) + ", up to " +
                            std::to_string(threads_per_core) + " a core" + off},
               {"CPU quota", machine.quota_cpus > 0 ? decimal_text(machine.quota_cpus) + " CPUs" : "none"},
               {"thread limit", machine.max_threads > 0 ? std::to_string(machine.max_threads) + " more" : "none"}};
  const bool some = machine.memory_limit_bytes > 0 || machine.memory_available_bytes > 0;
  if (some)
    out.push_back({"memory", bytes_text(machine.memory_limit_bytes) + ", " + bytes_text(machine.memory_available_bytes) + " available"});
  if (!machine.synthetic || !machine.memory_policy.empty())
    out.push_back({"memory policy", machine.memory_policy.empty() ? "default" : machine.memory_policy});
  if (isa_known(machine))
    out.push_back({"ISA", std::string(level_name(machine.isa)) + (machine.amx_refused ? " (AMX is refused to this process)" : "")});
  if (machine.isa_process) out.push_back({"ISA, process", std::string(level_name(*machine.isa_process))});
  if (machine.isa_kernels) out.push_back({"ISA, kernels", std::string(level_name(*machine.isa_kernels))});
  return out;
}

/// Memory that is not allowed and of unknown size is memory that is not there (machine_hwloc.cpp).
std::string memory_text(const NumaNode& node) {
  if (!node.memory_allowed && node.memory_bytes == 0) return "none";
  return bytes_text(node.memory_bytes) + (node.memory_allowed ? "" : " (not allowed)") + (node.has_cores ? "" : " (no cores)");
}

Table node_table(const Machine& machine) {
  Table rows = {{"NUMA node", "cores", "L3 caches", "first CPUs", "further CPUs", "E-core CPUs", "memory"}};
  for (const NumaNode& node : machine.nodes) {
    const auto on_node = [&node](const Core& core) { return core.node == node.os_index; };
    const auto cores = std::count_if(machine.cores.begin(), machine.cores.end(), on_node);
    const std::size_t caches = caches_of(machine, node.os_index).size();
    const auto text = [&](auto wanted) {
      return cpus_where(machine, [&](const Core& core, std::size_t pu) { return on_node(core) && wanted(core, pu); });
    };
    rows.push_back({std::to_string(node.os_index), std::to_string(cores), caches == 0 ? "-" : std::to_string(caches),
                    text([](const Core& core, std::size_t pu) { return pu == 0 && !core.efficient; }),
                    text([](const Core& core, std::size_t pu) { return pu > 0 && !core.efficient; }),
                    text([](const Core& core, std::size_t) { return core.efficient; }), memory_text(node)});
  }
  return rows;
}

/// Only where a node has several: elsewhere the cache is the node.
std::string cache_table(const Machine& machine) {
  const bool several = std::any_of(machine.nodes.begin(), machine.nodes.end(),
                                   [&](const NumaNode& node) { return caches_of(machine, node.os_index).size() > 1; });
  if (!several) return "";
  std::map<int, int> nodes;
  for (const Core& core : machine.cores)
    if (core.l3 >= 0) nodes.emplace(core.l3, core.node);
  Table rows = {{"L3 cache", "NUMA node", "first CPUs", "further CPUs"}};
  for (const auto& [cache, node] : nodes) {
    const auto text = [&machine, l3 = cache](bool first) {
      return cpus_where(machine, [&](const Core& core, std::size_t pu) { return core.l3 == l3 && (pu == 0) == first; });
    };
    rows.push_back({std::to_string(cache), std::to_string(node), text(true), text(false)});
  }
  return "\n" + aligned(rows);
}

nlohmann::ordered_json number_or_null(double value) { return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr); }

nlohmann::ordered_json count_or_null(std::uint64_t value) {
  return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::string machine_text(const Machine& machine) {
  std::string out = aligned(facts_of(machine)) + "\n" + aligned(node_table(machine)) + cache_table(machine) + gpus_text(machine);
  if (!machine.notes.empty()) out += "\n";
  for (const std::string& note : machine.notes) out += note + "\n";
  return out;
}

std::string machine_json(const Machine& machine) {
  nlohmann::ordered_json out;
  out["name"] = machine.name;
  out["packages"] = machine.packages;
  out["total_cores"] = machine.total_cores;
  out["total_cpus"] = machine.total_pus;
  out["offline_cpus"] = machine.offline_cpus;
  out["quota_cpus"] = number_or_null(machine.quota_cpus);
  out["max_threads"] = count_or_null(static_cast<std::uint64_t>(std::max(0L, machine.max_threads)));
  out["memory_limit_bytes"] = count_or_null(machine.memory_limit_bytes);
  out["memory_available_bytes"] = count_or_null(machine.memory_available_bytes);
  out["memory_policy"] = machine.memory_policy.empty() ? "default" : machine.memory_policy;
  out["isa"] = isa_known(machine) ? nlohmann::ordered_json(std::string(level_name(machine.isa))) : nlohmann::ordered_json(nullptr);
  const auto level = [](const std::optional<IsaSet>& isa) {
    return isa ? nlohmann::ordered_json(std::string(level_name(*isa))) : nlohmann::ordered_json(nullptr);
  };
  out["isa_process"] = level(machine.isa_process);
  out["isa_kernels"] = level(machine.isa_kernels);
  out["amx_refused"] = machine.amx_refused;
  out["nodes"] = nlohmann::ordered_json::array();
  for (const NumaNode& node : machine.nodes)
    out["nodes"].push_back({{"node", node.os_index},
                            {"memory_bytes", node.memory_bytes},
                            {"memory_allowed", node.memory_allowed},
                            {"has_cores", node.has_cores}});
  out["cores"] = nlohmann::ordered_json::array();
  for (const Core& core : machine.cores)
    out["cores"].push_back({{"package", core.package},
                            {"node", core.node},
                            {"l3", core.l3 >= 0 ? nlohmann::ordered_json(core.l3) : nlohmann::ordered_json(nullptr)},
                            {"cpus", core.pus},
                            {"efficient", core.efficient}});
  if (!machine.gpus.empty()) out["gpus"] = gpus_json(machine);
  out["notes"] = machine.notes;
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ipexrun::launcher
