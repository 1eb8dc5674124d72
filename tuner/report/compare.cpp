// Two studies side by side.
#include <fmt/format.h>

#include <set>

#include "launcher/bench/page.h"
#include "launcher/bench/report.h"
#include "launcher/bench/stats.h"
#include "launcher/bench/table.h"
#include "tuner/report/result.h"
#include "tuner/study/study.h"

namespace ipexrun::tuner {
namespace {

using launcher::bench::show_number;

const Trial* best_of(const History& history) {
  if (history.best >= 0) return history.find(history.best);
  if (history.objectives.empty()) return nullptr;
  const auto all = ranked(history, chosen_objective(history));
  return all.empty() ? nullptr : all.front();
}

/// Runs of the final claim where there are any: they were made for judging; else those of the search.
std::vector<double> values_of(const History& history, const Trial& trial, const std::string& objective) {
  std::vector<double> out = round_values(history, "claim", last_series(history), trial.number, objective);
  return out.empty() ? trial.values(objective) : out;
}

std::string value_text(const std::vector<double>& values) {
  if (values.empty()) return "-";
  const auto interval = launcher::bench::bootstrap_median(values);
  std::string out = show_number(launcher::bench::median(values));
  if (interval) out += fmt::format(" ({} to {})", show_number(interval->low), show_number(interval->high));
  return out + fmt::format(", n = {}", values.size());
}

}  // namespace

Result<std::string> compare_studies(const History& a, const History& b, const std::string& name_a, const std::string& name_b,
                                    const std::string& file) {
  using launcher::bench::html_escape;
  const bool page = file.ends_with(".html");
  const bool markdown = file.ends_with(".md");
  if (!file.empty() && !page && !markdown) return Error{kExitUsage, "--output '" + file + "' has no form", "its name ends in .html or .md"};
  launcher::bench::Table table{{"", name_a, name_b}, {false, true, true}, {}};
  const auto row = [&](const std::string& what, const std::string& x, const std::string& y) { table.lines.push_back({what, x, y}); };
  const Trial* best_a = best_of(a);
  const Trial* best_b = best_of(b);
  row("machine", a.head->machine, b.head->machine);
  row("begun", a.head->started, b.head->started);
  row("strategy", a.head->strategy, b.head->strategy);
  row("trials", std::to_string(a.ended()), std::to_string(b.ended()));
  row("best trial", best_a == nullptr ? "-" : std::to_string(best_a->number), best_b == nullptr ? "-" : std::to_string(best_b->number));
  std::vector<std::string> ratios;
  std::set<std::string> names;
  for (const History* one : {&a, &b}) names.insert(one->head->parameters.begin(), one->head->parameters.end());
  const auto setting = [](const Trial* trial, const std::string& name) {
    const auto found = trial == nullptr ? Point::const_iterator{} : trial->point.find(name);
    return trial == nullptr || found == trial->point.end() ? std::string("-") : text_of(found->second);
  };
  for (const std::string& name : names)
    if (setting(best_a, name) != setting(best_b, name)) row(name, setting(best_a, name), setting(best_b, name));
  for (const Objective& objective : a.objectives) {
    const bool both = std::any_of(b.objectives.begin(), b.objectives.end(), [&](const Objective& o) { return o.name == objective.name; });
    if (!both || best_a == nullptr || best_b == nullptr) continue;
    const std::vector<double> x = values_of(a, *best_a, objective.name);
    const std::vector<double> y = values_of(b, *best_b, objective.name);
    row(name_and_unit(objective) + " of the best", value_text(x), value_text(y));
    if (const Trial* da = a.find(0), *db = b.find(0); da != nullptr && db != nullptr)
      row(name_and_unit(objective) + " of the default", value_text(values_of(a, *da, objective.name)),
          value_text(values_of(b, *db, objective.name)));
    if (x.empty() || y.empty()) continue;
    const double of_a = launcher::bench::median(x);
    const double of_b = launcher::bench::median(y);
    if (of_a > 0 && of_b > 0) {
      ratios.push_back(fmt::format("{}: the best of {} is {} that of {}", objective.name, name_b,
                                   launcher::bench::show_ratio(objective.higher_is_better ? of_b / of_a : of_a / of_b), name_a));
    } else {  // such have no ratio
      ratios.push_back(fmt::format("{}: the best of {} is better than that of {} by {}", objective.name, name_b, name_a,
                                   show_number(objective.higher_is_better ? of_b - of_a : of_a - of_b)));
    }
  }
  std::vector<std::string> said = ratios;
  if (a.head->program != b.head->program) said.emplace_back("warning: the studies are of two different command lines");
  if (a.head->machine != b.head->machine) said.emplace_back("warning: the studies are of two different machines");
  said.emplace_back(ratios.empty() ? "the two have no measured objective in common"
                                   : "The runs of the two were not made in turn: a drift of the machine between them is in these numbers.");
  std::string out = page       ? page_head("hypertune compare") + "<h1>hypertune compare</h1>\n" + launcher::bench::html_table(table)
                    : markdown ? "# hypertune compare\n\n" + launcher::bench::markdown_table(table) + "\n"
                               : launcher::bench::text_table(table);
  for (const std::string& one : said) out += page ? "<p>" + html_escape(one) + "</p>\n" : one + (markdown ? "\n\n" : "\n");
  return page ? out + "</body></html>\n" : out;
}

}  // namespace ipexrun::tuner
