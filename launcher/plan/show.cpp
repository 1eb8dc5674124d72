#include "launcher/plan/show.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

using Table = std::vector<std::vector<std::string>>;

/// Left-aligned columns, two blanks between them, nothing after the last.
std::string aligned(const Table& rows, const std::string& indent = "") {
  std::vector<std::size_t> width;
  for (const auto& row : rows) {
    if (width.size() < row.size()) width.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(width[i] + 2 - row[i].size(), ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

/// As a shell would need it, so that a line can be copied.
std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") ==
                                          std::string::npos;
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Variables that every instance has with the same value.
std::map<std::string, std::string> common_env(const LaunchPlan& plan) {
  if (plan.instances.empty()) return {};
  std::map<std::string, std::string> out = plan.instances.front().env;
  for (const InstancePlan& instance : plan.instances)
    std::erase_if(out, [&](const auto& item) {
      const auto found = instance.env.find(item.first);
      return found == instance.env.end() || found->second != item.second;
    });
  return out;
}

std::string gibibytes(std::uint64_t bytes) {
  if (bytes == 0) return "-";
  return decimal_text(static_cast<double>(bytes) / static_cast<double>(1ull << 30)) + " GiB";
}

std::string dash_if_empty(const std::string& text) { return text.empty() ? "-" : text; }

/// CPUs of `machine` on one node that satisfy `wanted(core, pu index)`.
template <typename Wanted>
std::vector<int> cpus_where(const Machine& machine, int node, Wanted wanted) {
  std::vector<int> out;
  for (const Core& core : machine.cores)
    for (std::size_t pu = 0; pu < core.pus.size(); ++pu)
      if (core.node == node && wanted(core, pu)) out.push_back(core.pus[pu]);
  return out;
}

}  // namespace

std::string plan_table(const LaunchPlan& plan) {
  const bool logs = std::any_of(plan.instances.begin(), plan.instances.end(), [](const auto& one) { return !one.log_path.empty(); });
  Table rows = {{"instance", "CPUs", "NUMA nodes", "memory", "threads"}};
  if (logs) rows.front().push_back("log");
  for (const InstancePlan& instance : plan.instances) {
    rows.push_back({std::to_string(instance.index), dash_if_empty(cpu_list_text(instance.cpus)),
                    dash_if_empty(cpu_list_text(instance.numa_nodes)),
                    instance.memory_policy == MemoryPolicy::kBind ? "bound" : "inherited",
                    instance.threads > 0 ? std::to_string(instance.threads) : "-"});
    if (logs) rows.back().push_back(instance.log_path);
  }
  std::string out = aligned(rows);
  if (!plan.pin) out += "The CPUs are not pinned: they only size the threads.\n";
  const std::map<std::string, std::string> common = common_env(plan);
  if (!common.empty()) {
    out += "\nvariables\n";
    for (const auto& [name, value] : common) out += "  " + name + "=" + quoted(value) + "\n";
  }
  for (const InstancePlan& instance : plan.instances) {
    std::string own;
    for (const auto& [name, value] : instance.env)
      if (common.count(name) == 0) own += " " + name + "=" + quoted(value);
    for (const std::string& name : instance.unset_env) own += " -u " + name;
    if (!own.empty()) out += "  instance " + std::to_string(instance.index) + ":" + own + "\n";
  }
  if (!plan.instances.empty()) {
    out += "\ncommand\n ";
    for (const std::string& word : plan.instances.front().argv) out += " " + quoted(word);
    out += "\n";
  }
  return out;
}

std::string plan_json(const LaunchPlan& plan) {
  nlohmann::ordered_json out;
  out["instances"] = nlohmann::ordered_json::array();
  for (const InstancePlan& instance : plan.instances) {
    nlohmann::ordered_json one;
    one["index"] = instance.index;
    one["cpus"] = instance.cpus;
    one["numa_nodes"] = instance.numa_nodes;
    one["threads"] = instance.threads;
    one["env"] = instance.env;
    one["argv"] = instance.argv;
    out["instances"].push_back(std::move(one));
  }
  out["reasons"] = nlohmann::ordered_json::array();
  for (const Reason& reason : plan.reasons)
    out["reasons"].push_back({{"subject", reason.subject}, {"value", reason.value}, {"text", reason.text}});
  // argv and variables may hold any bytes; JSON text may not.
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string reasons_text(const LaunchPlan& plan) {
  Table rows;
  for (const Reason& reason : plan.reasons) rows.push_back({reason.subject, reason.value, reason.text});
  // A long value would push all texts to the right: it gets its text on a line of its own.
  constexpr std::size_t kWidestValue = 28;
  std::string out;
  for (auto& row : rows) {
    row[0].resize(std::max<std::size_t>(row[0].size(), 9), ' ');
    if (row[1].size() > kWidestValue) {
      out += row[0] + "  " + row[1] + "\n" + std::string(row[0].size() + kWidestValue + 4, ' ') + row[2] + "\n";
    } else {
      row[1].resize(kWidestValue, ' ');
      out += row[0] + "  " + row[1] + "  " + row[2] + "\n";
    }
  }
  return out;
}

std::string machine_text(const Machine& machine) {
  std::size_t pus = 0;
  std::size_t threads_per_core = 0;
  for (const Core& core : machine.cores) {
    pus += core.pus.size();
    threads_per_core = std::max(threads_per_core, core.pus.size());
  }
  Table facts = {{"machine", dash_if_empty(machine.name)},
                 {"packages", std::to_string(machine.packages)},
                 {"cores", std::to_string(machine.cores.size()) + " usable of " + std::to_string(machine.total_cores)},
                 {"CPUs", std::to_string(pus) + " usable of " + std::to_string(machine.total_pus) + ", up to " +
                              std::to_string(threads_per_core) + " a core"},
                 {"CPU quota", machine.quota_cpus > 0 ? decimal_text(machine.quota_cpus) + " CPUs" : "none"}};
  if (!machine.synthetic) facts.push_back({"ISA", std::string(level_name(machine.isa))});
  std::string out = aligned(facts);
  Table rows = {{"NUMA node", "cores", "first CPUs", "further CPUs", "E-core CPUs", "memory"}};
  for (const NumaNode& node : machine.nodes) {
    const auto cores =
        std::count_if(machine.cores.begin(), machine.cores.end(), [&](const Core& core) { return core.node == node.os_index; });
    const auto text = [&](auto wanted) { return dash_if_empty(cpu_list_text(cpus_where(machine, node.os_index, wanted))); };
    rows.push_back({std::to_string(node.os_index), std::to_string(cores),
                    text([](const Core& core, std::size_t pu) { return pu == 0 && !core.efficient; }),
                    text([](const Core& core, std::size_t pu) { return pu > 0 && !core.efficient; }),
                    text([](const Core& core, std::size_t) { return core.efficient; }),
                    gibibytes(node.memory_bytes) + (node.memory_allowed ? "" : " (not allowed)")});
  }
  out += "\n" + aligned(rows);
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
  out["quota_cpus"] = machine.quota_cpus > 0 ? nlohmann::ordered_json(machine.quota_cpus) : nlohmann::ordered_json(nullptr);
  out["isa"] = machine.synthetic ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(std::string(level_name(machine.isa)));
  out["nodes"] = nlohmann::ordered_json::array();
  for (const NumaNode& node : machine.nodes)
    out["nodes"].push_back({{"node", node.os_index}, {"memory_bytes", node.memory_bytes}, {"memory_allowed", node.memory_allowed}});
  out["cores"] = nlohmann::ordered_json::array();
  for (const Core& core : machine.cores)
    out["cores"].push_back({{"package", core.package}, {"node", core.node}, {"cpus", core.pus}, {"efficient", core.efficient}});
  out["notes"] = machine.notes;
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ipexrun::launcher
