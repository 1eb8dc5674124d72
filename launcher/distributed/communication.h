// What a rank's communication needs: CPUs that its OpenMP threads leave alone, and the variables by which ranks find each other. Pure.
#pragma once

#include <map>
#include <string>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/distributed/rank.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

/// --ccl-worker-count: each instance of `plan` (a rank each) gives up that many of its CPUs; CCL_WORKER_COUNT and CCL_WORKER_AFFINITY
/// say which. With --logical-cores-for-ccl they are second hardware threads, and no thread is given up.
Status reserve_communication(const Options& options, const Machine& machine, int local_size, LaunchPlan& plan);

/// RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them, for the one instance of `plan`
/// when mpirun or srun started it.
void add_rank_variables(const Options& options, const Rank& rank, const std::map<std::string, std::string>& env, LaunchPlan& plan);

}  // namespace ipexrun::launcher
