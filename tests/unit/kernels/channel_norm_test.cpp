// The risk: a channel with another one's parameters, a group whose sums lose digits, a tail that joins a sum or is written past the image.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/normalize.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kTypes[] = {DType::kF32, DType::kBf16};

class ChannelNormOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20240613};
};

TEST_P(ChannelNormOnIsa, GroupsOfChannels) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t pixels : {1, 7, 49, 4097}) {
      for (const std::int64_t channels : {1, 3}) {
        for (const float mean : {0.0f, 1000.0f}) {
          constexpr std::int64_t kGroups = 2;
          const std::int64_t n = channels * pixels;
          if (n == 1) continue;
          Buffer from(dtype, 2 * kGroups * n, 3);
          Buffer weight(dtype, kGroups * channels);
          Buffer bias(dtype, kGroups * channels);
          const Buffer to(dtype, 2 * kGroups * n, 5);
          const Buffer truth(dtype, 2 * kGroups * n);
          const Buffer stats(DType::kF32, 4 * 2 * kGroups);
          from.fill(random_, mean);
          weight.fill(random_, 1);
          bias.fill(random_);
          GroupNormArgs args;
          args.from = from.data();
          args.dtype = args.parameter_dtype = dtype;
          args.rows = 2 * kGroups;
          args.columns = n;
          args.weight = weight.data();
          args.bias = bias.data();
          args.eps = 1e-5;
          args.groups = kGroups;
          args.pixels = pixels;
          args.to = truth.data();
          args.mean = stats.data();
          args.rstd = stats.data() + 16;
          ASSERT_TRUE(group_norm(args, {}, 0));
          args.to = to.data();
          args.mean = stats.data() + 32;
          args.rstd = stats.data() + 48;
          ASSERT_TRUE(group_norm(args, {}, GetParam()));
          EXPECT_TRUE(to.front_is_clean());
          const double shift = 4 * kEps * (std::fabs(mean) + 4);
          for (std::int64_t i = 0; i < args.rows; ++i) {
            const double scale = stats.get(4 + i);
            ASSERT_TRUE(near(stats.get(8 + i), stats.get(i), shift, DType::kF32)) << pixels << " mean " << stats.get(8 + i);
            ASSERT_TRUE(near(stats.get(12 + i), scale, scale * (16 * kEps + shift * shift * scale * scale), DType::kF32)) << pixels;
          }
          for (std::int64_t i = 0; i < args.rows * n; ++i) {
            const double scale = stats.get(4 + i / n);
            const double w = std::fabs(weight.get(i / n % kGroups * channels + i % n / pixels));
            const double bound = w * (shift * scale + 1e-5 * (1 + shift * shift * scale * scale)) + 1e-6;
            ASSERT_TRUE(near(to.get(i), truth.get(i), bound + (dtype == DType::kBf16 ? std::fabs(truth.get(i)) / 256 : 0), dtype))
                << pixels << " " << channels << " mean " << mean << " at " << i << ": " << to.get(i) << ", truth " << truth.get(i);
          }
        }
      }
    }
  }
}

TEST_P(ChannelNormOnIsa, ScaledChannels) {
  for (const DType dtype : kTypes) {
    for (const bool adjacent : {false, true}) {
      for (std::int64_t columns = 1; columns <= 140; ++columns) {
        const std::int64_t channels = adjacent ? columns : 3;
        constexpr std::int64_t kRows = 6;
        Buffer from(dtype, kRows * columns, columns % 7);
        Buffer scale(DType::kF32, channels);
        Buffer shift(DType::kF32, channels);
        const Buffer to(dtype, kRows * columns, 5);
        const Buffer truth(dtype, kRows * columns);
        from.fill(random_);
        scale.fill(random_);
        shift.fill(random_);
        from.set(columns - 1, kNan);
        from.set(0, kInf);
        ChannelScaleArgs args{from.data(),
                              truth.data(),
                              dtype,
                              kRows,
                              columns,
                              channels,
                              adjacent,
                              reinterpret_cast<const float*>(scale.data()),
                              reinterpret_cast<const float*>(shift.data())};
        ASSERT_TRUE(scale_channels(args, {}, 0));
        args.to = to.data();
        ASSERT_TRUE(scale_channels(args, {}, GetParam()));
        EXPECT_TRUE(to.front_is_clean());
        for (std::int64_t i = 0; i < kRows * columns; ++i) {
          const double expected = truth.get(i);
          const bool good = std::isfinite(expected)
                                ? std::fabs(to.get(i) - expected) <= (dtype == DType::kF32 ? 4e-7 : 1.0 / 128) * (1 + std::fabs(expected))
                            : std::isnan(expected) ? std::isnan(to.get(i))
                                                   : to.get(i) == expected;
          ASSERT_TRUE(good) << columns << (adjacent ? " adjacent" : "") << " at " << i << ": " << to.get(i) << ", truth " << expected;
        }
        const std::string alone = to.bytes();
        ASSERT_TRUE(scale_channels(args, thread_parallel(3), GetParam()));
        EXPECT_EQ(to.bytes(), alone);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ChannelNormOnIsa, testing::ValuesIn(levels_of(normalize_variants())),
                         [](const auto& level) { return std::string(normalize_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
