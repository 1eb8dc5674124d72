// --bench: runs the plan (and, for --bench-compare, its variants interleaved), collects events and prints and writes the report.
#pragma once

#include <functional>
#include <string>

#include "configs/base/result.h"
#include "configs/contract/plan.h"
#include "launcher/options.h"
#include "launcher/plan/machine.h"
#include "launcher/run/runner.h"

namespace ipexrun::launcher {

/// Which variant of the run a plan is for: "stock" (no pinning, no variables or allocator of ours, shim in observe mode),
/// "launch" (the plan without optimization, shim in observe mode) or "ipexrun" (the plan as asked for).
using PlanForVariant = std::function<Result<LaunchPlan>(const std::string& variant)>;

/// Returns the exit code of the ipexrun variant's run. The report goes to stderr (a table) and to each --bench-output file.
Result<int> run_bench(const Options& options, const Machine& machine, const PlanForVariant& plan_for, Runner& runner,
                      const std::string& run_dir);

}  // namespace ipexrun::launcher
