// The risk: a window that meets a neighbouring pixel, row or image instead of padding, channels of a tail that are mixed up or written
// past, an overlapping part computed from what was already written, a batch norm folded wrongly, bits that depend on threads.
#include "kernels/conv.h"

#include <gtest/gtest.h>

#include "kernels/choose.h"
#include "kernels/conv_variants.h"
#include "tests/unit/kernels/conv_problem.h"

namespace ipexrun::kernels::test {
namespace {

class ConvOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20250202};

  void check(const ConvShape& s) {
    for (const DType dtype : kTypes) {
      ConvProblem problem(s, dtype, random_);
      ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
      ASSERT_EQ(problem.difference(), "") << describe(s, dtype);
    }
  }
};

TEST_P(ConvOnIsa, DepthwiseOfAnyNumberOfChannels) {
  for (const std::int64_t channels : {1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 96, 100}) {
    for (const std::int64_t gap : {0, 3}) {
      ConvShape s = depthwise_of(channels, axis_of(5, 3, 1, 1), axis_of(9, 3, 1, 1));
      s.images = 2;
      s.gap = gap;
      check(s);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ConvOnIsa, DepthwiseWindows) {
  for (const std::int64_t kernel : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (const std::int64_t dilation : {1, 2}) {
        for (const std::int64_t width : {1, 6, 7, 8, 15, 30}) {
          ConvShape s = depthwise_of(33, axis_of(4, 3, stride, 1, 1), axis_of(width, kernel, stride, kernel / 2, kernel, dilation));
          check(s);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// Rows that are cut into segments, and kernels that are higher than the image or lie beside it.
TEST_P(ConvOnIsa, DepthwiseOfLongRowsAndHighWindows) {
  for (const std::int64_t width : {83, 84, 85, 86, 127, 170, 400}) {
    check(depthwise_of(17, axis_of(1, 1), axis_of(width, 4, 1, 3, 0)));
    check(depthwise_of(17, axis_of(4, 7, 2, 3), axis_of(width, 7, 2, 3)));
    if (HasFatalFailure()) return;
  }
  check(depthwise_of(20, axis_of(3, 7, 1, 6, 5), axis_of(2, 9, 1, 8, 8)));
  check(depthwise_of(20, axis_of(2, 3, 2, 9, 9, 4), axis_of(2, 3, 3, 11, 9, 5)));
  check(depthwise_of(20, axis_of(40, 31, 1, 15), axis_of(40, 31, 1, 15)));
}

TEST_P(ConvOnIsa, DepthwiseOfThreeDimensions) {
  for (const std::int64_t stride : {1, 2}) {
    for (const std::int64_t dilation : {1, 2}) {
      ConvShape s = depthwise_of(35, axis_of(6, 3, stride, 1, 2, dilation), axis_of(9, 3, stride, 1, 0, dilation));
      s.axes[0] = axis_of(5, 3, stride, 1, 1, dilation);
      s.images = 2;
      s.gap = 1;
      check(s);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ConvOnIsa, WhatComesAfterTheSum) {
  for (const ConvActivation activation : kActivations) {
    for (const int residual : {0, 1, 2}) {
      for (const bool scaled : {false, true}) {
        for (const std::int64_t channels : {5, 32, 43}) {
          ConvShape s = depthwise_of(channels, axis_of(4, 3, 1, 1), axis_of(10, 3, 1, 1));
          s.activation = activation;
          s.residual = residual;
          s.scaled = scaled;
          s.bias = channels != 5;
          s.gap = channels == 43 ? 2 : 0;
          check(s);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ConvOnIsa, TheResidualMayBeTheResult) {
  for (const DType dtype : kTypes) {
    ConvShape s = depthwise_of(40, axis_of(6, 3, 1, 1), axis_of(10, 3, 1, 1));
    s.residual = 1;
    ConvProblem problem(s, dtype, random_);
    ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
    const std::string expected = problem.to().bytes();
    std::memcpy(problem.to().data(), problem.residual().data(), static_cast<std::size_t>(problem.to().count() * bytes_of(dtype)));
    problem.args().residual = problem.to().data();
    ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
    EXPECT_EQ(problem.to().bytes(), expected);
  }
}

TEST_P(ConvOnIsa, NothingToDo) {
  for (const int empty : {0, 1, 2, 3}) {
    ConvShape s = depthwise_of(empty == 0 ? 0 : 9, axis_of(4, 3), axis_of(empty == 1 ? 1 : 4, 3));
    if (empty == 0) s.groups = 1;
    if (empty == 2) s.images = 0;
    if (empty == 3) s.axes[1] = {0, 3, 3, 1, 3, 1};  // an image without rows: windows meet padding alone
    check(s);
  }
}

TEST_P(ConvOnIsa, AnyNumberOfThreads) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t width : {9, 200}) {
      ConvShape s = depthwise_of(70, axis_of(11, 3, 1, 1), axis_of(width, 5, 1, 2));
      s.images = 3;
      ConvProblem problem(s, dtype, random_);
      ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
      ASSERT_EQ(problem.difference(), "");
      const std::string expected = problem.to().bytes();
      for (int threads = 2; threads <= 4; ++threads) {
        std::memset(problem.to().data(), 0, static_cast<std::size_t>(problem.to().count() * bytes_of(dtype)));
        ASSERT_TRUE(convolve(problem.args(), thread_parallel(threads), GetParam()));
        EXPECT_EQ(problem.to().bytes(), expected) << threads;
      }
    }
  }
}

TEST_P(ConvOnIsa, SpecialValues) {
  for (const DType dtype : kTypes) {
    for (const ConvActivation activation : kActivations) {
      ConvShape s = depthwise_of(33, axis_of(1, 1), axis_of(13, 3));
      s.activation = activation;
      ConvProblem problem(s, dtype, random_);
      problem.from().set(3 * 33 + 5, kNan);
      problem.from().set(4 * 33 + 32, kNan);
      if (activation == ConvActivation::kNone || activation == ConvActivation::kClamp) {
        problem.from().set(7 * 33 + 1, kInf);
        problem.from().set(9 * 33 + 2, -kInf);
        problem.from().set(9 * 33 + 32, kInf);
      }
      problem.from().set(11 * 33 + 7, 1e-40f);
      ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "") << describe(s, dtype);
    }
  }
}

TEST_P(ConvOnIsa, RandomShapes) {
  const auto pick = [&](std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random_); };
  for (int round = 0; round < 150; ++round) {
    ConvShape s = depthwise_of(pick(1, 80), {}, {});
    s.images = pick(1, 2);
    for (int i = static_cast<int>(pick(0, 2)); i < kConvAxes; ++i) {
      const std::int64_t kernel = pick(1, 6);
      s.axes[i] = axis_of(pick(1, 12), kernel, pick(1, 3), pick(0, 3), pick(0, 3), pick(1, 3));
    }
    s.activation = kActivations[pick(0, 5)];
    s.residual = static_cast<int>(pick(0, 2));
    s.bias = pick(0, 1) == 1;
    s.gap = pick(0, 2) * pick(0, 3);
    check(s);
    if (HasFatalFailure()) return;
  }
}

TEST_P(ConvOnIsa, UsesTheVariantOfItsLevel) {
  ConvProblem problem(depthwise_of(8, axis_of(3, 3), axis_of(3, 3)), DType::kF32, random_);
  const DepthwiseVariants table = depthwise_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(conv_variant(problem.args(), GetParam()), table.first[i].name);
      EXPECT_EQ(conv_supported(problem.args(), GetParam()), i + 1 < table.count);
    }
  }
}

TEST(Conv, WindowsThatReachVeryFarAreLeftToTheReference) {
  std::mt19937 random(1);
  ConvShape s = depthwise_of(3, axis_of(2, 1), axis_of(4, 2, 1, 0, 0, 3));
  ConvProblem near(s, DType::kF32, random);
  s.axes[2] = {4, 2, 2, 1, 0, 3'000'000'000};
  ConvProblem far(s, DType::kF32, random);
  EXPECT_TRUE(conv_supported(near.args(), isa_of_process()) || levels_of(depthwise_variants()).size() == 1);
  EXPECT_FALSE(conv_supported(far.args(), isa_of_process()));
  ASSERT_TRUE(convolve(far.args(), {}, isa_of_process()));
  EXPECT_EQ(far.difference(), "");
}

TEST(Conv, BatchNormIsFolded) {
  const float mean[] = {1, -2};
  const float variance[] = {4, 0};
  const float weight[] = {3, 0.5f};
  const float shift[] = {10, 20};
  const float bias[] = {5, 7};
  float scale[2];
  float folded[2];
  fold_batch_norm({mean, variance, weight, shift, 0.25}, bias, 2, scale, folded);
  EXPECT_FLOAT_EQ(scale[0], static_cast<float>(3 / std::sqrt(4.25)));
  EXPECT_FLOAT_EQ(scale[1], 1.0f);
  EXPECT_FLOAT_EQ(folded[0], static_cast<float>(10 + 4 * 3 / std::sqrt(4.25)));
  EXPECT_FLOAT_EQ(folded[1], 29.0f);
  fold_batch_norm({mean, variance, nullptr, nullptr, 0.25}, nullptr, 2, scale, folded);
  EXPECT_FLOAT_EQ(scale[1], 2.0f);
  EXPECT_FLOAT_EQ(folded[1], 4.0f);
}

INSTANTIATE_TEST_SUITE_P(Levels, ConvOnIsa, testing::ValuesIn(levels_of(depthwise_variants())),
                         [](const auto& level) { return std::string(choose(depthwise_variants(), level.param).name); });

}  // namespace
}  // namespace ipexrun::kernels::test
