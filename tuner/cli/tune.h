// The commands of hypertune. What they print besides is theirs; errors are main's to print.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/plan/machine.h"
#include "tuner/cli/settings.h"
#include "tuner/run/launch.h"
#include "tuner/study/trial.h"

namespace ipexrun::tuner {

/// Everything before the first process: the file, --set, the default space, the strategy. `args`: the command line. `allocators`: names of
/// the installed ones, asked for only where the default space is made (each is tried).
Result<Settings> make_settings(const std::vector<std::string>& args, const launcher::Machine& machine,
                               const std::function<std::vector<std::string>()>& allocators);

/// Parameters and their values as one text: two equal ones are one space.
std::string space_text(const Space& space);

/// The search. The exit code: 0, or 128 + n where signal n ended it.
Result<int> run_tune(const std::vector<std::string>& args);

/// --dry-run: the space, what the planner refuses, the strategy.
std::string dry_run_text(const Settings& settings, LaunchPlanner& planner);

Result<int> run_report(const Settings& settings);
Result<int> run_compare(const Settings& settings);

/// record.csv, best.yaml (once there is a verdict) and report.html in the study's folder.
Status write_results(const History& history, const Settings& settings, const std::string& folder);

}  // namespace ipexrun::tuner
