// What makes a measurement doubtful, each with what was seen, the likely cause and what helps.
#pragma once

#include <string>
#include <vector>

#include "launcher/bench/one_run.h"
#include "launcher/plan/machine.h"

namespace ipexrun::launcher::bench {

struct WarningInput {
  const Options* options = nullptr;
  const Machine* machine = nullptr;
  double load = -1;                 ///< load average of the last minute before the first run, -1 = unknown
  std::vector<const OneRun*> runs;  ///< of the ipexrun variant
  const Row* row = nullptr;         ///< the ipexrun variant, all instances
  const Headline* headline = nullptr;
  const std::vector<Comparison>* comparisons = nullptr;
};
std::vector<std::string> collect_warnings(const WarningInput& input);

/// How the measurement was made: the window, the source, what a percentile needs.
std::vector<std::string> collect_notes(const Options& options, const Headline& headline, const Row& row);

}  // namespace ipexrun::launcher::bench
