// A job of ranks as text and JSON, for --dry-run.
#pragma once

#include <string>

#include "launcher/distributed/job.h"

namespace ipexrun::launcher {

/// The engine's command line, and the slices of this host as plan_table() shows them.
std::string job_table(const Job& job, const LaunchPlan& slices);

/// plan_json() of the slices with one more key, "engine": {"name", "hosts", "ranks_per_host", "argv", "env"}; the job's reasons come first.
std::string job_json(const Job& job, const LaunchPlan& slices);

}  // namespace ipexrun::launcher
