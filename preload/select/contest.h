// Several ways to compute the same numbers, raced two at a time on the user's own calls: the best so far beside each other one in turn.
#pragma once

#include <cstdint>

#include "preload/select/race.h"

namespace ipexrun::preload {

inline constexpr double kFarRatio = 3;  ///< a challenger that takes so many times as long in its first pair is dropped at once

/// Candidate 0 is what is taken without measuring, and the best one until another has won a race. Not thread-safe.
class Contest {
 public:
  /// Of 1 to 64 candidates.
  explicit Contest(int candidates) : candidates_(candidates), over_(candidates <= 1) {}

  [[nodiscard]] int best() const { return best_; }
  [[nodiscard]] int challenger() const { return challenger_; }  ///< who races beside best(); of no meaning once over()
  [[nodiscard]] bool over() const { return over_; }
  /// Which of the two is to run first in the next pair.
  [[nodiscard]] bool challenger_first() const { return race_.pairs() % 2 == 1; }

  /// A pair of times, in nanoseconds, that was run in that order.
  void add(std::int64_t best_ns, std::int64_t challenger_ns);
  /// The challenger does not run, or its numbers are not good enough.
  void refuse() { next(); }
  /// Nothing is to be gained, or no more is to be tried: best() stays.
  void end() { over_ = true; }
  /// As another process decided it, with `gain`.
  void take(int candidate, double gain) {
    best_ = candidate;
    gain_ = gain;
    over_ = true;
  }
  /// The decision does not hold: candidate 0 from now on.
  void give_up() { take(0, 1); }

  [[nodiscard]] int pairs() const { return pairs_; }                 ///< of all races
  [[nodiscard]] double gain() const { return gain_; }                ///< best()'s time / candidate 0's
  [[nodiscard]] std::int64_t first_ns() const { return first_ns_; }  ///< median time of candidate 0; 0: no race was decided
  [[nodiscard]] std::int64_t best_ns() const { return best_ns_; }    ///< median time of best()
  [[nodiscard]] bool disturbed() const { return disturbed_; }        ///< a challenger lost while something else ran on the machine

 private:
  void next();

  int candidates_;
  int best_ = 0;
  int challenger_ = 1;
  bool over_;
  bool disturbed_ = false;
  int pairs_ = 0;
  double gain_ = 1;
  std::int64_t first_ns_ = 0, best_ns_ = 0;
  Race race_;
};

}  // namespace ipexrun::preload
