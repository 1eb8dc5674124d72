// What has to be looked up or left behind on the live system for ranks and their engines.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/distributed/job.h"
#include "launcher/distributed/rank_plan.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"
#include "launcher/plan/planner.h"
#include "launcher/run/runner.h"

namespace ipexrun::launcher {

/// Finds engines in PATH, asks mpirun for its version and the program's Python for torch, reads --hostfile, looks for a free port.
/// Errors: a hostfile that cannot be read or understood (2), a Python without torch where torchrun is asked for (127).
Result<JobFacts> look_up_engines(const Options& options, const Machine& machine, const PlanContext& context,
                                 std::vector<std::string> rank_words);

/// The rank that this process is, and its place. nullopt = none. A contradiction in the variables is a line on stderr and no rank; with
/// --as-rank it is an error.
Result<std::optional<RankPlace>> find_place(const Options& options, const PlanContext& context);

/// The first rank of this host that failed.
struct RankFailure {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;
};

/// A rank that ipexrun's own engine started leaves its failure for that ipexrun: torchrun's exit code is 1 whatever happened. Only the
/// first failure of a host counts; ranks that the engine ends because of it are not failures.
void report_failure(const Rank& rank, const RunOutcome& outcome);
/// The failure left in `rank_dir`, of the last attempt when torchrun made several; nullopt = none of this host.
std::optional<RankFailure> first_failure(const std::string& rank_dir);

/// False as soon as the engine that started this process, or the ipexrun that started the engine, is gone: nobody is left to end the
/// rank when another one fails. To be called by the engine's own child, before a warden is split off (warden.h).
std::function<bool()> engine_watch();

}  // namespace ipexrun::launcher
