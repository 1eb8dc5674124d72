#include "tuner/report/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "launcher/bench/report.h"
#include "launcher/bench/stats.h"
#include "launcher/cli/cli.h"
#include "launcher/plan/show.h"
#include "tuner/objective/measured.h"
#include "tuner/study/study.h"

namespace ipexrun::tuner {
namespace {

using launcher::bench::show_number;

constexpr std::size_t kShownTrials = 10;

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

/// For people: 0.123456789 as 0.1235. Values that one can count stay as they are.
std::string shown(const Value& value) {
  const auto* real = std::get_if<double>(&value);
  return real == nullptr ? text_of(value) : show_number(*real);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// "+-1.2%": half the range of the runs, relative to their median.
std::string spread_text(const std::vector<double>& values) {
  if (values.size() < 2) return "";
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double middle = launcher::bench::median(values);
  return middle == 0 ? "" : fmt::format("{:.1f}", 50 * (*high - *low) / std::abs(middle));
}

}  // namespace

std::string point_text(const Point& point) {
  std::string out;
  for (const auto& [name, value] : point)
    if (!std::holds_alternative<std::monostate>(value)) out += (out.empty() ? "" : ", ") + name + " " + shown(value);
  return out.empty() ? "as it is" : out;
}

std::string show_value_of(const Objective& objective, double value) {
  const std::string unit = unit_of(objective);
  return show_number(value) + (unit.empty() ? "" : " " + unit);
}

std::string name_and_unit(const Objective& objective) {
  const std::string unit = unit_of(objective);
  return objective.name + (unit.empty() ? "" : " (" + unit + ")");
}

std::string duration_text(double seconds) {
  const auto s = static_cast<long>(std::lround(std::max(0.0, seconds)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s % 3600 / 60);
}

std::string record_csv(const History& history) {
  std::vector<std::string> names = history.head ? history.head->parameters : std::vector<std::string>{};
  std::string out;
  for (const std::string& name : names) out += csv_cell(name) + ",";
  for (const Objective& one : history.objectives) out += csv_cell(one.name) + ",";
  out += "state,runs,seconds,spread_percent,constraints_met,trial,why\n";
  for (const Trial& trial : history.trials) {
    if (!trial.ended) continue;
    for (const std::string& name : names) {
      const auto found = trial.point.find(name);
      const bool set = found != trial.point.end() && !std::holds_alternative<std::monostate>(found->second);
      out += (set ? csv_cell(text_of(found->second)) : "") + ",";
    }
    for (const Objective& one : history.objectives) {
      const auto value = trial.value(one.name);
      out += (value ? text_of(Value(*value)) : "") + ",";
    }
    const bool known = !history.objectives.empty();
    const std::string met = trial.state != State::kComplete || !history.head ? ""
                            : meets(trial, history.head->constraints)        ? "true"
                                                                             : "false";
    out += fmt::format("{},{},{:.3f},{},{},{},{}\n", word_of(trial.state), trial.runs.size(), trial.seconds(),
                       known ? spread_text(trial.values(history.objectives.front().name)) : "", met, trial.number,
                       csv_cell(first_line(trial.why)));
  }
  return out;
}

launcher::bench::Table trials_table(const History& history, std::size_t most) {
  launcher::bench::Table out;
  out.header = {"trial"};
  out.numeric = {true};
  std::vector<std::string> names;
  for (const std::string& name : history.head ? history.head->parameters : std::vector<std::string>{}) {
    for (const Trial& trial : history.trials) {
      if (trial.point.count(name) == 0) continue;
      names.push_back(name);
      out.header.push_back(name);
      out.numeric.push_back(false);
      break;
    }
  }
  for (const Objective& one : history.objectives) {
    out.header.push_back(name_and_unit(one));
    out.numeric.push_back(true);
  }
  if (history.objectives.empty()) return out;
  out.header.insert(out.header.end(), {"of default", "+-%", "runs"});
  out.numeric.insert(out.numeric.end(), {true, true, true});
  const Objective& objective = chosen_objective(history);
  const Trial* first = history.find(0);
  const double of_first = first == nullptr ? 0 : first->value(objective.name).value_or(0);
  std::vector<const Trial*> rows = ranked(history, objective);
  if (rows.size() > most) rows.resize(most);
  if (first != nullptr && first->value(objective.name) &&
      std::none_of(rows.begin(), rows.end(), [](const Trial* one) { return one->number == 0; }))
    rows.push_back(first);
  for (const Trial* trial : rows) {
    std::vector<std::string> line = {trial->number == 0 ? "default" : std::to_string(trial->number)};
    for (const std::string& name : names) {
      const auto found = trial->point.find(name);
      line.push_back(found == trial->point.end() ? "-" : shown(found->second));
    }
    for (const Objective& one : history.objectives) line.push_back(show_number(trial->value(one.name).value_or(0)));
    const double value = trial->value(objective.name).value_or(0);
    line.push_back(of_first > 0 && value > 0 ? launcher::bench::show_ratio(objective.higher_is_better ? value / of_first : of_first / value)
                                             : "-");
    line.push_back(spread_text(trial->values(objective.name)));
    line.push_back(std::to_string(trial->runs.size()));
    out.lines.push_back(std::move(line));
  }
  return out;
}

std::string result_text(const History& history, const std::string& folder) {
  std::string out;
  std::map<std::string, int> states;
  for (const Trial& one : history.trials)
    if (one.ended && !measured(one.state)) ++states[word_of(one.state)];
  out += fmt::format("{} trial{} in {}", history.ended(), history.ended() == 1 ? "" : "s", folder);
  for (const auto& [word, count] : states) out += fmt::format(", {} {}", count, word);
  int refused = 0;
  for (const auto& [why, count] : history.dropped) refused += count;
  if (refused > 0) out += fmt::format("; the planner refused {} point{}", refused, refused == 1 ? "" : "s");
  if (!history.stop.empty()) out += "; " + history.stop;
  out += "\n";
  if (const launcher::bench::Table table = trials_table(history, kShownTrials); !table.lines.empty()) {
    out += launcher::bench::text_table(table);
    if (const std::size_t all = ranked(history, chosen_objective(history)).size(); all > kShownTrials)
      out += fmt::format("the best {} of {} measured trials; all are in record.csv\n", kShownTrials, all);
  }
  if (history.objectives.size() > 1) {
    out += "Pareto front: trials";
    for (const Trial* one : pareto_front(history)) out += " " + std::to_string(one->number);
    out += "; chosen by " + chosen_objective(history).name + "\n";
  }
  for (const Trial& one : history.trials)
    if (one.ended && !measured(one.state) && (one.number < 3 || states.size() < 3)) {
      out += fmt::format("trial {} ({}): {}: {}\n", one.number, point_text(one.point), word_of(one.state), first_line(one.why));
      break;
    }
  for (const std::string& warning : study_warnings(history)) out += "warning: " + warning + "\n";
  if (!history.verdict.empty()) out += history.verdict + "\n";
  return out;
}

std::string best_yaml(const History& history, const Space& space, const LaunchWords& words) {
  const Result<launcher::Options> options = options_of(words);
  const Trial* best = history.find(history.best);
  std::string out = "# Written by hypertune; run it with `ipexrun --config best.yaml PROGRAM args`.\n";
  const auto comment = [&](const std::string& text) {
    std::string line;
    for (const char c : text) line += c == '\n' || c == '\r' ? ' ' : c;
    out += "# " + line + "\n";
  };
  if (history.head) comment(history.head->started + ", on " + history.head->machine);
  comment(history.verdict);
  if (best != nullptr) comment("trial " + std::to_string(best->number) + ": " + point_text(best->point));
  if (best != nullptr)
    for (const Objective& one : history.objectives)
      if (const auto value = best->value(one.name)) comment(one.name + " = " + show_value_of(one, *value));
  const bool args =
      std::any_of(space.parameters.begin(), space.parameters.end(), [](const Parameter& one) { return one.target == Target::kArg; });
  std::string line;
  for (const std::string& word : words.program) line += " " + launcher::shell_quoted(word);
  if (args) comment("A config has no arguments of the program. Those of this trial:");
  comment("ipexrun --config best.yaml" + line);
  return out + (options.ok() ? launcher::config_text(*options) : "schema: 1\n");
}

}  // namespace ipexrun::tuner
