// Which CPUs each instance gets. Part of the planner, and pure like it.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/plan/domains.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

/// Threads that an instance has besides those of its OpenMP pool: Python's and torch's own, a second pool of another library.
inline constexpr long kFurtherThreads = 16;

/// The CPUs to share out, ordered by node and core, and whether instances may be pinned to them.
struct Pool {
  std::vector<Unit> units;
  bool pin = true;
  std::string limit;  ///< what made the pool smaller than the machine, for error messages: " (CPU quota 7.65)", or ""
};

/// The place of one instance.
struct Slot {
  std::vector<int> cpus;   ///< ascending
  std::vector<int> nodes;  ///< ascending
};

/// Applies --cores-list, --nodes-list, hardware threads, E-cores and the quota. kExitUsage when a list names what is not allowed.
Result<Pool> choose_pool(const Options& options, const Machine& machine, std::vector<Reason>& reasons);

/// Cuts the pool into instances. kExitUsage when more is asked for than there is.
Result<std::vector<Slot>> choose_slots(const Options& options, const Machine& machine, const Pool& pool, std::vector<Reason>& reasons);

/// --ninstances auto: the planner's own choice for the most work in sum, within domains of level `last`. Never empty.
std::vector<Cut> choose_automatically(const Options& options, const Machine& machine, const Pool& pool, const Domains& domains, Level last,
                                      std::vector<Reason>& reasons);

/// Likewise when the size is given: how many of `cuts` (all of one size) memory and threads suffice for; at least 1.
std::size_t automatic_count(const Machine& machine, const std::vector<Cut>& cuts, std::vector<Reason>& reasons);

/// The level that no instance may leave: --place, --skip-cross-node-cores, --bind-numa-node; kMachine when none was given.
Level outermost_level(const Options& options);

/// "core", or "CPU" where hardware threads count.
inline std::string unit_noun(const Options& options) { return options.use_logical_cores ? "CPU" : "core"; }

}  // namespace ipexrun::launcher
