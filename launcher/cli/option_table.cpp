#include "launcher/cli/option_table.h"

#include <algorithm>
#include <numeric>

#include "launcher/cli/rows.h"

namespace ipexrun::launcher {
namespace {

std::string dashes(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

/// Levenshtein distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> previous(b.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::vector<std::size_t> current(b.size() + 1);
    current[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j)
      current[j + 1] = std::min({previous[j + 1] + 1, current[j] + 1, previous[j] + (a[i] == b[j] ? 0 : 1)});
    previous = std::move(current);
  }
  return previous.back();
}

}  // namespace

std::vector<std::string> OptionRow::values_to_keep(const Options& options) const {
  std::vector<std::string> out = get(options);
  const bool asked = std::find(options.given.begin(), options.given.end(), name) != options.given.end();
  if (out.empty() && asked && variable) out.push_back(choices.front());  // of these options the first one is the default
  return out;
}

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> table = [] {
    std::vector<OptionRow> rows;
    add_instance_rows(rows);
    add_process_rows(rows);
    add_distributed_rows(rows);
    add_log_rows(rows);
    add_show_rows(rows);
    add_bench_rows(rows);
    add_xpu_rows(rows);
    add_doctor_rows(rows);
    add_compatible_rows(rows);
    add_later_rows(rows);
    return rows;
  }();
  return table;
}

std::string_view group_title(OptionGroup group) {
  switch (group) {
    case OptionGroup::kInstances:
      return "Instances and cores";
    case OptionGroup::kProcess:
      return "How the program runs";
    case OptionGroup::kRanks:
      return "Many ranks and hosts";
    case OptionGroup::kLogs:
      return "Supervision and logs";
    case OptionGroup::kShow:
      return "Plans and settings";
    case OptionGroup::kBench:
      return "Benchmark and report";
    case OptionGroup::kXpu:
      return "Intel GPUs (ipexrun xpu)";
    case OptionGroup::kDoctor:
      return "Checking an installation (ipexrun doctor)";
    case OptionGroup::kCompatible:
      return "Names of other launchers";
    case OptionGroup::kLater:
      return "Known, with a later version";
  }
  return "";
}

const OptionRow* find_option(std::string_view long_name) {
  const std::string wanted = dashes(long_name);
  for (const OptionRow& row : option_table())
    if (row.name == wanted || std::find(row.aliases.begin(), row.aliases.end(), wanted) != row.aliases.end()) return &row;
  return nullptr;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(dashes(word), candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::vector<std::string> option_names() {
  std::vector<std::string> out = {"help", "version", "module", "no-python"};
  for (const OptionRow& row : option_table()) {
    out.push_back(row.name);
    out.insert(out.end(), row.aliases.begin(), row.aliases.end());
  }
  return out;
}

}  // namespace ipexrun::launcher
