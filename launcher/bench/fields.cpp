#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launcher/bench/report.h"

namespace ipexrun::launcher::bench {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

Value missing(const char* why) { return Missing{why}; }

Value of(const std::optional<double>& value, const char* why) { return value ? Value(*value) : missing(why); }

Value of(const std::optional<std::int64_t>& value, const char* why) { return value ? Value(*value) : missing(why); }

Value count(long n) { return static_cast<std::int64_t>(n); }

bool has_calls(const Row& row) { return !row.calls.duration_ms.empty(); }

Value of_calls(const Row& row, double (*statistic)(const std::vector<double>&)) {
  if (!has_calls(row)) return missing("no module call was measured");
  return statistic(row.calls.duration_ms);
}

Value percentile(const Row& row, double q, const char* name) {
  if (!has_calls(row)) return missing("no module call was measured");
  std::vector<double> sorted = row.calls.duration_ms;
  const int need = min_samples_for_quantile(q);
  if (static_cast<int>(sorted.size()) < need) return Missing{fmt::format("{} needs n >= {}, have {}", name, need, sorted.size())};
  std::sort(sorted.begin(), sorted.end());
  return quantile(sorted, q);
}

/// Batch sizes of the measured calls; none when one is unknown.
Value batch(const Row& row, double (*statistic)(std::vector<double>)) {
  if (!row.calls.samples()) return missing("the batch size is unknown");
  std::vector<double> sizes(row.calls.batch.begin(), row.calls.batch.end());
  return statistic(std::move(sizes));
}

double least(std::vector<double> values) { return *std::min_element(values.begin(), values.end()); }
double most(std::vector<double> values) { return *std::max_element(values.begin(), values.end()); }

}  // namespace

// clang-format off
const std::vector<Field>& fields() {
  static const std::vector<Field> table = {
    {"variant", "", "ipexrun: the run as asked for; launch: without optimizations; stock: the program alone", true,
     [](const Row& r) -> Value { return r.variant; }},
    {"instance", "", "number of the instance, or all", true,
     [](const Row& r) -> Value { return r.instance < 0 ? std::string("all") : std::to_string(r.instance); }},
    {"measured", "", "what was timed: module calls, metric line, or whole program", false,
     [](const Row& r) -> Value {
       return std::string(r.source == Source::kModuleCalls ? "module calls" : r.source == Source::kMetricLine ? "metric line" : "whole program");
     }},
    {"module", "", "class of the module whose top-level calls were timed", false,
     [](const Row& r) -> Value { return r.calls.module.empty() ? missing("no module calls") : Value(r.calls.module); }},
    {"calls", "", "calls that were measured", true, [](const Row& r) -> Value { return count(static_cast<long>(r.calls.duration_ms.size())); }},
    {"warmup_calls", "", "calls left out at the start", false, [](const Row& r) -> Value { return count(r.calls.warmup); }},
    {"explored_calls", "", "calls left out because selection was measuring candidates in them", false,
     [](const Row& r) -> Value { return count(r.calls.explored); }},
    {"failed_calls", "", "calls left out because they raised", false, [](const Row& r) -> Value { return count(r.calls.failed); }},
    {"training_calls", "", "measured calls with grad mode on and the module in train()", false,
     [](const Row& r) -> Value { return count(r.calls.training); }},
    {"lost_events", "", "records that were overwritten before they could be read", false,
     [](const Row& r) -> Value { return static_cast<std::int64_t>(r.lost); }},
    {"batch", "", "batch size, median over the measured calls: dimension 0 of the first tensor argument", true,
     [](const Row& r) -> Value { return batch(r, median); }},
    {"batch_min", "", "smallest batch", false, [](const Row& r) -> Value { return batch(r, least); }},
    {"batch_max", "", "largest batch", false, [](const Row& r) -> Value { return batch(r, most); }},
    {"samples_per_s", "1/s", "samples divided by the time in which a measured call was under way; all: sum over the instances", true,
     [](const Row& r) -> Value { return of(r.samples_per_second, "the batch size is unknown"); }},
    {"calls_per_s", "1/s", "the same for calls", false, [](const Row& r) -> Value { return of(r.calls_per_second, "no module call was measured"); }},
    {"busy", "%", "share of the measured window that was spent inside the calls; the rest is the program's own work", false,
     [](const Row& r) -> Value {
       if (r.calls.span_seconds <= 0) return missing("no module call was measured");
       return 100 * r.calls.busy_seconds / r.calls.span_seconds;
     }},
    {"first_ms", "ms", "the very first call (never measured when there is a warm-up); all: the slowest instance's", false,
     [](const Row& r) -> Value { return r.calls.seen > 0 ? Value(r.calls.first_ms) : missing("no module calls"); }},
    {"mean_ms", "ms", "mean time of a call", false, [](const Row& r) -> Value { return of_calls(r, mean); }},
    {"stdev_ms", "ms", "sample standard deviation", false,
     [](const Row& r) -> Value { return r.calls.duration_ms.size() == 1 ? missing("one call has no spread") : of_calls(r, stdev); }},
    {"min_ms", "ms", "fastest call", false,
     [](const Row& r) -> Value { return of_calls(r, [](const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }); }},
    {"p50_ms", "ms", "median of the measured calls", true,
     [](const Row& r) -> Value { return of_calls(r, [](const std::vector<double>& v) { return median(v); }); }},
    {"p90_ms", "ms", "90th percentile", true, [](const Row& r) { return percentile(r, 0.90, "p90"); }},
    {"p95_ms", "ms", "95th percentile", false, [](const Row& r) { return percentile(r, 0.95, "p95"); }},
    {"p99_ms", "ms", "99th percentile", true, [](const Row& r) { return percentile(r, 0.99, "p99"); }},
    {"max_ms", "ms", "slowest call", false,
     [](const Row& r) -> Value { return of_calls(r, [](const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }); }},
    {"metric", "", "the number that the program printed; all: the sum of rates, the mean of times", true,
     [](const Row& r) -> Value { return r.metric ? Value(r.metric->value) : missing("no metric line"); }},
    {"metric_line", "", "the line it was taken from", false,
     [](const Row& r) -> Value { return r.metric ? Value(r.metric->line) : missing("no metric line"); }},
    {"wall_s", "s", "from start to end of the process; several runs: their median", true, [](const Row& r) -> Value { return r.wall_seconds; }},
    {"cpu_s", "s", "user and system time", false, [](const Row& r) -> Value { return r.cpu_seconds; }},
    {"max_rss_mib", "MiB", "peak resident memory; all: the sum over the instances", true, [](const Row& r) -> Value { return r.max_rss_bytes / kMiB; }},
    {"cores", "", "CPUs it was bound to", true, [](const Row& r) -> Value { return r.cores > 0 ? count(r.cores) : missing("not pinned"); }},
    {"cpus", "", "their numbers", false, [](const Row& r) -> Value { return r.cpus.empty() ? missing("not pinned") : Value(r.cpus); }},
    {"threads", "", "size of the OpenMP pool", false, [](const Row& r) -> Value { return r.threads > 0 ? count(r.threads) : missing("not set by us"); }},
    {"ops_taken", "", "operator calls computed by a candidate of ipexrun", false,
     [](const Row& r) -> Value { return of(r.ops_taken, "the plugin reported no totals"); }},
    {"ops_declined", "", "operator calls looked at and left to stock", false,
     [](const Row& r) -> Value { return of(r.ops_declined, "the plugin reported no totals"); }},
  };
  return table;
}
// clang-format on

std::string show_number(double value) {
  if (value == 0 || !std::isfinite(value)) return fmt::format("{}", value);
  const double magnitude = std::abs(value);
  if (magnitude >= 1e7 || magnitude < 1e-3) return fmt::format("{:.3e}", value);
  const int digits = std::clamp(3 - static_cast<int>(std::floor(std::log10(magnitude))), 0, 6);
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string show_ratio(double ratio) { return ratio < 100 ? fmt::format("{:.2f}x", ratio) : fmt::format("{:.0f}x", ratio); }

std::string show_value(const Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&value)) return show_number(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  return "-";
}

}  // namespace ipexrun::launcher::bench
