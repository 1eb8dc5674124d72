// The search: asks the strategy, runs trials, writes everything down. One worker; several share a study through its journal.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tuner/cli/settings.h"
#include "tuner/run/trial_runner.h"
#include "tuner/strategies/strategy.h"
#include "tuner/study/history.h"
#include "tuner/study/journal.h"

namespace ipexrun::tuner {

/// Everything of the world that a study needs; tests make it up.
struct World {
  TrialRunner* runner = nullptr;
  Strategy* strategy = nullptr;
  std::function<Feasibility(const LaunchWords&)> plan;
  std::function<double()> now;                    ///< seconds, never backwards
  std::function<void(double)> sleep;              ///< seconds
  std::function<int()> stop_signal;               ///< 0 = go on
  std::function<bool(const std::string&)> alive;  ///< whether a worker still runs
  std::function<void(const std::string&)> say;    ///< a line for the user
  /// Something changed: for the progress line. `doing`: what is under way.
  std::function<void(const History&, const std::string& doing)> progress;
  std::string worker;  ///< this one's name
};

/// How a search or final measurement ended.
struct Ending {
  int signal = 0;   ///< the user ended it
  std::string why;  ///< else: for people
};

class Study {
 public:
  /// `folder`: of the study, for the logs of trials. The journal's head is written or checked by open_study().
  Study(const Settings& settings, const Space& space, LaunchBase base, const std::string& folder, Journal& journal, World world);

  /// Runs trials until there is nothing more to do. kExitFailure: no trial succeeded, or the journal cannot be written.
  Result<Ending> search();

  /// Measures the leaders again beside the default, in turn, chooses, and tests the choice on fresh runs. Writes the verdict.
  Result<Ending> finish();

  /// Takes over what other workers wrote.
  Status sync();
  [[nodiscard]] const History& history() const { return history_; }

  /// Where a point is left: the planner's answer, or the earlier trial that is launched the same way.
  Judgement judge(const Point& point);

 private:
  struct Next {
    enum class What { kTrial, kWait, kDone } what = What::kDone;
    int trial = 0;
    std::string why;
  };

  Status take_over();  ///< sync() where the journal is locked already
  Result<Next> next();
  Result<Next> begin(Trial trial);
  Result<bool> run_trial(int number);
  Result<bool> run_once(int number, Run* out);
  Status end_trial(int number, State state, const std::string& why);
  Status write(const std::vector<Record>& records);
  [[nodiscard]] std::string reason_to_stop() const;
  [[nodiscard]] bool hopeless(const Trial& trial, std::string* why) const;
  /// `fresh`: of the final measurement.
  RunRequest request_for(const Trial& trial, const std::string& place, bool fresh = false);
  Result<bool> measure(const Trial& trial, const std::string& place, const std::string& doing, Run* out, bool fresh = false);
  Status settle_objectives(const RunOutput& output);
  /// A constraint on a number that this program never gives is a mistake; one that is known but was not measured now is noted in *out.
  Status check_constraints(const RunOutput& output, bool first, Run* out) const;
  Result<bool> warm_up();
  Status write_dropped();
  [[nodiscard]] double time_limit(int instances) const;

  Result<bool> round_of(const std::string& phase, int series, int round, int trial);
  [[nodiscard]] std::vector<int> leaders() const;
  /// The leaders by their runs in turn, best first; those that failed or broke a constraint there are left out.
  Result<bool> rank_leaders(const std::vector<int>& leaders, int series, std::vector<int>* order);
  /// Fresh pairs of candidate number `place` and the default. `problem`: why the candidate will not do, "" = it will.
  Result<bool> claim(int series, int place, int best, std::string* text, int* chosen, std::string* problem);
  /// What the pairs say: for people, and whether the trial was better.
  struct Shown {
    std::string text;
    bool better = false;
  };
  static Shown shown_by(const std::vector<std::pair<double, double>>& pairs, const std::vector<double>& ratios, const Objective& objective);
  /// Why a trial's fresh runs rule it out: failures, constraints. "" = they do not.
  [[nodiscard]] std::string problem_of(const std::string& phase, int series, int trial) const;

  Settings settings_;
  Space space_;
  LaunchBase base_;
  std::string folder_;
  Journal& journal_;
  World world_;
  History history_;
  double began_ = 0;
  bool warm_ = false;
  std::map<std::string, Feasibility> plans_;  ///< by key_of(point)
  std::map<std::string, int> trial_of_plan_;  ///< by plan_key
  std::size_t planned_ = 0;                   ///< trials of the history whose plan is known
  std::map<std::string, int> dropped_;        ///< not yet written
};

/// The value of an objective in the rounds of a phase and series, in their order.
std::vector<double> round_values(const History& history, const std::string& phase, int series, int trial, const std::string& objective);

/// The default and the best in the fresh pairs in which both were measured.
std::vector<std::pair<double, double>> claim_values(const History& history, int series, int best, const Objective& objective);

/// Ratios of a claim, one a pair: how many times as good as the default. None where a value is not above 0: such have no ratio.
std::vector<double> claim_ratios(const History& history, int series, int best, const Objective& objective);

/// What makes the result doubtful, each with what was seen, the likely cause and what helps.
std::vector<std::string> study_warnings(const History& history);

/// The series of the last final measurement, -1 = none.
int last_series(const History& history);

}  // namespace ipexrun::tuner
