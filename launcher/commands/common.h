// What running a program and running a job of ranks have in common.
#pragma once

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher {

/// This machine, or the one that --topology and --sysroot describe; GPUs where the command asks for them.
Result<Machine> machine_for(const Options& options);

/// Nothing is to be started.
bool plans_only(const Options& options);

/// Remarks on the command line, each a warning.
void say_notes(const Options& options);

/// On stderr: all reasons (--explain), else those that are warnings.
void say_reasons(const LaunchPlan& plan, bool all);

/// What came of runs in one command: the time limit has a code of its own.
Result<int> with_time_limit(Result<int> code, bool timed_out);

}  // namespace ipexrun::launcher
