#include "preload/select/race.h"

#include <algorithm>
#include <cmath>

namespace ipexrun::preload {
namespace {

/// Pairs the challenger may lose and still be called faster: a one-sided sign test at about 2% because it is asked after every pair, at
/// 0.2% in a race that goes on for longer or is doubted. -1: not so soon.
int allowed_losses(int pairs, bool doubtful) {
  if (!doubtful && pairs <= kMaxPairs) return pairs < 9 ? 0 : pairs < 12 ? 1 : pairs < 14 ? 2 : 3;
  constexpr double kLevel = 0.002;
  int losses = -1;
  double term = std::ldexp(1.0, -pairs);
  for (double sum = term; sum <= kLevel; sum += term) {
    ++losses;
    term *= static_cast<double>(pairs - losses) / (losses + 1);
  }
  return losses;
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

/// The slowest pair of one order is quicker for the challenger than the quickest of the other, by more than noise.
bool Race::order_matters() const {
  if (pairs() < kOrderPairs) return false;
  double least[2] = {ratios_[0], ratios_[1]};
  double most[2] = {ratios_[0], ratios_[1]};
  for (std::size_t i = 0; i < ratios_.size(); ++i) {
    least[i % 2] = std::min(least[i % 2], ratios_[i]);
    most[i % 2] = std::max(most[i % 2], ratios_[i]);
  }
  return most[0] * kOrderRatio < least[1] || most[1] * kOrderRatio < least[0];
}

std::vector<double> Race::blocks() const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i + 1 < ratios_.size(); i += 2) {
    ratios.push_back((challenger_[i] + challenger_[i + 1]) / (rival_[i] + rival_[i + 1]));
  }
  return ratios;
}

RaceResult Race::result() const {
  const std::vector<double> ratios = order_matters() ? blocks() : ratios_;
  const int n = static_cast<int>(ratios.size());
  const bool slow = n > 0 && *std::min_element(rival_.begin(), rival_.end()) >= kSlowNs;
  if (slow && n >= kSlowPairs && n < kMinPairs) {
    if (*std::min_element(ratios.begin(), ratios.end()) > kSlowHopeless) return RaceResult::kLost;
    if (n >= kSlowMinPairs && median(ratios) > kSlowBehind) return RaceResult::kLost;
  }
  // As unlikely as a clear win, and a third pair of calls of a second each would cost more than it tells.
  if (n == kPlainPairs && !doubtful_ && *std::min_element(rival_.begin(), rival_.end()) >= kLongNs &&
      *std::max_element(ratios.begin(), ratios.end()) <= kPlainRatio) {
    return RaceResult::kWon;
  }
  if (n >= kHopelessPairs && n < kMinPairs) {
    const double least = *std::min_element(ratios.begin(), ratios.end());
    if (least > kHopelessRatio) return RaceResult::kLost;
    // Noise would have to be a factor of 1.5 in the same direction three times running to be mistaken for this.
    if (n == kClearPairs && !doubtful_ && *std::max_element(ratios.begin(), ratios.end()) <= kClearRatio) return RaceResult::kWon;
  }
  if (n >= kMinPairs) {
    const double middle = median(ratios);
    const auto slower = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r >= 1; });
    if (middle <= kWinRatio && slower <= allowed_losses(n, doubtful_)) return RaceResult::kWon;
    if (middle > 1) return RaceResult::kLost;
  }
  const int most = median(ratios) <= kWinRatio ? kMostPairs : slow ? kSlowMaxPairs : kMaxPairs;
  return pairs() >= most || misses_ >= kMaxPairs ? RaceResult::kLost : RaceResult::kUndecided;
}

bool Race::disturbed() const {
  if (rival_.empty()) return false;
  const auto [least, most] = std::minmax_element(rival_.begin(), rival_.end());
  return *most >= kDisturbedRatio * *least;
}

std::int64_t Race::rival_ns() const { return static_cast<std::int64_t>(median(rival_)); }
std::int64_t Race::challenger_ns() const { return static_cast<std::int64_t>(median(challenger_)); }

}  // namespace ipexrun::preload
