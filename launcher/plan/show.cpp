#include "launcher/plan/show.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/plan/show_gpus.h"
#include "launcher/plan/table.h"

namespace ipexrun::launcher {
namespace {

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

}  // namespace

std::string shell_quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%") ==
                                          std::string::npos;
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string plan_table(const LaunchPlan& plan) {
  const bool gpus = std::any_of(plan.instances.begin(), plan.instances.end(), [](const auto& one) { return !one.devices.empty(); });
  const bool logs = std::any_of(plan.instances.begin(), plan.instances.end(), [](const auto& one) { return !one.log_path.empty(); });
  Table rows = {{"instance", "CPUs", "NUMA nodes", "memory", "threads"}};
  if (gpus) rows.front().push_back("GPU tiles");
  if (logs) rows.front().push_back("log");
  for (const InstancePlan& instance : plan.instances) {
    // Without pinning, which CPUs they are says nothing.
    const std::string cpus =
        plan.pin || instance.cpus.empty() ? cpu_list_text(instance.cpus) : "any " + std::to_string(instance.cpus.size());
    rows.push_back({std::to_string(instance.index), dash_if_empty(cpus), dash_if_empty(plan.pin ? cpu_list_text(instance.numa_nodes) : ""),
                    instance.memory_policy == MemoryPolicy::kBind ? "bound" : "inherited",
                    instance.threads > 0 ? std::to_string(instance.threads) : "-"});
    if (gpus) rows.back().push_back(tiles_text(instance.devices));
    if (logs) rows.back().push_back(instance.log_path);
  }
  std::string out = aligned(rows);
  if (!plan.pin) out += "Not pinned: the number of CPUs only sizes the threads.\n";
  const std::map<std::string, std::string> common = common_env(plan);
  if (!common.empty()) {
    out += "\nvariables\n";
    for (const auto& [name, value] : common) out += "  " + name + "=" + shell_quoted(value) + "\n";
  }
  for (const InstancePlan& instance : plan.instances) {
    std::string own;
    for (const auto& [name, value] : instance.env)
      if (common.count(name) == 0) own += " " + name + "=" + shell_quoted(value);
    for (const std::string& name : instance.unset_env) own += " -u " + name;
    if (!own.empty()) out += "  instance " + std::to_string(instance.index) + ":" + own + "\n";
  }
  if (!plan.instances.empty()) {
    out += "\ncommand\n ";
    for (const std::string& word : plan.instances.front().argv) out += " " + shell_quoted(word);
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
    for (const DevicePlan& device : instance.devices)
      one["devices"].push_back({{"device", device.device}, {"tile", device.tile}, {"address", device.address}});
    one["env"] = instance.env;
    if (!instance.unset_env.empty()) one["unset_env"] = instance.unset_env;
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

}  // namespace ipexrun::launcher
