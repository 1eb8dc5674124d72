// Programs without module calls may print their own number: the documented patterns of such lines, and --bench-metric.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/base/result.h"

namespace ipexrun::launcher::bench {

/// One kind of line that is understood. All are matched without regard to case, anywhere in the line.
struct MetricPattern {
  const char* regex;  ///< ECMAScript, group 1 is the number
  const char* unit;   ///< as reported
  bool higher_is_better;
  const char* example;  ///< a line that matches: shown in docs/bench.md and checked by a test
};

/// The documented patterns, the first that matches a line counts.
const std::vector<MetricPattern>& metric_patterns();

/// A number that a program printed.
struct Metric {
  double value = 0;
  std::string unit;
  bool higher_is_better = true;
  std::string line;  ///< where it was found, cut to 120 characters
};

/// The finite number with which a text begins, as people write it: a comma in front of each three digits groups them, any other one is a
/// decimal comma. 1,234.5 and 1,234 are above a thousand, 12,5 and 0,123 are not; what is neither ("1.234,5") is no number, not a part of
/// one.
std::optional<double> number_shown(const std::string& text);

/// Without the sequences by which a terminal is told colours.
std::string without_colours(std::string_view line);

/// Checks a --bench-metric expression: it must be a valid ECMAScript expression with exactly one group (kExitUsage).
Status check_metric_regex(const std::string& regex);

/// The last line of `output` with a metric. `regex` ("" = the documented patterns) is tried alone when given; then a line that
/// speaks of latency, time, seconds or ms counts as "lower is better".
std::optional<Metric> find_metric(std::string_view output, const std::string& regex);

}  // namespace ipexrun::launcher::bench
