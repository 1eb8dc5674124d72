// Machines with Intel GPUs, and what a plan gives the instances of `ipexrun xpu`.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/planner.h"
#include "tests/unit/launcher/made_up.h"

namespace ipexrun::launcher::made_up {

inline Gpu gpu(const std::string& address, int node, int tiles) {
  Gpu out;
  out.address = address;
  out.node = node;
  out.tiles = tiles;
  out.driver = "i915";
  return out;
}

inline Machine with(Machine machine, std::vector<Gpu> gpus) {
  for (std::size_t i = 0; i < gpus.size(); ++i) gpus[i].index = static_cast<int>(i);
  machine.gpus = std::move(gpus);
  return machine;
}

/// Two sockets of 8 cores, two cards of two tiles near each.
inline Machine four_cards() {
  return with(machine({8, 8}),
              {gpu("0000:1a:00.0", 0, 2), gpu("0000:3a:00.0", 0, 2), gpu("0000:9a:00.0", 1, 2), gpu("0000:ca:00.0", 1, 2)});
}

inline Machine desktop() {
  Machine out = with(machine({8}), {gpu("0000:03:00.0", -1, 1), gpu("0000:00:02.0", -1, 1)});
  out.gpus[1].integrated = true;
  return out;
}

inline Options xpu() {
  Options out = options();
  out.command = Command::kXpu;
  return out;
}

inline Result<LaunchPlan> plan_of(const Options& options, const Machine& machine, const std::map<std::string, std::string>& env = {}) {
  PlanContext with_env = context();
  with_env.env = env;
  return make_plan(options, machine, with_env);
}

inline std::string env_of(const LaunchPlan& plan, std::size_t instance, const std::string& name) {
  const auto& env = plan.instances[instance].env;
  const auto found = env.find(name);
  return found == env.end() ? "-" : found->second;
}

inline std::vector<std::string> masks(const LaunchPlan& plan) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < plan.instances.size(); ++i) out.push_back(env_of(plan, i, "ZE_AFFINITY_MASK"));
  return out;
}

inline std::vector<std::string> cores(const LaunchPlan& plan) {
  std::vector<std::string> out;
  for (const InstancePlan& one : plan.instances) out.push_back(cpu_list_text(one.cpus));
  return out;
}

inline std::string error_of(const Result<LaunchPlan>& plan) { return plan.ok() ? "" : plan.error().line(); }

}  // namespace ipexrun::launcher::made_up
