// Which CPUs each instance gets. Part of the planner, and pure like it.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

/// One CPU that an instance may be given: a core's first PU, or any PU with --use-logical-cores.
struct Unit {
  int cpu = 0;
  int node = 0;
  int core = 0;  ///< index into Machine::cores
};

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

}  // namespace ipexrun::launcher
