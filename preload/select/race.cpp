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

/// The slowest pair of one order is quicker for the challenger than the quickest of the other, by more than noise.
bool orders_lie_apart(const std::vector<double>& ratios) {
  if (ratios.size() < kOrderPairs) return false;
  double least[2] = {ratios[0], ratios[1]};
  double most[2] = {ratios[0], ratios[1]};
  for (std::size_t i = 0; i < ratios.size(); ++i) {
    least[i % 2] = std::min(least[i % 2], ratios[i]);
    most[i % 2] = std::max(most[i % 2], ratios[i]);
  }
  return most[0] * kOrderRatio < least[1] || most[1] * kOrderRatio < least[0];
}

std::vector<double> two_by_two(const std::vector<double>& rival, const std::vector<double>& challenger) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i + 1 < rival.size(); i += 2) ratios.push_back((challenger[i] + challenger[i + 1]) / (rival[i] + rival[i + 1]));
  return ratios;
}

/// By the fastest call of each: what no stall has touched.
double fastest_ratio(const std::vector<double>& rival, const std::vector<double>& challenger) {
  return *std::min_element(challenger.begin(), challenger.end()) / *std::min_element(rival.begin(), rival.end());
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

/// For ratio(): whether the middle of single pairs misleads.
bool Race::order_matters() const { return pairs() > 0 && (disturbed() || orders_lie_apart(ratios_)); }

/// Stalls that come at regular distances meet one rival alone for some pairs, and the middle pair with them. What they make of it lies on
/// the far side of what the fastest calls say, which none has met; nothing is believed beyond that.
std::vector<double> Race::blocks() const {
  if (!disturbed()) return two_by_two(rival_, challenger_);
  const double middle = median(orders_lie_apart(ratios_) ? two_by_two(rival_, challenger_) : ratios_);
  const double fastest = fastest_ratio(rival_, challenger_);
  return {middle <= 1 ? std::max(middle, std::min(fastest, 1.0)) : std::min(middle, std::max(fastest, 1.0))};
}

RaceResult Race::result() const {
  const std::vector<double> ratios = orders_lie_apart(ratios_) ? two_by_two(rival_, challenger_) : ratios_;
  const int n = static_cast<int>(ratios.size());
  if (n == 0) return misses_ >= kMaxPairs ? RaceResult::kLost : RaceResult::kUndecided;
  // Stalls feign neither a win where the fastest calls show none, nor a loss where these show a gain.
  constexpr double kFastestWin = 0.98;
  const double fastest = fastest_ratio(rival_, challenger_);
  const bool may_win = fastest <= kFastestWin;
  const bool may_lose = !(disturbed() && fastest <= kWinRatio);
  const bool slow = *std::min_element(rival_.begin(), rival_.end()) >= kSlowNs;
  if (slow && may_lose && n >= kSlowPairs && n < kMinPairs) {
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
    if (may_lose && least > kHopelessRatio) return RaceResult::kLost;
    // Noise would have to be a factor of 1.5 in the same direction three times running to be mistaken for this.
    if (may_win && n == kClearPairs && !doubtful_ && *std::max_element(ratios.begin(), ratios.end()) <= kClearRatio) {
      return RaceResult::kWon;
    }
  }
  if (n >= kMinPairs) {
    const double middle = median(ratios);
    const auto slower = std::count_if(ratios.begin(), ratios.end(), [](double r) { return r >= 1; });
    if (may_win && middle <= kWinRatio && slower <= allowed_losses(n, doubtful_)) return RaceResult::kWon;
    if (may_lose && middle > 1) return RaceResult::kLost;
  }
  const int most = median(ratios) <= kWinRatio ? kMostPairs : slow ? kSlowMaxPairs : kMaxPairs;
  return pairs() >= most || misses_ >= kMaxPairs ? RaceResult::kLost : RaceResult::kUndecided;
}

bool Race::disturbed() const {
  const auto far_apart = [](const std::vector<double>& times) {
    if (times.empty()) return false;
    const auto [least, most] = std::minmax_element(times.begin(), times.end());
    return *most >= kDisturbedRatio * *least;
  };
  return far_apart(rival_) || far_apart(challenger_);
}

std::int64_t Race::rival_ns() const { return static_cast<std::int64_t>(median(rival_)); }
std::int64_t Race::challenger_ns() const { return static_cast<std::int64_t>(median(challenger_)); }

}  // namespace ipexrun::preload
