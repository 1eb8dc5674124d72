// The risk: a tile that reads a neighbouring row, image or phase instead of padding, or writes what lies between two rows; taps or groups
// merged in the wrong order; channels of a tail; numbers that are not finite reaching another group; bits that depend on threads.
#include "kernels/conv_dense.h"

#include <gtest/gtest.h>

#include "kernels/choose.h"
#include "tests/unit/kernels/conv_problem.h"

namespace ipexrun::kernels::test {
namespace {

ConvShape dense_of(std::int64_t in, std::int64_t out, ConvAxis down, ConvAxis across, std::int64_t groups = 1) {
  ConvShape s;
  s.in_channels = in;
  s.out_channels = out;
  s.groups = groups;
  s.axes[1] = down;
  s.axes[2] = across;
  return s;
}

class DenseConvOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20250303};

  std::int64_t pick(std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random_); }
  void check_as(const ConvShape& s, DType dtype) {
    ConvProblem problem(s, dtype, random_);
    ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
    ASSERT_EQ(problem.difference(), "") << describe(s, dtype);
  }
  void check(const ConvShape& s) {
    for (const DType dtype : kTypes) check_as(s, dtype);
  }
};

TEST_P(DenseConvOnIsa, AnyNumberOfChannels) {
  for (const std::int64_t in : {1, 2, 3, 7, 16, 31, 32, 33, 63, 64, 65, 100}) {
    for (const std::int64_t out : {1, 15, 16, 17, 31, 32, 33, 64, 65}) {
      if (in == 1 && out == 1) continue;
      ConvShape s = dense_of(in, out, axis_of(3, 2, 1, 1, 0), axis_of(6, 3, 1, 1));
      s.gap = (in + out) % 3;
      s.images = 1 + (in + out) % 2;
      s.mixed = in % 4 == 3;
      check_as(s, kTypes[(in + out) % 4 / 2]);
      if (HasFatalFailure()) return;
    }
  }
}

/// Rows that tiles run across, and others that begin a tile.
TEST_P(DenseConvOnIsa, AnySizeOfImages) {
  for (const std::int64_t width : {1, 2, 7, 8, 14, 15, 16, 17, 28, 31, 32, 33, 50}) {
    for (const std::int64_t height : {1, 2, 3, 7, 16}) {
      ConvShape s = dense_of(34, 5, axis_of(height, 3, 1, 1), axis_of(width, 3, 1, 1));
      s.images = 1 + width % 3;
      check_as(s, kTypes[height % 2]);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DenseConvOnIsa, Windows) {
  for (const std::int64_t kernel : {1, 2, 3, 4, 5, 7}) {
    for (const std::int64_t stride : {1, 2, 3, 4}) {
      for (const std::int64_t dilation : {1, 2, 3}) {
        for (const std::int64_t width : {5, 18}) {
          const std::int64_t pad = pick(0, kernel);
          check_as(dense_of(33, 6, axis_of(5, 3, stride, 1, 2, dilation), axis_of(width, kernel, stride, pad, kernel * dilation, dilation)),
                   kTypes[pick(0, 1)]);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  // Strides and dilations with a common divisor, kernels beside the image, and padding wider than it.
  check(dense_of(20, 4, axis_of(9, 3, 6, 4, 4, 4), axis_of(20, 5, 4, 3, 3, 6)));
  check(dense_of(40, 4, axis_of(3, 7, 1, 6, 5), axis_of(2, 9, 1, 8, 8)));
  check(dense_of(40, 4, axis_of(2, 3, 2, 9, 9, 4), axis_of(2, 3, 3, 11, 9, 5)));
}

/// Few channels: taps of a row are merged with them.
TEST_P(DenseConvOnIsa, MergedTaps) {
  for (const std::int64_t in : {1, 2, 3, 4, 5, 10}) {
    for (const std::int64_t kernel : {2, 3, 7, 10, 16, 33}) {
      for (const std::int64_t stride : {1, 2, 5}) {
        ConvShape s = dense_of(in, 9, axis_of(6, 3, stride, 1), axis_of(23, kernel, stride, kernel / 2, kernel));
        s.gap = pick(0, 3) == 0 ? 1 : 0;
        if (pick(0, 3) == 0) s.axes[2].dilation = 1 + pick(0, 2);
        s.axes[2].out = (s.axes[2].in + 2 * s.axes[2].pad + 60) / s.axes[2].stride;
        s.mixed = pick(0, 3) == 0;
        check_as(s, kTypes[pick(0, 1)]);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(DenseConvOnIsa, Groups) {
  const std::int64_t forms[][3] = {{4, 4, 1},   {4, 4, 4},   {8, 8, 8},   {8, 8, 3},  {3, 5, 7},   {7, 3, 1},   {2, 1, 3},  {5, 1, 2},
                                   {3, 17, 17}, {2, 32, 48}, {3, 40, 33}, {33, 1, 2}, {2, 16, 16}, {3, 16, 16}, {9, 2, 40}, {2, 100, 10}};
  for (const auto& [groups, in, out] : forms) {
    for (const std::int64_t kernel : {1, 3}) {
      ConvShape s = dense_of(groups * in, groups * out, axis_of(4, kernel, 1, kernel / 2), axis_of(9, kernel, 2, kernel / 2), groups);
      s.gap = in % 2;
      s.scaled = out % 2 == 1;
      check(s);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(DenseConvOnIsa, OneAndThreeDimensions) {
  for (const std::int64_t stride : {1, 2}) {
    for (const std::int64_t dilation : {1, 2}) {
      check(dense_of(36, 5, axis_of(1, 1), axis_of(70, 4, stride, 2, 1, dilation)));
      for (const std::int64_t in : {3, 35}) {
        ConvShape s = dense_of(in, 8, axis_of(6, 3, stride, 1, 2, dilation), axis_of(9, 3, stride, 1, 0, dilation));
        s.axes[0] = axis_of(5, 3, stride, 1, 1, dilation);
        s.images = 2;
        s.gap = 1;
        check(s);
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// More than scratch holds at a time: of an image, of images, of weights.
TEST_P(DenseConvOnIsa, ManyOfThem) {
  check_as(dense_of(130, 2, axis_of(60, 3, 1, 1), axis_of(80, 1)), DType::kBf16);
  check_as(dense_of(520, 1, axis_of(9, 3, 1, 1), axis_of(150, 1)), DType::kF32);
  check_as(dense_of(520, 2, axis_of(2, 3, 1, 1), axis_of(700, 3, 1, 1)), DType::kBf16);  // rows in segments
  check_as(dense_of(1000, 1, axis_of(1, 1), axis_of(900, 3, 2, 1, 1, 5)), DType::kF32);
  ConvShape many = dense_of(33, 40, axis_of(2, 2), axis_of(3, 3, 1, 1));
  many.images = 150;
  check_as(many, DType::kBf16);
  check_as(dense_of(512, 100, axis_of(3, 3, 1, 1), axis_of(3, 3, 1, 1)), DType::kBf16);
  check_as(dense_of(8 * 33, 8 * 33, axis_of(6, 3, 1, 1), axis_of(7, 3, 1, 1), 8), DType::kF32);
}

/// So wide that tiles below one another follow each other: an odd number of rows, units of several images, whole and cut tiles.
TEST_P(DenseConvOnIsa, RowsTooWideForL1) {
  if (GetParam() == 0) return;  // the reference knows no tiles
  check_as(dense_of(64, 40, axis_of(9, 3, 1, 1), axis_of(210, 3, 1, 1)), DType::kBf16);
  check_as(dense_of(3, 33, axis_of(21, 7, 2, 3), axis_of(224, 7, 2, 3)), DType::kF32);
  ConvShape many = dense_of(96, 33, axis_of(5, 3, 1, 1), axis_of(99, 3, 1, 1));
  many.images = 3;
  many.residual = 1;
  many.activation = ConvActivation::kClamp;
  check_as(many, DType::kBf16);
}

TEST_P(DenseConvOnIsa, WhatComesAfterTheSum) {
  for (const ConvActivation activation : kActivations) {
    for (const int residual : {0, 1, 2}) {
      for (const std::int64_t channels : {5, 32, 43}) {
        ConvShape s = dense_of(40, channels, axis_of(4, 3, 1, 1), axis_of(channels == 5 ? 17 : 9, 3, 1, 1));
        s.activation = activation;
        s.residual = residual;
        s.scaled = residual == 1;
        s.bias = channels != 5;
        s.gap = channels == 43 ? 2 : 0;
        s.mixed = channels == 32;
        check(s);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(DenseConvOnIsa, TheResidualMayBeTheResult) {
  ConvShape s = dense_of(40, 48, axis_of(6, 3, 1, 1), axis_of(10, 3, 1, 1));
  s.residual = 1;
  ConvProblem problem(s, DType::kBf16, random_);
  ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
  const std::string expected = problem.to().bytes();
  std::memcpy(problem.to().data(), problem.residual().data(), static_cast<std::size_t>(problem.to().count() * 2));
  problem.args().residual = problem.to().data();
  ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
  EXPECT_EQ(problem.to().bytes(), expected);
}

TEST_P(DenseConvOnIsa, NothingToDo) {
  for (const int empty : {0, 1, 2, 3}) {
    ConvShape s = dense_of(9, empty == 0 ? 0 : 4, axis_of(4, 3), axis_of(empty == 1 ? 1 : 4, 3));
    if (empty == 2) s.images = 0;
    if (empty == 3) s.axes[1] = {0, 3, 3, 1, 3, 1};  // an image without rows: windows meet padding alone
    check(s);
  }
}

TEST_P(DenseConvOnIsa, AnyNumberOfThreads) {
  const ConvShape shapes[] = {
      dense_of(70, 100, axis_of(11, 3, 1, 1), axis_of(9, 3, 1, 1)), dense_of(64, 64, axis_of(5, 3, 1, 1), axis_of(7, 3, 2, 1), 16),
      dense_of(3, 33, axis_of(40, 7, 2, 3), axis_of(40, 7, 2, 3)),  dense_of(40, 33, axis_of(1, 1), axis_of(301, 3, 1, 1)),
      dense_of(2, 5, axis_of(1, 1), axis_of(900, 10, 3, 4, 0, 2)),  dense_of(12, 12, axis_of(1, 1), axis_of(500, 3, 2, 1), 4)};
  for (ConvShape s : shapes) {
    s.images = 3;
    const DType dtype = kTypes[s.groups % 2];
    ConvProblem problem(s, dtype, random_);
    ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
    ASSERT_EQ(problem.difference(), "");
    const std::string expected = problem.to().bytes();
    for (const int threads : {2, 3, 4, 7, 64}) {
      std::memset(problem.to().data(), 0, static_cast<std::size_t>(problem.to().count() * bytes_of(dtype)));
      ASSERT_TRUE(convolve(problem.args(), thread_parallel(threads), GetParam()));
      EXPECT_EQ(problem.to().bytes(), expected) << threads << " threads, " << describe(s, dtype);
    }
  }
}

/// Large enough that rows are handed out in pieces, or panels whose rows lie in scratch meanwhile.
TEST_P(DenseConvOnIsa, WhoComputesWhatDoesNotChangeTheBits) {
  if (GetParam() == 0) return;  // the reference hands out no pieces, and takes long; AnyNumberOfThreads has it
  const ConvShape shapes[] = {
      dense_of(64, 100, axis_of(60, 3, 1, 1), axis_of(50, 3, 1, 1)), dense_of(260, 300, axis_of(31, 1), axis_of(45, 1)),
      dense_of(64, 330, axis_of(14, 3, 1, 1), axis_of(14, 3, 1, 1)), dense_of(96, 290, axis_of(28, 1, 2), axis_of(28, 1, 2)),
      dense_of(33, 64, axis_of(56, 3, 1, 1), axis_of(56, 3, 1, 1)),  dense_of(3, 33, axis_of(45, 7, 2, 3), axis_of(160, 7, 2, 3))};
  for (ConvShape s : shapes) {
    s.images = s.axes[1].in > 30 && s.in_channels > 33 ? 2 : 1;
    ConvProblem problem(s, DType::kBf16, random_);
    ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
    const std::string expected = problem.to().bytes();
    for (const int threads : {2, 5, 9}) {
      for (const Parallel& parallel : {thread_parallel(threads), backward_parallel(threads)}) {
        std::memset(problem.to().data(), 0, static_cast<std::size_t>(problem.to().count() * 2));
        ASSERT_TRUE(convolve(problem.args(), parallel, GetParam()));
        EXPECT_EQ(problem.to().bytes(), expected) << threads << " threads, " << describe(s, DType::kBf16);
      }
    }
  }
}

TEST_P(DenseConvOnIsa, NumbersThatAreNotFiniteInSegmentsOfThreads) {
  ConvProblem problem(dense_of(40, 60, axis_of(1, 1), axis_of(400, 3, 1, 1), 20), DType::kBf16, random_);
  problem.from().set(100 * 40 + 5, kNan);
  problem.from().set(399 * 40 + 39, kInf);
  ASSERT_TRUE(convolve(problem.args(), thread_parallel(3), GetParam()));
  EXPECT_EQ(problem.difference(), "");
}

/// Those of a pixel reach the windows that meet it, in its own group alone.
TEST_P(DenseConvOnIsa, NumbersThatAreNotFinite) {
  for (const std::int64_t groups : {1, 2, 20}) {
    for (const DType dtype : kTypes) {
      ConvShape s = dense_of(40, 40, axis_of(4, 3, 1, 1), axis_of(13, 3, 1, 1), groups);
      if (groups == 20) s.out_channels = 60;
      s.activation = ConvActivation::kClamp;
      ConvProblem problem(s, dtype, random_);
      problem.from().set(3 * 40 + 5, kNan);
      problem.from().set(17 * 40 + 39, kInf);
      problem.from().set(30 * 40 + 1, -kInf);
      problem.from().set(11 * 40 + 7, 1e-40f);
      ASSERT_TRUE(convolve(problem.args(), {}, GetParam()));
      EXPECT_EQ(problem.difference(), "") << describe(s, dtype);
    }
  }
}

TEST_P(DenseConvOnIsa, Fuzzed) {
  for (int round = 0; round < 200; ++round) {
    ConvShape s;
    s.groups = pick(0, 2) == 0 ? pick(2, 9) : 1;
    s.in_channels = s.groups * pick(1, s.groups == 1 ? 70 : 20);
    s.out_channels = s.groups * pick(1, s.groups == 1 ? 40 : 10);
    if (!s.dense()) s.out_channels *= 2;
    s.images = pick(1, 2);
    for (int i = static_cast<int>(pick(0, 2)); i < kConvAxes; ++i) {
      const std::int64_t kernel = pick(1, i == 2 ? 5 : 3);
      s.axes[i] = axis_of(pick(1, i == 2 ? 20 : 6), kernel, pick(1, 3), pick(0, 3), pick(0, 3), pick(1, 3));
    }
    s.activation = kActivations[pick(0, 5)];
    s.residual = static_cast<int>(pick(0, 2));
    s.bias = pick(0, 1) == 1;
    s.gap = pick(0, 2) * pick(0, 3);
    s.mixed = pick(0, 3) == 0;
    s.scaled = pick(0, 3) == 0;
    check_as(s, kTypes[pick(0, 1)]);
    if (HasFatalFailure()) return;
  }
}

TEST_P(DenseConvOnIsa, UsesTheVariantOfItsLevel) {
  ConvProblem problem(dense_of(8, 4, axis_of(3, 3), axis_of(3, 3)), DType::kF32, random_);
  EXPECT_STREQ(conv_variant(problem.args(), GetParam()), choose(dense_variants(), GetParam()).name);
  EXPECT_EQ(conv_supported(problem.args(), GetParam()), GetParam() != 0);
}

TEST(DenseConv, WindowsThatReachVeryFarAreLeftToTheReference) {
  std::mt19937 random(1);
  ConvShape s = dense_of(3, 2, axis_of(4, 2, 1, 0, 0, 3), axis_of(2, 1));
  s.axes[1] = {4, 2, 2, 1, 0, 3'000'000'000};
  ConvProblem far(s, DType::kF32, random);
  EXPECT_FALSE(conv_supported(far.args(), isa_of_process()));
  ASSERT_TRUE(convolve(far.args(), {}, isa_of_process()));
  EXPECT_EQ(far.difference(), "");
}

TEST(DenseConv, PacksAreOfBf16) {
  std::mt19937 random(1);
  ConvProblem problem(dense_of(8, 4, axis_of(3, 3), axis_of(3, 3)), DType::kF32, random);
  problem.args().packed_dtype = DType::kF32;
  EXPECT_FALSE(conv_known(8, 4, 1, DType::kF32));
  EXPECT_FALSE(conv_known(8, 4, 0, DType::kBf16));
  EXPECT_FALSE(conv_known(8, 4, 3, DType::kBf16));
  EXPECT_FALSE(conv_supported(problem.args(), isa_of_process()));
  EXPECT_FALSE(convolve(problem.args(), {}, isa_of_process()));
}

INSTANTIATE_TEST_SUITE_P(Levels, DenseConvOnIsa, testing::ValuesIn(levels_of(dense_variants())),
                         [](const auto& level) { return std::string(choose(dense_variants(), level.param).name); });

}  // namespace
}  // namespace ipexrun::kernels::test
