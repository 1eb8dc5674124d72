// What a study knows: trials, their runs, and the rounds of the final measurement. Rebuilt from the journal's records, in their order.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner/objective/objective.h"
#include "tuner/space/value.h"

namespace ipexrun::tuner {

/// How one run, and a trial as a whole, ended. States are data: no searcher fails by them.
enum class State {
  kRunning,      ///< no end was recorded (yet)
  kComplete,     ///< measured
  kFailed,       ///< an exit code other than 0, or an objective that is NaN or infinite
  kCrashed,      ///< ended by a signal
  kOutOfMemory,  ///< ended by the kernel for want of memory
  kTimeout,      ///< ended at the time limit
  kNoValue,      ///< it ran, but an objective never appeared
  kPruned,       ///< ended or not repeated because it was hopeless
};

/// "complete", "failed", "crashed", ...
std::string word_of(State state);
State state_of(const std::string& word);
inline bool measured(State state) { return state == State::kComplete || state == State::kPruned; }

/// One start of the program.
struct Run {
  State state = State::kRunning;
  int exit_code = 0;
  double seconds = 0;
  std::map<std::string, double> numbers;       ///< objectives by name, and everything else that was offered
  std::string why;                             ///< of a failure: what it said
  std::string folder;                          ///< logs, below the study's folder
  std::map<std::string, std::string> missing;  ///< numbers that a constraint needs and this run does not have, and why
};

struct Trial {
  int number = 0;  ///< 0 = the default configuration
  Point point;
  double budget = 1;  ///< of successive halving; else 1
  int rung = 0;
  int from = -1;     ///< the trial that it continues, -1 = none
  int outside = -1;  ///< its number in Optuna's study, -1 = none
  std::string worker;
  int attempts = 0;  ///< how often it was started; above 1: a worker was killed meanwhile
  std::vector<Run> runs;
  State state = State::kRunning;
  std::string why;
  bool ended = false;

  /// Median over the complete runs; nullopt without any.
  [[nodiscard]] std::optional<double> value(const std::string& name) const;
  [[nodiscard]] std::vector<double> values(const std::string& name) const;
  [[nodiscard]] double seconds() const;
};

/// One run of the final measurement: a trial's point once more.
struct Round {
  std::string phase;  ///< "leaders", "claim"
  int series = 0;     ///< how many trials had ended: a study that goes on is measured anew
  int round = 0;
  int trial = 0;
  Run run;
};

/// The head of a study: what makes two runs of hypertune one study.
struct StudyHead {
  int schema = 1;
  std::vector<std::string> program;
  std::string id;         ///< by chance: tells the trials of this journal in a storage that it shares with others
  std::string objective;  ///< as asked for: objectives_text(), "" = of an older version
  std::string space;      ///< space_text(): parameters and values
  std::string strategy;
  std::uint64_t seed = 0;
  int max_trials = 100;
  int repeats = 3;
  std::string machine;
  std::string started;  ///< local time
  std::string prefer;
  bool old_rule = false;
  std::vector<std::string> parameters;  ///< names in the order of the space
  std::vector<Constraint> constraints;
  double grid = 0;  ///< combinations of the grid, 0 = too many
};

struct History {
  std::optional<StudyHead> head;
  std::vector<Objective> objectives;  ///< settled by the first run; empty before
  std::vector<Trial> trials;          ///< by number
  std::vector<Round> rounds;
  std::map<std::string, int> dropped;  ///< why the planner refused a point -> how many
  std::string stop;                    ///< why the search ended, "" = it has not
  std::string verdict;                 ///< what the final measurement says, "" = not made
  int best = -1;                       ///< trial of best.yaml, -1 = not chosen
  int bad_records = 0;                 ///< lines of the journal that could not be read

  [[nodiscard]] const Trial* find(int number) const;
  [[nodiscard]] int ended() const;  ///< trials with an end, the default not counted
};

/// Constraints all hold by the medians. A number that is missing does not hold; `why` says so.
bool meets(const Trial& trial, const std::vector<Constraint>& constraints, std::string* why = nullptr);

/// By how much the worst of the constraints is broken (Constraint::excess); 0 where all hold, infinite where a number is missing.
double excess(const Trial& trial, const std::vector<Constraint>& constraints);

/// a is at least as good in all objectives and better in one.
bool dominates(const Trial& a, const Trial& b, const std::vector<Objective>& objectives);

/// Trials that may be chosen: measured in full, every objective, constraints met, of the largest budget of their point.
std::vector<const Trial*> eligible(const History& history);

/// Those that none dominates, by the first objective, best first.
std::vector<const Trial*> pareto_front(const History& history);

/// By one objective, best first.
std::vector<const Trial*> ranked(const History& history, const Objective& objective);

/// IPEX's rule: in order of time, one replaces the best if it is better in all objectives. nullptr without any trial.
const Trial* best_by_old_rule(const History& history);

/// The objective that chooses: `prefer` by name, else the first.
const Objective& chosen_objective(const History& history);

}  // namespace ipexrun::tuner
