// First half of placement.h: which CPUs may be used at all.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "launcher/plan/placement.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

/// The least quota for which two threads were measured to do more than one.
constexpr double kQuotaForTwo = 1.5;

std::vector<int> allowed_cpus(const Machine& machine) {
  std::vector<int> out;
  for (const Core& core : machine.cores) out.insert(out.end(), core.pus.begin(), core.pus.end());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<int> nodes_with_cores(const Machine& machine) {
  std::set<int> nodes;
  for (const Core& core : machine.cores) nodes.insert(core.node);
  return {nodes.begin(), nodes.end()};
}

/// The entries of `wanted` that are not in `have` (ascending).
std::vector<int> missing(const std::vector<int>& wanted, const std::vector<int>& have) {
  std::vector<int> out;
  for (const int one : wanted)
    if (!std::binary_search(have.begin(), have.end(), one)) out.push_back(one);
  return out;
}

Result<std::vector<Unit>> listed_units(const Options& options, const Machine& machine, std::vector<Reason>& reasons) {
  const std::vector<int> allowed = allowed_cpus(machine);
  const std::vector<int> outside = missing(options.cores_list, allowed);
  if (!outside.empty())
    return Error{kExitUsage, "--cores-list: CPU " + cpu_list_text(outside) + " is not allowed here or does not exist",
                 "allowed: " + cpu_list_text(allowed)};
  const std::set<int> wanted(options.cores_list.begin(), options.cores_list.end());
  std::vector<Unit> units;
  std::vector<int> siblings;
  for (std::size_t core = 0; core < machine.cores.size(); ++core) {
    bool taken = false;
    for (const int cpu : machine.cores[core].pus) {
      if (wanted.count(cpu) == 0) continue;
      if (taken && !options.use_logical_cores) {
        siblings.push_back(cpu);
        continue;
      }
      taken = true;
      units.push_back({cpu, machine.cores[core].node, static_cast<int>(core)});
    }
  }
  reasons.push_back({"cores", cpu_list_text(options.cores_list), "--cores-list names them"});
  if (!siblings.empty()) {
    std::sort(siblings.begin(), siblings.end());
    reasons.push_back({"cores", cpu_list_text(siblings),
                       "left out: hardware threads of cores that the list names already (--use-logical-cores uses them)"});
  }
  return units;
}

Result<std::vector<Unit>> free_units(const Options& options, const Machine& machine, std::vector<Reason>& reasons) {
  const std::vector<int> have = nodes_with_cores(machine);
  const std::vector<int> outside = missing(options.nodes_list, have);
  if (!outside.empty())
    return Error{kExitUsage, "--nodes-list: NUMA node " + cpu_list_text(outside) + " has no allowed core or does not exist",
                 "allowed: " + cpu_list_text(have)};
  const std::set<int> nodes(options.nodes_list.begin(), options.nodes_list.end());
  const auto on_wanted_node = [&](const Core& core) { return nodes.empty() || nodes.count(core.node) != 0; };
  const bool has_big =
      std::any_of(machine.cores.begin(), machine.cores.end(), [&](const Core& core) { return on_wanted_node(core) && !core.efficient; });
  std::vector<Unit> units;
  std::vector<int> small;
  int threads_left_out = 0;
  for (std::size_t index = 0; index < machine.cores.size(); ++index) {
    const Core& core = machine.cores[index];
    if (!on_wanted_node(core)) continue;
    if (core.efficient && has_big && !options.use_e_cores) {
      small.insert(small.end(), core.pus.begin(), core.pus.end());
      continue;
    }
    for (std::size_t pu = 0; pu < core.pus.size(); ++pu) {
      if (pu > 0 && !options.use_logical_cores) {
        ++threads_left_out;
        continue;
      }
      units.push_back({core.pus[pu], core.node, static_cast<int>(index)});
    }
  }
  const std::string where = nodes.empty() ? "of this machine" : "of NUMA node " + cpu_list_text(options.nodes_list) + " (--nodes-list)";
  const std::string of_kind = small.empty() ? "" : "but E-cores ";
  if (options.use_logical_cores) {
    reasons.push_back(
        {"cores", count_text(units.size(), "CPU"), "all allowed hardware threads " + of_kind + where + " (--use-logical-cores)"});
  } else {
    reasons.push_back(
        {"cores", count_text(units.size(), "core"), "all allowed physical cores " + of_kind + where + ", by their first CPU"});
  }
  if (threads_left_out > 0)
    reasons.push_back({"cores", count_text(static_cast<std::size_t>(threads_left_out), "CPU"),
                       "left out: further hardware threads of the same cores share their arithmetic units (--use-logical-cores)"});
  if (!small.empty())
    reasons.push_back(
        {"cores", cpu_list_text(small), "left out: E-cores, since the slowest thread holds up every parallel region (--use-e-cores)"});
  return units;
}

/// Threads that a quota pays for. Rounded down, since one thread too many has all of them stopped at the end of each period. Between 1.5
/// and 2 a second thread still does more work than the half CPU that rounding down would leave idle: docs/decisions/0006-planner.md.
std::size_t threads_of_quota(double quota) {
  if (quota + 1e-9 >= kQuotaForTwo && quota < 2) return 2;
  return static_cast<std::size_t>(std::max(1.0, std::floor(quota + 1e-9)));
}

/// The first `count` units of the closest neighbours that are so many: one L3 domain if it has them, else one node, one package.
std::vector<Unit> close_units(const Machine& machine, const std::vector<Unit>& units, std::size_t count) {
  const Domains domains(machine, units);
  for (const Level level : {Level::kKind, Level::kL3, Level::kPart, Level::kPackage, Level::kMachine}) {
    for (const Cut& group : domains.groups(level)) {
      if (group.size() < count) continue;
      std::vector<Unit> out;
      for (std::size_t i = 0; i < count; ++i) out.push_back(units[group[i]]);
      return out;
    }
  }
  return units;
}

/// Quota: sizes the threads, and where it lets the process use only a part of its CPUs at a time, no CPU is ours to hold.
void apply_quota(const Options& options, const Machine& machine, Pool& pool, std::vector<Reason>& reasons) {
  if (machine.quota_cpus <= 0) return;
  const std::string quota = decimal_text(machine.quota_cpus);
  const std::size_t most = threads_of_quota(machine.quota_cpus);
  const std::size_t allowed = allowed_cpus(machine).size();
  if (pool.units.size() > most) {
    const std::string could = " (" + count_text(pool.units.size(), unit_noun(options)) + " could be used otherwise)";
    const bool whole = static_cast<double>(most) + 1e-9 >= machine.quota_cpus;
    std::string why = "the CPU quota allows " + quota + (quota == "1" ? " CPU" : " CPUs") + " at a time" + (whole ? "" : ", rounded down") +
                      ": one thread more would have all of them throttled";
    if (machine.quota_cpus < 1)
      why = "the CPU quota allows " + quota + " CPUs at a time: one thread, which is stopped for a part of the time";
    if (machine.quota_cpus > 1 && static_cast<double>(most) > machine.quota_cpus)
      why = "the CPU quota allows " + quota +
            " CPUs at a time, rounded up: below 2, two threads that are stopped now and then do more than one";
    reasons.push_back({"cores", std::to_string(most), why + could});
    pool.units = close_units(machine, pool.units, most);
    pool.limit = " (CPU quota " + quota + ")";
  }
  if (!pool.pin || machine.quota_cpus + 1e-9 >= static_cast<double>(allowed)) return;
  if (!options.cores_list.empty() || options.pin_asked) {
    reasons.push_back({"cores", "pinned",
                       std::string(options.pin_asked ? "--pin" : "--cores-list") + " asks for it, although the quota of " + quota +
                           " over " + std::to_string(allowed) + " CPUs means that others use them too"});
    return;
  }
  pool.pin = false;
  reasons.push_back({"cores", "not pinned",
                     "a quota of " + quota + " over " + std::to_string(allowed) +
                         " CPUs means that others share them; holding some would not make them ours (--pin pins)"});
}

}  // namespace

Result<Pool> choose_pool(const Options& options, const Machine& machine, std::vector<Reason>& reasons) {
  Result<std::vector<Unit>> units =
      options.cores_list.empty() ? free_units(options, machine, reasons) : listed_units(options, machine, reasons);
  if (!units.ok()) return units.error();
  Pool pool;
  pool.units = std::move(*units);
  if (!options.pin) {
    pool.pin = false;
    reasons.push_back({"cores", "not pinned", "--no-pin: the CPUs size the threads, the affinity stays as it is"});
  }
  apply_quota(options, machine, pool, reasons);
  return pool;
}

}  // namespace ipexrun::launcher
