// The files of --bench-output: checked before anything starts, written whole or not at all.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/bench/report.h"

namespace ipexrun::launcher::bench {

/// Every name must end in .json, .csv, .md or .html (kExitUsage) and its folder must take a new file (kExitFailure).
Status check_outputs(const std::vector<std::string>& paths);

/// Writes the report in the form of each name's ending, through a temporary file and a rename. All are tried; the first error counts.
Status write_outputs(const Report& report, const std::vector<std::string>& paths);

}  // namespace ipexrun::launcher::bench
