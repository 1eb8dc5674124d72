// The risk: an element from a neighbouring row or plane, a tap that is left out, a tail written past the end, a stretched row that
// belongs to another plane.
#include "kernels/resize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBf16};

/// Tables of one dimension: places that follow the output, weights at random.
struct Tables {
  std::vector<std::int32_t> places;
  std::vector<float> weights;
  ResizeAxis axis;

  Tables(std::int64_t size, std::int64_t outputs, int taps, bool copies, std::mt19937& random) {
    axis.size = size;
    axis.outputs = outputs;
    axis.pitch = (outputs + kResizePadding - 1) / kResizePadding * kResizePadding;
    axis.taps = taps;
    std::uniform_real_distribution<float> weight(-0.5f, 1.0f);
    for (int t = 0; t < taps; ++t) {
      for (std::int64_t i = 0; i < axis.pitch; ++i) {
        const std::int64_t place = std::min(i, outputs - 1) * size / outputs + t - (taps - 1) / 2;
        places.push_back(static_cast<std::int32_t>(std::clamp<std::int64_t>(place, 0, size - 1)));
        weights.push_back(weight(random));
      }
    }
    axis.places = places.data();
    axis.weights = copies ? nullptr : weights.data();
  }
};

class ResizeOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20250102};

  static Buffer run(const ResizeArgs& from, const Buffer& input, IsaSet isa, const Parallel& parallel = {}) {
    Buffer to(from.dtype, from.planes * from.down.outputs * from.across.outputs, 7);
    ResizeArgs args = from;
    args.from = input.data();
    args.to = to.data();
    EXPECT_TRUE(resize(args, parallel, isa));
    EXPECT_TRUE(to.front_is_clean());
    return to;
  }

  static void compare(const ResizeArgs& args, const Buffer& input) {
    const Buffer truth = run(args, input, 0);
    const Buffer seen = run(args, input, GetParam());
    const double bound = args.across.weights == nullptr ? 0 : args.dtype == DType::kF32 ? 4e-6 : 1.0 / 128;
    for (std::int64_t i = 0; i < args.planes * args.down.outputs * args.across.outputs; ++i) {
      const double expected = truth.get(i);
      const bool equal = std::isfinite(expected) ? std::fabs(seen.get(i) - expected) <= bound * (std::fabs(expected) + (bound > 0 ? 1 : 0))
                         : std::isnan(expected)  ? std::isnan(seen.get(i))
                                                 : seen.get(i) == expected;
      ASSERT_TRUE(equal) << args.down.size << "x" << args.across.size << " to " << args.down.outputs << "x" << args.across.outputs
                         << " taps " << args.across.taps << " type " << static_cast<int>(args.dtype) << " at " << i << ": " << seen.get(i)
                         << ", truth " << expected;
    }
  }

  void check(std::int64_t height, std::int64_t width, std::int64_t out_height, std::int64_t out_width) {
    for (const DType dtype : kTypes) {
      Buffer input(dtype, 2 * height * width, 3);
      input.fill(random_);
      for (const int taps : {1, 2, 4}) {
        const Tables down(height, out_height, taps, taps == 1, random_);
        const Tables across(width, out_width, taps, taps == 1, random_);
        compare({nullptr, nullptr, dtype, 2, down.axis, across.axis}, input);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(ResizeOnIsa, EveryWidthAroundAVector) {
  for (std::int64_t width = 1; width <= 40; ++width) {
    for (const std::int64_t out : {width, 2 * width, 2 * width + 1, 3 * width - 1, (width + 1) / 2, width * 7}) {
      check(3, width, 4, std::max<std::int64_t>(out, 1));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ResizeOnIsa, EveryHeight) {
  for (std::int64_t height = 1; height <= 9; ++height) {
    for (std::int64_t out = 1; out <= 20; ++out) {
      check(height, 5, out, 9);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(ResizeOnIsa, MuchSmaller) {
  check(100, 1000, 7, 13);
  check(33, 64, 32, 63);
}

TEST_P(ResizeOnIsa, NanAndInfinity) {
  for (const DType dtype : kTypes) {
    for (const int taps : {1, 2, 4}) {
      Buffer input(dtype, 2 * 9 * 20, 1);
      input.fill(random_);
      for (const std::int64_t i : {0, 19, 41, 179, 180, 359}) input.set(i, std::numeric_limits<float>::quiet_NaN());
      for (const std::int64_t i : {70, 100, 300}) input.set(i, std::numeric_limits<float>::infinity());
      Tables down(9, 18, taps, taps == 1, random_);
      Tables across(20, 45, taps, taps == 1, random_);
      down.weights[0] = across.weights[3] = across.weights[44] = 0;
      compare({nullptr, nullptr, dtype, 2, down.axis, across.axis}, input);
    }
  }
}

TEST_P(ResizeOnIsa, AnyNumberOfThreads) {
  for (const DType dtype : kTypes) {
    Buffer input(dtype, 3 * 41 * 50, 1);
    input.fill(random_);
    const Tables down(41, 97, 4, false, random_);
    const Tables across(50, 101, 4, false, random_);
    const ResizeArgs args{nullptr, nullptr, dtype, 3, down.axis, across.axis};
    const std::string alone = run(args, input, GetParam()).bytes();
    for (int threads = 2; threads <= 5; ++threads) EXPECT_EQ(run(args, input, GetParam(), thread_parallel(threads)).bytes(), alone);
  }
}

TEST_P(ResizeOnIsa, NothingIsFine) { EXPECT_TRUE(resize({}, {}, GetParam())); }

TEST_P(ResizeOnIsa, UsesTheVariantOfItsLevel) {
  const ResizeVariants table = resize_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(resize_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(resize_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ResizeOnIsa, testing::ValuesIn(levels_of(resize_variants())),
                         [](const auto& level) { return std::string(resize_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
