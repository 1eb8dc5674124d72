// The risk: partners that are mixed up, a layout that is walked wrongly, a tail of pairs, what is not rotated, in place.
#include "kernels/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBf16};
constexpr RotaryPairs kPairs[] = {RotaryPairs::kHalves, RotaryPairs::kInterleaved};
constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Heads within positions, or positions within heads; `gap` elements between rows.
RotaryStrides strides_of(const RotaryArgs& args, bool heads_outside, std::int64_t gap) {
  const std::int64_t row = args.depth + gap;
  const std::int64_t batch = args.positions * args.heads * row;
  return heads_outside ? RotaryStrides{batch, row, args.positions * row} : RotaryStrides{batch, args.heads * row, row};
}

class RotaryOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20240613};

  struct Layout {
    bool from_outside = false;
    bool to_outside = false;
    std::int64_t gap = 0;
    std::int64_t offset = 0;
    bool table_per_batch = false;
    bool in_place = false;
  };

  void check(RotaryArgs args, const Layout& layout) {
    args.from_strides = strides_of(args, layout.from_outside, layout.gap);
    args.to_strides = layout.in_place ? args.from_strides : strides_of(args, layout.to_outside, layout.gap);
    const std::int64_t half = args.rotated / 2;
    const std::int64_t table_row = half + 1;
    args.table_position_stride = table_row;
    args.table_batch_stride = layout.table_per_batch ? args.positions * table_row : 0;
    // A table or a tensor ends with its last row, without the gap.
    const std::int64_t rows = args.batch * args.positions * args.heads;
    const std::int64_t count = rows * (args.depth + layout.gap) - layout.gap;
    Buffer from(args.dtype, count, layout.offset);
    const Buffer apart(args.dtype, count, 31 - layout.offset);
    const std::int64_t entries = (layout.table_per_batch ? args.batch : 1) * args.positions * table_row - 1;
    Buffer cosines(args.table_dtype, entries, layout.offset);
    Buffer sines(args.table_dtype, entries, layout.offset % 7);
    from.fill(random_);
    cosines.fill(random_);
    sines.fill(random_);
    Buffer before(args.dtype, count);
    std::memcpy(before.data(), from.data(), static_cast<std::size_t>(count * bytes_of(args.dtype)));
    const Buffer& to = layout.in_place ? from : apart;
    args.from = from.data();
    args.to = to.data();
    args.cos = cosines.data();
    args.sin = sines.data();
    ASSERT_TRUE(rotary(args, {}, GetParam()));
    EXPECT_TRUE(to.front_is_clean());
    for (std::int64_t b = 0; b < args.batch; ++b) {
      for (std::int64_t p = 0; p < args.positions; ++p) {
        for (std::int64_t h = 0; h < args.heads; ++h) {
          const std::int64_t source = b * args.from_strides.batch + p * args.from_strides.position + h * args.from_strides.head;
          const std::int64_t target = b * args.to_strides.batch + p * args.to_strides.position + h * args.to_strides.head;
          const std::int64_t table = b * args.table_batch_stride + p * table_row;
          for (std::int64_t i = 0; i < args.depth; ++i) {
            double truth = before.get(source + i);
            double bound = 0;
            if (i < args.rotated) {
              const bool halves = args.pairs == RotaryPairs::kHalves;
              const std::int64_t pair = halves ? i % half : i / 2;
              const bool second = halves ? i >= half : i % 2 == 1;
              const std::int64_t partner = halves ? (second ? i - half : i + half) : (second ? i - 1 : i + 1);
              const double c = cosines.get(table + pair);
              const double s = sines.get(table + pair) * (second == args.inverse ? -1 : 1);
              const double own = before.get(source + i) * c;
              const double other = before.get(source + partner) * s;
              truth = own + other;
              bound = kEps * (std::fabs(own) + std::fabs(other));
              if (args.dtype == DType::kBf16) bound += (std::fabs(truth) + bound) / 256;
            }
            ASSERT_LE(std::fabs(to.get(target + i) - truth), bound)
                << "depth " << args.depth << " rotated " << args.rotated << " pairs " << static_cast<int>(args.pairs) << " row " << b << ","
                << p << "," << h << " at " << i << ": " << to.get(target + i) << ", truth " << truth;
          }
          for (std::int64_t i = args.depth; i < args.depth + layout.gap && target + i < count; ++i) {
            EXPECT_EQ(to.get(target + i), layout.in_place ? before.get(target + i) : apart.get(target + i));
          }
        }
      }
    }
  }
};

RotaryArgs args_of(DType dtype, DType table, RotaryPairs pairs, std::int64_t depth, std::int64_t rotated) {
  RotaryArgs args;
  args.dtype = dtype;
  args.table_dtype = table;
  args.pairs = pairs;
  args.batch = 2;
  args.positions = 3;
  args.heads = 2;
  args.depth = depth;
  args.rotated = rotated;
  return args;
}

TEST_P(RotaryOnIsa, DepthsAroundEachBlock) {
  for (const DType dtype : kTypes) {
    for (const DType table : kTypes) {
      for (const RotaryPairs pairs : kPairs) {
        for (std::int64_t depth = 0; depth <= 140; depth += 1 + depth / 70) {
          check(args_of(dtype, table, pairs, depth, depth / 2 * 2), {.offset = depth % 32});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(RotaryOnIsa, LayoutsPartsAndTables) {
  for (const DType dtype : kTypes) {
    for (const RotaryPairs pairs : kPairs) {
      for (const std::int64_t rotated : {0, 2, 30, 64, 80}) {
        for (int bits = 0; bits < 32; ++bits) {
          RotaryArgs args = args_of(dtype, DType::kF32, pairs, 80, rotated);
          args.inverse = (bits & 16) != 0;
          check(args, {.from_outside = (bits & 1) != 0,
                       .to_outside = (bits & 2) != 0,
                       .gap = (bits & 4) != 0 ? 5 : 0,
                       .table_per_batch = (bits & 8) != 0,
                       .in_place = bits % 3 == 0});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(RotaryOnIsa, WhatCannotBeRotatedIsRefused) {
  for (const std::int64_t rotated : {-2, 3, 10}) {
    const Buffer from(DType::kF32, 8 * 12);
    const Buffer to(DType::kF32, 8 * 12);
    RotaryArgs args = args_of(DType::kF32, DType::kF32, RotaryPairs::kHalves, 8, rotated);
    args.from_strides = args.to_strides = strides_of(args, false, 0);
    args.from = from.data();
    args.to = to.data();
    EXPECT_FALSE(rotary(args, {}, GetParam()));
    EXPECT_TRUE(to.untouched(0));
  }
  RotaryArgs nothing;
  EXPECT_TRUE(rotary(nothing, {}, GetParam()));
}

/// A NaN spoils its pair and no other.
TEST_P(RotaryOnIsa, NanInfinityAndDenormals) {
  for (const DType dtype : kTypes) {
    for (const RotaryPairs pairs : kPairs) {
      for (const std::int64_t depth : {10, 64, 70}) {
        for (const float value : {kNan, kInf, __builtin_bit_cast(float, 0x7fffffffu)}) {
          for (std::int64_t place = 0; place < depth; place += 3) {
            for (const bool in_table : {false, true}) {
              if (in_table && place >= depth / 2) continue;
              RotaryArgs args = args_of(dtype, DType::kF32, pairs, depth, depth);
              args.batch = args.positions = args.heads = 1;
              Buffer from(dtype, depth);
              Buffer table(DType::kF32, depth / 2);
              const Buffer to(dtype, depth);
              for (std::int64_t i = 0; i < depth; ++i) from.set(i, 1e-39f);
              for (std::int64_t i = 0; i < depth / 2; ++i) table.set(i, 0.5f);
              in_table ? table.set(place, value) : from.set(place, value);
              args.from = from.data();
              args.to = to.data();
              args.cos = args.sin = table.data();
              ASSERT_TRUE(rotary(args, {}, GetParam()));
              const auto pair_of = [&](std::int64_t i) { return pairs == RotaryPairs::kHalves ? i % (depth / 2) : i / 2; };
              for (std::int64_t i = 0; i < depth; ++i) {
                const bool spoiled = pair_of(i) == (in_table ? place : pair_of(place));
                ASSERT_EQ(std::isfinite(to.get(i)), !spoiled) << depth << " " << value << " from " << place << " at " << i;
                if (spoiled) {
                  if (std::isnan(value)) {
                    ASSERT_TRUE(std::isnan(to.get(i)));
                  }
                  continue;
                }
                const double x = from.get(i);
                ASSERT_TRUE(to.get(i) == 0.0 || std::fabs(to.get(i) - x) <= 1e-40) << to.get(i);
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(RotaryOnIsa, AnyNumberOfThreads) {
  for (const DType dtype : kTypes) {
    RotaryArgs args = args_of(dtype, dtype, RotaryPairs::kHalves, 64, 64);
    args.positions = 67;
    args.heads = 7;
    const std::int64_t count = args.batch * args.positions * args.heads * args.depth;
    Buffer from(dtype, count);
    Buffer table(dtype, args.positions * 32);
    from.fill(random_);
    table.fill(random_);
    args.from = from.data();
    args.cos = args.sin = table.data();
    args.table_position_stride = 32;
    args.from_strides = args.to_strides = strides_of(args, false, 0);
    const Buffer expected(dtype, count);
    args.to = expected.data();
    ASSERT_TRUE(rotary(args, {}, GetParam()));
    for (int threads = 2; threads <= 5; ++threads) {
      const Buffer to(dtype, count);
      args.to = to.data();
      ASSERT_TRUE(rotary(args, thread_parallel(threads), GetParam()));
      EXPECT_EQ(to.bytes(), expected.bytes()) << threads;
    }
  }
}

TEST_P(RotaryOnIsa, UsesTheVariantOfItsLevel) {
  const RotaryVariants table = rotary_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(rotary_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(rotary_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, RotaryOnIsa, testing::ValuesIn(levels_of(rotary_variants())),
                         [](const auto& level) { return std::string(rotary_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
