// Statistics of the report. Pure functions of numbers: no clock, no global random state, the same input gives the same output.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ipexrun::launcher::bench {

double mean(const std::vector<double>& values);
/// Sample standard deviation (n - 1); 0 for fewer than two values.
double stdev(const std::vector<double>& values);
double median(std::vector<double> values);

/// Quantile q in [0, 1] of `sorted` (ascending, not empty), linear between neighbours.
double quantile(const std::vector<double>& sorted, double q);

/// The least n with which quantile q can be claimed: with 99% confidence at least two of the n values lie beyond the true
/// quantile, P(Binomial(n, 1 - q) <= 1) <= 0.01. This is the early-stopping bound of MLPerf's load generator: p90 needs 64, p99 662.
int min_samples_for_quantile(double q);

struct Interval {
  double low = 0;
  double high = 0;
};

/// 95% interval of the median by the percentile bootstrap (10,000 resamples, fixed seed). nullopt for fewer than three values.
std::optional<Interval> bootstrap_median(const std::vector<double>& values);

/// Wilcoxon's signed rank test that the values are symmetric around 0; zeros are dropped, ties get mid-ranks.
struct RankTest {
  int n = 0;           ///< values that are not 0
  double p = 1;        ///< two-sided
  bool exact = true;   ///< the exact distribution (n <= 30), else the normal approximation with ties corrected
  double least_p = 1;  ///< the smallest p that n values can give: 2 / 2^n
};
RankTest signed_rank_test(const std::vector<double>& values);

/// Values whose modified z score (0.6745 |x - median| / MAD) exceeds 14.8: about 10 standard deviations, as hyperfine counts them.
int count_outliers(const std::vector<double>& values);

}  // namespace ipexrun::launcher::bench
