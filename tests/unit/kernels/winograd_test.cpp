// The risk: a tile at an edge that reads or writes beyond it, a place of the tile with another's weights, channels whose block is taken
// from the wrong place, sums that are further from the truth than a float32 convolution may be, infinities that become something else than
// by windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/ref/element.h"
#include "kernels/ref/linear.h"
#include "kernels/winograd_variants.h"
#include "tests/unit/kernels/support.h"

namespace ipexrun::kernels::test {
namespace {

struct Shape {
  std::int64_t images = 1;
  std::int64_t channels = 16;
  std::int64_t n = 32;
  std::int64_t in[2] = {8, 8};
  std::int64_t padding[2] = {1, 1};
  std::int64_t behind[2] = {1, 1};
  bool bias = false;
  std::int64_t gap = 0;      ///< floats between pixels, rows of pixels and results
  bool weight_last = false;  ///< channels of the weight side by side
  Unary unary = Unary::kNone;
  Binary binary = Binary::kNone;
  bool binary_first = true;
  int threads = 1;
  bool backwards = false;  ///< see backward_parallel()
  bool bf16 = false;
  bool parts = false;
  int tile = 2;
  DType from = DType::kF32;
  DType to = DType::kF32;
};

std::vector<float> random_numbers(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = uniform(random);
  return numbers;
}

class ProblemOfTiles {
 public:
  explicit ProblemOfTiles(const Shape& s) : shape(s) {
    args.images = s.images;
    for (int i = 0; i < 2; ++i) {
      args.in[i] = s.in[i];
      args.padding[i] = s.padding[i];
      args.out[i] = s.in[i] + s.padding[i] + s.behind[i] - 2;
    }
    args.channels = s.channels;
    args.n = s.n;
    args.pixel_stride = s.channels + s.gap;
    args.row_stride = args.pixel_stride * s.in[1] + s.gap;
    args.image_stride = args.row_stride * s.in[0];
    const std::int64_t last =
        (s.images - 1) * args.image_stride + (s.in[0] - 1) * args.row_stride + (s.in[1] - 1) * args.pixel_stride + s.channels;
    pixels = random_numbers(last, 1);
    image = Guarded(pixels.size() * static_cast<std::size_t>(bytes_of(s.from)));  // ends at a page that faults
    for (std::size_t i = 0; i < pixels.size(); ++i) set_pixel(static_cast<std::int64_t>(i), pixels[i]);
    weight = random_numbers(s.n * s.channels * 9, 2);
    bias = random_numbers(s.n, 3);
    results = s.images * args.out[0] * args.out[1];
    other = random_numbers(results * (s.n + 3), 4);
    args.ld_to = s.n + s.gap;
    to = Guarded(static_cast<std::size_t>(((results - 1) * args.ld_to + s.n) * bytes_of(s.to)));
    packed = Guarded(packed_winograd_bytes(s.channels, s.n, s.bf16, s.tile));
    const std::int64_t strides[4] = {s.channels * 9, s.weight_last ? 1 : 9, s.weight_last ? 3 * s.channels : 3,
                                     s.weight_last ? s.channels : 1};
    std::memcpy(strides_, strides, sizeof strides);
    args.bf16 = s.bf16;
    args.tile = s.tile;
    args.parts = s.parts;
    args.from = image.data();
    args.from_dtype = s.from;
    args.to = to.data();
    args.to_dtype = s.to;
    args.packed = packed.data();
    if (s.bias) args.bias = bias.data();
    args.epilogue.unary = s.unary;
    args.epilogue.binary = s.binary;
    args.epilogue.binary_first = s.binary_first;
    if (s.binary != Binary::kNone) {
      args.epilogue.other = other.data();
      args.epilogue.ld_other = s.n + 3;
    }
  }

  WinogradResult run(IsaSet isa) {
    pack_winograd(weight.data(), DType::kF32, strides_, shape.channels, shape.n, shape.bf16, shape.tile, packed.data(),
                  thread_parallel(shape.threads));
    return winograd(args, shape.backwards ? backward_parallel(shape.threads) : thread_parallel(shape.threads), isa);
  }

  void set_pixel(std::int64_t i, float number) {
    const std::uint16_t half = bf16_from_f32(number);
    pixels[static_cast<std::size_t>(i)] = shape.from == DType::kF32 ? number : bf16_to_f32(half);
    std::memcpy(image.data() + i * bytes_of(shape.from), shape.from == DType::kF32 ? static_cast<const void*>(&number) : &half,
                static_cast<std::size_t>(bytes_of(shape.from)));
  }

  [[nodiscard]] double seen(std::int64_t result, std::int64_t n) const { return ref::get(args.to, args.to_dtype, result * args.ld_to + n); }

  [[nodiscard]] double sum(std::int64_t result, std::int64_t n) const {
    const std::int64_t y0 = result / args.out[1] % args.out[0] - args.padding[0];
    const std::int64_t x0 = result % args.out[1] - args.padding[1];
    double total = shape.bias ? static_cast<double>(bias[static_cast<std::size_t>(n)]) : 0;
    for (std::int64_t y = 0; y < 3; ++y) {
      for (std::int64_t x = 0; x < 3; ++x) {
        if (y0 + y < 0 || y0 + y >= args.in[0] || x0 + x < 0 || x0 + x >= args.in[1]) continue;
        const float* pixel = pixels.data() + result / args.out[1] / args.out[0] * args.image_stride + (y0 + y) * args.row_stride +
                             (x0 + x) * args.pixel_stride;
        const float* w = weight.data() + n * strides_[0] + y * strides_[2] + x * strides_[3];
        for (std::int64_t c = 0; c < shape.channels; ++c) total += static_cast<double>(pixel[c]) * static_cast<double>(w[c * strides_[1]]);
      }
    }
    return total;
  }

  /// Relative RMS of what is seen beside the truth; fails where an element is far from it or something else was written.
  double check(const std::string& text) {
    double wrong = 0;
    double size = 0;
    for (std::int64_t result = 0; result < results; ++result) {
      for (std::int64_t n = 0; n < shape.n; ++n) {
        const double truth = ref::finished(args.epilogue, result, n, sum(result, n));
        const double result_seen = seen(result, n);
        wrong += (result_seen - truth) * (result_seen - truth);
        size += truth * truth;
        const double unit = shape.bf16 || shape.to == DType::kBf16 ? 1.5e-2 : shape.tile == 2 ? 2e-6 : 4e-6;
        if (std::fabs(result_seen - truth) <= unit * (2 + std::sqrt(9.0 * static_cast<double>(shape.channels)))) continue;
        ADD_FAILURE() << text << ": result " << result << ", channel " << n << " is " << result_seen << ", not " << truth;
        return 0;
      }
      for (std::int64_t n = shape.n; n < args.ld_to && result + 1 < results; ++n) {
        for (std::int64_t i = 0; i < bytes_of(shape.to); ++i)
          EXPECT_EQ(to.data()[(result * args.ld_to + n) * bytes_of(shape.to) + i], 0x7f) << text << ": written beyond the channels";
      }
    }
    return size == 0 ? 0 : std::sqrt(wrong / size);
  }

  Shape shape;
  WinogradArgs args;
  std::vector<float> pixels, weight, bias, other;
  Guarded image, to, packed;
  std::int64_t results = 0;

 private:
  std::int64_t strides_[4] = {};
};

struct Level {
  IsaSet isa;
  bool bf16;
  int tile;
  bool parts = false;
};

class WinogradOnIsa : public testing::TestWithParam<Level> {
 protected:
  void check(Shape s) {
    for (const bool halves : {false, true}) {
      s.bf16 = GetParam().bf16;
      s.tile = GetParam().tile;
      s.parts = GetParam().parts;
      if (halves && !s.bf16 && !s.parts) break;
      s.from = s.to = halves ? DType::kBf16 : DType::kF32;
      check_one(s);
    }
  }

  void check_one(const Shape& s) {
    ProblemOfTiles problem(s);
    std::ostringstream text;
    text << "tiles of " << s.tile << ", " << s.images << " of " << s.in[0] << " x " << s.in[1] << ", channels " << s.channels << " to "
         << s.n << ", threads " << s.threads;
    ASSERT_EQ(problem.run(GetParam().isa), WinogradResult::kDone) << text.str();
    problem.check(text.str());
  }
};

TEST_P(WinogradOnIsa, SizesAroundTilesAndTheirEdges) {
  for (std::int64_t height = 1; height <= 10; ++height) {
    for (std::int64_t width = 1; width <= 9; ++width) {
      for (std::int64_t front = 0; front <= 3; ++front) {
        const std::int64_t behind = (height + width) % 3;
        if (height + front + behind < 3 || width + front + behind < 3) continue;
        check({.images = 1 + height % 2, .in = {height, width}, .padding = {front, front}, .behind = {behind, behind}, .bias = true});
      }
    }
  }
}

TEST_P(WinogradOnIsa, ChannelsAroundEachBlock) {
  for (const std::int64_t channels : {1, 7, 8, 16, 24, 48, 240, 256, 272, 512, 528}) {
    for (const std::int64_t n : {1, 31, 32, 33, 70}) {
      check({.channels = channels,
             .n = n,
             .in = {5, 4},
             .bias = true,
             .gap = channels % 3,
             .weight_last = n % 2 == 0,
             .threads = 1 + static_cast<int>(n % 3)});
    }
  }
}

TEST_P(WinogradOnIsa, ManyTiles) {
  check({.images = 2, .channels = 32, .n = 70, .in = {40, 37}, .bias = true, .threads = 3});
  check({.channels = 256, .n = 64, .in = {14, 14}, .threads = 2});
  check({.channels = 64, .n = 330, .in = {12, 30}, .bias = true, .gap = 1, .threads = 2});
  check({.channels = 768, .n = 40, .in = {16, 17}, .bias = true});
}

TEST_P(WinogradOnIsa, WhatComesAfter) {
  for (const Unary unary : {Unary::kNone, Unary::kRelu, Unary::kGelu, Unary::kSilu}) {
    for (const Binary binary : {Binary::kNone, Binary::kAdd, Binary::kMul}) {
      for (const bool first : {true, false}) {
        for (const std::int64_t n : {32, 40}) {
          check({.n = n, .in = {5, 7}, .bias = true, .gap = 2, .unary = unary, .binary = binary, .binary_first = first, .threads = 2});
          if (GetParam().parts) {
            check(
                {.channels = 32, .n = n, .in = {13, 11}, .gap = 2, .unary = unary, .binary = binary, .binary_first = first, .threads = 2});
          }
        }
      }
    }
  }
}

TEST_P(WinogradOnIsa, AsNearToTheTruthAsTheRuleAsks) {
  for (const std::int64_t channels : {16, 64, 256, 512}) {
    ProblemOfTiles problem(
        {.channels = channels, .n = 32, .in = {12, 12}, .bf16 = GetParam().bf16, .parts = GetParam().parts, .tile = GetParam().tile});
    ASSERT_EQ(problem.run(GetParam().isa), WinogradResult::kDone);
    EXPECT_LT(problem.check("errors"), GetParam().bf16 ? 6e-3 : GetParam().tile == 2 ? 6e-7 : 1e-6) << channels;
  }
}

TEST_P(WinogradOnIsa, NumbersThatAreNotFiniteAreRefused) {
  for (const float number : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38f}) {
    if (number == 3e38f && GetParam().isa == 0) continue;  // which doubles hold
    for (const int threads : {1, 2}) {
      ProblemOfTiles problem({.channels = 32,
                              .n = 64,
                              .in = {9, 11},
                              .threads = threads,
                              .bf16 = GetParam().bf16,
                              .parts = GetParam().parts,
                              .tile = GetParam().tile});
      for (const std::int64_t at : {0, 4 * 32 + 5, 80 * 32 + 31}) {
        const std::int64_t another = at == 0 ? 64 : at - 64;  // two pixels on, in the same channel
        const float before = problem.pixels[static_cast<std::size_t>(at)];
        problem.set_pixel(at, number);
        problem.set_pixel(another, -number);
        EXPECT_EQ(problem.run(GetParam().isa), WinogradResult::kNotFinite) << number << " at " << at;
        problem.set_pixel(at, before);
        problem.set_pixel(another, 0);
      }
    }
  }
}

TEST_P(WinogradOnIsa, AnyNumberOfThreadsGivesTheSameBits) {
  ProblemOfTiles problem({.images = 3,
                          .channels = 32,
                          .n = 130,
                          .in = {20, 21},
                          .bias = true,
                          .bf16 = GetParam().bf16,
                          .parts = GetParam().parts,
                          .tile = GetParam().tile});
  ASSERT_EQ(problem.run(GetParam().isa), WinogradResult::kDone);
  const std::string serial(problem.to.data(), problem.to.bytes());
  for (int threads = 2; threads <= 4; ++threads) {
    for (const bool backwards : {false, true}) {
      problem.shape.threads = threads;
      problem.shape.backwards = backwards;
      ASSERT_EQ(problem.run(GetParam().isa), WinogradResult::kDone);
      EXPECT_TRUE(std::string(problem.to.data(), problem.to.bytes()) == serial) << threads;
    }
  }
}

std::vector<Level> levels() {
  std::vector<Level> all;
  for (const bool bf16 : {false, true}) {
    for (const IsaSet isa : levels_of(winograd_variants(bf16))) all.push_back({isa, bf16, 2});
    for (const IsaSet isa : levels_of(winograd_variants(bf16))) {
      if (!bf16) all.push_back({isa, bf16, 4});
    }
  }
  for (const IsaSet isa : levels_of(winograd_parts_variants())) {
    if (isa != 0) all.push_back({isa, false, 2, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Levels, WinogradOnIsa, testing::ValuesIn(levels()), [](const auto& level) {
  return (level.param.parts ? "parts_amx" : std::string(winograd_variant(32, level.param.bf16, level.param.isa))) +
         (level.param.bf16 ? "_inside_bf16" : "") + (level.param.tile == 4 ? "_larger" : "");
});

/// Numbers that three parts of bf16 cannot stand for: as by vectors, whose results are near the truth for any.
TEST_P(WinogradOnIsa, NumbersOfAnySize) {
  if (GetParam().bf16) GTEST_SKIP() << "operands are rounded";
  for (const float scale : {1e-35f, 1e-20f, 1e-8f, 1e8f, 1e15f}) {
    for (const bool of_weights : {false, true}) {
      for (const int threads : {1, 2}) {
        ProblemOfTiles problem(
            {.images = 2, .channels = 64, .n = 96, .in = {13, 22}, .threads = threads, .parts = GetParam().parts, .tile = GetParam().tile});
        // A few pixels, or one channel out: what lies beside them stays as large as it was.
        for (std::int64_t i = 0; i < 64 * 9; ++i) {
          if (of_weights) problem.weight[static_cast<std::size_t>(64 * 9 * 40 + i)] *= scale;
          if (!of_weights) problem.set_pixel(64 * 100 + i, problem.pixels[static_cast<std::size_t>(64 * 100 + i)] * scale);
        }
        ASSERT_EQ(problem.run(GetParam().isa), WinogradResult::kDone) << scale;
        double worst = 0;
        for (std::int64_t result = 0; result < problem.results; ++result) {
          for (const std::int64_t n : {0, 39, 40, 41, 95}) {
            if (of_weights == (n != 40)) continue;
            worst = std::max(worst, std::fabs(problem.seen(result, n) - problem.sum(result, n)));
          }
        }
        EXPECT_LT(worst, 1e-4 * (of_weights ? static_cast<double>(scale) : std::max(1.0, static_cast<double>(scale))))
            << scale << of_weights;
      }
    }
  }
}

TEST(Winograd, PartsAreOfferedWhereTilesAreFilled) {
  WinogradArgs args;
  args.images = 1;
  args.out[0] = args.out[1] = 14;
  args.channels = args.n = 64;
  args.parts = true;
  const IsaSet amx = kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16;
  EXPECT_FALSE(winograd_has_parts(args, kLevelAvx512));
  if (!winograd_has_parts(args, amx)) GTEST_SKIP() << "not compiled here";
  const auto with = [&](std::int64_t WinogradArgs::*what, std::int64_t value) {
    WinogradArgs other = args;
    other.*what = value;
    return winograd_has_parts(other, amx);
  };
  EXPECT_FALSE(with(&WinogradArgs::channels, 48));
  EXPECT_FALSE(with(&WinogradArgs::channels, 800));
  EXPECT_FALSE(with(&WinogradArgs::n, 31));
  args.out[0] = 6;
  EXPECT_FALSE(with(&WinogradArgs::images, 1));
  EXPECT_TRUE(with(&WinogradArgs::images, 2));
  args.tile = 4;
  EXPECT_FALSE(with(&WinogradArgs::images, 8));
}

TEST(Winograd, NothingIsOfferedWithoutVectorsOrForOddChannels) {
  EXPECT_FALSE(winograd_supported(64, 64, false, 2, 0));
  EXPECT_FALSE(winograd_supported(12, 64, false, 2, kLevelAvx512));
  EXPECT_FALSE(winograd_supported(48, 64, true, 2, kLevelAvx512Bf16));
  EXPECT_FALSE(winograd_supported(64, 64, true, 4, kLevelAvx512Bf16));
  EXPECT_FALSE(winograd_supported(64, 64, false, 3, kLevelAvx512));
  EXPECT_EQ(packed_winograd_bytes(0, 5, false, 2), 0u);
}

}  // namespace
}  // namespace ipexrun::kernels::test
