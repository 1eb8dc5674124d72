// The risk: a report that claims more than the numbers say. Expected values were computed with other tools (R, scipy) or by hand.
#include "launcher/bench/stats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace ipexrun::launcher::bench {
namespace {

TEST(Stats, MeanStdevMedianOfKnownValues) {
  const std::vector<double> values{2, 4, 4, 4, 5, 5, 7, 9};
  EXPECT_DOUBLE_EQ(mean(values), 5);
  EXPECT_NEAR(stdev(values), 2.13808993529940, 1e-12);
  EXPECT_DOUBLE_EQ(median(values), 4.5);
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(stdev({1}), 0);
  EXPECT_DOUBLE_EQ(median({}), 0);
}

TEST(Stats, QuantilesAreLinearBetweenNeighbours) {
  const std::vector<double> values{10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 10);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 40);
  EXPECT_NEAR(quantile(values, 0.9), 37, 1e-12);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.99), 7);
}

TEST(Stats, PercentilesNeedAsManySamplesAsMlperfSays) {
  EXPECT_EQ(min_samples_for_quantile(0.90), 64);
  EXPECT_EQ(min_samples_for_quantile(0.95), 130);
  EXPECT_EQ(min_samples_for_quantile(0.99), 662);
}

TEST(Stats, SignedRankExactPOfKnownSamples) {
  const RankTest all_positive = signed_rank_test({0.1, 0.2, 0.3, 0.4, 0.5});
  EXPECT_EQ(all_positive.n, 5);
  EXPECT_TRUE(all_positive.exact);
  EXPECT_DOUBLE_EQ(all_positive.p, 0.0625);
  EXPECT_DOUBLE_EQ(all_positive.least_p, 0.0625);
  EXPECT_DOUBLE_EQ(signed_rank_test({1, 2, 3, 4, 5, 6}).p, 0.03125);
  // Cushny and Peebles' sleep data: ranks of the one negative difference sum to 0 after the zero is dropped.
  EXPECT_DOUBLE_EQ(signed_rank_test({1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4}).p, 0.00390625);
  // W- = 3 of n = 8: P(W <= 3) = 5 / 256.
  EXPECT_DOUBLE_EQ(signed_rank_test({-3, 1, 2, 4, 5, 6, 7, 8}).p, 2 * 5.0 / 256);
}

TEST(Stats, SignedRankOfTiesAndZeros) {
  EXPECT_EQ(signed_rank_test({0, 0}).n, 0);
  EXPECT_DOUBLE_EQ(signed_rank_test({}).p, 1);
  EXPECT_DOUBLE_EQ(signed_rank_test({1, -1}).p, 1);
  // All ties: every rank is 2, a binomial tail. P(at most 1 of 4 negative) = 5 / 16, twice.
  EXPECT_DOUBLE_EQ(signed_rank_test({1, 1, 1, -1}).p, 0.625);
}

TEST(Stats, SignedRankOfManyUsesTheNormalApproximation) {
  std::vector<double> values(40);
  std::iota(values.begin(), values.end(), 1.0);
  for (std::size_t i = 0; i < values.size(); i += 2) values[i] = -values[i];
  const RankTest test = signed_rank_test(values);
  EXPECT_FALSE(test.exact);
  EXPECT_NEAR(test.p, 0.8984, 1e-4);  // W = 400 against 410 +- 74.4, continuity 0.5: z = 0.1277
}

TEST(Stats, BootstrapIsDeterministicAndCoversTheMedian) {
  const std::vector<double> ratios{1.70, 1.82, 1.79, 1.91, 1.85, 1.77, 1.88};
  const auto first = bootstrap_median(ratios);
  const auto second = bootstrap_median(ratios);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->low, second->low);
  EXPECT_EQ(first->high, second->high);
  EXPECT_LE(first->low, median(ratios));
  EXPECT_GE(first->high, median(ratios));
  EXPECT_GE(first->low, 1.70);
  EXPECT_LE(first->high, 1.91);
  EXPECT_FALSE(bootstrap_median({1.5, 1.6}));
}

TEST(Stats, OutliersAreFarFromTheMedian) {
  std::vector<double> values(50, 10);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += 0.01 * static_cast<double>(i % 7);
  EXPECT_EQ(count_outliers(values), 0);
  values[3] = 30;
  EXPECT_EQ(count_outliers(values), 1);
  EXPECT_EQ(count_outliers({1, 1, 1, 1}), 0);
}

}  // namespace
}  // namespace ipexrun::launcher::bench
