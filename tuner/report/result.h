// What a study leaves for people and programs. Pure: a history in, texts out.
#pragma once

#include <string>
#include <vector>

#include "configs/base/result.h"
#include "launcher/bench/table.h"
#include "tuner/run/launch.h"
#include "tuner/space/space.h"
#include "tuner/study/trial.h"

namespace ipexrun::tuner {

/// record.csv: one line a trial, in order: the parameters, the objectives (medians), then state, runs, seconds, spread, constraints, trial.
std::string record_csv(const History& history);

/// The best trials, the default among them, as a table; at most `most` lines.
launcher::bench::Table trials_table(const History& history, std::size_t most);

/// What the terminal shows at the end, each line with its end.
std::string result_text(const History& history, const std::string& folder);

/// best.yaml: a config that `ipexrun --config` reads, with a comment that says where it comes from. `words`: of the best point.
std::string best_yaml(const History& history, const Space& space, const LaunchWords& words);

/// "ninstances 2, thp on"; "as it is" for a point that sets nothing.
std::string point_text(const Point& point);

/// "latency (ms)"
std::string name_and_unit(const Objective& objective);
/// "123.4 1/s"
std::string show_value_of(const Objective& objective, double value);

/// "12 s", "3 min 05 s", "2 h 03 min"
std::string duration_text(double seconds);

/// The report of a study as one HTML file without external parts, and as Markdown.
std::string study_html(const History& history);
/// The head of a page, up to and with <body>.
std::string page_head(const std::string& title);
std::string study_markdown(const History& history);

/// How much of the spread of the objective between trials each parameter explains (see importance.cpp), largest first.
struct Importance {
  std::string parameter;
  double share = 0;  ///< 0 to 1
  int levels = 0;    ///< values (or groups of them) that were compared
};
std::vector<Importance> importances(const History& history, const Objective& objective);

/// SVG pictures; "" where there is nothing to draw.
std::string history_chart(const History& history, const Objective& objective);
std::string parallel_chart(const History& history, const Objective& objective);
std::string importance_chart(const std::vector<Importance>& rows);
std::string pareto_chart(const History& history);

/// Two studies side by side: for a terminal, or for a file whose name ends in .md or .html. kExitUsage: another ending.
Result<std::string> compare_studies(const History& a, const History& b, const std::string& name_a, const std::string& name_b,
                                    const std::string& file = "");

}  // namespace ipexrun::tuner
