// What one run of a program offers as numbers, and which of them the objectives and constraints are.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/result.h"
#include "tuner/objective/objective.h"

namespace ipexrun::tuner {

/// One value that an instance printed after `@hypertune {...}`.
struct Printed {
  Objective objective;  ///< as its line says: name, direction, target
  double value = 0;
};

/// What the instances of one run left behind.
struct RunOutput {
  std::vector<std::string> texts;              ///< of each instance: stdout and stderr, the end of it
  std::map<std::string, double> bench;         ///< numbers of the report, all instances together; empty without --bench
  std::map<std::string, std::string> missing;  ///< fields of the report without a number, and why
};

/// Fields of the report that are numbers, and runs_per_s: instances divided by the wall time.
std::vector<std::string> bench_fields();

/// All such lines of one instance, in order. A line that is broken (no name, no number on the next line) is told in `problems`.
std::vector<Printed> parse_printed(const std::string& text, std::vector<std::string>* problems);

/// The report that `--bench-output FILE.json` wrote; false when it is none.
bool read_bench_report(const std::string& json, RunOutput* out);

/// The number of an objective in one run, NaN or infinite where an instance gave such a one. An error says what was seen instead
/// (kExitFailure).
Result<double> value_of(const Objective& objective, const RunOutput& run);

/// All numbers of a run by name: fields of the report, printed values (each the last of its name), aggregated over the instances.
std::map<std::string, double> all_numbers(const RunOutput& run);

/// What the run offers for objectives that were not settled before: printed ones if there are any and nothing else was asked for; else
/// throughput and latency by module calls, by a metric line, by the wall time, whichever comes first.
Result<std::vector<Objective>> resolve_objectives(const std::vector<Objective>& asked, bool asked_by_user, const RunOutput& run);

/// Units and words of the numbers for people: "samples_per_s" of a row measured by module calls is "samples/s".
std::string unit_of(const Objective& objective);

}  // namespace ipexrun::tuner
