// `ipexrun explain-last`: why the last run went as it did. Each run leaves its plan with the reasons and its report beside the remembered
// decisions (cache_dir() of run/user_folders.h); the last one that ended counts. Nothing is kept with IPEXRUN_CACHE=off.
#pragma once

#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/run/runner.h"

namespace ipexrun::launcher {

/// Keeps what explain-last shows. A run in which torch was never seen leaves what is there. Nothing fails by it: a line at level info.
void keep_last_run(const Options& options, const LaunchPlan& plan, const RunOutcome& outcome);

/// Prints it; with --json the file itself. kExitFailure where no run was kept.
Result<int> explain_last(const Options& options);

}  // namespace ipexrun::launcher
