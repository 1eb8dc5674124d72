// What is said after a run: one line an instance, from its event file; and the verdict of --require-shim.
#pragma once

#include <string>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/run/runner.h"

namespace ipexrun::launcher {

/// Lines for stderr, each with the prefix "ipexrun: " and a newline; "" when there is nothing to say (no event file, or a program
/// that never loaded torch and ended well). Reads the event files of `outcome`; call it before remove_run_dir().
std::string summary_text(const Options& options, const LaunchPlan& plan, const RunOutcome& outcome);

/// --require-shim: an error (kExitFailure) when the shim did not become active in some instance; ok when it was not required.
/// The caller prints it and returns its code if the program itself returned 0.
Status require_shim_verdict(const LaunchPlan& plan, const RunOutcome& outcome);

}  // namespace ipexrun::launcher
