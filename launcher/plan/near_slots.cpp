// Second half of devices.h: the cores of each instance come from where its GPUs are.
#include <algorithm>
#include <map>
#include <set>

#include "launcher/plan/devices.h"
#include "launcher/plan/show.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

/// The units of one core: they are given out together, so that no two instances share a core.
using CoreUnits = std::vector<Unit>;

/// The pool as cores, and whose they are.
class Shares {
 public:
  Shares(const Machine& machine, const Pool& pool, std::size_t instances) : owned_(instances) {
    int core = -1;
    for (const Unit& unit : pool.units) {
      std::vector<CoreUnits>& node = free_[unit.node];
      if (unit.core != core || node.empty()) node.emplace_back();
      core = unit.core;
      node.back().push_back(unit);
    }
    for (const Core& one : machine.cores) package_[one.node] = one.package;
  }

  [[nodiscard]] std::vector<int> free_nodes() const {
    std::vector<int> out;
    for (const auto& [node, cores] : free_)
      if (!cores.empty()) out.push_back(node);
    return out;
  }
  [[nodiscard]] std::size_t free_on(int node) const { return free_.at(node).size(); }
  [[nodiscard]] bool has(int node) const { return free_.count(node) != 0; }
  [[nodiscard]] int package_of(int node) const { return package_.count(node) == 0 ? -1 : package_.at(node); }
  [[nodiscard]] std::size_t count(std::size_t instance) const { return owned_[instance].size(); }

  /// `node`'s free cores in equal, consecutive parts; what is left over stays free.
  void split(int node, const std::vector<std::size_t>& among) {
    const std::size_t size = free_on(node) / among.size();
    for (const std::size_t instance : among) take(instance, node, size);
  }
  void take(std::size_t instance, int node, std::size_t cores) {
    std::vector<CoreUnits>& from = free_[node];
    cores = std::min(cores, from.size());
    const auto end = from.begin() + static_cast<std::ptrdiff_t>(cores);
    owned_[instance].insert(owned_[instance].end(), from.begin(), end);
    from.erase(from.begin(), end);
  }
  /// Cuts an instance down to `units` CPUs.
  [[nodiscard]] Slot slot_of(std::size_t instance, std::size_t units) const {
    Slot out;
    std::set<int> nodes;
    for (const CoreUnits& core : owned_[instance])
      for (const Unit& unit : core) {
        if (units != 0 && out.cpus.size() == units) break;
        out.cpus.push_back(unit.cpu);
        nodes.insert(unit.node);
      }
    std::sort(out.cpus.begin(), out.cpus.end());
    out.nodes.assign(nodes.begin(), nodes.end());
    return out;
  }
  [[nodiscard]] std::size_t units_of(std::size_t instance) const {
    std::size_t out = 0;
    for (const CoreUnits& core : owned_[instance]) out += core.size();
    return out;
  }

 private:
  std::map<int, std::vector<CoreUnits>> free_;
  std::map<int, int> package_;
  std::vector<std::vector<CoreUnits>> owned_;
};

/// The nodes that each instance has cores near: its GPUs' own. An instance whose GPUs' place is not known, or has no core in the pool,
/// takes the node with the most cores an instance so far, and one alone takes all.
std::vector<std::set<int>> near_nodes(const Shares& shares, const std::vector<DeviceSlot>& devices) {
  std::vector<std::set<int>> out(devices.size());
  std::map<int, std::size_t> claims;
  for (std::size_t i = 0; i < devices.size(); ++i)
    for (const int node : devices[i].nodes)
      if (shares.has(node)) {
        out[i].insert(node);
        ++claims[node];
      }
  for (std::set<int>& nodes : out) {
    if (!nodes.empty()) continue;
    const std::vector<int> all = shares.free_nodes();
    if (devices.size() == 1) {
      nodes.insert(all.begin(), all.end());
      continue;
    }
    const auto best = std::max_element(
        all.begin(), all.end(), [&](int a, int b) { return shares.free_on(a) * (claims[b] + 1) < shares.free_on(b) * (claims[a] + 1); });
    nodes.insert(*best);
    ++claims[*best];
  }
  return out;
}

std::vector<std::size_t> with_node(const std::vector<std::set<int>>& near, const std::set<int>& any_of) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < near.size(); ++i)
    if (std::any_of(any_of.begin(), any_of.end(), [&](int node) { return near[i].count(node) != 0; })) out.push_back(i);
  return out;
}

Error too_few(const std::string& asked, std::size_t needed, const Options& options, const Pool& pool) {
  return Error{kExitUsage,
               asked + count_text(needed, options.use_logical_cores ? "CPU" : "core") + ", but only " + std::to_string(pool.units.size()) +
                   (pool.units.size() == 1 ? " is" : " are") + " usable" + pool.limit,
               "ask for fewer instances; ipexrun topology shows what is there"};
}

void explain(const Options& options, const std::vector<DeviceSlot>& devices, const Shares& shares, bool far, std::vector<Reason>& reasons) {
  const bool known = std::any_of(devices.begin(), devices.end(), [](const DeviceSlot& one) { return !one.nodes.empty(); });
  if (!known) {
    reasons.push_back({"cores", "any node", "the firmware does not say which NUMA node is nearest to the GPUs"});
  } else if (far) {
    reasons.push_back({"cores", "not near", "some GPUs' NUMA nodes have no core that may be used: their instances take cores elsewhere"});
  } else {
    reasons.push_back({"cores", "near the GPUs", "each instance's cores come from the NUMA nodes nearest to its GPUs, or their sockets"});
  }
  std::size_t unused = 0;
  std::vector<int> where;
  for (const int node : shares.free_nodes()) {
    unused += shares.free_on(node);
    where.push_back(node);
  }
  const std::string hint = options.nodes_list.empty() && devices.size() == 1 ? " (--nodes-list names the nodes to use)" : "";
  if (unused > 0)
    reasons.push_back(
        {"cores", std::to_string(unused), "usable cores of NUMA node " + cpu_list_text(where) + " that no instance uses" + hint});
}

}  // namespace

Result<std::vector<Slot>> choose_near_slots(const Options& options, const Machine& machine, const Pool& pool,
                                            const std::vector<DeviceSlot>& devices, std::vector<Reason>& reasons) {
  Shares shares(machine, pool, devices.size());
  const std::vector<int> nodes = shares.free_nodes();
  bool far = false;
  for (const DeviceSlot& one : devices)
    far = far || (!one.nodes.empty() && std::none_of(one.nodes.begin(), one.nodes.end(), [&](int node) { return shares.has(node); }));
  // One instance alone on cores that the user named takes them all: a list is an order, not a hint.
  const bool listed = !options.nodes_list.empty() || !options.cores_list.empty();
  if (devices.size() == 1 && listed) {
    for (const int node : nodes) shares.take(0, node, shares.free_on(node));
  } else {
    const std::vector<std::set<int>> near = near_nodes(shares, devices);
    for (const int node : nodes) {
      const auto owners = with_node(near, {node});
      if (!owners.empty()) shares.split(node, owners);
    }
    // Sub-NUMA clusters: the other nodes of a GPU's socket are as near as the socket is.
    std::set<int> claimed;
    for (const auto& one : near) claimed.insert(one.begin(), one.end());
    for (const int node : nodes) {
      if (claimed.count(node) != 0) continue;
      std::set<int> same_socket;
      for (const int other : claimed)
        if (shares.package_of(other) == shares.package_of(node)) same_socket.insert(other);
      const auto owners = with_node(near, same_socket);
      if (!owners.empty()) shares.split(node, owners);
    }
  }

  // Whoever has too few takes from what is left: a GPU's node may have fewer cores than instances.
  const auto wanted = static_cast<std::size_t>(options.ncores_per_instance);
  for (std::size_t i = 0; i < devices.size(); ++i)
    for (const int node : nodes)
      while (shares.units_of(i) < std::max<std::size_t>(wanted, 1) && shares.free_on(node) > 0) shares.take(i, node, 1);
  std::vector<Slot> out;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    out.push_back(shares.slot_of(i, wanted));
    if (out.back().cpus.empty()) return too_few(count_text(devices.size(), "instance") + " need at least ", devices.size(), options, pool);
    if (out.back().cpus.size() < wanted)
      return too_few(count_text(devices.size(), "instance") + " with --ncores-per-instance " + std::to_string(wanted) + " need ",
                     devices.size() * wanted, options, pool);
  }
  explain(options, devices, shares, far, reasons);
  return out;
}

}  // namespace ipexrun::launcher
