#include "preload/select/contest.h"

namespace ipexrun::preload {

void Contest::add(std::int64_t best_ns, std::int64_t challenger_ns) {
  if (over_) return;
  ++pairs_;
  race_.add(best_ns, challenger_ns);
  const bool far = race_.pairs() == 1 && race_.ratio() >= kFarRatio;
  const RaceResult result = far ? RaceResult::kLost : race_.result();
  if (result == RaceResult::kUndecided) return;
  if (first_ns_ == 0) first_ns_ = race_.rival_ns();
  best_ns_ = race_.rival_ns();
  if (result == RaceResult::kWon) {
    gain_ *= race_.ratio();
    best_ = challenger_;
    best_ns_ = race_.challenger_ns();
  } else if (race_.disturbed()) {
    disturbed_ = true;
  }
  next();
}

void Contest::next() {
  race_ = Race();
  if (++challenger_ >= candidates_) over_ = true;
}

}  // namespace ipexrun::preload
