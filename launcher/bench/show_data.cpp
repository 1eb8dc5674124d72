// The report for programs: json with everything, csv with one line a row.
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "launcher/bench/report.h"
#include "launcher/bench/values.h"

namespace ipexrun::launcher::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr std::size_t kMostSamples = 100000;  // of one row: a report should stay readable; what is cut is said

Json row_json(const Row& row) {
  Json out = Json::object();
  Json missing = Json::object();
  for (const Field& field : fields()) {
    const Value value = field.get(row);
    out[field.name] = value_json(value);
    if (const auto* none = std::get_if<Missing>(&value)) missing[field.name] = none->why;
  }
  out["missing"] = std::move(missing);
  const auto& times = row.calls.duration_ms;
  if (!times.empty()) {
    const auto end = times.begin() + static_cast<std::ptrdiff_t>(std::min(times.size(), kMostSamples));
    out["duration_ms"] = std::vector<double>(times.begin(), end);
    if (times.size() > kMostSamples) out["duration_ms_left_out"] = times.size() - kMostSamples;
  }
  return out;
}

Json training_json(const TrainingRow& row) {
  Json out{{"variant", row.variant},
           {"instance", row.instance},
           {"steps", row.steps},
           {"left_out", row.left_out},
           {"steps_per_s", static_cast<double>(row.steps) / row.seconds},
           {"samples_per_s", nullptr},
           {"batches_per_s", row.batches / row.seconds},
           {"data_s", row.data_s},
           {"forward_s", row.forward_s},
           {"backward_s", row.backward_s},
           {"optimizer_s", row.optimizer_s},
           {"other_s", row.other_s()},
           {"bottleneck", row.bottleneck()}};
  if (row.samples) out["samples_per_s"] = *row.samples / row.seconds;
  return out;
}

Json comparison_json(const Comparison& one) {
  Json out{{"variant", one.variant}, {"baseline", one.baseline}, {"speedup", one.speedup}, {"pair_ratios", one.ratios}};
  out["interval_95"] = one.interval ? Json::array({one.interval->low, one.interval->high}) : Json(nullptr);
  out["rank_test"] = Json{{"n", one.test.n}, {"p", one.test.p}, {"exact", one.test.exact}, {"least_p", one.test.least_p}};
  return out;
}

/// RFC 4180: quotes around a cell that holds a comma, a quote or a line end.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string csv_value(const Value& value) {
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  return std::holds_alternative<Missing>(value) ? "" : csv_cell(show_value(value));
}

}  // namespace

std::string report_json(const Report& report) {
  Json out;
  out["schema"] = kSchema;
  out["command"] = report.command;
  out["headline"] = report.headline;
  Json facts = Json::object();
  for (const Fact& fact : report.environment) facts[fact.name] = fact.value;
  out["environment"] = std::move(facts);
  Json table = Json::array();
  for (const Field& field : fields()) table.push_back({{"name", field.name}, {"unit", field.unit}, {"doc", field.doc}});
  out["fields"] = std::move(table);
  out["rows"] = Json::array();
  for (const Row& row : report.rows) out["rows"].push_back(row_json(row));
  out["modules"] = Json::array();
  for (const Row& row : report.modules) out["modules"].push_back(row_json(row));
  out["training"] = Json::array();
  for (const TrainingRow& row : report.training) out["training"].push_back(training_json(row));
  out["comparisons"] = Json::array();
  for (const Comparison& one : report.comparisons) out["comparisons"].push_back(comparison_json(one));
  out["notes"] = report.notes;
  out["warnings"] = report.warnings;
  // Program output and paths need not be valid UTF-8; a report with a replacement character is better than none.
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string report_csv(const Report& report) {
  std::string out;
  for (const Field& field : fields()) out += (out.empty() ? "" : ",") + std::string(field.name);
  out += '\n';
  for (const auto* rows : {&report.rows, &report.modules}) {
    for (const Row& row : *rows) {
      std::string line;
      for (const Field& field : fields()) line += (&field == &fields().front() ? "" : ",") + csv_value(field.get(row));
      out += line + '\n';
    }
  }
  return out;
}

}  // namespace ipexrun::launcher::bench
