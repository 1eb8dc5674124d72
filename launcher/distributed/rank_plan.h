// The planner for ranks: a rank gets its slice of the host, as if it were one of `local_size` instances. Pure, like the planner.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/distributed/rank.h"
#include "launcher/machine/machine_engine.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/planner.h"

namespace ipexrun::launcher {

/// Where a rank may run, decided by what can be seen of its engine.
struct RankPlace {
  enum class Kind {
    kSlice,  ///< its own part of what all ranks of the host may use
    kMask,   ///< the engine bound it: that is its slice
    kWhole,  ///< it is alone, or asked for the whole, or is a descendant of a rank that has its slice
  };
  Rank rank;
  Kind kind = Kind::kSlice;
  int sharers = 1;                     ///< with kMask: ranks that were bound to the same CPUs
  bool omp_threads_by_engine = false;  ///< OMP_NUM_THREADS=1 is torchrun's default, nobody asked for it
  std::string why;                     ///< one sentence
};

RankPlace decide_place(const DistributedOptions& options, const Rank& rank, const std::map<std::string, std::string>& env,
                       const EngineProcess& engine);

/// The plan of one rank: one instance, whose index is the local rank. More ranks than cores are an error for a rank that ipexrun itself
/// had started (--as-rank); other ranks then run unpinned with one thread, and a line says so.
Result<LaunchPlan> make_rank_plan(const Options& options, const Machine& machine, const PlanContext& context, const RankPlace& place);

/// All slices of this host, for a job that is yet to be started: instance i is what local rank i will get here.
Result<LaunchPlan> make_slices(const Options& options, const Machine& machine, const PlanContext& context, int ranks);

}  // namespace ipexrun::launcher
