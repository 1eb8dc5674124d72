// The report for people: one HTML file without external parts, and Markdown.
#include <fmt/format.h>

#include "launcher/bench/page.h"
#include "launcher/bench/report.h"
#include "launcher/bench/stats.h"
#include "launcher/plan/show.h"
#include "tuner/report/result.h"
#include "tuner/study/study.h"

namespace ipexrun::tuner {
namespace {

using launcher::bench::html_escape;
using launcher::bench::Table;

constexpr std::size_t kMostRows = 200;

constexpr const char* kMoreStyle =
    "svg .best{fill:none;stroke:var(--mark);stroke-width:2}svg .weak{fill:var(--soft);fill-opacity:.35}svg .chosen{fill:#d9480f}"
    "svg .cross{stroke:#c92a2a;stroke-width:1.6;fill:none}svg .thread{fill:none;stroke:var(--mark);stroke-width:1.4}svg "
    ".chosen-line{stroke:#d9480f;stroke-width:2.6}"
    "svg .stand{stroke:var(--ink)}svg .name{font-weight:600;fill:var(--ink)}svg "
    ".halo{paint-order:stroke;stroke:var(--page);stroke-width:3px;fill:var(--ink)}"
    ".verdict{font-size:1.15rem;font-weight:600}svg .weak-line{fill:none;stroke:var(--soft);stroke-width:1.2}"
    // Where there is little room a picture is scrolled, not made too small to read.
    ".wide{overflow-x:auto}.wide svg{max-width:none;min-width:640px}";

Table facts(const History& history) {
  const StudyHead& head = *history.head;
  std::string program;
  for (const std::string& word : head.program) program += (program.empty() ? "" : " ") + launcher::shell_quoted(word);
  Table out{{"fact", "value"}, {false, false}, {}};
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) out.lines.push_back({name, value});
  };
  add("program", program);
  add("machine", head.machine);
  add("begun", head.started);
  add("strategy", fmt::format("{}, seed {}, {} runs a trial at most", head.strategy, head.seed, head.repeats));
  for (const Objective& one : history.objectives) {
    static constexpr const char* kFrom[] = {"printed after @hypertune", "of --bench", "by the expression"};
    add("objective", fmt::format("{} ({} {}), {} is better", one.name, kFrom[static_cast<int>(one.source)], one.key,
                                 one.higher_is_better ? "higher" : "lower"));
  }
  for (const Constraint& one : head.constraints) add("constraint", one.text());
  std::size_t at = 0;
  for (std::size_t end; (end = head.space.find('\n', at)) != std::string::npos; at = end + 1)
    add("parameter", head.space.substr(at, end - at));
  for (const auto& [why, count] : history.dropped) add("refused by the planner", fmt::format("{}: {}", count, why));
  add("the search ended", history.stop);
  return out;
}

Table failures(const History& history) {
  Table out{{"trial", "state", "what it said", "parameters"}, {true, false, false, false}, {}};
  for (const Trial& one : history.trials)
    if (one.ended && !measured(one.state))
      out.lines.push_back({std::to_string(one.number), word_of(one.state), one.why, point_text(one.point)});
  return out;
}

/// The rounds of the last final measurement.
Table rounds(const History& history, const Objective& objective) {
  Table out{{"phase", "round", "trial", objective.name}, {false, true, true, true}, {}};
  for (const Round& one : history.rounds) {
    if (one.series != last_series(history)) continue;
    const auto found = one.run.numbers.find(objective.name);
    out.lines.push_back({one.phase == "claim" ? "final claim" : "leaders", std::to_string(one.round + 1),
                         one.trial == 0 ? "default" : std::to_string(one.trial),
                         one.run.state == State::kComplete && found != one.run.numbers.end() ? launcher::bench::show_number(found->second)
                                                                                             : word_of(one.run.state)});
  }
  return out;
}

std::string wide(const std::string& inside) { return "<div class=\"wide\">" + inside + "</div>\n"; }

std::string key_figures(const History& history) {
  std::string out;
  const auto add = [&](const std::string& number, const std::string& what) {
    out += fmt::format("<div class=\"big\">{} <small>{}</small></div>\n", html_escape(number), html_escape(what));
  };
  if (history.objectives.empty()) return out;
  const Objective& objective = chosen_objective(history);
  if (history.best > 0)
    if (const auto ratios = claim_ratios(history, last_series(history), history.best, objective); !ratios.empty()) {
      const auto interval = launcher::bench::bootstrap_median(ratios);
      add(launcher::bench::show_ratio(launcher::bench::median(ratios)),
          "the default" + (interval ? fmt::format(", 95% interval {} to {}", launcher::bench::show_ratio(interval->low),
                                                  launcher::bench::show_ratio(interval->high))
                                    : std::string()));
    }
  if (const Trial* best = history.find(history.best))
    for (const Objective& one : history.objectives)
      if (const auto value = best->value(one.name)) add(show_value_of(one, *value), one.name);
  add(std::to_string(history.ended()), "trials");
  return out;
}

}  // namespace

std::string page_head(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>{}</title>\n<style>{}{}</style></head>\n<body>\n",
      title, launcher::bench::page_style(), kMoreStyle);
}

std::string study_html(const History& history) {
  using launcher::bench::html_table;
  std::string out = page_head("hypertune") + "<h1>hypertune</h1>\n";
  if (!history.head) return out + "<p>empty</p></body></html>\n";
  std::string program;
  for (const std::string& word : history.head->program) program += (program.empty() ? "" : " ") + launcher::shell_quoted(word);
  out += "<p><code>" + html_escape(program) + "</code></p>\n";
  if (!history.verdict.empty()) out += "<p class=\"verdict\">" + html_escape(history.verdict) + "</p>\n";
  out += "<div class=\"key\">" + key_figures(history) + "</div>\n";
  if (const Trial* best = history.find(history.best)) out += "<p>best.yaml: " + html_escape(point_text(best->point)) + "</p>\n";
  const std::vector<std::string> warnings = study_warnings(history);
  if (!warnings.empty()) {
    out += "<h2>Warnings</h2><ul>";
    for (const std::string& one : warnings) out += "<li>" + html_escape(one) + "</li>";
    out += "</ul>\n";
  }
  if (!history.objectives.empty()) {
    const Objective& objective = chosen_objective(history);
    const std::string grey = history.head->constraints.empty() ? "" : "; grey: a constraint is not kept";
    if (const std::string svg = pareto_chart(history); !svg.empty())
      out += "<h2>Pareto front</h2>\n" + wide(svg) + "<p>Orange: best.yaml; grey: not on the front.</p>\n";
    for (const Objective& one : history.objectives)
      if (const std::string svg = history_chart(history, one); !svg.empty())
        out += "<h2>" + html_escape(one.name) + " over trials</h2>\n" + wide(svg) + "<p>The line is the best so far; orange: best.yaml" +
               grey + ".</p>\n";
    if (const std::string svg = parallel_chart(history, objective); !svg.empty())
      out += "<h2>Parallel coordinates</h2>\n" + wide(svg) + "<p>A line a trial; orange: best.yaml" + grey + ".</p>\n";
    if (const std::string svg = importance_chart(importances(history, objective)); !svg.empty())
      out += "<h2>Importance for " + html_escape(objective.name) + "</h2>\n" + wide(svg) +
             "<p>Share of the variance between trials that lies between the means of a parameter's values, less what chance would give "
             "(omega squared, one parameter at a time).</p>\n";
    out += "<h2>Trials, best first</h2>\n" + wide(html_table(trials_table(history, kMostRows)));
    if (const Table table = rounds(history, objective); !table.lines.empty())
      out += "<h2>Final measurement, in the order of the runs</h2>\n" + wide(html_table(table));
  }
  if (const Table table = failures(history); !table.lines.empty()) out += "<h2>Trials without a result</h2>\n" + wide(html_table(table));
  return out + "<h2>Study</h2>\n" + wide(html_table(facts(history))) + "</body></html>\n";
}

std::string study_markdown(const History& history) {
  using launcher::bench::markdown_table;
  std::string out = "# hypertune\n\n";
  if (!history.head) return out;
  if (!history.verdict.empty()) out += "**" + history.verdict + "**\n\n";
  for (const std::string& one : study_warnings(history)) out += "- warning: " + one + "\n";
  if (!history.objectives.empty()) out += "\n## Trials, best first\n\n" + markdown_table(trials_table(history, kMostRows)) + "\n";
  if (const Table table = failures(history); !table.lines.empty()) out += "## Trials without a result\n\n" + markdown_table(table) + "\n";
  return out + "## Study\n\n" + markdown_table(facts(history));
}

}  // namespace ipexrun::tuner
