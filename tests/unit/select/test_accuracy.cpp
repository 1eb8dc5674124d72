// Risk: a candidate with wrong numbers passes, or rounding that any fp32 kernel shows fails.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "preload/select/accuracy.h"

namespace ipexrun::preload {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Accuracy, an_exact_result_passes_at_every_precision) {
  const std::vector<double> values = {1, -2, 3, 4};
  for (const Precision p : {Precision::kFloat64, Precision::kFloat32, Precision::kBf16Op, Precision::kFloat16Op}) {
    EXPECT_TRUE(check_accuracy(values, values, values, 2, p).pass);
  }
}

TEST(Accuracy, all_zeros_do_not_pass_for_a_softmax_over_thirty_thousand_classes) {
  const std::vector<double> truth(30000, 1.0 / 30000);
  const std::vector<double> zeros(30000, 0.0);
  EXPECT_FALSE(check_accuracy(truth, truth, zeros, 1, Precision::kBf16Op).pass);
}

TEST(Accuracy, the_worst_sample_counts) {
  std::vector<double> truth(200, 1000.0);
  for (std::size_t i = 100; i < 200; ++i) truth[i] = 1e-3;
  std::vector<double> candidate = truth;
  candidate[150] = 2e-3;  // nothing beside the first sample, 10% of the second
  const Accuracy verdict = check_accuracy(truth, truth, candidate, 2, Precision::kBf16Op);
  EXPECT_FALSE(verdict.pass);
  EXPECT_NEAR(verdict.candidate_error, 0.1, 1e-9);
}

TEST(Accuracy, stocks_own_error_widens_the_bound_twofold) {
  const std::vector<double> truth = {1, 1};
  const std::vector<double> stock = {1.1, 1.1};
  EXPECT_TRUE(check_accuracy(truth, stock, std::vector<double>{1.19, 1.19}, 1, Precision::kFloat32).pass);
  EXPECT_FALSE(check_accuracy(truth, stock, std::vector<double>{1.21, 1.21}, 1, Precision::kFloat32).pass);
}

TEST(Accuracy, nan_and_infinities_must_lie_where_stocks_do) {
  const std::vector<double> truth = {1, kNaN, kInf, 2};
  EXPECT_TRUE(check_accuracy(truth, truth, truth, 1, Precision::kBf16Op).pass);
  EXPECT_FALSE(check_accuracy(truth, truth, std::vector<double>{1, kNaN, -kInf, 2}, 1, Precision::kBf16Op).pass);
  EXPECT_FALSE(check_accuracy(truth, truth, std::vector<double>{1, 0, kInf, 2}, 1, Precision::kBf16Op).pass);
  EXPECT_FALSE(check_accuracy(truth, truth, std::vector<double>{kNaN, kNaN, kInf, 2}, 1, Precision::kBf16Op).pass);
}

TEST(Accuracy, zero_truth_asks_for_zero) {
  const std::vector<double> zeros = {0, 0};
  EXPECT_TRUE(check_accuracy(zeros, zeros, zeros, 1, Precision::kFloat32).pass);
  EXPECT_FALSE(check_accuracy(zeros, zeros, std::vector<double>{0, 1e-9}, 1, Precision::kFloat32).pass);
}

TEST(Accuracy, lengths_that_do_not_match_fail) {
  const std::vector<double> two = {1, 2};
  EXPECT_FALSE(check_accuracy(two, two, std::vector<double>{1}, 1, Precision::kFloat32).pass);
  EXPECT_FALSE(check_accuracy(two, two, two, 0, Precision::kFloat32).pass);
}

TEST(Accuracy, knows_where_stock_has_the_truth_to_the_last_bit) {
  const std::vector<double> counts = {3, 0, 1985, 7};
  const std::vector<double> rounded = {3, 0, 1984, 7};
  const std::vector<double> near = {3, 0, 1985 + 1e-4, 7};
  EXPECT_TRUE(check_accuracy(counts, counts, rounded, 2, Precision::kBf16Op).exact);
  EXPECT_FALSE(check_accuracy(counts, near, rounded, 2, Precision::kBf16Op).exact);
  const std::vector<double> zeros(4, 0);
  EXPECT_FALSE(check_accuracy(zeros, zeros, zeros, 2, Precision::kBf16Op).exact) << "that says nothing";
}

TEST(Agreement, sees_what_lies_outside_the_sampled_rows) {
  Agreement good;
  Agreement bad;
  for (int i = 0; i < 1000; ++i) {
    good.add(1.0, 1.001);
    bad.add(1.0, i == 500 ? 2.0 : 1.0);
  }
  EXPECT_TRUE(good.holds(0, Precision::kBf16Op));
  EXPECT_FALSE(bad.holds(0, Precision::kBf16Op));
  Agreement nan;
  nan.add(kNaN, 1.0);
  EXPECT_FALSE(nan.holds(0, Precision::kBf16Op));
}

}  // namespace
}  // namespace ipexrun::preload
