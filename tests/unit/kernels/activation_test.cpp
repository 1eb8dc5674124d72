// The risk: a wrong value somewhere in the range of a function, a special value, a tail or an alignment, bits that depend on threads.
#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
#include "kernels/ref/activation.h"
#include "tests/unit/kernels/support.h"

namespace ipexrun::kernels::test {
namespace {

constexpr Activation kKinds[] = {Activation::kGelu, Activation::kGeluTanh, Activation::kTanh, Activation::kSigmoid, Activation::kSilu};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMin = std::numeric_limits<float>::min();

std::string name_of(Activation kind) {
  const char* names[] = {"gelu", "gelu_tanh", "tanh", "sigmoid", "silu"};
  return names[static_cast<int>(kind)];
}

/// What the header promises for fp32, as an absolute error at x.
double bound(Activation kind, double x, double truth) {
  double ulps = 4;
  double floor = 0;
  if (kind == Activation::kGelu && x < -1) floor = 2e-7 * std::fabs(x);
  if (kind == Activation::kGeluTanh && x < -1) ulps += x * x;
  if (kind == Activation::kSigmoid || kind == Activation::kSilu || kind == Activation::kGeluTanh) {
    floor += static_cast<double>(kMin) * std::fmax(1.0, std::fabs(x));  // a sigmoid below kMin is 0
  }
  constexpr double kUlp = std::numeric_limits<float>::epsilon();
  return ulps * kUlp * std::fabs(truth) + floor + 2 * static_cast<double>(std::numeric_limits<float>::denorm_min());
}

std::vector<float> run_f32(Activation kind, const std::vector<float>& x, IsaSet isa, const Parallel& parallel = {}) {
  std::vector<float> y(x.size());
  activation({kind, DType::kF32, x.data(), y.data(), static_cast<std::int64_t>(x.size())}, parallel, isa);
  return y;
}

/// Every sign and exponent with some mantissas, and evenly spread numbers where the functions bend.
std::vector<float> samples() {
  std::vector<float> x;
  std::mt19937 random(20240613);
  for (std::uint32_t high = 0; high < 512; ++high) {
    if ((high & 255) == 255) continue;  // infinities and NaN have a test of their own
    for (int i = 0; i < 40; ++i) x.push_back(__builtin_bit_cast(float, (high << 23) | (static_cast<std::uint32_t>(random()) >> 9)));
  }
  for (int i = -100000; i <= 100000; ++i) x.push_back(static_cast<float>(i) * 2e-4f);
  for (int i = -10000; i <= 10000; ++i) x.push_back(static_cast<float>(i) * 0.01f);
  return x;
}

class ActivationOnIsa : public testing::TestWithParam<IsaSet> {};

TEST_P(ActivationOnIsa, Float32IsWithinItsBound) {
  const std::vector<float> x = samples();
  for (const Activation kind : kKinds) {
    const std::vector<float> y = run_f32(kind, x, GetParam());
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double truth = ref::activation_of(kind, static_cast<double>(x[i]));
      const double difference = std::fabs(static_cast<double>(y[i]) - truth);
      ASSERT_LE(difference, bound(kind, static_cast<double>(x[i]), truth))
          << name_of(kind) << " of " << x[i] << " is " << y[i] << ", truth " << truth;
      if (std::fabs(x[i]) > 20) continue;
      error += difference * difference;
      size += truth * truth;
    }
    EXPECT_LT(std::sqrt(error / size), 1e-7) << name_of(kind);
  }
}

TEST_P(ActivationOnIsa, EveryBf16IsTheNearest) {
  std::vector<std::uint16_t> x(1 << 16);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(i);
  for (const Activation kind : kKinds) {
    std::vector<std::uint16_t> y(x.size());
    activation({kind, DType::kBf16, x.data(), y.data(), static_cast<std::int64_t>(x.size())}, {}, GetParam());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto value = static_cast<double>(bf16_to_f32(x[i]));
      const double truth = ref::activation_of(kind, value);
      const auto seen = static_cast<double>(bf16_to_f32(y[i]));
      if (std::isnan(truth) || std::isinf(truth)) {
        EXPECT_TRUE(std::isnan(truth) ? std::isnan(seen) : seen == truth) << name_of(kind) << " of " << value << " is " << seen;
        continue;
      }
      // Half the distance of two neighbours: 2^-8 of the power of two at or below, or half the smallest denormal.
      const double half = std::ldexp(1.0, std::max(std::ilogb(truth == 0 ? 1e-300 : truth) - 8, -134));
      ASSERT_LE(std::fabs(seen - truth), half + bound(kind, value, truth))
          << name_of(kind) << " of " << value << " is " << seen << ", truth " << truth;
    }
  }
}

TEST_P(ActivationOnIsa, SpecialValues) {
  const std::vector<float> x = {0.0f,  -0.0f,  kInf,   -kInf,   kNan,     __builtin_bit_cast(float, 0xff800001u),
                                3e38f, -3e38f, 100.0f, -200.0f, kMin / 8, -kMin / 8};
  for (const Activation kind : kKinds) {
    const std::vector<float> y = run_f32(kind, x, GetParam());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto truth = static_cast<float>(ref::activation_of(kind, static_cast<double>(x[i])));
      const std::string what = name_of(kind) + " of " + std::to_string(x[i]) + " is " + std::to_string(y[i]);
      EXPECT_EQ(std::isnan(y[i]), std::isnan(truth)) << what;
      if (std::isnan(truth)) continue;
      EXPECT_EQ(std::isinf(y[i]), std::isinf(truth)) << what;
      EXPECT_EQ(std::signbit(y[i]), std::signbit(truth)) << what;
      if (std::fabs(x[i]) > 1) {
        EXPECT_EQ(y[i], truth) << what;
      }
    }
  }
}

TEST_P(ActivationOnIsa, SizesAndAlignments) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(200);
  for (float& value : values) value = normal(random);
  for (const Activation kind : kKinds) {
    const std::vector<float> expected = run_f32(kind, values, GetParam());
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const auto put = [dtype](char* to, float value) {
        const std::uint16_t half = bf16_from_f32(value);
        dtype == DType::kF32 ? std::memcpy(to, &value, 4) : std::memcpy(to, &half, 2);
      };
      const std::int64_t size = bytes_of(dtype);
      for (std::int64_t n = 0; n < 70; ++n) {
        const std::int64_t offset = n * 7 % 32;
        const Guarded from(static_cast<std::size_t>((offset + n) * size));
        const Guarded to(static_cast<std::size_t>((31 - offset + n) * size));
        char* begin = to.data() + (31 - offset) * size;
        for (std::int64_t i = 0; i < n; ++i) put(from.data() + (offset + i) * size, values[static_cast<std::size_t>(i)]);
        activation({kind, dtype, from.data() + offset * size, begin, n}, {}, GetParam());
        for (const char* byte = to.data(); byte < begin; ++byte) ASSERT_EQ(*byte, 0x7f) << "memory in front was written";
        for (std::int64_t i = 0; i < n; ++i) {
          if (dtype == DType::kF32) {
            ASSERT_EQ(std::memcmp(begin + i * size, &expected[static_cast<std::size_t>(i)], 4), 0)
                << name_of(kind) << " n " << n << " at " << i;
          } else {
            // The element alone, as the first of a call, gives the same bits.
            std::uint16_t one = bf16_from_f32(values[static_cast<std::size_t>(i)]);
            activation({kind, dtype, &one, &one, 1}, {}, GetParam());
            ASSERT_EQ(std::memcmp(begin + i * size, &one, 2), 0) << name_of(kind) << " n " << n << " at " << i;
          }
        }
      }
    }
  }
}

TEST_P(ActivationOnIsa, InPlaceAndAnyNumberOfThreads) {
  std::vector<float> x(70001);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(random);
  for (const Activation kind : kKinds) {
    const std::vector<float> expected = run_f32(kind, x, GetParam());
    std::vector<float> same = x;
    activation({kind, DType::kF32, same.data(), same.data(), static_cast<std::int64_t>(same.size())}, {}, GetParam());
    EXPECT_EQ(same, expected) << name_of(kind);
    for (int threads = 2; threads <= 5; ++threads) {
      EXPECT_EQ(run_f32(kind, x, GetParam(), thread_parallel(threads)), expected) << name_of(kind) << " on " << threads;
    }
  }
}

TEST_P(ActivationOnIsa, UsesTheVariantOfItsLevel) {
  const ActivationVariants table = activation_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(activation_variant(GetParam()), table.first[i].name);
      for (const Activation kind : kKinds) {
        const bool gelu_on_avx2 = kind == Activation::kGelu && GetParam() == kLevelAvx2;
        EXPECT_EQ(activation_supported({kind, DType::kF32, nullptr, nullptr, 1}, GetParam()), i + 1 < table.count && !gelu_on_avx2);
        EXPECT_FALSE(activation_supported({kind, DType::kF32, nullptr, nullptr, 0}, GetParam()));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ActivationOnIsa, testing::ValuesIn(levels_of(activation_variants())),
                         [](const auto& level) { return std::string(activation_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
