// The risk: a window that reads padding as numbers or a neighbouring plane, a wrong one of equal elements, NaN that is lost, a tail
// written past the end.
#include "kernels/pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kTypes[] = {DType::kF32, DType::kBf16};
enum class Kind { kMax, kAverage, kAdaptive };
constexpr Kind kKinds[] = {Kind::kMax, Kind::kAverage, Kind::kAdaptive};

std::int64_t outputs(const PoolWindow& w, std::int64_t size, bool ceil) {
  const std::int64_t reach = size + 2 * w.pad - w.dilation * (w.size - 1) - 1;
  if (reach < 0) return 0;
  std::int64_t count = (reach + (ceil ? w.stride - 1 : 0)) / w.stride + 1;
  if (ceil && (count - 1) * w.stride >= size + w.pad) --count;
  return count;
}

struct Shape {
  std::int64_t planes = 2;
  std::int64_t height = 9;
  std::int64_t width = 9;
  PoolWindow down{};
  PoolWindow across{};
  bool ceil = false;
  bool count_padding = false;
  std::int64_t divisor = 0;
  std::int64_t out = 0;  ///< adaptive: columns of the output; rows are one more
  float equal = 0;       ///< elements are multiples of this, so that many are equal
};

/// Input, and the output of one call on `isa`.
struct Result {
  Buffer to;
  std::vector<std::int64_t> indices;
  bool clean;
};

class PoolOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20250101};

  static PoolArgs args_of(const Shape& s, Kind kind, DType dtype) {
    PoolArgs args;
    args.dtype = dtype;
    args.planes = s.planes;
    args.height = s.height;
    args.width = s.width;
    args.down = s.down;
    args.across = s.across;
    args.count_padding = s.count_padding;
    args.divisor = s.divisor;
    if (kind != Kind::kMax) args.down.dilation = args.across.dilation = 1;
    args.out_height = kind == Kind::kAdaptive ? s.out + 1 : outputs(args.down, s.height, s.ceil);
    args.out_width = kind == Kind::kAdaptive ? s.out : outputs(args.across, s.width, s.ceil);
    return args;
  }

  static Result run(PoolArgs args, Kind kind, const Buffer& from, IsaSet isa, const Parallel& parallel = {}) {
    const std::int64_t count = args.planes * args.out_height * args.out_width;
    Result result{Buffer(args.dtype, count, 5), std::vector<std::int64_t>(static_cast<std::size_t>(count) + 1, -7), false};
    args.from = from.data();
    args.to = result.to.data();
    if (kind == Kind::kMax) args.indices = result.indices.data();
    const auto call = kind == Kind::kMax ? max_pool : kind == Kind::kAverage ? average_pool : adaptive_average_pool;
    EXPECT_TRUE(call(args, parallel, isa));
    result.clean = result.to.front_is_clean() && result.indices.back() == -7;
    return result;
  }

  Buffer input(const Shape& s, DType dtype) {
    Buffer from(dtype, s.planes * s.height * s.width, 3);
    from.fill(random_);
    for (std::int64_t i = 0; s.equal > 0 && i < s.planes * s.height * s.width; ++i) {
      from.set(i, std::round(static_cast<float>(from.get(i)) / s.equal) * s.equal);
    }
    return from;
  }

  /// Against the reference.
  static void compare(const PoolArgs& args, Kind kind, const Buffer& from) {
    const Result truth = run(args, kind, from, 0);
    const Result seen = run(args, kind, from, GetParam());
    std::ostringstream what;
    what << "kind " << static_cast<int>(kind) << " type " << static_cast<int>(args.dtype) << " " << args.planes << "x" << args.height << "x"
         << args.width << " windows " << args.down.size << "x" << args.across.size << " strides " << args.down.stride << ","
         << args.across.stride << " pads " << args.down.pad << "," << args.across.pad << " dilation " << args.across.dilation;
    ASSERT_TRUE(seen.clean && truth.clean) << what.str();
    ASSERT_EQ(seen.indices, truth.indices) << what.str();
    const double bound = kind == Kind::kMax ? 0 : args.dtype == DType::kF32 ? 2e-5 : 1.0 / 128;
    for (std::int64_t i = 0; i < args.planes * args.out_height * args.out_width; ++i) {
      const double expected = truth.to.get(i);
      if (std::isnan(expected) || std::isinf(expected)) {
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(seen.to.get(i)) : seen.to.get(i) == expected) << what.str() << " at " << i;
      } else {
        ASSERT_LE(std::fabs(seen.to.get(i) - expected), bound * (std::fabs(expected) + (kind == Kind::kMax ? 0 : 0.1)))
            << what.str() << " at " << i << ": " << seen.to.get(i) << ", truth " << expected;
      }
    }
  }

  void check(const Shape& s, Kind kind) {
    for (const DType dtype : kTypes) {
      const PoolArgs args = args_of(s, kind, dtype);
      if (args.out_height <= 0 || args.out_width <= 0) continue;
      compare(args, kind, input(s, dtype));
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(PoolOnIsa, EveryWidthAroundAVector) {
  for (std::int64_t width = 1; width <= 70; ++width) {
    for (const std::int64_t stride : {1, 2, 3}) {
      Shape s{.width = width, .down = {3, 2, 1, 1}, .across = {3, stride, 1, 1}, .equal = 0.5f};
      check(s, Kind::kMax);
      check(s, Kind::kAverage);
      s.across.pad = 0;
      s.across.size = 2;
      s.count_padding = true;
      check(s, Kind::kMax);
      check(s, Kind::kAverage);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(PoolOnIsa, WindowsOfEveryForm) {
  for (const std::int64_t size : {1, 2, 3, 5, 7}) {
    for (std::int64_t stride = 1; stride <= 5; ++stride) {
      for (std::int64_t pad = 0; pad <= size / 2; ++pad) {
        for (const bool ceil : {false, true}) {
          Shape s{
              .height = 11, .width = 23, .down = {size, stride, pad, 1}, .across = {size, stride, pad, 1}, .ceil = ceil, .equal = 0.25f};
          check(s, Kind::kAverage);
          s.count_padding = true;
          check(s, Kind::kAverage);
          s.divisor = 5;
          check(s, Kind::kAverage);
          for (std::int64_t dilation = 1; dilation <= 3; ++dilation) {
            s.down.dilation = dilation;
            s.across.dilation = 4 - dilation;
            check(s, Kind::kMax);
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(PoolOnIsa, WindowsThatAreNotSquare) {
  check({.height = 30, .width = 5, .down = {13, 1, 6, 1}, .across = {1, 1, 0, 1}}, Kind::kMax);
  check({.height = 1, .width = 300, .down = {}, .across = {8, 8, 0, 1}}, Kind::kMax);
  check({.height = 1, .width = 300, .down = {}, .across = {8, 8, 0, 1}}, Kind::kAverage);
  check({.height = 40, .width = 17, .down = {40, 40, 0, 1}, .across = {17, 17, 0, 1}}, Kind::kAverage);
  check({.height = 4, .width = 4, .down = {2, 9, 1, 1}, .across = {2, 9, 1, 1}}, Kind::kMax);
}

TEST_P(PoolOnIsa, AdaptiveToEverySize) {
  for (const std::int64_t width : {1, 7, 14, 33}) {
    for (std::int64_t out = 1; out <= width + 2; ++out) {
      check({.height = 13, .width = width, .out = out}, Kind::kAdaptive);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(PoolOnIsa, NanAndInfinity) {
  for (const Kind kind : kKinds) {
    for (const DType dtype : kTypes) {
      const Shape s{.height = 12, .width = 40, .down = {3, 2, 1, 1}, .across = {3, 2, 1, 1}, .out = 7};
      Buffer from = input(s, dtype);
      for (const std::int64_t i : {0, 41, 42, 79, 160, 200, 201, 241, 479, 500}) from.set(i, kNan);
      for (const std::int64_t i : {3, 120, 300, 700}) from.set(i, kInf);
      for (std::int64_t i = 600; i < 680; ++i) from.set(i, -kInf);  // whole windows of it
      for (std::int64_t i = 880; i < 960; ++i) from.set(i, -kInf);
      compare(args_of(s, kind, dtype), kind, from);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(PoolOnIsa, AnyNumberOfThreads) {
  for (const Kind kind : kKinds) {
    for (const DType dtype : kTypes) {
      const Shape s{.planes = 3, .height = 61, .width = 100, .down = {5, 2, 2, 1}, .across = {5, 2, 2, 1}, .out = 9};
      const Buffer from = input(s, dtype);
      const PoolArgs args = args_of(s, kind, dtype);
      const Result alone = run(args, kind, from, GetParam());
      for (int threads = 2; threads <= 5; ++threads) {
        const Result shared = run(args, kind, from, GetParam(), thread_parallel(threads));
        EXPECT_EQ(shared.to.bytes(), alone.to.bytes());
        EXPECT_EQ(shared.indices, alone.indices);
      }
    }
  }
}

TEST_P(PoolOnIsa, NothingIsFine) {
  EXPECT_TRUE(max_pool({}, {}, GetParam()));
  EXPECT_TRUE(average_pool({}, {}, GetParam()));
  EXPECT_TRUE(adaptive_average_pool({}, {}, GetParam()));
}

TEST_P(PoolOnIsa, UsesTheVariantOfItsLevel) {
  const PoolVariants table = pool_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(pool_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(pool_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, PoolOnIsa, testing::ValuesIn(levels_of(pool_variants())),
                         [](const auto& level) { return std::string(pool_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
