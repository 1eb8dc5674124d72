// Training steps: which of them count, and what they amount to.
#pragma once

#include <optional>
#include <string>

#include "launcher/bench/report.h"
#include "launcher/bench/samples.h"
#include "launcher/bench/table.h"
#include "launcher/options.h"

namespace ipexrun::launcher::bench {

/// Fewer steps than this say nothing of where time goes.
inline constexpr long kLeastSteps = 3;

/// Steps in which selection measured, and then the warm-up of --bench-warmup (by default as many as of calls), are left out; --bench-iters
/// and
/// --bench-seconds bound calls, not steps. nullopt with fewer than kLeastSteps left.
std::optional<TrainingRow> training_row(const InstanceSamples& samples, const std::string& variant, const BenchOptions& options);

Table training_table(const std::vector<TrainingRow>& rows);
/// The table and the bottleneck of each row, a newline after each line; "" without rows.
std::string training_text(const std::vector<TrainingRow>& rows);

}  // namespace ipexrun::launcher::bench
