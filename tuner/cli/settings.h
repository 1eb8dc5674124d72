// What the user asked hypertune for. Filled from the command line and the file (`tuning:`), from one table (settings_table.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tuner/objective/objective.h"
#include "tuner/space/space.h"

namespace ipexrun::tuner {

enum class TuneCommand { kTune, kReport, kCompare, kHelp, kVersion, kManPage };

struct Settings {
  TuneCommand command = TuneCommand::kTune;

  // The program, as `ipexrun` takes it.
  std::vector<std::string> program;  ///< PROGRAM and its arguments, placeholders included; "-m" in front of a module
  bool no_python = false;
  std::vector<std::string> studies;  ///< of report and compare

  // The search.
  std::string conf_file;
  std::string output_dir;                    ///< "" = "hypertune", or "." with an old file
  std::vector<std::string> objective_texts;  ///< --objective, unparsed
  std::vector<Objective> objectives;         ///< from the file, or parsed from those
  std::vector<Constraint> constraints;
  std::vector<std::pair<std::string, std::string>> set;  ///< --set NAME=VALUES
  std::string strategy = "auto";
  int max_trials = 100;
  double max_time_s = 0;       ///< 0 = no limit
  double trial_timeout_s = 0;  ///< of one run; 0 = made from the default configuration's
  std::uint64_t seed = 0;
  int repeats = 3;  ///< runs of one trial at most; hopeless ones get fewer
  bool repeats_given = false;
  int warmup = 1;   ///< runs of the default configuration before the first trial, not counted
  int leaders = 3;  ///< how many are measured again beside the default
  int leader_rounds = 3;
  int claim_pairs = 6;
  std::string prefer;           ///< objective that chooses a point of the Pareto front
  std::string budget = "auto";  ///< of successive halving: repeats, seconds, placeholder
  int jobs = 1;                 ///< trials at once on this machine, each on its own slice of the cores
  std::string storage;          ///< Optuna's, "" = a file in output_dir
  std::string study_name;
  std::string python;     ///< interpreter that has Optuna
  bool fresh = false;     ///< put an older study in output_dir aside
  bool worker = false;    ///< take trials only: no final measurement, no report
  bool old_rule = false;  ///< an old YAML: best = better in all objectives, stop when all targets are met

  // What to print.
  bool dry_run = false;
  bool quiet = false;
  std::string topology;  ///< with dry_run: a machine that is not there
  std::string sysroot;
  std::string output;  ///< of report and compare

  Space space;  ///< from the file; --set and the default space are added by make_space()
  bool has_space = false;
  bool has_objectives = false;  ///< named by the user
};

}  // namespace ipexrun::tuner
