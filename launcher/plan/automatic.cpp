// --ninstances auto: how many instances do the most work in sum, for a program that has not been seen.
//
// Small instances do: threads of one instance wait for each other at the end of each operation, instances wait for nobody. BERT-base
// at batch 1 does 34 inferences a second with one instance on 64 cores, 85 with 4, 126 with 16 and 141 with 32 (docs/manycore.md).
// So an instance gets two cores, within one L3 domain; more only where memory or threads do not suffice for so many instances.
// docs/decisions/0006-planner.md says why not one.
#include <algorithm>
#include <limits>
#include <map>

#include "launcher/plan/placement.h"
#include "launcher/plan/text.h"

namespace ipexrun::launcher {
namespace {

constexpr std::size_t kCoresOfInstance = 2;
constexpr std::uint64_t kGiB = 1ull << 30;
constexpr std::uint64_t kBytesOfInstance = 2 * kGiB;
constexpr std::size_t kNoCap = std::numeric_limits<std::size_t>::max();

struct Caps {
  std::size_t by_memory = kNoCap;
  long threads = 0;  ///< 0 = no limit
  std::string memory_text;
};

Caps caps_of(const Machine& machine) {
  Caps out;
  std::uint64_t bytes = machine.memory_available_bytes > 0 ? machine.memory_available_bytes : machine.memory_limit_bytes;
  if (machine.memory_limit_bytes > 0) bytes = std::min(bytes, machine.memory_limit_bytes);
  if (bytes == 0)  // a machine that is not there: all that its nodes have
    for (const NumaNode& node : machine.nodes) bytes += node.memory_allowed ? node.memory_bytes : 0;
  out.threads = machine.max_threads;
  if (bytes == 0) return out;
  out.by_memory = std::max<std::size_t>(1, static_cast<std::size_t>(bytes / kBytesOfInstance));
  out.memory_text = decimal_text(static_cast<double>(bytes) / static_cast<double>(kGiB)) + " GiB";
  return out;
}

bool enough_threads(const std::vector<Cut>& cuts, long limit) {
  if (limit == 0) return true;
  long needed = 0;
  for (const Cut& cut : cuts) needed += static_cast<long>(cut.size()) + kFurtherThreads;
  return needed <= limit;
}

/// At most so many of `cuts`, all alike, are within the caps.
std::size_t within_caps(const std::vector<Cut>& cuts, const Caps& caps) {
  std::size_t out = std::min(cuts.size(), caps.by_memory);
  if (caps.threads > 0 && !cuts.empty())
    out = std::min(out, static_cast<std::size_t>(caps.threads / (static_cast<long>(cuts.front().size()) + kFurtherThreads)));
  return std::max<std::size_t>(1, out);
}

/// Why `wanted` was too many.
std::string cap_text(const std::vector<Cut>& wanted, const Caps& caps) {
  if (wanted.size() > caps.by_memory)
    return "the " + caps.memory_text + " of memory that may be used hold " + std::to_string(caps.by_memory) + " at 2 GiB each";
  if (!enough_threads(wanted, caps.threads))
    return "only " + count_text(static_cast<std::size_t>(caps.threads), "more thread") +
           " may be made (ulimit -u or pids.max), and an instance is taken to need " + std::to_string(kFurtherThreads) +
           " besides those of its cores";
  return "the memory of some NUMA nodes does not hold so many at 2 GiB each";
}

class Automatic {
 public:
  Automatic(const Options& options, const Machine& machine, const Pool& pool, const Domains& domains)
      : options_(options), machine_(machine), pool_(pool), domains_(domains), caps_(caps_of(machine)) {}

  [[nodiscard]] std::vector<Cut> choose(Level last, std::vector<Reason>& reasons) const;

 private:
  [[nodiscard]] std::size_t cores(const Cut& members) const { return domains_.groups(Level::kCore, members).size(); }
  [[nodiscard]] std::vector<Level> levels(Level last) const;
  void split(const Cut& group, Level at, Level finest, std::vector<Cut>& out) const;
  [[nodiscard]] std::vector<Cut> grains(Level level, Level last) const;
  [[nodiscard]] bool binds() const;
  [[nodiscard]] std::size_t room_in_memory(const Cut& group) const;
  [[nodiscard]] bool each_fits_its_nodes(const std::vector<Cut>& cuts) const;
  [[nodiscard]] std::vector<Cut> cut(const std::vector<Cut>& groups, std::size_t size, bool look_at_memory) const;
  [[nodiscard]] std::string place_text(const std::vector<Cut>& chosen) const;

  const Options& options_;
  const Machine& machine_;
  const Pool& pool_;
  const Domains& domains_;
  Caps caps_;
};

/// The levels at which instances may be made, L3 domains first; without pinning, places mean nothing.
std::vector<Level> Automatic::levels(Level last) const {
  if (!pool_.pin && last == Level::kMachine) return {last};
  if (last < Level::kKind) return {last};
  std::vector<Level> out;
  for (const Level level : {Level::kKind, Level::kPart, Level::kPackage, Level::kMachine})
    if (level <= last) out.push_back(level);
  return out;
}

/// Divides a domain of level `at` into those of the next finer level, and so on down to `finest`. Domains that have a single usable
/// core (an L3 domain that a cpuset cuts, the sockets of a virtual machine) are too small, and form one domain together.
void Automatic::split(const Cut& group, Level at, Level finest, std::vector<Cut>& out) const {
  constexpr std::array<Level, 5> kFiner = {Level::kMachine, Level::kPackage, Level::kPart, Level::kL3, Level::kKind};
  const auto* next = std::find_if(kFiner.begin(), kFiner.end(), [at](Level level) { return level < at; });
  if (next == kFiner.end() || *next < finest) {
    out.push_back(group);
    return;
  }
  Cut small;
  for (const Cut& part : domains_.groups(*next, group)) {
    if (cores(part) < kCoresOfInstance) {
      small.insert(small.end(), part.begin(), part.end());
    } else {
      split(part, *next, finest, out);
    }
  }
  std::sort(small.begin(), small.end());
  if (!small.empty()) out.push_back(std::move(small));
}

/// The domains of a level, within those of level `last`.
std::vector<Cut> Automatic::grains(Level level, Level last) const {
  std::vector<Cut> out;
  for (const Cut& group : domains_.groups(last)) split(group, last, level, out);
  return out;
}

/// Instances will be bound to the memory of their nodes.
bool Automatic::binds() const { return pool_.pin && options_.bind_memory && machine_.memory_policy.empty() && machine_.nodes.size() > 1; }

/// Instances that the memory of the group's own nodes holds, where they will be bound to it.
std::size_t Automatic::room_in_memory(const Cut& group) const {
  if (!binds()) return kNoCap;
  double bytes = 0;
  for (const Cut& part : domains_.groups(Level::kNode, group)) {
    const int number = pool_.units[part.front()].node;
    const auto node =
        std::find_if(machine_.nodes.begin(), machine_.nodes.end(), [&](const NumaNode& one) { return one.os_index == number; });
    if (node == machine_.nodes.end() || node->memory_bytes == 0 || !node->memory_allowed) return kNoCap;
    const auto units =
        static_cast<double>(std::count_if(pool_.units.begin(), pool_.units.end(), [&](const Unit& unit) { return unit.node == number; }));
    bytes += static_cast<double>(node->memory_bytes) * static_cast<double>(part.size()) / units;
  }
  return static_cast<std::size_t>(bytes / static_cast<double>(kBytesOfInstance));
}

/// A group of several nodes is dealt out by cores, so that an instance may lie on the smallest of the nodes alone: what all of them take
/// from each node, in proportion to their cores there, must be there. A single instance on all nodes is not bound.
bool Automatic::each_fits_its_nodes(const std::vector<Cut>& cuts) const {
  if (!binds() || cuts.size() == 1) return true;
  std::map<int, double> taken;
  for (const Cut& cut : cuts)
    for (const Cut& part : domains_.groups(Level::kNode, cut))
      taken[pool_.units[part.front()].node] +=
          static_cast<double>(kBytesOfInstance) * static_cast<double>(part.size()) / static_cast<double>(cut.size());
  return std::all_of(machine_.nodes.begin(), machine_.nodes.end(), [&](const NumaNode& node) {
    return node.memory_bytes == 0 || !node.memory_allowed || taken[node.os_index] <= static_cast<double>(node.memory_bytes);
  });
}

/// Each group in instances of about `size` cores; nothing when a group's memory does not hold one.
std::vector<Cut> Automatic::cut(const std::vector<Cut>& groups, std::size_t size, bool look_at_memory) const {
  std::vector<Cut> out;
  for (const Cut& group : groups) {
    const std::size_t count = std::min(std::max<std::size_t>(1, cores(group) / size), look_at_memory ? room_in_memory(group) : kNoCap);
    if (count == 0) return {};
    for (Cut& part : deal(domains_, group, count)) out.push_back(std::move(part));
  }
  return out;
}

std::string Automatic::place_text(const std::vector<Cut>& chosen) const {
  if (!pool_.pin) return "";
  const bool has_l3 = std::any_of(machine_.cores.begin(), machine_.cores.end(), [](const Core& core) { return core.l3 >= 0; });
  for (const auto& [level, noun] : {std::pair{Level::kL3, "L3 domain"}, std::pair{Level::kNode, "NUMA node"}}) {
    if ((level == Level::kL3 && !has_l3) || domains_.groups(level).size() < 2) continue;
    if (std::none_of(chosen.begin(), chosen.end(), [at = level, this](const Cut& cut) { return domains_.spans(at, cut); }))
      return std::string("; each lies within one ") + noun;
  }
  return "";
}

std::vector<Cut> Automatic::choose(Level last, std::vector<Reason>& reasons) const {
  const auto fits = [&](const std::vector<Cut>& cuts) {
    return !cuts.empty() && cuts.size() <= caps_.by_memory && enough_threads(cuts, caps_.threads) && each_fits_its_nodes(cuts);
  };
  const std::vector<Level> tried = levels(last);
  const std::vector<Cut> wanted = cut(grains(tried.front(), last), kCoresOfInstance, false);
  std::vector<Cut> chosen;
  std::vector<Cut> coarsest;
  std::size_t size = kCoresOfInstance;
  for (const Level level : tried) {
    const std::vector<Cut> groups = grains(level, last);
    std::size_t largest = 0;
    for (const Cut& group : groups) largest = std::max(largest, cores(group));
    coarsest = groups;
    while (chosen.empty()) {
      std::vector<Cut> now = cut(groups, size, true);
      if (fits(now)) chosen = std::move(now);
      if (size >= largest) break;
      size += std::max<std::size_t>(1, size / 8);
    }
    if (!chosen.empty()) break;
  }
  if (chosen.empty()) {  // one instance a domain is still too much, and a larger domain may not be used
    coarsest.resize(within_caps(coarsest, caps_));
    chosen = std::move(coarsest);
  }
  const auto [least, most] =
      std::minmax_element(chosen.begin(), chosen.end(), [](const Cut& a, const Cut& b) { return a.size() < b.size(); });
  const std::string sizes = std::to_string(least->size()) + (least->size() == most->size() ? "" : " to " + std::to_string(most->size()));
  std::string text = "--ninstances auto: small instances do the most work in sum, so each gets " + count_text(kCoresOfInstance, "core");
  if (least->size() != most->size()) text += ", some more or fewer so that all are used";
  if (wanted.size() == 1) {
    text = "--ninstances auto: " + count_text(cores(domains_.all()), "usable core") + (cores(domains_.all()) == 1 ? " is" : " are") +
           " too few for several instances (each gets at least " + std::to_string(kCoresOfInstance) + ")";
  } else if (chosen.size() < wanted.size()) {
    text = "--ninstances auto: the cores allow " + std::to_string(wanted.size()) + " instances, but " + cap_text(wanted, caps_);
  }
  text += place_text(chosen);
  reasons.push_back({"instances", std::to_string(chosen.size()) + " x " + sizes, text});
  return chosen;
}

}  // namespace

std::vector<Cut> choose_automatically(const Options& options, const Machine& machine, const Pool& pool, const Domains& domains, Level last,
                                      std::vector<Reason>& reasons) {
  return Automatic(options, machine, pool, domains).choose(last, reasons);
}

std::size_t automatic_count(const Machine& machine, const std::vector<Cut>& cuts, std::vector<Reason>& reasons) {
  const Caps caps = caps_of(machine);
  const std::size_t out = within_caps(cuts, caps);
  if (out < cuts.size())
    reasons.push_back({"instances", std::to_string(out),
                       "--ninstances auto: " + std::to_string(cuts.size()) + " would fit, but " + cap_text(cuts, caps)});
  return out;
}

}  // namespace ipexrun::launcher
