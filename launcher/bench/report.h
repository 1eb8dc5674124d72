// The report as data, and the one table of its fields. Terminal, csv, json, md and html are made from that table; a new field is
// one row in fields.cpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/bench/measure.h"
#include "launcher/bench/metric.h"
#include "launcher/bench/stats.h"

namespace ipexrun::launcher::bench {

enum class Source {
  kModuleCalls,   ///< events of the module-call hook
  kMetricLine,    ///< a number that the program printed
  kWholeProgram,  ///< wall time from start to end
};

/// One line of the report: one variant, all instances together or one, one module class.
struct Row {
  std::string variant = "ipexrun";
  int instance = -1;  ///< -1 = all instances together
  Source source = Source::kWholeProgram;
  Measurement calls;  ///< module calls (pooled over instances where instance = -1); empty otherwise
  /// Samples a second and calls a second: of one instance, or the sum over instances.
  std::optional<double> samples_per_second;
  std::optional<double> calls_per_second;
  std::optional<Metric> metric;
  double wall_seconds = 0;  ///< longest instance; several runs: their median
  double cpu_seconds = 0;   ///< user + system, summed
  double max_rss_bytes = 0;
  std::string cpus;  ///< CPU list, "" = not pinned
  int cores = 0;     ///< CPUs in that list, summed over instances; 0 = not pinned
  int threads = 0;   ///< OpenMP pool, summed over instances; 0 = not set by us
  std::optional<std::int64_t> ops_taken;
  std::optional<std::int64_t> ops_declined;
  std::uint64_t lost = 0;  ///< events that were overwritten before they could be read
};

/// A field's value: a number, a text, or nothing with the reason why.
struct Missing {
  std::string why;
  friend bool operator==(const Missing&, const Missing&) = default;
};
using Value = std::variant<Missing, std::int64_t, double, std::string>;

/// One field. The order of the table is the order everywhere.
struct Field {
  const char* name;  ///< stable key in json and csv
  const char* unit;  ///< "" = none
  const char* doc;   ///< one sentence, shown in docs/bench.md
  bool brief;        ///< also a column of the tables that compare rows
  Value (*get)(const Row& row);
};
const std::vector<Field>& fields();

/// "8.131", "1,234", "-": for people; four significant digits.
std::string show_value(const Value& value);
std::string show_number(double value);
/// "1.83x"
std::string show_ratio(double ratio);

/// One fact about where the numbers were made.
struct Fact {
  std::string name;   ///< stable key
  std::string value;  ///< "" = unknown
  std::string doc;
};

/// One variant against the first one.
struct Comparison {
  std::string variant;
  std::string baseline;
  std::vector<double> ratios;        ///< one a pair: how many times as fast as the baseline
  double speedup = 0;                ///< median of ratios
  std::optional<Interval> interval;  ///< 95%, nullopt with fewer than three pairs
  RankTest test;
};

/// Where the time of training steps goes: one instance of one variant.
struct TrainingRow {
  std::string variant;
  int instance = 0;
  long steps = 0;     ///< measured
  long left_out = 0;  ///< at the start, and while selection was measuring
  double seconds = 0;
  std::optional<double> samples;  ///< in all of them; nullopt = unknown
  double batches = 0;             ///< that DataLoaders gave
  double data_s = 0;
  double forward_s = 0;
  double backward_s = 0;
  double optimizer_s = 0;

  [[nodiscard]] double other_s() const { return std::max(seconds - data_s - forward_s - backward_s - optimizer_s, 0.0); }
  /// "the loader gives 31 batches/s; the model could take 80: ..."; "" where no part stands out.
  [[nodiscard]] std::string bottleneck() const;
};

struct Report {
  std::string command;   ///< as typed, quoted for a shell
  std::string headline;  ///< what the speed-ups and the plot are about: "p50 of BertModel"
  std::vector<Fact> environment;
  std::vector<Row> rows;              ///< of each variant: all instances, then (when several) each instance
  std::vector<Row> modules;           ///< all instances, one row a module class, when there is more than one
  std::vector<TrainingRow> training;  ///< none where no optimizer stepped
  std::vector<Comparison> comparisons;
  std::vector<std::string> notes;     ///< how the measurement was made
  std::vector<std::string> warnings;  ///< what makes it doubtful
};

/// Renderings. The terminal text has a newline after each line and no prefix.
std::string report_text(const Report& report);
std::string report_json(const Report& report);
std::string report_csv(const Report& report);
std::string report_markdown(const Report& report);
std::string report_html(const Report& report);

/// The SVG of latency over calls and of its distribution; "" without module calls.
std::string latency_plot(const Row& row);

/// Escapes for HTML and SVG text and attributes.
std::string html_escape(const std::string& text);

}  // namespace ipexrun::launcher::bench
