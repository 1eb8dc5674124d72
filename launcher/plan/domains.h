// The domains of a machine (core, L3 cache, NUMA node, package) and how instances of one size are cut out of them. Part of the
// planner, and pure like it.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

/// From the closest neighbours to the farthest. An instance is looked for at each level in turn, so it stays as close as it can.
enum class Level : std::size_t {
  kCore,     ///< hardware threads of one core
  kKind,     ///< cores of one sort (performance, efficiency) that share an L3 cache
  kL3,       ///< cores that share an L3 cache, as far as they are in one package and one NUMA node
  kPart,     ///< what a node and a package have in common: the node, or the package where a node holds several
  kNode,     ///< a NUMA node
  kPackage,  ///< a package (socket)
  kMachine,  ///< all
};
inline constexpr std::size_t kLevels = 7;

/// One CPU that an instance may be given: a core's first PU, or any PU with --use-logical-cores.
struct Unit {
  int cpu = 0;
  int node = 0;
  int core = 0;  ///< index into Machine::cores
};

/// Units as indices into a list of them, ascending.
using Cut = std::vector<std::size_t>;

/// Which domain each unit lies in, at each level.
class Domains {
 public:
  Domains(const Machine& machine, const std::vector<Unit>& units);

  /// The domains that hold `members`, each with those of them that it holds; in order of first appearance.
  [[nodiscard]] std::vector<Cut> groups(Level level, const Cut& members) const;
  [[nodiscard]] std::vector<Cut> groups(Level level) const { return groups(level, all_); }
  [[nodiscard]] const Cut& all() const { return all_; }
  [[nodiscard]] bool spans(Level level, const Cut& cut) const;
  /// The most units that a domain of the level has.
  [[nodiscard]] std::size_t largest(Level level) const;

 private:
  Cut all_;
  std::vector<std::array<std::size_t, kLevels>> domain_;  ///< of a unit: numbered from 0 at each level
};

/// Cuts of one size that fit at one level: inside a domain of that level, and not inside a smaller one.
struct LevelCuts {
  Level level = Level::kMachine;
  std::vector<Cut> cuts;
};

/// All that can be cut in units of `size` without leaving a domain of level `last`: first what fits into the smallest domains, then,
/// from what they leave over, what fits into the next larger ones. As many as any other order would give.
std::vector<LevelCuts> cut_all(const Domains& domains, std::size_t size, Level last);

/// How many cut_all() would give.
std::size_t count_cuts(const Domains& domains, std::size_t size, Level last);

/// The largest size of which `count` can be cut; 0 = none.
std::size_t largest_size(const Domains& domains, std::size_t count, Level last);

/// The `wanted` first of `cuts`, or with `scatter` those that are farthest apart: round over the packages, within each over its nodes,
/// within each over its L3 domains, and evenly within these. Ascending.
std::vector<Cut> pick(const Domains& domains, const std::vector<LevelCuts>& cuts, std::size_t wanted, bool scatter);

/// `members` in `count` parts whose sizes differ by at most one core; a core is never divided.
std::vector<Cut> deal(const Domains& domains, const Cut& members, std::size_t count);

}  // namespace ipexrun::launcher
