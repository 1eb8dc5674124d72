#include "launcher/bench/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace ipexrun::launcher::bench {
namespace {

bool is_missing(const Value& value) { return std::holds_alternative<Missing>(value); }
bool is_number(const Value& value) { return std::holds_alternative<double>(value) || std::holds_alternative<std::int64_t>(value); }

std::string interval_text(const Interval& interval) { return show_ratio(interval.low) + " to " + show_ratio(interval.high); }

Table rows_table(const std::vector<Row>& rows, const std::vector<const Field*>& columns) {
  Table out;
  out.lines.resize(rows.size());
  for (const Field* field : columns) {
    std::vector<Value> values;
    for (const Row& row : rows) values.push_back(field->get(row));
    const bool nothing = std::all_of(values.begin(), values.end(), is_missing);
    const bool no_calls = std::string(field->name) == "calls" &&
                          std::all_of(values.begin(), values.end(), [](const Value& v) { return v == Value(std::int64_t{0}); });
    if (nothing || no_calls) continue;
    out.header.push_back(field->name);
    out.numeric.push_back(std::any_of(values.begin(), values.end(), is_number));
    for (std::size_t i = 0; i < rows.size(); ++i) out.lines[i].push_back(show_value(values[i]));
  }
  return out;
}

}  // namespace

Table brief_table(const std::vector<Row>& rows, const std::vector<std::string>& hidden) {
  std::vector<const Field*> columns;
  for (const Field& field : fields()) {
    if (field.brief && std::find(hidden.begin(), hidden.end(), field.name) == hidden.end()) columns.push_back(&field);
  }
  return rows_table(rows, columns);
}

Table module_table(const std::vector<Row>& rows) {
  double total = 0;
  for (const Row& row : rows) total += row.calls.total_ms;
  std::vector<const Field*> columns;
  for (const char* name : {"module", "calls", "batch", "samples_per_s", "first_ms", "mean_ms", "p50_ms", "p90_ms"}) {
    for (const Field& field : fields()) {
      if (std::string(field.name) == name) columns.push_back(&field);
    }
  }
  Table out = rows_table(rows, columns);
  out.header.emplace_back("share_of_time");
  out.numeric.push_back(true);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out.lines[i].push_back(fmt::format("{:.1f}%", total > 0 ? 100 * rows[i].calls.total_ms / total : 0.0));
  }
  return out;
}

Table full_table(const Row& row) {
  Table out{{"field", "value", "meaning"}, {false, true, false}, {}};
  for (const Field& field : fields()) {
    const Value value = field.get(row);
    const auto* none = std::get_if<Missing>(&value);
    std::string text = none != nullptr ? "- (" + none->why + ")" : show_value(value);
    if (none == nullptr && *field.unit != '\0') text += std::string(" ") + field.unit;
    out.lines.push_back({field.name, text, field.doc});
  }
  return out;
}

Table facts_table(const std::vector<Fact>& facts) {
  Table out{{"fact", "value"}, {false, false}, {}};
  for (const Fact& fact : facts) out.lines.push_back({fact.name, fact.value.empty() ? "unknown" : fact.value});
  return out;
}

Table comparison_table(const std::vector<Comparison>& comparisons) {
  Table out{{"variant", "against", "speed-up", "95% interval", "pairs", "rank test"}, {false, false, true, true, true, true}, {}};
  for (const Comparison& one : comparisons) {
    out.lines.push_back({one.variant, one.baseline, show_ratio(one.speedup), one.interval ? interval_text(*one.interval) : "-",
                         std::to_string(one.ratios.size()), "p = " + show_number(one.test.p)});
  }
  return out;
}

std::string text_table(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < table.header.size(); ++column) {
    std::size_t width = table.header[column].size();
    for (const auto& line : table.lines) width = std::max(width, line[column].size());
    widths.push_back(width);
  }
  std::string out;
  const auto append = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      line += table.numeric[i] ? fmt::format("  {:>{}}", cells[i], widths[i]) : fmt::format("  {:<{}}", cells[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  };
  append(table.header);
  for (const auto& line : table.lines) append(line);
  return out;
}

std::string comparison_sentence(const Comparison& comparison) {
  std::string out = fmt::format("{} against {}: {}", comparison.variant, comparison.baseline, show_ratio(comparison.speedup));
  if (comparison.interval) out += " (" + interval_text(*comparison.interval) + ")";
  return out + fmt::format(", rank test p = {} (n = {}{})", show_number(comparison.test.p), comparison.test.n,
                           comparison.test.exact ? ", exact" : "");
}

}  // namespace ipexrun::launcher::bench
