// Which GPUs and tiles each instance of `ipexrun xpu` sees, and which cores it gets. Part of the planner, and pure like it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/placement.h"

namespace ipexrun::launcher {

/// What one instance sees.
struct DeviceSlot {
  std::vector<DevicePlan> tiles;           ///< in Level Zero's order
  std::map<std::string, std::string> env;  ///< ZE_AFFINITY_MASK and its like; empty where the instance sees what is there anyway
  std::vector<int> nodes;                  ///< NUMA nodes nearest to them; empty = not known
};

/// One slot an instance. kExitUsage when there is no usable GPU, when a list names what is not there or what the caller's own
/// ZE_AFFINITY_MASK hides, or when there are fewer tiles than instances. `env` is the caller's environment.
Result<std::vector<DeviceSlot>> choose_devices(const Options& options, const Machine& machine,
                                               const std::map<std::string, std::string>& env, std::vector<Reason>& reasons);

/// One slot a rank of this host, for ranks that another launcher started. Such a program takes xpu:LOCAL_RANK by itself, so no rank hides
/// from itself what another one has: env is the same for all (empty unless --devices or --tiles was given). With choose_near_slots() it
/// says which cores are each rank's.
Result<std::vector<DeviceSlot>> devices_of_ranks(const Options& options, const Machine& machine,
                                                 const std::map<std::string, std::string>& env, int local_size,
                                                 std::vector<Reason>& reasons);

/// Shares the pool out so that each instance gets cores of its devices' nodes, then of their sockets; disjoint. A pool without any such
/// core (--nodes-list, --cores-list, a cpuset) is shared out whole. kExitUsage when there are fewer cores than instances.
Result<std::vector<Slot>> choose_near_slots(const Options& options, const Machine& machine, const Pool& pool,
                                            const std::vector<DeviceSlot>& devices, std::vector<Reason>& reasons);

/// "0" (a GPU whose every tile is there), "1.0" (one tile of several), "0-3".
std::string devices_text(const std::vector<DevicePlan>& tiles, const Machine& machine);

}  // namespace ipexrun::launcher
