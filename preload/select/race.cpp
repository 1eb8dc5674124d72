#include "preload/select/race.h"

#include <algorithm>

namespace ipexrun::preload {
namespace {

/// Pairs the challenger may lose and still be called faster: a one-sided sign test at 2%, because it is asked after every pair.
int allowed_losses(int pairs) {
  if (pairs < 9) return 0;
  if (pairs < 12) return 1;
  return pairs < 14 ? 2 : 3;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

void Race::add(std::int64_t rival_ns, std::int64_t challenger_ns) {
  rival_.push_back(static_cast<double>(std::max<std::int64_t>(rival_ns, 1)));
  challenger_.push_back(static_cast<double>(std::max<std::int64_t>(challenger_ns, 1)));
  ratios_.push_back(challenger_.back() / rival_.back());
}

RaceResult Race::result() const {
  const int n = pairs();
  const auto slower = std::count_if(ratios_.begin(), ratios_.end(), [](double r) { return r >= 1; });
  if (n >= kHopelessPairs && n < kMinPairs) {
    const double least = *std::min_element(ratios_.begin(), ratios_.end());
    if (least > kHopelessRatio) return RaceResult::kLost;
    // Noise would have to be a factor of 1.5 in the same direction three times running to be mistaken for this.
    if (n == kClearPairs && *std::max_element(ratios_.begin(), ratios_.end()) <= kClearRatio) return RaceResult::kWon;
  }
  if (n < kMinPairs) return RaceResult::kUndecided;
  const double middle = ratio();
  if (middle <= kWinRatio && slower <= allowed_losses(n)) return RaceResult::kWon;
  return middle > 1 || n >= kMaxPairs ? RaceResult::kLost : RaceResult::kUndecided;
}

bool Race::disturbed() const {
  if (rival_.empty()) return false;
  const auto [least, most] = std::minmax_element(rival_.begin(), rival_.end());
  return *most >= kDisturbedRatio * *least;
}

std::int64_t Race::rival_ns() const { return static_cast<std::int64_t>(median(rival_)); }
std::int64_t Race::challenger_ns() const { return static_cast<std::int64_t>(median(challenger_)); }

}  // namespace ipexrun::preload
