// Strategies of Optuna, asked and told through a small Python program beside the libraries; the study lies in Optuna's own storage.
#pragma once

#include <memory>
#include <string>

#include "configs/base/result.h"
#include "tuner/cli/settings.h"
#include "tuner/strategies/strategy.h"

namespace ipexrun::tuner {

/// `worker_index`: of --jobs, so that workers with one seed do not draw the same points. kExitUsage: no interpreter with Optuna, an unknown
/// sampler, a storage that cannot be opened.
Result<std::unique_ptr<Strategy>> optuna_strategy(const Settings& settings, const std::string& folder, int worker_index);

}  // namespace ipexrun::tuner
