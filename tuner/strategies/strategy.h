// What to try next. A strategy knows points and numbers, not processes: it can be tested with plain functions.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "configs/base/result.h"
#include "tuner/space/space.h"
#include "tuner/study/trial.h"

namespace ipexrun::tuner {

/// Whether a point is worth a process.
enum class Use {
  kYes,
  kInfeasible,  ///< the planner refuses it
  kSame,        ///< it comes down to the launch of an earlier trial
};
struct Judgement {
  Use use = Use::kYes;
  std::string why;
  int same_as = -1;  ///< kSame: that trial
};
using Judge = std::function<Judgement(const Point&)>;

struct Proposal {
  Point point;
  double budget = 1;
  int rung = 0;
  int from = -1;     ///< the trial it starts from, -1 = none
  int outside = -1;  ///< its number in Optuna's study
};

struct Answer {
  enum class What {
    kPoint,
    kWait,  ///< trials of other workers must end first
    kDone,
  };
  What what = What::kDone;
  Proposal proposal;
  std::string why;  ///< kDone: for people

  static Answer point(Proposal p) { return {What::kPoint, std::move(p), ""}; }
  static Answer wait() { return {What::kWait, {}, ""}; }
  static Answer done(std::string text) { return {What::kDone, {}, std::move(text)}; }
};

/// The same seed and the same history give the same answer, also in a new process: what a strategy remembers is in the history.
class Strategy {
 public:
  virtual ~Strategy() = default;
  /// `history` has all trials that were started, those of other workers included. A point that was asked for is started.
  virtual Result<Answer> ask(const History& history, const Judge& judge) = 0;
  /// A trial of this worker has ended.
  virtual Status tell(const History& history, const Trial& trial) {
    (void)history;
    (void)trial;
    return ok_status();
  }
};

struct StrategySettings {
  std::uint64_t seed = 0;
  int max_trials = 100;
  bool in_order = false;  ///< grid: never shuffled
};

std::unique_ptr<Strategy> grid_strategy(const Space& space, const StrategySettings& settings);
std::unique_ptr<Strategy> random_strategy(const Space& space, const StrategySettings& settings);
/// One parameter after the other from the best point so far, then points by chance.
std::unique_ptr<Strategy> climb_strategy(const Space& space, const StrategySettings& settings);
/// Many points by chance with a small budget; a third of them with three times the budget, and so on.
std::unique_ptr<Strategy> halving_strategy(const Space& space, const StrategySettings& settings);

/// A point by chance that no trial has and the judge lets pass; nullopt after many in vain. `draws` are counted from the seed: the
/// same history gives the same point.
std::optional<Point> new_random_point(const Space& space, std::uint64_t seed, const History& history, const Judge& judge);

}  // namespace ipexrun::tuner
