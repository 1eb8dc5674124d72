#include "tuner/cli/settings_table.h"

#include <algorithm>
#include <limits>

#include "launcher/plan/text.h"

namespace ipexrun::tuner {
namespace {

Error bad(const std::string& name, const std::string& wanted, const std::string& seen) {
  return Error{kExitUsage, "--" + name + " needs " + wanted + ", not '" + seen + "'", ""};
}

template <typename Field>
SettingRow number(const std::string& name, const std::string& group, Field Settings::*field, Field low, Field high,
                  const std::string& metavar, const std::string& help) {
  return {name, group, metavar, help, true, [=](Settings& settings, const std::string& value) -> Status {
            const auto parsed = launcher::parse_number<Field>(value);
            if (!parsed || !(*parsed >= low && *parsed <= high))
              return bad(name,
                         std::is_floating_point_v<Field> ? "a number from " + launcher::decimal_text(static_cast<double>(low)) + " to " +
                                                               launcher::decimal_text(static_cast<double>(high))
                                                         : "a whole number from " + std::to_string(low) + " to " + std::to_string(high),
                         value);
            settings.*field = *parsed;
            return ok_status();
          }};
}

SettingRow text(const std::string& name, const std::string& group, std::string Settings::*field, const std::string& metavar,
                const std::string& help, bool in_file = true, const std::vector<std::string>& choices = {}) {
  return {name, group, metavar, help, in_file, [=](Settings& settings, const std::string& value) -> Status {
            if (value.empty()) return bad(name, "a value", value);
            if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
              std::string known;
              for (const std::string& one : choices) known += (known.empty() ? "one of " : ", ") + one;
              return bad(name, known, value);
            }
            settings.*field = value;
            return ok_status();
          }};
}

SettingRow flag(const std::string& name, const std::string& group, bool Settings::*field, const std::string& help, bool in_file = false) {
  return {name, group, "", help, in_file, [=](Settings& settings, const std::string& value) -> Status {
            if (value != "true" && value != "false") return bad(name, "true or false", value);
            settings.*field = value == "true";
            return ok_status();
          }};
}

SettingRow repeated(const std::string& name, const std::string& group, const std::string& metavar, const std::string& help,
                    std::function<Status(Settings&, const std::string&)> set) {
  return {name, group, metavar, help, false, std::move(set)};
}

constexpr const char* kSearch = "Search";
constexpr const char* kMeasure = "Measuring";
constexpr const char* kWhat = "What to tune";
constexpr const char* kShared = "Several workers, Optuna";
constexpr const char* kOutput = "Output";
constexpr double kLongest = 1e9;  // s: 30 years

std::vector<SettingRow> make_table() {
  std::vector<SettingRow> rows;
  rows.push_back(
      text("conf-file", kWhat, &Settings::conf_file, "FILE", "search space and settings in YAML; IPEX's hypertune files work", false));
  rows.push_back(repeated("objective", kWhat, "WHAT",
                          "throughput (default), latency, wall, memory, bench:FIELD, printed:NAME, max:regex:EXPRESSION or min:...; may be "
                          "repeated. Without it, "
                          "objectives that the program prints after @hypertune count",
                          [](Settings& s, const std::string& value) -> Status {
                            s.objective_texts.push_back(value);
                            return ok_status();
                          }));
  rows.push_back(repeated("constraint", kWhat, "TEXT", "what has to hold, such as \"p99_ms < 20\"; may be repeated",
                          [](Settings& s, const std::string& value) -> Status {
                            auto parsed = parse_constraint(value);
                            if (!parsed.ok()) return parsed.error();
                            s.constraints.push_back(*parsed);
                            return ok_status();
                          }));
  rows.push_back(repeated("set", kWhat, "NAME=VALUES",
                          "a parameter: ninstances=1,2,4, env.OMP_WAIT_POLICY=ACTIVE,PASSIVE, args.batch=1..64 (log: 1..64*), one value "
                          "fixes it; may be repeated",
                          [](Settings& s, const std::string& value) -> Status {
                            const std::size_t equals = value.find('=');
                            if (equals == std::string::npos || equals == 0 || equals + 1 == value.size())
                              return bad("set", "NAME=VALUES", value);
                            s.set.emplace_back(value.substr(0, equals), value.substr(equals + 1));
                            return ok_status();
                          }));
  rows.push_back(text(
      "strategy", kSearch, &Settings::strategy, "WORD",
      "auto: grid where it fits into --max-trials, else climb; grid, random, climb, halving; tpe, gp, nsga2, nsga3, cmaes, qmc with Optuna",
      true, strategy_names()));
  rows.push_back(
      number<int>("max-trials", kSearch, &Settings::max_trials, 1, 1000000, "N", "trials at most, the default configuration not counted"));
  rows.push_back(number<double>("max-time", kSearch, &Settings::max_time_s, 0, kLongest, "SECONDS",
                                "the search ends so long after this start; the final measurement follows"));
  rows.push_back(number<std::uint64_t>("seed", kSearch, &Settings::seed, 0, std::numeric_limits<std::uint64_t>::max(), "N",
                                       "the same seed gives the same trials"));
  rows.push_back(text("prefer", kSearch, &Settings::prefer, "OBJECTIVE",
                      "of several objectives, the one that chooses best.yaml from the Pareto front (default: the first)"));
  rows.push_back(text("budget", kSearch, &Settings::budget, "WORD",
                      "what successive halving gives survivors more of: repeats, seconds (of --bench), placeholder ({budget} in the "
                      "arguments); auto: the placeholder where "
                      "there is one, else repeats",
                      true, {"auto", "repeats", "seconds", "placeholder"}));
  rows.push_back(number<int>("repeats", kMeasure, &Settings::repeats, 1, 1000, "N", "runs of one trial; a hopeless one gets fewer"));
  rows.back().set = [inner = rows.back().set](Settings& s, const std::string& value) -> Status {
    s.repeats_given = true;
    return inner(s, value);
  };
  rows.push_back(number<int>("warmup", kMeasure, &Settings::warmup, 0, 100, "N",
                             "runs of the default configuration before the first trial, not counted"));
  rows.push_back(number<double>("trial-timeout", kMeasure, &Settings::trial_timeout_s, 0, kLongest, "SECONDS",
                                "one run is ended after so long, with all its processes; default: five times the default configuration's "
                                "time an instance, and half a minute"));
  rows.push_back(number<int>("leaders", kMeasure, &Settings::leaders, 1, 100, "N",
                             "how many of the best are measured again beside the default, in turn"));
  rows.push_back(number<int>("leader-rounds", kMeasure, &Settings::leader_rounds, 0, 1000, "N", "in so many rounds"));
  rows.push_back(number<int>("claim-pairs", kMeasure, &Settings::claim_pairs, 0, 1000, "N",
                             "pairs of fresh runs, best and default in turn, that the final claim rests on"));
  rows.push_back(
      number<int>("jobs", kShared, &Settings::jobs, 1, 1024, "N", "trials at once on this machine, each on its own slice of the cores"));
  rows.push_back(flag("worker", kShared, &Settings::worker, "take trials of the study only; another worker makes the final measurement"));
  rows.push_back(text("storage", kShared, &Settings::storage, "URL",
                      "Optuna's storage: sqlite:///FILE, postgresql://..., journal:FILE; default: a file in --output-dir"));
  rows.push_back(text("study-name", kShared, &Settings::study_name, "NAME", "the study's name in that storage"));
  rows.push_back(text("python", kShared, &Settings::python, "PYTHON", "interpreter that has Optuna; default: python of PATH"));
  rows.push_back(text("output-dir", kOutput, &Settings::output_dir, "DIR",
                      "journal, record.csv, best.yaml, report.html and logs; an unfinished study there goes on", false));
  rows.push_back(flag("fresh", kOutput, &Settings::fresh, "put an older study in --output-dir aside and begin anew"));
  rows.push_back(flag("dry-run", kOutput, &Settings::dry_run, "show space, strategy and what the planner refuses; start nothing"));
  rows.push_back(flag("quiet", kOutput, &Settings::quiet, "no progress, only the result"));
  rows.push_back(text("topology", kOutput, &Settings::topology, "TEXT|FILE", "with --dry-run: a machine that is not there", false));
  rows.push_back(text("sysroot", kOutput, &Settings::sysroot, "DIR|FILE", "with --dry-run: a machine that is not there", false));
  rows.push_back(text("output", kOutput, &Settings::output, "FILE",
                      "of report and compare: where to write (.html or .md), instead of the terminal", false));
  return rows;
}

}  // namespace

const std::vector<std::string>& strategy_names() {
  static const std::vector<std::string> names = {"auto", "grid",  "random", "climb", "halving", "tpe",
                                                 "gp",   "nsga2", "nsga3",  "cmaes", "qmc"};
  return names;
}

const std::vector<std::string>& native_strategy_names() {
  static const std::vector<std::string> names = {"grid", "random", "climb", "halving"};
  return names;
}

const std::vector<SettingRow>& settings_table() {
  static const std::vector<SettingRow> table = make_table();
  return table;
}

const SettingRow* find_setting(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  for (const SettingRow& row : settings_table())
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace ipexrun::tuner
