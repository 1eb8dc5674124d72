// The risk: sums over many rows that lose digits or depend on the threads, the tail of the channels, relu's mask where the norm is computed
// again, NaN that is lost.
#include "kernels/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/batch_norm_variants.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBf16};

class BatchNormOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20261123};

  std::vector<float> numbers(std::int64_t count, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> made(static_cast<std::size_t>(count));
    for (float& one : made) one = normal(random_);
    return made;
  }

  Buffer image(DType dtype, std::int64_t count, float mean = 0) {
    Buffer made(dtype, count, 3);
    made.fill(random_, mean);
    return made;
  }

  struct Moments {
    std::vector<double> mean;
    std::vector<double> variance;
  };

  static Moments moments(const Buffer& from, DType dtype, std::int64_t rows, std::int64_t channels, IsaSet isa, const Parallel& parallel) {
    Moments out{std::vector<double>(static_cast<std::size_t>(channels)), std::vector<double>(static_cast<std::size_t>(channels))};
    BatchMomentsArgs args{.from = from.data(), .dtype = dtype, .rows = rows, .channels = channels};
    args.mean = out.mean.data();
    args.variance = out.variance.data();
    EXPECT_TRUE(batch_moments(args, parallel, isa));
    return out;
  }

  void check_moments(std::int64_t rows, std::int64_t channels, float mean) {
    for (const DType dtype : kTypes) {
      const Buffer from = image(dtype, rows * channels, mean);
      const Moments seen = moments(from, dtype, rows, channels, GetParam(), {});
      for (std::int64_t c = 0; c < channels; ++c) {
        double truth = 0;
        double square = 0;
        for (std::int64_t row = 0; row < rows; ++row) truth += from.get(row * channels + c) / static_cast<double>(rows);
        for (std::int64_t row = 0; row < rows; ++row) {
          square += std::pow(from.get(row * channels + c) - truth, 2) / static_cast<double>(rows);
        }
        const auto at = static_cast<std::size_t>(c);
        ASSERT_NEAR(seen.mean[at], truth, 3e-6) << rows << " rows of " << channels << ", channel " << c;
        ASSERT_NEAR(seen.variance[at], square, 1e-5 * square + 1e-12) << rows << " rows of " << channels << ", channel " << c;
      }
    }
  }

  void compare(const Buffer& seen, const Buffer& truth, DType dtype, const std::string& where) {
    EXPECT_TRUE(seen.front_is_clean());
    for (std::int64_t i = 0; i < truth.count(); ++i) {
      // What is rounded differently may be the next bf16.
      const double bound = 4e-6 * (1 + std::fabs(truth.get(i))) + (dtype == DType::kBf16 ? std::fabs(truth.get(i)) / 128 : 0);
      ASSERT_TRUE(near(seen.get(i), truth.get(i), bound, DType::kF32))
          << where << " at " << i << ": " << seen.get(i) << ", truth " << truth.get(i);
    }
  }

  void check(std::int64_t rows, std::int64_t channels, bool nans = false) {
    for (const DType dtype : kTypes) {
      for (const bool relu : {false, true}) {
        for (const bool residual : {false, true}) check(rows, channels, dtype, relu, residual, nans);
      }
    }
  }

  void check(std::int64_t rows, std::int64_t channels, DType dtype, bool relu, bool residual, bool nans) {
    const std::string where =
        std::to_string(rows) + " rows of " + std::to_string(channels) + (relu ? ", relu" : "") + (residual ? ", sum" : "");
    const std::int64_t count = rows * channels;
    Buffer from = image(dtype, count, 0.5f);
    const Buffer other = image(dtype, count);
    Buffer grad = image(dtype, count);
    for (std::int64_t i = 0; nans && i < count; i += 7) (i % 2 == 0 ? from : grad).set(i, std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> mean = numbers(channels, 0.5f, 0.1f);
    const std::vector<float> scale = numbers(channels, 1.0f, 0.2f);
    const std::vector<float> shift = numbers(channels, 0.0f, 0.3f);

    BatchNormArgs args{.from = from.data(), .dtype = dtype, .rows = rows, .channels = channels, .relu = relu};
    args.residual = residual ? other.data() : nullptr;
    args.mean = mean.data();
    args.scale = scale.data();
    args.shift = shift.data();
    Buffer seen(dtype, count, 3);
    Buffer truth(dtype, count, 3);
    args.to = seen.data();
    batch_norm(args, {}, GetParam());
    args.to = truth.data();
    batch_norm(args, {}, 0);
    compare(seen, truth, dtype, where);

    BatchNormGradArgs back{.grad = grad.data(), .from = from.data(), .dtype = dtype, .rows = rows, .channels = channels, .relu = relu};
    back.result = residual ? truth.data() : nullptr;
    back.mean = mean.data();
    back.scale = scale.data();
    back.shift = shift.data();
    std::vector<double> sums[2][2];
    for (int ours = 0; ours < 2; ++ours) {
      for (std::vector<double>& one : sums[ours]) one.resize(static_cast<std::size_t>(channels));
      back.sum = sums[ours][0].data();
      back.product = sums[ours][1].data();
      ASSERT_TRUE(batch_norm_grad_sums(back, {}, ours != 0 ? GetParam() : 0));
    }
    for (int kind = 0; kind < 2; ++kind) {
      for (std::size_t c = 0; c < sums[0][kind].size(); ++c) {
        const double bound = 1e-5 * std::sqrt(static_cast<double>(rows)) + 1e-5 * std::fabs(sums[0][kind][c]);
        ASSERT_TRUE(near(sums[1][kind][c], sums[0][kind][c], bound, DType::kF32)) << where << ", sum " << kind << " of channel " << c;
      }
    }
    const std::vector<float> by_grad = numbers(channels, 1.0f, 0.2f);
    const std::vector<float> by_from = numbers(channels, 0.0f, 0.2f);
    const std::vector<float> constant = numbers(channels, 0.0f, 0.2f);
    back.by_grad = by_grad.data();
    back.by_from = by_from.data();
    back.constant = constant.data();
    Buffer to[2] = {Buffer(dtype, count, 3), Buffer(dtype, count, 3)};
    Buffer before[2] = {Buffer(dtype, count, 3), Buffer(dtype, count, 3)};
    for (int ours = 0; ours < 2; ++ours) {
      back.to = to[ours].data();
      back.before_relu = residual ? before[ours].data() : nullptr;
      batch_norm_grad(back, {}, ours != 0 ? GetParam() : 0);
    }
    compare(to[1], to[0], dtype, where + ", gradient");
    if (residual) compare(before[1], before[0], dtype, where + ", gradient of the sum");
  }
};

TEST_P(BatchNormOnIsa, MomentsOfLargeMeans) {
  for (const float mean : {0.0f, 3.0f}) {
    for (const std::int64_t rows : {1, 7, 8, 9, 130, 4099}) check_moments(rows, 19, mean);
  }
}

/// One pixel far from all others, which may be the first, costs those no digits.
TEST_P(BatchNormOnIsa, MomentsBesideOnePixelFarAway) {
  constexpr std::int64_t kRows = 20000;
  constexpr std::int64_t kChannels = 19;
  for (const std::int64_t far : {std::int64_t{0}, kRows / 2, kRows - 1}) {
    Buffer from = image(DType::kF32, kRows * kChannels);
    for (std::int64_t c = 0; c < kChannels; ++c) from.set(far * kChannels + c, 1000.0f);
    const Moments seen = moments(from, DType::kF32, kRows, kChannels, GetParam(), {});
    const Moments truth = moments(from, DType::kF32, kRows, kChannels, 0, {});
    for (std::size_t c = 0; c < kChannels; ++c) {
      EXPECT_NEAR(seen.mean[c], truth.mean[c], 1e-6) << far << ", channel " << c;
      EXPECT_NEAR(seen.variance[c], truth.variance[c], 1e-6 * truth.variance[c]) << far << ", channel " << c;
    }
  }
}

TEST_P(BatchNormOnIsa, OneNumberHasNoVariance) {
  Buffer from(DType::kF32, 300 * 5);
  for (std::int64_t i = 0; i < from.count(); ++i) from.set(i, 1000.1f);
  const Moments seen = moments(from, DType::kF32, 300, 5, GetParam(), {});
  for (const double variance : seen.variance) EXPECT_EQ(variance, 0);
}

TEST_P(BatchNormOnIsa, ChannelsAroundVectors) {
  for (const std::int64_t channels : {1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65}) {
    check(13, channels);
    if (HasFatalFailure()) return;
  }
}

TEST_P(BatchNormOnIsa, RowsAroundGroupsAndBlocks) {
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 127, 128, 129, 1031}) {
    check(rows, 24);
    if (HasFatalFailure()) return;
  }
}

TEST_P(BatchNormOnIsa, NanStaysNan) { check(21, 20, true); }

TEST_P(BatchNormOnIsa, NoRows) {
  BatchNormArgs args{.rows = 0, .channels = 4};
  batch_norm(args, {}, GetParam());
}

TEST_P(BatchNormOnIsa, AnyNumberOfThreadsGivesTheSameBits) {
  const std::int64_t rows = 3001;
  const std::int64_t channels = 40;
  const Buffer from = image(DType::kBf16, rows * channels);
  const Moments one = moments(from, DType::kBf16, rows, channels, GetParam(), {});
  for (const int threads : {2, 3, 4}) {
    const Moments seen = moments(from, DType::kBf16, rows, channels, GetParam(), thread_parallel(threads));
    EXPECT_EQ(seen.mean, one.mean);
    EXPECT_EQ(seen.variance, one.variance);
  }
}

TEST_P(BatchNormOnIsa, HasItsName) {
  const BatchNormVariants table = batch_norm_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs != GetParam()) continue;
    EXPECT_STREQ(batch_norm_variant(GetParam()), table.first[i].name);
    EXPECT_EQ(batch_norm_supported(GetParam()), i + 1 < table.count);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, BatchNormOnIsa, testing::ValuesIn(levels_of(batch_norm_variants())),
                         [](const auto& level) { return std::string(batch_norm_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
