// The report for a terminal.
#include <fmt/format.h>

#include <algorithm>

#include "launcher/bench/report.h"
#include "launcher/bench/table.h"

namespace ipexrun::launcher::bench {
namespace {

std::string with_unit(const Field& field, const Value& value) {
  const std::string text = show_value(value);
  return *field.unit == '\0' || std::holds_alternative<Missing>(value) ? text : text + ' ' + field.unit;
}

/// The lines of the headline row: several fields a line, grouped by what a person asks for together.
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
    if (name == "variant" || name == "instance") continue;
    if (row.source != Source::kModuleCalls && value == Value(std::int64_t{0})) continue;
    const bool zero_means_nothing = name == "failed_calls" || name == "training_calls" || name == "lost_events" || name == "explored_calls";
    if (zero_means_nothing && value == Value(std::int64_t{0})) continue;
    out += fmt::format("  {:<15} {}\n", field.name, with_unit(field, value));
  }
  return out + unsupported;
}

std::string comparison_lines(const Report& report) {
  std::string out = fmt::format("speed-up in {} (median of {} paired runs, interval of 95%)\n", report.headline,
                                report.comparisons.front().ratios.size());
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
  if (headline != report.rows.end()) out += headline_lines(*headline);
  if (report.rows.size() > 1) out += text_table(brief_table(report.rows));
  if (!report.modules.empty()) {
    out += "by module class\n";
    out += text_table(module_table(report.modules));
  }
  if (!report.comparisons.empty()) out += comparison_lines(report);
  for (const std::string& note : report.notes) out += "note: " + note + '\n';
  for (const std::string& warning : report.warnings) out += "warning: " + warning + '\n';
  return out;
}

}  // namespace ipexrun::launcher::bench
