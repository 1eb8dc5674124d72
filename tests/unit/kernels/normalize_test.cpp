// The risk: a tail that joins a sum or is written past the row, parameters in the wrong place, a large mean, NaN that stays hidden.
#include "kernels/normalize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kTypes[] = {DType::kF32, DType::kBf16};

struct Shape {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t offset = 0;
  float mean = 0;
};

class NormalizeOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20240613};

  void check_softmax(const Shape& shape, DType dtype) {
    const std::int64_t n = shape.columns;
    Buffer from(dtype, shape.rows * n, shape.offset);
    const Buffer to(dtype, shape.rows * n, 31 - shape.offset);
    from.fill(random_, shape.mean, 3);
    ASSERT_TRUE(softmax({from.data(), to.data(), dtype, shape.rows, n}, {}, GetParam()));
    EXPECT_TRUE(to.front_is_clean());
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      double largest = -HUGE_VAL;
      double sum = 0;
      for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, from.get(row * n + i));
      for (std::int64_t i = 0; i < n; ++i) sum += std::exp(from.get(row * n + i) - largest);
      for (std::int64_t i = 0; i < n; ++i) {
        const double truth = std::exp(from.get(row * n + i) - largest) / sum;
        const double bound = kEps * (8 + static_cast<double>(n) / 32) * truth + 2 * static_cast<double>(std::numeric_limits<float>::min());
        ASSERT_TRUE(near(to.get(row * n + i), truth, bound, dtype))
            << "rows " << shape.rows << " columns " << n << " at " << row << "," << i << ": " << to.get(row * n + i) << ", truth " << truth;
      }
    }
  }

  /// parameters: 0 none, 1 weight and bias in the type of x, 2 the same in fp32, 3 only a weight
  void check_norm(const Shape& shape, DType dtype, int parameters, bool centered) {
    const std::int64_t n = shape.columns;
    const DType parameter_dtype = parameters == 2 ? DType::kF32 : dtype;
    Buffer from(dtype, shape.rows * n, shape.offset);
    Buffer weight(parameter_dtype, n, shape.offset);
    Buffer bias(parameter_dtype, n, 31 - shape.offset);
    const Buffer to(dtype, shape.rows * n, 31 - shape.offset);
    const Buffer mean(parameter_dtype, shape.rows);
    const Buffer rstd(parameter_dtype, shape.rows);
    from.fill(random_, shape.mean);
    weight.fill(random_, 1);
    bias.fill(random_);
    NormArgs args;
    args.from = from.data();
    args.to = to.data();
    args.dtype = dtype;
    args.rows = shape.rows;
    args.columns = n;
    args.weight = parameters == 0 ? nullptr : weight.data();
    args.bias = parameters == 0 || parameters == 3 ? nullptr : bias.data();
    args.parameter_dtype = parameter_dtype;
    args.eps = 1e-5;
    args.mean = mean.data();
    args.rstd = rstd.data();
    args.stats_dtype = parameter_dtype;
    ASSERT_TRUE((centered ? layer_norm : rms_norm)(args, {}, GetParam()));
    EXPECT_TRUE(to.front_is_clean());
    std::ostringstream what;
    what << (centered ? "layer" : "rms") << " rows " << shape.rows << " columns " << n << " type " << static_cast<int>(dtype)
         << " parameters " << parameters << " at ";
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      double middle = 0;
      double square = 0;
      double largest = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        largest = std::max(largest, std::fabs(from.get(row * n + i)));
        if (centered) middle += from.get(row * n + i) / static_cast<double>(n);
      }
      for (std::int64_t i = 0; i < n; ++i) square += std::pow(from.get(row * n + i) - middle, 2) / static_cast<double>(n);
      const double scale = 1 / std::sqrt(square + args.eps);
      // What the mean may be wrong by moves every element and, where all are nearly equal, the variance.
      const double shift = 4 * kEps * largest;
      const double relative = kEps * (4 + static_cast<double>(n) / 64) + shift * shift * scale * scale;
      for (std::int64_t i = 0; i < n; ++i) {
        const double w = args.weight == nullptr ? 1 : weight.get(i);
        const double b = args.bias == nullptr ? 0 : bias.get(i);
        const double unit = (from.get(row * n + i) - middle) * scale;
        const double bound = (std::fabs(unit) * relative + (centered ? shift * scale : 0)) * std::fabs(w) + 2 * kEps * std::fabs(b);
        ASSERT_TRUE(near(to.get(row * n + i), unit * w + b, bound, dtype))
            << what.str() << row << "," << i << ": " << to.get(row * n + i) << ", truth " << unit * w + b;
      }
      EXPECT_TRUE(near(rstd.get(row), scale, scale * relative, parameter_dtype)) << what.str() << row << ": rstd " << rstd.get(row);
      if (centered) {
        EXPECT_TRUE(near(mean.get(row), middle, shift, parameter_dtype)) << what.str() << row << ": mean " << mean.get(row);
      }
    }
  }

  void check_norms(const Shape& shape) {
    for (const DType dtype : kTypes) {
      for (int parameters = 0; parameters < 4; ++parameters) {
        check_norm(shape, dtype, parameters, true);
        check_norm(shape, dtype, parameters, false);
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_P(NormalizeOnIsa, ColumnsAroundEachBlock) {
  for (std::int64_t columns = 1; columns <= 140; ++columns) {
    const Shape shape{.rows = 2, .columns = columns, .offset = columns % 32};
    for (const DType dtype : kTypes) check_softmax(shape, dtype);
    check_norms(shape);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NormalizeOnIsa, LongRows) {
  for (const std::int64_t columns : {197, 255, 256, 257, 1000, 4097}) {
    const Shape shape{.rows = 3, .columns = columns};
    for (const DType dtype : kTypes) check_softmax(shape, dtype);
    check_norms(shape);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NormalizeOnIsa, ALargeMeanCostsNoDigits) {
  for (const float mean : {-1000.0f, 1000.0f, 30000.0f}) {
    const Shape shape{.rows = 3, .columns = 200, .mean = mean};
    check_softmax(shape, DType::kF32);
    check_norms(shape);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NormalizeOnIsa, AMillionColumnsCostNoDigits) {
  const std::int64_t n = 1 << 20;
  std::vector<float> from(n);
  std::vector<float> to(n);
  std::normal_distribution<float> normal(1, 1);
  double sum = 0;
  for (float& x : from) sum += static_cast<double>(x = normal(random_));
  const double mean = sum / static_cast<double>(n);
  double square = 0;
  for (const float x : from) square += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean);
  const double rstd = 1 / std::sqrt(square / static_cast<double>(n));
  NormArgs args;
  args.from = from.data();
  args.to = to.data();
  args.rows = 1;
  args.columns = n;
  ASSERT_TRUE(layer_norm(args, {}, GetParam()));
  double off = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double apart = static_cast<double>(to[i]) - (static_cast<double>(from[i]) - mean) * rstd;
    off += apart * apart;
  }
  EXPECT_LE(std::sqrt(off / static_cast<double>(n)), 2e-7);
}

TEST_P(NormalizeOnIsa, NothingIsFine) {
  EXPECT_TRUE(softmax({nullptr, nullptr, DType::kF32, 0, 5}, {}, GetParam()));
  EXPECT_TRUE(softmax({nullptr, nullptr, DType::kBf16, 5, 0}, {}, GetParam()));
  EXPECT_TRUE(layer_norm({}, {}, GetParam()));
  EXPECT_TRUE(rms_norm({}, {}, GetParam()));
  EXPECT_TRUE(group_norm({}, {}, GetParam()));
  EXPECT_TRUE(scale_channels({}, {}, GetParam()));
}

/// `value` in the middle of a row, at its end, and in the whole of it; the row before and the row after show what leaks.
TEST_P(NormalizeOnIsa, NanAndInfinity) {
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {5, 33, 100}) {
      for (const float value : {kNan, kInf, -kInf}) {
        for (const std::int64_t place : {std::int64_t{2}, n - 1, std::int64_t{-1}}) {
          Buffer x(dtype, 3 * n);
          x.fill(random_);
          for (std::int64_t i = 0; i < n; ++i) {
            if (place < 0 || i == place) x.set(n + i, value);
          }
          const Buffer y(dtype, 3 * n);
          ASSERT_TRUE(softmax({x.data(), y.data(), dtype, 3, n}, {}, GetParam()));
          const bool masked = value == -kInf && place >= 0;  // one -inf is an ordinary element of weight 0
          for (std::int64_t i = 0; i < 3 * n; ++i) {
            ASSERT_EQ(std::isnan(y.get(i)), i / n == 1 && !masked) << n << " " << value << " softmax at " << i;
          }
          if (masked) {
            EXPECT_EQ(y.get(n + place), 0.0);
          }
          NormArgs args;
          args.from = x.data();
          args.to = y.data();
          args.dtype = dtype;
          args.rows = 3;
          args.columns = n;
          ASSERT_TRUE(layer_norm(args, {}, GetParam()));
          for (std::int64_t i = 0; i < 3 * n; ++i)
            ASSERT_EQ(std::isnan(y.get(i)), i / n == 1) << n << " " << value << " layer norm at " << i;
          ASSERT_TRUE(rms_norm(args, {}, GetParam()));
          for (std::int64_t i = 0; i < 3 * n; ++i) {
            // x / sqrt(inf) is 0 where x is finite.
            const bool expected = i / n == 1 && (std::isnan(value) || place < 0 || i - n == place);
            ASSERT_EQ(std::isnan(y.get(i)), expected) << n << " " << value << " rms norm at " << i;
          }
        }
      }
    }
  }
}

/// With an rstd of 0 the row would be its bias, and nobody would see that the model has blown up.
TEST_P(NormalizeOnIsa, ALayerNormWhoseVarianceOverflowsIsNan) {
  for (const std::int64_t n : {5, 33, 100}) {
    Buffer x(DType::kF32, 3 * n);
    x.fill(random_);
    for (std::int64_t i = 0; i < n; ++i) x.set(n + i, static_cast<float>(x.get(n + i)) * 1e25f);
    const Buffer y(DType::kF32, 3 * n);
    std::vector<float> rstd(3);
    NormArgs args;
    args.from = x.data();
    args.to = y.data();
    args.rows = 3;
    args.columns = n;
    args.rstd = rstd.data();
    ASSERT_TRUE(layer_norm(args, {}, GetParam()));
    for (std::int64_t i = 0; i < 3 * n; ++i) ASSERT_EQ(std::isnan(y.get(i)), i / n == 1) << n << " at " << i;
    for (int row = 0; row < 3; ++row) EXPECT_EQ(std::isnan(rstd[static_cast<std::size_t>(row)]), row == 1);
  }
}

TEST_P(NormalizeOnIsa, NanOfAParameterWithAllBitsStaysNan) {
  // Rounding this NaN up as a number would carry into its sign.
  for (const std::int64_t place : {0, 69}) {
    std::vector<std::uint16_t> x(70, bf16_from_f32(1.0f));
    x[1] = bf16_from_f32(2.0f);
    std::vector<float> weight(70, 1.0f);
    weight[static_cast<std::size_t>(place)] = __builtin_bit_cast(float, 0x7fffffffu);
    NormArgs args;
    args.from = x.data();
    args.to = x.data();
    args.dtype = DType::kBf16;
    args.rows = 1;
    args.columns = 70;
    args.weight = weight.data();
    ASSERT_TRUE(layer_norm(args, {}, GetParam()));
    for (std::int64_t i = 0; i < 70; ++i) {
      EXPECT_EQ(std::isnan(bf16_to_f32(x[static_cast<std::size_t>(i)])), i == place) << i;
    }
  }
}

TEST_P(NormalizeOnIsa, FarBelowTheLargestIsZero) {
  for (const DType dtype : kTypes) {
    Buffer x(dtype, 70);
    for (std::int64_t i = 0; i < 70; ++i) x.set(i, i == 69 ? 50.0f : -60.0f - static_cast<float>(i));
    ASSERT_TRUE(softmax({x.data(), x.data(), dtype, 1, 70}, {}, GetParam()));
    for (std::int64_t i = 0; i < 70; ++i) EXPECT_EQ(x.get(i), i == 69 ? 1.0 : 0.0) << i;
  }
}

TEST_P(NormalizeOnIsa, InPlaceAndAnyNumberOfThreads) {
  for (const DType dtype : kTypes) {
    const std::int64_t rows = 203;
    const std::int64_t n = 101;
    Buffer x(dtype, rows * n);
    Buffer weight(dtype, n);
    x.fill(random_);
    weight.fill(random_, 1);
    const std::string before = x.bytes();
    for (int kind = 0; kind < 3; ++kind) {
      const auto run = [&](const void* from, void* to, const Parallel& parallel) {
        NormArgs args;
        args.from = from;
        args.to = to;
        args.dtype = dtype;
        args.rows = rows;
        args.columns = n;
        args.weight = weight.data();
        args.parameter_dtype = dtype;
        if (kind == 0) return softmax({from, to, dtype, rows, n}, parallel, GetParam());
        return (kind == 1 ? layer_norm : rms_norm)(args, parallel, GetParam());
      };
      const Buffer expected(dtype, rows * n);
      ASSERT_TRUE(run(x.data(), expected.data(), {}));
      for (int threads = 2; threads <= 5; ++threads) {
        const Buffer y(dtype, rows * n);
        ASSERT_TRUE(run(x.data(), y.data(), thread_parallel(threads)));
        EXPECT_EQ(y.bytes(), expected.bytes()) << kind << " on " << threads;
      }
      ASSERT_TRUE(run(x.data(), x.data(), {}));
      EXPECT_EQ(x.bytes(), expected.bytes()) << kind;
      std::memcpy(x.data(), before.data(), before.size());
    }
  }
}

/// With a residual: the bits of a norm of the stored sum, whatever is given for the sum and wherever the result goes.
TEST_P(NormalizeOnIsa, ResidualIsAddedFirst) {
  enum Place { kApart, kFrom, kResidual, kNone };
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {1, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 768, 5000}) {
      constexpr std::int64_t kRows = 3;
      Buffer x(dtype, kRows * n, n % 5);
      Buffer r(dtype, kRows * n, n % 3);
      Buffer weight(dtype, n);
      Buffer added(dtype, kRows * n);
      x.fill(random_);
      r.fill(random_);
      weight.fill(random_, 1);
      for (std::int64_t i = 0; i < kRows * n; ++i) {
        added.set(i, static_cast<float>(x.get(i)) + static_cast<float>(r.get(i)));
      }
      const auto bytes = static_cast<std::size_t>(kRows * n * bytes_of(dtype));
      for (const bool centered : {false, true}) {
        NormArgs args;
        args.dtype = args.parameter_dtype = dtype;
        args.rows = kRows;
        args.columns = n;
        args.weight = weight.data();
        args.eps = 1e-6;
        const auto norm = centered ? layer_norm : rms_norm;
        const Buffer expected(dtype, kRows * n);
        args.from = added.data();
        args.to = expected.data();
        ASSERT_TRUE(norm(args, {}, GetParam()));
        for (const Place to_place : {kApart, kFrom, kResidual}) {
          for (const Place sum_place : {kApart, kFrom, kResidual, kNone}) {
            if (sum_place != kApart && sum_place == to_place) continue;
            for (const int threads : {1, 2}) {
              const Buffer from(dtype, kRows * n, n % 5);
              const Buffer residual(dtype, kRows * n, n % 3);
              const Buffer to(dtype, kRows * n, n % 7);
              const Buffer sum(dtype, kRows * n, n % 2);
              std::memcpy(from.data(), x.data(), bytes);
              std::memcpy(residual.data(), r.data(), bytes);
              const auto place = [&](Place where, const Buffer& apart) {
                return where == kFrom ? from.data() : where == kResidual ? residual.data() : where == kApart ? apart.data() : nullptr;
              };
              args.from = from.data();
              args.residual = residual.data();
              args.to = place(to_place, to);
              args.sum = place(sum_place, sum);
              ASSERT_TRUE(norm(args, threads > 1 ? thread_parallel(threads) : Parallel{}, GetParam()));
              EXPECT_EQ(std::memcmp(args.to, expected.data(), bytes), 0) << n << " to " << to_place << " sum " << sum_place;
              if (args.sum != nullptr) {
                EXPECT_EQ(std::memcmp(args.sum, added.data(), bytes), 0) << n;
              }
              EXPECT_TRUE(to.front_is_clean() && sum.front_is_clean());
            }
          }
        }
      }
    }
  }
}

TEST_P(NormalizeOnIsa, NanOfAResidualStaysInItsRow) {
  for (const DType dtype : kTypes) {
    for (const float value : {kNan, kInf}) {
      Buffer x(dtype, 3 * 40);
      Buffer r(dtype, 3 * 40);
      const Buffer y(dtype, 3 * 40);
      x.fill(random_);
      r.fill(random_);
      r.set(40 + 39, value);
      NormArgs args;
      args.from = x.data();
      args.residual = r.data();
      args.to = y.data();
      args.dtype = dtype;
      args.rows = 3;
      args.columns = 40;
      ASSERT_TRUE(layer_norm(args, {}, GetParam()));
      for (std::int64_t i = 0; i < 3 * 40; ++i) ASSERT_EQ(std::isnan(y.get(i)), i / 40 == 1) << i;
    }
  }
}

/// The bf16 beside a result of fp32 is that result, rounded; the result itself may be left out.
TEST_P(NormalizeOnIsa, NarrowResult) {
  constexpr std::int64_t kRows = 3;
  for (const std::int64_t n : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 768, 769}) {
    Buffer x(DType::kF32, kRows * n, n % 5);
    Buffer r(DType::kF32, kRows * n, n % 3);
    x.fill(random_);
    r.fill(random_);
    if (n > 8) x.set(n + 3, kNan);
    for (const bool centered : {false, true}) {
      for (const bool residual : {false, true}) {
        for (const bool with_sum : {false, true}) {
          const Buffer expected(DType::kF32, kRows * n);
          const Buffer sum(DType::kF32, kRows * n);
          NormArgs args;
          args.from = x.data();
          args.residual = residual ? r.data() : nullptr;
          args.sum = residual && with_sum ? sum.data() : nullptr;
          args.rows = kRows;
          args.columns = n;
          args.eps = 1e-6;
          const auto norm = centered ? layer_norm : rms_norm;
          args.to = expected.data();
          ASSERT_TRUE(norm(args, {}, GetParam()));
          for (const bool both : {false, true}) {
            for (const int threads : {1, 2}) {
              const Buffer narrow(DType::kBf16, kRows * n, 31 - n % 7);
              const Buffer to(DType::kF32, kRows * n, n % 7);
              args.to = both ? to.data() : nullptr;
              args.narrow = narrow.data();
              ASSERT_TRUE(norm(args, threads > 1 ? thread_parallel(threads) : Parallel{}, GetParam()));
              for (std::int64_t i = 0; i < kRows * n; ++i) {
                const double rounded = static_cast<double>(bf16_to_f32(bf16_from_f32(static_cast<float>(expected.get(i)))));
                const double got = narrow.get(i);
                ASSERT_TRUE(got == rounded || (std::isnan(got) && std::isnan(rounded)))
                    << n << " at " << i << ": " << got << ", " << rounded;
              }
              for (std::int64_t i = 0; both && i < kRows * n; ++i) {
                ASSERT_TRUE(to.get(i) == expected.get(i) || std::isnan(to.get(i))) << n << " at " << i;
              }
              EXPECT_TRUE(narrow.front_is_clean() && to.front_is_clean());
            }
          }
          args.narrow = nullptr;
        }
      }
    }
  }
}

/// Group norm against doubles: as many digits whatever the mean and the number of pixels.
TEST_P(NormalizeOnIsa, UsesTheVariantOfItsLevel) {
  const NormalizeVariants table = normalize_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(normalize_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(normalize_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, NormalizeOnIsa, testing::ValuesIn(levels_of(normalize_variants())),
                         [](const auto& level) { return std::string(normalize_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
