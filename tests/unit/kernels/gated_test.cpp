// The risk: a tail or a row's end that is missed or written past, halves that are mixed up, NaN that get lost, bits that depend on threads.
#include "kernels/gated.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "kernels/dispatch.h"
#include "kernels/ref/activation.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr Activation kKinds[] = {Activation::kGelu, Activation::kGeluTanh, Activation::kTanh, Activation::kSigmoid, Activation::kSilu};
constexpr DType kTypes[] = {DType::kF32, DType::kBf16};
constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMin = std::numeric_limits<float>::min();

/// What the header promises of act(a) * b, widened by the last rounding.
bool near(Activation kind, double a, double b, double seen, DType dtype) {
  const double truth = ref::activation_of(kind, a) * b;
  if (std::isnan(truth)) return std::isnan(seen);
  if (std::isinf(truth)) return seen == truth;
  double bound = (5 + (kind == Activation::kGeluTanh ? a * a : 0)) * kEps * std::fabs(truth);
  if (kind == Activation::kGelu && a < -1) bound += 2e-7 * std::fabs(a * b);
  bound += 2 * static_cast<double>(kMin) * std::fmax(1.0, std::fabs(a)) * std::fmax(1.0, std::fabs(b));
  if (dtype == DType::kBf16) bound += (std::fabs(truth) + bound) / 256;
  return std::fabs(seen - truth) <= bound;
}

class GatedOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20240613};
};

GatedArgs args_of(Activation kind, DType dtype, std::int64_t rows, std::int64_t columns) {
  GatedArgs args;
  args.kind = kind;
  args.dtype = dtype;
  args.rows = rows;
  args.columns = columns;
  args.a_stride = args.b_stride = args.to_stride = columns;
  return args;
}

TEST_P(GatedOnIsa, TwoTensorsOfAnySizeAndAlignment) {
  for (const Activation kind : kKinds) {
    for (const DType dtype : kTypes) {
      for (std::int64_t n = 0; n < 140; ++n) {
        Buffer a(dtype, n, n % 32);
        Buffer b(dtype, n, 31 - n % 32);
        const Buffer to(dtype, n, n * 7 % 32);
        a.fill(random_, 0, 3);
        b.fill(random_);
        GatedArgs args = args_of(kind, dtype, 1, n);
        args.a = a.data();
        args.b = b.data();
        args.to = to.data();
        gated(args, {}, GetParam());
        EXPECT_TRUE(to.front_is_clean());
        for (std::int64_t i = 0; i < n; ++i) {
          ASSERT_TRUE(near(kind, a.get(i), b.get(i), to.get(i), dtype))
              << static_cast<int>(kind) << " n " << n << " at " << i << ": " << a.get(i) << " and " << b.get(i) << " give " << to.get(i);
        }
      }
    }
  }
}

/// Rows of 2n, a in front or behind, to dense rows and to rows with a gap that stays as it is.
TEST_P(GatedOnIsa, HalvesOfARow) {
  constexpr std::int64_t kRows = 5;
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {1, 15, 16, 17, 33, 1023, 1024, 1025, 2100}) {
      for (const bool swapped : {false, true}) {
        for (const std::int64_t gap : {0, 3}) {
          Buffer from(dtype, kRows * 2 * n, 1);
          const Buffer to(dtype, kRows * (n + gap), 3);
          from.fill(random_);
          GatedArgs args = args_of(Activation::kSilu, dtype, kRows, n);
          const std::int64_t half = n * bytes_of(dtype);
          args.a = from.data() + (swapped ? half : 0);
          args.b = from.data() + (swapped ? 0 : half);
          args.to = to.data();
          args.a_stride = args.b_stride = 2 * n;
          args.to_stride = n + gap;
          gated(args, {}, GetParam());
          EXPECT_TRUE(to.front_is_clean());
          for (std::int64_t i = 0; i < kRows * (n + gap); ++i) {
            const std::int64_t row = i / (n + gap);
            const std::int64_t column = i % (n + gap);
            if (column >= n) {
              EXPECT_TRUE(to.untouched(i));
              continue;
            }
            const double first = from.get(row * 2 * n + column);
            const double second = from.get(row * 2 * n + n + column);
            ASSERT_TRUE(near(Activation::kSilu, swapped ? second : first, swapped ? first : second, to.get(i), dtype)) << n << " at " << i;
          }
        }
      }
    }
  }
}

TEST_P(GatedOnIsa, SpecialValues) {
  const float values[] = {0.0f, -0.0f, 1.0f, -2.0f, kInf, -kInf, kNan, 3e38f, -3e38f, 100.0f, -200.0f, kMin / 8, -kMin / 8};
  constexpr auto kCount = static_cast<std::int64_t>(std::size(values));
  for (const Activation kind : kKinds) {
    for (const DType dtype : kTypes) {
      Buffer a(dtype, kCount * kCount);
      Buffer b(dtype, kCount * kCount);
      const Buffer to(dtype, kCount * kCount);
      for (std::int64_t i = 0; i < kCount * kCount; ++i) {
        a.set(i, values[i / kCount]);
        b.set(i, values[i % kCount]);
      }
      GatedArgs args = args_of(kind, dtype, 1, kCount * kCount);
      args.a = a.data();
      args.b = b.data();
      args.to = to.data();
      gated(args, {}, GetParam());
      for (std::int64_t i = 0; i < kCount * kCount; ++i) {
        const double truth = ref::activation_of(kind, a.get(i)) * b.get(i);
        if (std::isfinite(truth) && std::fabs(truth) > 3e38) continue;                                // rounds to infinity or does not
        if (std::isinf(b.get(i)) && std::fabs(ref::activation_of(kind, a.get(i))) < 1e-37) continue;  // 0 * inf or not
        ASSERT_TRUE(near(kind, a.get(i), b.get(i), to.get(i), dtype))
            << static_cast<int>(kind) << ": " << a.get(i) << " and " << b.get(i) << " give " << to.get(i) << ", truth " << truth;
      }
    }
  }
}

TEST_P(GatedOnIsa, InPlaceAndAnyNumberOfThreads) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t stride : {2100, 2107}) {
      constexpr std::int64_t kRows = 23;
      constexpr std::int64_t kColumns = 2100;
      Buffer a(dtype, kRows * stride);
      Buffer b(dtype, kRows * stride);
      a.fill(random_);
      b.fill(random_);
      GatedArgs args = args_of(Activation::kGelu, dtype, kRows, kColumns);
      args.a_stride = args.b_stride = args.to_stride = stride;
      args.a = a.data();
      args.b = b.data();
      const Buffer expected(dtype, kRows * stride);
      args.to = expected.data();
      gated(args, {}, GetParam());
      for (int threads = 2; threads <= 5; ++threads) {
        const Buffer to(dtype, kRows * stride);
        args.to = to.data();
        gated(args, thread_parallel(threads), GetParam());
        EXPECT_EQ(to.bytes(), expected.bytes()) << threads;
      }
      const std::string before = a.bytes();
      for (Buffer* target : {&a, &b}) {
        args.to = target->data();
        gated(args, {}, GetParam());
        for (std::int64_t i = 0; i < kRows * stride; ++i) {
          if (i % stride < kColumns) {
            ASSERT_EQ(target->get(i), expected.get(i)) << i;
          }
        }
        std::memcpy(a.data(), before.data(), before.size());
      }
    }
  }
}

TEST_P(GatedOnIsa, UsesTheVariantOfItsLevel) {
  const GatedVariants table = gated_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(gated_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(gated_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, GatedOnIsa, testing::ValuesIn(levels_of(gated_variants())),
                         [](const auto& level) { return std::string(gated_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
