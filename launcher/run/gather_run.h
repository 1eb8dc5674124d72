#pragma once

#include "configs/base/result.h"
#include "launcher/options.h"

namespace ipexrun::launcher {

/// `ipexrun gather [FILE.tar.gz | FOLDER/]`; returns the exit code's value or why nothing was written.
Result<int> run_gather(const Options& options);

}  // namespace ipexrun::launcher
