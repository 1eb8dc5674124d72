// The risk: a window that reads a neighbouring image or what lies behind the last channel, padding that counts as a number, NaN that is
// lost, the tail of the channels.
#include "kernels/pool_last.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/pool_last_variants.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBf16};

struct Shape {
  std::int64_t images = 2;
  std::int64_t channels = 24;
  std::int64_t height = 5;
  std::int64_t width = 6;
  PoolWindow down{3, 2, 1, 1};
  PoolWindow across{3, 2, 1, 1};
  bool count_padding = false;
  std::int64_t divisor = 0;
};

std::int64_t outputs(const PoolWindow& window, std::int64_t size) {
  return (size + 2 * window.pad - window.dilation * (window.size - 1) - 1) / window.stride + 1;
}

class PoolLastOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20261122};

  static PoolLastArgs args_of(const Shape& s, DType from, DType to, bool mean) {
    PoolLastArgs args;
    args.from_dtype = from;
    args.to_dtype = to;
    args.images = s.images;
    args.channels = s.channels;
    args.height = s.height;
    args.width = s.width;
    args.down = s.down;
    args.across = s.across;
    if (mean) args.down.dilation = args.across.dilation = 1;
    args.count_padding = s.count_padding;
    args.divisor = s.divisor;
    args.out_height = outputs(args.down, s.height);
    args.out_width = outputs(args.across, s.width);
    return args;
  }

  static Buffer run(PoolLastArgs args, bool mean, const Buffer& from, IsaSet isa, const Parallel& parallel = {}) {
    Buffer to(args.to_dtype, args.images * args.out_height * args.out_width * args.channels, 5);
    args.from = from.data();
    args.to = to.data();
    (mean ? average_pool_last : max_pool_last)(args, parallel, isa);
    EXPECT_TRUE(to.front_is_clean());
    return to;
  }

  void check(const Shape& s, float nan_every = 0) {
    for (const bool mean : {false, true}) {
      for (const DType from_dtype : kTypes) {
        for (const DType to_dtype : kTypes) {
          const PoolLastArgs args = args_of(s, from_dtype, to_dtype, mean);
          if (args.out_height <= 0 || args.out_width <= 0) continue;
          Buffer from(from_dtype, s.images * s.height * s.width * s.channels, 3);
          from.fill(random_);
          for (std::int64_t i = 0; nan_every > 0 && i < from.count(); i += static_cast<std::int64_t>(nan_every)) {
            from.set(i, i % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity());
          }
          const Buffer truth = run(args, mean, from, 0);
          const Buffer seen = run(args, mean, from, GetParam());
          for (std::int64_t i = 0; i < truth.count(); ++i) {
            const double expected = truth.get(i);
            // A sum that is rounded differently may be the next bf16.
            const double apart = !mean ? 0 : to_dtype == DType::kF32 ? 2e-6 : 2e-6 + std::fabs(expected) / 128;
            const bool good = std::isinf(expected) ? seen.get(i) == expected : near(seen.get(i), expected, apart, DType::kF32);
            ASSERT_TRUE(good) << (mean ? "mean" : "max") << " types " << static_cast<int>(from_dtype) << static_cast<int>(to_dtype)
                              << " of " << s.channels << " channels " << s.height << "x" << s.width << " at " << i << ": " << seen.get(i)
                              << ", truth " << expected;
          }
        }
      }
    }
  }
};

TEST_P(PoolLastOnIsa, ChannelsAroundVectorsAndBlocks) {
  for (const std::int64_t channels : {1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 127, 128, 129}) {
    check({.channels = channels});
    if (HasFatalFailure()) return;
  }
}

TEST_P(PoolLastOnIsa, WindowsOfAllKinds) {
  for (const std::int64_t size : {1, 2, 3, 5}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (const std::int64_t dilation : {1, 2}) {
        Shape s{.channels = 20, .height = 11, .width = 9};
        s.down = {size, stride, size / 2, dilation};
        s.across = {size, stride + 1, 0, 1};
        check(s);
        s.count_padding = true;
        check(s);
        s.divisor = 7;
        check(s);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(PoolLastOnIsa, TheWholeImage) {
  for (const std::int64_t size : {1, 7, 30}) {
    Shape s{.images = 3, .channels = 70, .height = size, .width = size + 1};
    s.down = {size, size, 0, 1};
    s.across = {size + 1, size + 1, 0, 1};
    check(s);
  }
}

TEST_P(PoolLastOnIsa, NumbersThatAreNotFinite) { check({.channels = 40, .height = 9, .width = 9}, 11); }

TEST_P(PoolLastOnIsa, WindowsThatMeetPaddingAlone) {
  Shape s{.height = 1, .width = 1};
  s.down = s.across = {2, 1, 1, 2};
  check(s);
}

TEST_P(PoolLastOnIsa, NoImages) { check({.images = 0}); }

TEST_P(PoolLastOnIsa, RandomShapes) {
  for (int i = 0; i < sampled(80); ++i) {
    const auto any = [&](std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random_); };
    Shape s{.images = any(1, 3), .channels = any(1, 150), .height = any(1, 12), .width = any(1, 12)};
    for (PoolWindow* window : {&s.down, &s.across}) {
      window->size = any(1, 4);
      window->stride = any(1, 4);
      window->pad = any(0, window->size / 2);
      window->dilation = any(1, 3);
    }
    s.count_padding = any(0, 1) == 1;
    check(s);
    if (HasFatalFailure()) return;
  }
}

TEST_P(PoolLastOnIsa, AnyNumberOfThreadsGivesTheSameBits) {
  const Shape s{.images = 2, .channels = 200, .height = 20, .width = 21};
  for (const bool mean : {false, true}) {
    const PoolLastArgs args = args_of(s, DType::kBf16, DType::kBf16, mean);
    Buffer from(DType::kBf16, s.images * s.height * s.width * s.channels);
    from.fill(random_);
    const std::string one = run(args, mean, from, GetParam()).bytes();
    for (const int threads : {2, 3, 4}) EXPECT_EQ(run(args, mean, from, GetParam(), thread_parallel(threads)).bytes(), one);
  }
}

TEST_P(PoolLastOnIsa, HasItsName) {
  const PoolLastVariants table = pool_last_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs != GetParam()) continue;
    EXPECT_STREQ(pool_last_variant(GetParam()), table.first[i].name);
    EXPECT_EQ(pool_last_supported(GetParam()), i + 1 < table.count);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, PoolLastOnIsa, testing::ValuesIn(levels_of(pool_last_variants())),
                         [](const auto& level) { return std::string(pool_last_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
