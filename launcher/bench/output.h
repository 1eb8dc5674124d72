// Files that an option names: checked before anything starts, written whole or not at all.
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

/// The same for one file of any form; `option` is named in the error.
Status check_writable(const std::string& option, const std::string& path);
Status write_whole(const std::string& option, const std::string& path, const std::string& text);

/// Lines for stderr, each with the prefix "ipexrun: ".
void print_prefixed(const std::string& text);

}  // namespace ipexrun::launcher::bench
