// The config's `decisions:` on their way into the program: a file in the run folder, named by IPEXRUN_DECISIONS.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/run/runner.h"

namespace ipexrun::launcher {

/// One decision_line() (configs/contract/decision.h) for each of options.decisions. Fields that a decision leaves out: times and samples
/// are 0, dtype is that of the options.
std::string decisions_text(const Options& options);

/// What selection found in a run, as entries of a config's `decisions:`: sites and modules whose form was chosen by measurement. A site
/// that two instances decided differently is left out. Before them those of the options that nothing was measured for.
std::vector<std::string> decisions_found(const Options& options, const RunOutcome& outcome);

/// Writes them to `run_dir` and names the file to every instance; nothing without decisions or without kernels of ours. kExitFailure when
/// there is no run folder or it cannot be written to: pinned means that nothing else may be used.
Status pin_decisions(const Options& options, const std::string& run_dir, LaunchPlan* plan);

}  // namespace ipexrun::launcher
