// Second half of placement.h: the pool is cut into instances.
#include <algorithm>
#include <map>
#include <set>

#include "launcher/plan/placement.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

constexpr int kLatencyCores = 4;

/// Consecutive units of the pool, as indices.
using Cut = std::vector<std::size_t>;

/// How many instances of how many CPUs; 0 instances = as many as fit.
struct Shape {
  std::size_t instances = 0;
  std::size_t size = 0;
  bool may_span = true;
};

std::map<int, Cut> by_node(const Pool& pool) {
  std::map<int, Cut> out;
  for (std::size_t i = 0; i < pool.units.size(); ++i) out[pool.units[i].node].push_back(i);
  return out;
}

/// All cuts of `size` that lie within one node, node by node.
std::vector<Cut> cuts_within_nodes(const Pool& pool, std::size_t size) {
  std::vector<Cut> out;
  for (const auto& [node, members] : by_node(pool))
    for (std::size_t at = 0; at + size <= members.size(); at += size)
      out.emplace_back(members.begin() + static_cast<std::ptrdiff_t>(at), members.begin() + static_cast<std::ptrdiff_t>(at + size));
  return out;
}

/// Cuts of `size` from what `taken` leaves over, across nodes.
std::vector<Cut> cuts_across_nodes(const Pool& pool, const std::vector<Cut>& taken, std::size_t size, std::size_t most) {
  std::set<std::size_t> used;
  for (const Cut& cut : taken) used.insert(cut.begin(), cut.end());
  std::vector<Cut> out;
  Cut current;
  for (std::size_t i = 0; i < pool.units.size() && out.size() < most; ++i) {
    if (used.count(i) != 0) continue;
    current.push_back(i);
    if (current.size() < size) continue;
    out.push_back(current);
    current.clear();
  }
  return out;
}

Slot slot_of(const Pool& pool, const Cut& cut) {
  Slot out;
  std::set<int> nodes;
  for (const std::size_t index : cut) {
    out.cpus.push_back(pool.units[index].cpu);
    nodes.insert(pool.units[index].node);
  }
  std::sort(out.cpus.begin(), out.cpus.end());
  out.nodes.assign(nodes.begin(), nodes.end());
  return out;
}

std::string noun(const Options& options) { return options.use_logical_cores ? "CPU" : "core"; }

/// Instances that fit without spanning nodes come first; only what is still missing spans.
std::vector<Cut> choose_cuts(const Options& options, const Pool& pool, const Shape& shape) {
  std::vector<Cut> within = cuts_within_nodes(pool, shape.size);
  const std::size_t wanted = shape.instances;
  if (wanted == 0) {
    if (!within.empty() || !shape.may_span) return within;
    return cuts_across_nodes(pool, {}, shape.size, pool.units.size());
  }
  if (within.size() >= wanted) {
    if (options.strategy == "scatter") {
      std::vector<Cut> spread;
      for (std::size_t i = 0; i < wanted; ++i) spread.push_back(within[i * within.size() / wanted]);
      return spread;
    }
    within.resize(wanted);
    return within;
  }
  if (!shape.may_span) return within;
  std::vector<Cut> across = cuts_across_nodes(pool, within, shape.size, wanted - within.size());
  within.insert(within.end(), across.begin(), across.end());
  std::sort(within.begin(), within.end());
  return within;
}

/// The largest size at which `instances` fit without spanning nodes; 0 = not at all.
std::size_t largest_within_nodes(const Pool& pool, std::size_t instances) {
  for (std::size_t size = pool.units.size() / instances; size > 0; --size)
    if (cuts_within_nodes(pool, size).size() >= instances) return size;
  return 0;
}

Error too_many(const std::string& asked, std::size_t needed, const Options& options, const Pool& pool) {
  return Error{kExitUsage,
               asked + " needs " + count_text(needed, noun(options)) + ", but only " + std::to_string(pool.units.size()) +
                   (pool.units.size() == 1 ? " is" : " are") + " usable" + pool.limit,
               options.use_logical_cores ? "" : "--use-logical-cores counts hardware threads; ipexrun topology shows what is there"};
}

Result<Shape> explicit_shape(const Options& options, const Pool& pool, std::vector<Reason>& reasons) {
  const std::size_t total = pool.units.size();
  const auto instances = static_cast<std::size_t>(options.ninstances);
  const auto size = static_cast<std::size_t>(options.ncores_per_instance);
  const std::string n = "--ninstances " + std::to_string(instances);
  const std::string c = "--ncores-per-instance " + std::to_string(size);
  Shape shape{instances, size, !options.skip_cross_node_cores};
  if (instances > 0 && size > 0) {
    if (instances * size > total) return too_many(n + " with " + c, instances * size, options, pool);
    reasons.push_back({"instances", std::to_string(instances) + " x " + std::to_string(size), n + " and " + c});
    return shape;
  }
  if (size > 0) {
    if (size > total) return too_many(c, size, options, pool);
    return shape;
  }
  if (instances > total) return too_many(n, instances, options, pool);
  shape.size = shape.may_span ? total / instances : largest_within_nodes(pool, instances);
  if (shape.size == 0) return Error{kExitUsage, n + " does not fit without spanning NUMA nodes", "leave out --skip-cross-node-cores"};
  reasons.push_back({"instances", std::to_string(instances) + " x " + std::to_string(shape.size),
                     n + ": " + count_text(total, noun(options)) + " in equal slices"});
  return shape;
}

Shape latency_shape(const Options& options, const Machine& machine, const Pool& pool, std::vector<Reason>& reasons) {
  Shape shape{0, std::min<std::size_t>(kLatencyCores, pool.units.size()), !options.skip_cross_node_cores};
  if (shape.size < kLatencyCores) {
    reasons.push_back({"instances", std::to_string(shape.size),
                       "--latency-mode wants 4 cores an instance, only " + std::to_string(pool.units.size()) + " are usable" + pool.limit});
  } else if (cuts_within_nodes(pool, shape.size).empty()) {
    std::size_t largest = 0;
    for (const auto& [node, members] : by_node(pool)) largest = std::max(largest, members.size());
    shape.size = largest;
    reasons.push_back({"instances", std::to_string(largest),
                       "--latency-mode wants 4 cores an instance, the largest of " + count_text(machine.nodes.size(), "NUMA node") +
                           " has " + std::to_string(largest) + " usable"});
  }
  return shape;
}

std::vector<Slot> one_per_node(const Pool& pool, std::vector<Reason>& reasons) {
  std::vector<Slot> out;
  std::set<std::size_t> sizes;
  for (const auto& [node, members] : by_node(pool)) {
    out.push_back(slot_of(pool, members));
    sizes.insert(members.size());
  }
  reasons.push_back({"instances", std::to_string(out.size()), "--throughput-mode: one instance on each NUMA node with usable cores"});
  if (sizes.size() > 1)
    reasons.push_back({"instances", "unequal",
                       "the nodes have " + std::to_string(*sizes.begin()) + " to " + std::to_string(*sizes.rbegin()) + " usable cores"});
  return out;
}

void explain_result(const Options& options, const Pool& pool, const std::vector<Slot>& slots, std::vector<Reason>& reasons) {
  std::vector<int> spanning;
  std::size_t used = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    used += slots[i].cpus.size();
    if (slots[i].nodes.size() > 1) spanning.push_back(static_cast<int>(i));
  }
  if (!spanning.empty()) {
    const std::string which = slots.size() == 1 ? "the instance spans" : "instance " + cpu_list_text(spanning) + " spans";
    const std::string hint = slots.size() == 1 ? " (--throughput-mode starts one instance a node)"
                                               : " (--skip-cross-node-cores avoids it at the price of cores)";
    reasons.push_back({"instances", "spans nodes", which + " several NUMA nodes: no node has enough free cores for it" + hint});
  }
  if (used < pool.units.size())
    reasons.push_back({"cores", std::to_string(pool.units.size() - used), "usable " + noun(options) + "s that no instance uses"});
  if (!options.use_logical_cores) return;
  std::map<int, std::set<std::size_t>> users;
  std::map<int, int> core_of;
  for (const Unit& unit : pool.units) core_of[unit.cpu] = unit.core;
  for (std::size_t i = 0; i < slots.size(); ++i)
    for (const int cpu : slots[i].cpus) users[core_of[cpu]].insert(i);
  if (std::any_of(users.begin(), users.end(), [](const auto& core) { return core.second.size() > 1; }))
    reasons.push_back({"instances", "shared cores", "some cores have hardware threads in two instances: the slices are not whole cores"});
}

}  // namespace

Result<std::vector<Slot>> choose_slots(const Options& options, const Machine& machine, const Pool& pool, std::vector<Reason>& reasons) {
  std::vector<Slot> slots;
  if (options.throughput_mode) {
    slots = one_per_node(pool, reasons);
  } else if (!options.latency_mode && options.ninstances == 0 && options.ncores_per_instance == 0) {
    Cut all(pool.units.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    if (options.skip_cross_node_cores) {
      const auto nodes = by_node(pool);
      all = std::max_element(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
              return a.second.size() < b.second.size();
            })->second;
    }
    slots.push_back(slot_of(pool, all));
    reasons.push_back({"instances", "1", "the default: one instance on all usable cores"});
  } else {
    Result<Shape> shape =
        options.latency_mode ? Result<Shape>(latency_shape(options, machine, pool, reasons)) : explicit_shape(options, pool, reasons);
    if (!shape.ok()) return shape.error();
    const std::vector<Cut> cuts = choose_cuts(options, pool, *shape);
    if (cuts.empty() || cuts.size() < shape->instances)
      return Error{kExitUsage,
                   "only " + count_text(cuts.size(), "instance") + " of " + count_text(shape->size, noun(options)) +
                       " fit without spanning NUMA nodes",
                   "leave out --skip-cross-node-cores, or ask for fewer"};
    for (const Cut& cut : cuts) slots.push_back(slot_of(pool, cut));
    if (shape->instances == 0) {
      const std::string asked = options.latency_mode ? "--latency-mode" : "--ncores-per-instance " + std::to_string(shape->size);
      reasons.push_back({"instances", std::to_string(slots.size()) + " x " + std::to_string(shape->size),
                         asked + ": as many as fit into " + count_text(pool.units.size(), noun(options))});
    } else if (options.strategy == "scatter") {
      reasons.push_back({"instances", "scattered", "--strategy scatter spreads the instances over the places that fit"});
    }
  }
  explain_result(options, pool, slots, reasons);
  return slots;
}

}  // namespace ipexrun::launcher
