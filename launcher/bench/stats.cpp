#include "launcher/bench/stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace ipexrun::launcher::bench {
namespace {

constexpr double kConfidence = 0.99;
constexpr int kResamples = 10000;
constexpr std::uint64_t kSeed = 0x6970657872756eull;
constexpr int kExactUpTo = 30;
constexpr double kOutlierScore = 14.826;

double normal_upper_tail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

/// Twice the mid-rank of each |value|, so that ties stay whole numbers.
std::vector<int> doubled_ranks(const std::vector<double>& magnitudes) {
  std::vector<std::size_t> order(magnitudes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return magnitudes[a] < magnitudes[b]; });
  std::vector<int> ranks(magnitudes.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && magnitudes[order[last + 1]] == magnitudes[order[first]]) ++last;
    for (std::size_t i = first; i <= last; ++i) ranks[order[i]] = static_cast<int>(first + last + 2);
    first = last + 1;
  }
  return ranks;
}

/// P(sum of a random subset of `ranks` <= limit), every subset equally likely.
double probability_at_most(const std::vector<int>& ranks, int limit) {
  const int total = std::accumulate(ranks.begin(), ranks.end(), 0);
  std::vector<double> ways(static_cast<std::size_t>(total) + 1, 0.0);
  ways[0] = 1;
  for (const int rank : ranks) {
    for (int sum = total; sum >= rank; --sum) ways[static_cast<std::size_t>(sum)] += ways[static_cast<std::size_t>(sum - rank)];
  }
  double below = 0;
  for (int sum = 0; sum <= std::min(limit, total); ++sum) below += ways[static_cast<std::size_t>(sum)];
  return below / std::pow(2.0, static_cast<double>(ranks.size()));
}

}  // namespace

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double stdev(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double center = mean(values);
  double squares = 0;
  for (const double v : values) squares += (v - center) * (v - center);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double quantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double share = position - static_cast<double>(below);
  return sorted[below] * (1 - share) + sorted[above] * share;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return quantile(values, 0.5);
}

int min_samples_for_quantile(double q) {
  for (int n = 2;; ++n) {
    const double none = std::pow(q, n);
    const double one = n * (1 - q) * std::pow(q, n - 1);
    if (none + one <= 1 - kConfidence) return n;
  }
}

std::optional<Interval> bootstrap_median(const std::vector<double>& values) {
  if (values.size() < 3) return std::nullopt;
  std::mt19937_64 random(kSeed);
  std::vector<double> medians(kResamples);
  std::vector<double> sample(values.size());
  for (double& out : medians) {
    // The remainder instead of a distribution object: those differ between standard libraries, and the bias is below 1e-15.
    for (double& v : sample) v = values[random() % values.size()];
    out = median(sample);
  }
  std::sort(medians.begin(), medians.end());
  return Interval{quantile(medians, 0.025), quantile(medians, 0.975)};
}

RankTest signed_rank_test(const std::vector<double>& values) {
  std::vector<double> magnitudes;
  std::vector<bool> positive;
  for (const double v : values) {
    if (v == 0) continue;
    magnitudes.push_back(std::abs(v));
    positive.push_back(v > 0);
  }
  RankTest out;
  out.n = static_cast<int>(magnitudes.size());
  if (out.n == 0) return out;
  out.least_p = std::min(1.0, std::pow(2.0, 1 - out.n));
  const std::vector<int> ranks = doubled_ranks(magnitudes);
  int plus = 0;
  int total = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    total += ranks[i];
    if (positive[i]) plus += ranks[i];
  }
  const int smaller = std::min(plus, total - plus);
  if (out.n <= kExactUpTo) {
    out.p = std::min(1.0, 2 * probability_at_most(ranks, smaller));
    return out;
  }
  out.exact = false;
  double variance = 0;  // of the sum of doubled ranks: each is in or out with probability 1/2
  for (const int rank : ranks) variance += 0.25 * rank * rank;
  const double distance = std::abs(plus - total / 2.0) - 1;  // continuity: half a rank is 1 in doubled ranks
  out.p = std::min(1.0, 2 * normal_upper_tail(std::max(0.0, distance) / std::sqrt(variance)));
  return out;
}

int count_outliers(const std::vector<double>& values) {
  if (values.size() < 3) return 0;
  const double center = median(values);
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double v : values) deviations.push_back(std::abs(v - center));
  const double mad = median(deviations);
  if (mad == 0) return 0;
  return static_cast<int>(std::count_if(deviations.begin(), deviations.end(), [&](double d) { return 0.6745 * d / mad > kOutlierScore; }));
}

}  // namespace ipexrun::launcher::bench
