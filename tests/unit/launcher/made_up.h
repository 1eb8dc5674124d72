// Machines, contexts and options for tests of the planner; nothing here looks at the machine that runs the test.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/machine.h"
#include "launcher/plan/planner.h"

namespace ipexrun::launcher::made_up {

/// Nodes with `cores_per_node[i]` cores each; hardware threads are numbered after all first ones, as most Xeon machines have it.
inline Machine machine(const std::vector<int>& cores_per_node, int threads_per_core = 1) {
  Machine out;
  int total = 0;
  for (const int cores : cores_per_node) total += cores;
  int next = 0;
  for (std::size_t node = 0; node < cores_per_node.size(); ++node) {
    out.nodes.push_back({static_cast<int>(node), 1ull << 34, true});
    for (int i = 0; i < cores_per_node[node]; ++i, ++next) {
      Core core;
      core.node = static_cast<int>(node);
      core.package = core.node;
      for (int thread = 0; thread < threads_per_core; ++thread) core.pus.push_back(next + thread * total);
      out.cores.push_back(core);
    }
  }
  out.packages = static_cast<int>(cores_per_node.size());
  out.total_cores = total;
  out.total_pus = total * threads_per_core;
  return out;
}

/// Gives each node L3 domains of `cores` cores.
inline Machine with_l3(Machine machine, int cores) {
  int l3 = -1;
  int inside = 0;
  int node = -1;
  for (Core& core : machine.cores) {
    if (core.node != node || inside == cores) {
      ++l3;
      inside = 0;
    }
    node = core.node;
    ++inside;
    core.l3 = l3;
  }
  return machine;
}

/// `nodes` NUMA nodes a package.
inline Machine with_packages(Machine machine, int nodes) {
  for (Core& core : machine.cores) core.package = core.node / nodes;
  machine.packages = (static_cast<int>(machine.nodes.size()) + nodes - 1) / nodes;
  return machine;
}

inline PlanContext context() {
  PlanContext out;
  out.python = "/usr/bin/python";
  out.executable = "/opt/app";
  out.lib_dir = "/opt/lib/ipexrun";
  out.shim = "/opt/lib/ipexrun/libipexrun_shim.so";
  out.allocator_name = "default";
  out.log_stamp = "20260102T030405";
  return out;
}

inline Options options() {
  Options out;
  out.program = "./app";
  return out;
}

inline bool has_reason(const LaunchPlan& plan, const std::string& subject, const std::string& part) {
  for (const Reason& reason : plan.reasons)
    if (reason.subject == subject && (reason.value + " " + reason.text).find(part) != std::string::npos) return true;
  return false;
}

inline bool has_warning(const LaunchPlan& plan, const std::string& part) {
  for (const Reason& reason : plan.reasons)
    if (reason.warn && (reason.value + " " + reason.text).find(part) != std::string::npos) return true;
  return false;
}

}  // namespace ipexrun::launcher::made_up
