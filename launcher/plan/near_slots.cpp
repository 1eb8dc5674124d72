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

/// The pool as cores, and whose they are. No instance takes more than it wants.
class Shares {
 public:
  /// `wanted`: CPUs of an instance; 0 = as many as its place has.
  Shares(const Machine& machine, const Pool& pool, std::size_t instances, std::size_t wanted) : wanted_(wanted), owned_(instances) {
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
  [[nodiscard]] std::size_t free_units() const {
    std::size_t out = 0;
    for (const auto& [node, cores] : free_)
      for (const CoreUnits& core : cores) out += core.size();
    return out;
  }
  [[nodiscard]] bool has(int node) const { return free_.count(node) != 0; }
  [[nodiscard]] int package_of(int node) const { return package_.count(node) == 0 ? -1 : package_.at(node); }
  /// Has fewer CPUs than it wants, or none.
  [[nodiscard]] bool is_short(std::size_t instance) const { return units_of(instance) < std::max<std::size_t>(wanted_, 1); }

  /// `node`'s free cores in equal, consecutive parts; what is left over, or more than an instance wants of its part, stays free.
  void split(int node, const std::vector<std::size_t>& among) {
    const std::size_t size = free_on(node) / among.size();
    std::size_t before = 0;  // parts stay where they are when one takes less: close cores share caches
    for (const std::size_t instance : among) before += size - take(instance, node, size, before);
  }
  /// At most `cores` after the first `skip`; says how many.
  std::size_t take(std::size_t instance, int node, std::size_t cores, std::size_t skip = 0) {
    std::vector<CoreUnits>& from = free_[node];
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(std::min(skip, from.size()));
    auto end = begin;
    while (end != from.end() && static_cast<std::size_t>(end - begin) < cores && (wanted_ == 0 || is_short(instance)))
      owned_[instance].push_back(std::move(*end++));
    const auto taken = static_cast<std::size_t>(end - begin);
    from.erase(begin, end);
    return taken;
  }
  /// A core of the instance that has the most of them, for one that has none: its own place has fewer cores than instances.
  void take_from_richest(std::size_t instance) {
    const auto richest =
        std::max_element(owned_.begin(), owned_.end(), [](const auto& one, const auto& other) { return one.size() < other.size(); });
    if (richest->size() < 2) return;
    owned_[instance].push_back(std::move(richest->back()));
    richest->pop_back();
  }
  /// The CPUs that an instance wants of its cores.
  [[nodiscard]] Slot slot_of(std::size_t instance) const {
    Slot out;
    std::set<int> nodes;
    for (const CoreUnits& core : owned_[instance])
      for (const Unit& unit : core) {
        if (wanted_ != 0 && out.cpus.size() == wanted_) break;
        out.cpus.push_back(unit.cpu);
        nodes.insert(unit.node);
      }
    std::sort(out.cpus.begin(), out.cpus.end());
    out.nodes.assign(nodes.begin(), nodes.end());
    return out;
  }

 private:
  [[nodiscard]] std::size_t units_of(std::size_t instance) const {
    std::size_t out = 0;
    for (const CoreUnits& core : owned_[instance]) out += core.size();
    return out;
  }

  std::map<int, std::vector<CoreUnits>> free_;
  std::map<int, int> package_;
  std::size_t wanted_;
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

Error too_few(const std::string& what) { return Error{kExitUsage, what, "ask for fewer instances; ipexrun topology shows what is there"}; }

std::string only_usable(std::size_t count, const Pool& pool) {
  return ", but only " + std::to_string(count) + (count == 1 ? " is" : " are") + " usable" + pool.limit;
}

/// What `shares` could not give, and why; `enough`: instances that have what they want.
Error refusal(const Options& options, const Pool& pool, std::size_t instances, std::size_t enough) {
  std::set<int> cores;
  for (const Unit& unit : pool.units) cores.insert(unit.core);
  const std::string who = count_text(instances, "instance");
  const auto wanted = static_cast<std::size_t>(options.ncores_per_instance);
  if (wanted == 0)  // each has a core of its own
    return too_few(who + " need at least " + count_text(instances, "core") + only_usable(cores.size(), pool));
  const std::string asked = who + " with --ncores-per-instance " + std::to_string(wanted);
  const std::size_t needed = instances * wanted;
  if (needed > pool.units.size())
    return too_few(asked + " need " + count_text(needed, unit_noun(options)) + only_usable(pool.units.size(), pool));
  return too_few(asked + " share no core, and " + count_text(cores.size(), "usable core") + " with " +
                 count_text(pool.units.size(), "CPU") + " are enough for " + std::to_string(enough) + pool.limit);
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

/// How far a node is from the nearest of `near`: one of them, in the same socket, elsewhere.
enum class Distance { kNear, kSocket, kFar };

Distance distance_of(const Shares& shares, int node, const std::set<int>& near) {
  if (near.count(node) != 0) return Distance::kNear;
  const bool socket = std::any_of(near.begin(), near.end(), [&](int other) { return shares.package_of(other) == shares.package_of(node); });
  return socket ? Distance::kSocket : Distance::kFar;
}

/// Each instance takes its part of the nodes that it is near, and of the other nodes of their sockets.
void share_near(Shares& shares, const std::vector<int>& nodes, const std::vector<std::set<int>>& near) {
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

/// Whoever has too few takes from what is left, near cores first: a GPU's node may have fewer cores than instances.
void fill_up(Shares& shares, const std::vector<int>& nodes, const std::vector<std::set<int>>& near) {
  for (const Distance distance : {Distance::kNear, Distance::kSocket, Distance::kFar})
    for (std::size_t i = 0; i < near.size(); ++i)
      for (const int node : nodes)
        while (distance_of(shares, node, near[i]) == distance && shares.is_short(i) && shares.free_on(node) > 0) shares.take(i, node, 1);
}

}  // namespace

Result<std::vector<Slot>> choose_near_slots(const Options& options, const Machine& machine, const Pool& pool,
                                            const std::vector<DeviceSlot>& devices, std::vector<Reason>& reasons) {
  const auto wanted = static_cast<std::size_t>(options.ncores_per_instance);
  Shares shares(machine, pool, devices.size(), wanted);
  const std::vector<int> nodes = shares.free_nodes();
  bool far = false;
  for (const DeviceSlot& one : devices)
    far = far || (!one.nodes.empty() && std::none_of(one.nodes.begin(), one.nodes.end(), [&](int node) { return shares.has(node); }));
  // One instance alone on cores that the user named takes them all: a list is an order, not a hint.
  const bool listed = !options.nodes_list.empty() || !options.cores_list.empty();
  if (devices.size() == 1 && listed && wanted == 0) {
    for (const int node : nodes) shares.take(0, node, shares.free_on(node));
  } else {
    const std::vector<std::set<int>> near = near_nodes(shares, devices);
    share_near(shares, nodes, near);
    fill_up(shares, nodes, near);
  }
  for (std::size_t i = 0; i < devices.size() && wanted == 0; ++i)
    if (shares.is_short(i)) shares.take_from_richest(i);

  std::vector<Slot> out;
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (!shares.is_short(i)) out.push_back(shares.slot_of(i));
  if (out.size() < devices.size()) return refusal(options, pool, devices.size(), out.size());
  explain(options, devices, shares, far, reasons);
  std::size_t used = 0;
  for (const Slot& slot : out) used += slot.cpus.size();
  if (const std::size_t rest = pool.units.size() - used - shares.free_units(); rest > 0)
    reasons.push_back({"cores", count_text(rest, "CPU"), "hardware threads of used cores that no instance uses: instances share no core"});
  return out;
}

}  // namespace ipexrun::launcher
