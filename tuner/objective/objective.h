// What is to be made better, and what has to hold.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/result.h"

namespace ipexrun::tuner {

/// Where the number of an objective comes from.
enum class Source {
  kPrinted,  ///< a line `@hypertune {'name': ...}` and the value on the next line
  kBench,    ///< a field of the report of `ipexrun --bench` (docs/bench.md)
  kRegex,    ///< the last line that matches, group 1
};

/// How the values of several instances become one.
enum class Aggregate { kAuto, kSum, kMax, kMin, kMean };

struct Objective {
  std::string name;
  bool higher_is_better = false;
  std::optional<double> target;  ///< met when the value is better than this
  Source source = Source::kPrinted;
  std::string key;  ///< printed name, field of the report, or the expression
  Aggregate aggregate = Aggregate::kAuto;

  [[nodiscard]] bool better(double a, double b) const { return higher_is_better ? a > b : a < b; }
  [[nodiscard]] bool meets_target(double value) const { return target && better(value, *target); }
  friend bool operator==(const Objective&, const Objective&) = default;
};

/// "p99_ms < 20"
struct Constraint {
  std::string metric;
  std::string op;  ///< <, <=, > or >=
  double bound = 0;

  [[nodiscard]] bool holds(double value) const;
  /// 0 where it holds, else how far the value is from the bound, as a share of the bound; infinite for a bound of 0.
  [[nodiscard]] double excess(double value) const;
  [[nodiscard]] std::string text() const;
  friend bool operator==(const Constraint&, const Constraint&) = default;
};

/// kExitUsage: no such form.
Result<Constraint> parse_constraint(const std::string& text);

/// "sum", "max", ...; nullopt for another word.
std::optional<Aggregate> parse_aggregate(const std::string& word);
std::string text_of(Aggregate aggregate);

/// kAuto: the sum of what is better when higher (throughput), the largest of what is better when lower (latency).
double aggregated(const std::vector<double>& values, Aggregate how, bool higher_is_better);

/// --objective: "throughput", "latency", "wall", "memory", "bench:FIELD", "printed:NAME", "regex:EXPRESSION", each with "max:" or "min:" in
/// front where the direction does not follow. throughput and latency are settled by what the first run offers (resolve.h); their key is "".
Result<Objective> parse_objective(const std::string& text);

/// Adds one that has no name yet there, since values are kept by name. Expressions without a name of their own are "value", "value2", ...;
/// kExitUsage: another one is given twice.
Status add_objective(Objective objective, std::vector<Objective>* out);

/// "throughput, p99", for people.
std::string objective_names(const std::vector<Objective>& objectives);

/// All that was asked for, as one text: two studies with different ones are not the same study.
std::string objectives_text(const std::vector<Objective>& objectives);

/// Whether a field of the report is better when higher.
bool field_higher_is_better(const std::string& field);

/// The objectives that the default space, and no file, leaves to the first run.
inline bool needs_resolving(const Objective& one) { return one.source == Source::kBench && one.key.empty(); }

}  // namespace ipexrun::tuner
