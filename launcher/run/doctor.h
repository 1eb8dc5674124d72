// `ipexrun doctor` (is this installation usable, and what would help) and `ipexrun env` (facts for a bug report).
#pragma once

#include "configs/base/result.h"
#include "launcher/options.h"

namespace ipexrun::launcher {

/// Builds a plugin first with options.build. Prints one line a check (ok, warn, fail) with a hint, and what this CPU has to gain, on
/// stdout. 0 = programs can be run (warnings allowed), 1 = something failed. Starts short-lived children.
Result<int> run_doctor(const Options& options);

/// Prints versions, machine, torch and variables on stdout, as text or, with options.json, as one JSON object. 0.
Result<int> run_env(const Options& options);

}  // namespace ipexrun::launcher
