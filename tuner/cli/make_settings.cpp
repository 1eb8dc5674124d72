#include <fmt/format.h>

#include <algorithm>

#include "launcher/plan/text.h"
#include "tuner/cli/settings_table.h"
#include "tuner/cli/tune.h"
#include "tuner/report/result.h"
#include "tuner/space/parameter_names.h"
#include "tuner/space/space_file.h"

namespace ipexrun::tuner {
namespace {

constexpr std::uint64_t kMostCounted = 4096;  // combinations of a grid that are planned to see which are feasible

bool uses_budget(const Settings& settings) {
  return std::any_of(settings.program.begin(), settings.program.end(),
                     [](const std::string& word) { return word.find("{budget}") != std::string::npos; });
}

Status settle_strategy(Settings& s) {
  if (s.strategy == "auto") s.strategy = s.old_rule || grid_size(s.space) <= static_cast<std::uint64_t>(s.max_trials) ? "grid" : "climb";
  if (s.budget == "auto") s.budget = uses_budget(s) ? "placeholder" : "repeats";
  if (s.budget == "placeholder" && !uses_budget(s))
    return Error{kExitUsage, "--budget placeholder needs {budget} in the program's arguments", "e.g. --steps {budget}"};
  if (s.strategy != "halving" && s.budget == "seconds")
    return Error{kExitUsage, "--budget seconds is what successive halving gives survivors more of, not " + s.strategy,
                 "--strategy halving"};
  if (s.strategy != "halving") s.budget = uses_budget(s) ? "placeholder" : "repeats";
  return ok_status();
}

}  // namespace

std::string space_text(const Space& space) {
  std::string out;
  for (const Parameter& one : space.parameters) {
    out += one.name + ":";
    if (one.kind == Kind::kCategory) {
      for (const Value& value : one.values) out += " " + text_of(value);
    } else {
      out += fmt::format(" {} to {}{}{}", text_of(Value(one.low)), text_of(Value(one.high)),
                         one.step > 0 ? " by " + text_of(Value(one.step)) : "", one.log ? " log" : "");
      if (one.points > 0) out += fmt::format(" in {}", one.points);
    }
    if (one.fallback) out += "; default " + text_of(*one.fallback);
    for (const Condition& condition : one.when) out += "; when " + condition.text();
    out += "\n";
  }
  return out;
}

Result<Settings> make_settings(const std::vector<std::string>& args, const launcher::Machine& machine,
                               const std::function<std::vector<std::string>()>& allocators) {
  Result<Settings> line = parse_tune_command(args);
  if (!line.ok() || line->command != TuneCommand::kTune) return line;
  SpaceFile file;
  if (!line->conf_file.empty()) {
    Result<SpaceFile> read = read_space_file(line->conf_file, machine);
    if (!read.ok()) return read.error();
    file = std::move(*read);
    line = parse_tune_command(args, file.tuning);
    if (!line.ok()) return line;
  }
  Settings s = std::move(*line);
  s.space = std::move(file.space);
  s.old_rule = file.old_form;
  if (!file.objectives.empty() && !s.has_objectives) {
    s.objectives = file.objectives;
    s.has_objectives = true;
  }
  s.constraints.insert(s.constraints.end(), file.constraints.begin(), file.constraints.end());
  if (s.output_dir.empty()) s.output_dir = !file.output_dir.empty() ? file.output_dir : s.old_rule ? "." : "hypertune";
  if (!s.has_objectives && !s.old_rule) s.objectives = {*parse_objective("throughput")};
  if (s.old_rule && !s.repeats_given) s.repeats = 1;  // as many runs as IPEX's made

  std::vector<Parameter> given;
  for (const auto& [name, values] : s.set) {
    Result<Parameter> one = parse_set(name, values, machine);
    if (!one.ok()) return one.error();
    given.push_back(std::move(*one));
  }
  const bool searches = std::any_of(given.begin(), given.end(), [](const Parameter& one) { return !one.fixed(); });
  if (!file.has_space && !searches) {
    const bool throughput = std::any_of(s.objectives.begin(), s.objectives.end(), [](const Objective& o) { return o.higher_is_better; }) ||
                            s.objectives.empty();
    s.space = default_space(throughput ? "throughput" : "latency", machine, allocators());
  }
  for (Parameter& one : given) {
    std::erase_if(s.space.parameters, [&](const Parameter& old) { return old.name == one.name; });
    // In front: conditions of the file may name it.
    s.space.parameters.insert(s.space.parameters.begin() + (&one - given.data()), one);
  }
  std::vector<std::string> words(s.program.begin() + 1, s.program.end());
  if (s.program.front() != "-m") words = s.program;
  if (Status right = check_space(s.space, words); !right.ok()) return right.error();
  if (std::all_of(s.space.parameters.begin(), s.space.parameters.end(), [](const Parameter& one) { return one.fixed(); }))
    return Error{kExitUsage, "there is nothing to choose: every parameter of the space has one value",
                 "--set NAME=A,B or space: in a file"};
  if (Status settled = settle_strategy(s); !settled.ok()) return settled.error();
  const auto& natives = native_strategy_names();
  if (std::find(natives.begin(), natives.end(), s.strategy) != natives.end() && (!s.storage.empty() || !s.study_name.empty()))
    return Error{kExitUsage,
                 std::string(s.storage.empty() ? "--study-name " + s.study_name : "--storage " + s.storage) +
                     " is for strategies of Optuna, and this search is by " + s.strategy,
                 "--strategy tpe, for one"};
  if (s.strategy == "cmaes" && s.objectives.size() > 1)
    return Error{kExitUsage, "cmaes searches for one objective, not for several", "tpe, gp, nsga2 and nsga3 take several"};
  if (s.jobs > 1 &&
      (s.space.find("nodes-list") != nullptr || s.space.find("cores-list") != nullptr || s.space.find("use_all_nodes") != nullptr))
    return Error{kExitUsage, "--jobs gives each worker its own cores, and the space chooses nodes or cores too", "leave one of them out"};
  if (s.jobs > static_cast<int>(machine.cores.size()))
    return Error{kExitUsage, fmt::format("--jobs {} on {}", s.jobs, launcher::count_text(machine.cores.size(), "core")),
                 "each trial needs a core of its own"};
  if (!s.prefer.empty() && s.has_objectives &&
      std::none_of(s.objectives.begin(), s.objectives.end(), [&](const Objective& o) { return o.name == s.prefer; }))
    return Error{kExitUsage, "--prefer " + s.prefer + " names no objective", "there are: " + objective_names(s.objectives)};
  return s;
}

std::string dry_run_text(const Settings& s, LaunchPlanner& planner) {
  std::string out = "space\n";
  for (std::size_t at = 0, end; at < space_text(s.space).size(); at = end + 1) {
    const std::string text = space_text(s.space);
    end = text.find('\n', at);
    out += "  " + text.substr(at, end - at) + "\n";
  }
  const std::uint64_t grid = grid_size(s.space);
  out += fmt::format("grid: {}{} combinations", grid == std::uint64_t{1} << 40 ? "more than " : "", grid);
  if (grid <= kMostCounted) {
    std::map<std::string, int> refused;
    std::map<std::string, int> plans;
    int total = 0;
    for (std::uint64_t i = 0; i < grid; ++i) {
      const Feasibility plan = planner.check(words_of(s.space, grid_point(s.space, i), {s.program, s.no_python, {}, 1}));
      if (plan.why.empty()) {
        ++plans[plan.plan_key];
      } else {
        ++refused[plan.why.substr(0, plan.why.find('\n'))];
        ++total;
      }
    }
    out += fmt::format(", {} refused by the planner, {} different launches\n", total, plans.size());
    int shown = 0;
    for (const auto& [why, count] : refused)
      if (++shown <= 5) out += fmt::format("  refused {}: {}\n", count, why);
  } else {
    out += "\n";
  }
  out += fmt::format("strategy: {}, at most {} trials of {} run{}, seed {}\n", s.strategy, s.max_trials, s.repeats,
                     s.repeats == 1 ? "" : "s", s.seed);
  std::string objectives;
  for (const Objective& one : s.objectives)
    objectives += (objectives.empty() ? "" : ", ") + one.name + (one.higher_is_better ? " (higher is better)" : " (lower is better)");
  out += "objective: " +
         (objectives.empty() ? "what the program prints after @hypertune"
                             : objectives + (s.has_objectives ? "" : ", unless the program prints others after @hypertune")) +
         "\n";
  for (const Constraint& one : s.constraints) out += "constraint: " + one.text() + "\n";
  return out + "default: " + (point_text(default_point(s.space))) + "\noutput: " + s.output_dir + "\n";
}

}  // namespace ipexrun::tuner
