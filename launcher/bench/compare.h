// --bench-compare: whole processes in ABBA order, pair ratios, interval and rank test.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/bench/one_run.h"

namespace ipexrun::launcher::bench {

/// One step of the schedule.
struct Step {
  int round = 0;
  std::string variant;
};

/// Rounds of all variants; every second round backwards, so that a drift of the machine falls on all of them alike.
std::vector<Step> abba_schedule(const std::vector<std::string>& variants, int rounds);

/// Each variant against the first, from the rounds in which both have a headline value. `variants` in the order of the table.
std::vector<Comparison> compare(const std::vector<std::string>& variants, const std::vector<OneRun>& runs, const std::vector<int>& rounds,
                                const Headline& headline);

/// What the two outputs have in common: identical, identical apart from numbers (a program may print timings), or the first line
/// that differs. "" when one of them is empty because nothing was captured.
std::string compare_outputs(const std::string& stock, const std::string& ours);

}  // namespace ipexrun::launcher::bench
