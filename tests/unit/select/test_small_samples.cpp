// Risk: results of a few numbers are let through on the word of a sample that happened to be large.
#include "preload/select/small_samples.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace ipexrun::preload {
namespace {

TEST(ErrorNormBound, HoldsForAllButAFewOfNormalErrors) {
  std::mt19937_64 random(5);
  for (const std::uint64_t numbers : {1, 2, 6, 100, 1000}) {
    const double bound = error_norm_bound(1e6, 1000000, numbers);                        // a variance of one, known well
    std::chi_squared_distribution<double> sum_of_squares(static_cast<double>(numbers));  // of that many normal errors
    int beyond = 0;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      const double squares = sum_of_squares(random);
      beyond += squares > bound * bound ? 1 : 0;
    }
    EXPECT_LT(beyond, kDraws / 400) << numbers;
    EXPECT_GT(beyond, 0) << numbers;
  }
}

TEST(ErrorNormBound, IsWiderWhereLittleWasSeen) {
  double before = std::numeric_limits<double>::infinity();
  for (const std::uint64_t counted : {1, 2, 4, 16, 256, 65536}) {
    const double bound = error_norm_bound(static_cast<double>(counted), counted, 8);
    EXPECT_LT(bound, before);
    before = bound;
  }
  EXPECT_NEAR(before / std::sqrt(8.0), std::sqrt(26.12 / 8), 0.03);  // the table's 0.999 quantile of 8 degrees
}

/// Errors just below `error`, no two the same.
void add(SampleErrors& errors, std::uint64_t numbers, int samples, double error) {
  for (int i = 0; i < samples; ++i) errors.add(numbers, error * (1 - 1e-12 * i));
}

TEST(SampleErrors, ManyNumbersSayItOfOthers) {
  SampleErrors errors;
  errors.add(150528, 1.9e-2);
  EXPECT_NEAR(errors.worst_of_a_thousand(), 1.9e-2, 1e-5);
}

TEST(SampleErrors, FewNumbersDoNot) {
  SampleErrors errors;
  add(errors, 2, 10, 1e-2);
  EXPECT_DOUBLE_EQ(errors.worst(), 1e-2);
  EXPECT_NEAR(errors.worst_of_a_thousand(), 1e-1 * std::sqrt(6.4), 1e-9);
  add(errors, 2, 990, 1e-4);
  EXPECT_NEAR(errors.worst_of_a_thousand(), 1e-2, 1e-9);
}

TEST(SampleErrors, OneSampleCountsOnce) {
  SampleErrors once;
  once.add(2, 1e-2);
  SampleErrors often = once;
  for (int i = 0; i < 100; ++i) often.add(once);
  EXPECT_EQ(often.samples(), 1u);
  EXPECT_DOUBLE_EQ(often.worst_of_a_thousand(), once.worst_of_a_thousand());
}

TEST(SampleErrors, TheWorstOfAFewMayBeALuckyOne) {
  SampleErrors errors;
  add(errors, 1, 160, 1e-3);
  EXPECT_NEAR(errors.worst_of_a_thousand(), 1e-3 * 1000 / 16, 1e-9);
}

TEST(SampleErrors, FindsTheTailOfNormalNumbers) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  for (const std::uint64_t numbers : {2, 3, 8}) {
    const auto error = [&] {
      double squares = 0;
      for (std::uint64_t k = 0; k < numbers; ++k) squares += std::pow(normal(random), 2);
      return 1 / std::sqrt(squares);
    };
    SampleErrors errors;
    for (int i = 0; i < 64; ++i) errors.add(numbers, error());
    int beyond = 0;
    for (int i = 0; i < 10000; ++i) beyond += error() > errors.worst_of_a_thousand() ? 1 : 0;
    EXPECT_LT(beyond, 40) << numbers;
  }
}

TEST(SampleErrors, KindsAreApart) {
  SampleErrors errors;
  add(errors, 1000, 4, 1e-2);
  SampleErrors others;
  add(others, 1, 100, 2.5e-3);
  errors.add(others);
  EXPECT_DOUBLE_EQ(errors.worst(), 1e-2);
  EXPECT_NEAR(errors.worst_of_a_thousand(), 2.5e-3 * 60, 1e-9);
}

TEST(SampleErrors, KnowsWhatNoFurtherSamplesCanShow) {
  SampleErrors errors;
  add(errors, 2, 10, 1e-2);
  EXPECT_NEAR(errors.at_least_with(1), errors.worst_of_a_thousand(), 1e-12);
  EXPECT_DOUBLE_EQ(errors.at_least_with(25), 2e-2);
  EXPECT_DOUBLE_EQ(errors.at_least_with(1e6), 1e-2);
}

TEST(SampleErrors, NaNStays) {
  SampleErrors errors;
  errors.add(4, std::numeric_limits<double>::quiet_NaN());
  errors.add(4, 1e-3);
  EXPECT_TRUE(std::isnan(errors.worst()));
  EXPECT_TRUE(std::isnan(errors.worst_of_a_thousand()));
}

}  // namespace
}  // namespace ipexrun::preload
