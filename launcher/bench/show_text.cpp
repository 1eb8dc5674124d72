// The report for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/bench/report.h"
#include "launcher/bench/table.h"
#include "launcher/bench/training.h"

namespace ipexrun::launcher::bench {
namespace {

std::string with_unit(const Field& field, const Value& value) {
  const std::string text = show_value(value);
  return *field.unit == '\0' || std::holds_alternative<Missing>(value) ? text : text + ' ' + field.unit;
}

/// Counts that are worth a line only when something was left out or lost.
bool silent_zero(const Field& field, const Value& value) {
  const std::string name = field.name;
  const bool counts = name.ends_with("_calls") || name == "calls" || name == "lost_events";
  return counts && value == Value(std::int64_t{0});
}

/// One line a field that has a value, then the percentiles that n cannot support.
std::string headline_lines(const Row& row) {
  std::string out;
  std::string unsupported;
  for (const Field& field : fields()) {
    const Value value = field.get(row);
    if (const auto* none = std::get_if<Missing>(&value)) {
      if (none->why.find("needs n >= ") != std::string::npos) unsupported += fmt::format("  {:<15} {}\n", field.name, none->why);
      continue;
    }
    const std::string name = field.name;
    if (name == "variant" || name == "instance" || silent_zero(field, value)) continue;
    out += fmt::format("  {:<15} {}\n", field.name, with_unit(field, value));
  }
  return out + unsupported;
}

std::string title(const Report& report, const Row& row) {
  std::string out = "bench: " + report.headline;
  const auto instances =
      static_cast<int>(std::count_if(report.rows.begin(), report.rows.end(), [](const Row& r) { return r.variant == "ipexrun"; })) - 1;
  if (instances > 1) out += fmt::format(", {} instances", instances);
  if (row.cores > 0) out += fmt::format(", {} {}", row.cores, row.cores == 1 ? "core" : "cores");
  return out + '\n';
}

std::string comparison_lines(const Report& report) {
  std::string out =
      fmt::format("speed-up in {}: median of {} paired runs (95% interval)\n", report.headline, report.comparisons.front().ratios.size());
  for (const Comparison& one : report.comparisons) {
    out += "  " + comparison_sentence(one) + '\n';
  }
  return out;
}

}  // namespace

std::string report_text(const Report& report) {
  std::string out;
  const auto headline =
      std::find_if(report.rows.begin(), report.rows.end(), [](const Row& r) { return r.variant == "ipexrun" && r.instance < 0; });
  if (headline != report.rows.end()) out += title(report, *headline) + headline_lines(*headline);
  if (report.rows.size() > 1) out += text_table(brief_table(report.rows));
  if (!report.modules.empty()) {
    out += "by module class\n";
    out += text_table(module_table(report.modules));
  }
  out += training_text(report.training);
  if (!report.comparisons.empty()) out += comparison_lines(report);
  for (const std::string& note : report.notes) out += "note: " + note + '\n';
  for (const std::string& warning : report.warnings) out += "warning: " + warning + '\n';
  return out;
}

}  // namespace ipexrun::launcher::bench
