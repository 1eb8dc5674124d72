// The risk: a generator that is not Philox, numbers that depend on threads or instruction set, a tail, a mask that does not fit the result.
#include "kernels/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/ref/dropout.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBf16};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The known answers of the generator's authors.
TEST(Dropout, PhiloxIsPhilox) {
  struct Known {
    std::uint32_t counter[4];
    std::uint32_t key[2];
    std::uint32_t words[4];
  };
  const Known known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const Known& k : known) {
    const ref::PhiloxWords words = ref::philox({{k.counter[0], k.counter[1], k.counter[2], k.counter[3]}}, k.key[0], k.key[1]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], k.words[i]);
  }
}

class DropoutOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20240613};
};

/// Bits of the reference, for any size and alignment, over the end of 32 bits of the counter.
TEST_P(DropoutOnIsa, EqualsTheReference) {
  for (const DType dtype : kTypes) {
    for (std::int64_t n = 0; n < 270; ++n) {
      Buffer x(dtype, n, n % 32);
      const Buffer y(dtype, n, 31 - n % 32);
      const Buffer truth(dtype, n);
      const Guarded mask(static_cast<std::size_t>(n));
      const Guarded truth_mask(static_cast<std::size_t>(n));
      x.fill(random_);
      DropoutArgs args{x.data(), truth.data(), reinterpret_cast<std::uint8_t*>(truth_mask.data()), dtype, n, 0.3};
      args.seed = 0x123456789abcdefu * static_cast<std::uint64_t>(n + 1);
      args.offset = 0x2fffffff0u + static_cast<std::uint64_t>(n % 40);
      ref::dropout(args);
      args.to = y.data();
      args.mask = n % 5 == 4 ? nullptr : reinterpret_cast<std::uint8_t*>(mask.data());
      ASSERT_TRUE(dropout(args, {}, GetParam()));
      EXPECT_TRUE(y.front_is_clean());
      ASSERT_EQ(std::memcmp(y.data(), truth.data(), static_cast<std::size_t>(n * bytes_of(dtype))), 0) << n;
      if (args.mask != nullptr) {
        ASSERT_EQ(std::memcmp(mask.data(), truth_mask.data(), static_cast<std::size_t>(n)), 0) << n;
      }
    }
  }
}

TEST_P(DropoutOnIsa, GradientHasTheMaskAndTheScale) {
  for (const DType dtype : kTypes) {
    for (std::int64_t n = 0; n < 150; ++n) {
      Buffer g(dtype, n, n % 32);
      const Buffer to(dtype, n, 31 - n % 32);
      const Guarded mask(static_cast<std::size_t>(n));
      g.fill(random_);
      for (std::int64_t i = 0; i < n; ++i) mask.data()[i] = static_cast<char>(random_() % 3);
      const DropoutGradArgs args{g.data(), to.data(), reinterpret_cast<const std::uint8_t*>(mask.data()), dtype, n, 0.25};
      ASSERT_TRUE(dropout_grad(args, {}, GetParam()));
      EXPECT_TRUE(to.front_is_clean());
      Buffer truth(dtype, n);
      for (std::int64_t i = 0; i < n; ++i) truth.set(i, static_cast<float>(g.get(i)) * (mask.data()[i] != 0 ? 1 / 0.75f : 0.0f));
      ASSERT_EQ(std::memcmp(to.data(), truth.data(), static_cast<std::size_t>(n * bytes_of(dtype))), 0) << n;
    }
  }
}

TEST_P(DropoutOnIsa, KeepsTheShareItShould) {
  constexpr std::int64_t kCount = 1 << 20;
  std::vector<float> x(kCount, 1.0f);
  std::vector<float> y(kCount);
  std::vector<std::uint8_t> mask(kCount);
  for (const double p : {0.0, 0.001, 0.1, 0.5, 0.9, 1.0}) {
    ASSERT_TRUE(dropout({x.data(), y.data(), mask.data(), DType::kF32, kCount, p, 42, 7}, {}, GetParam()));
    std::int64_t kept = 0;
    std::int64_t pairs = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      kept += mask[i];
      if (i > 0) pairs += mask[i] & mask[i - 1];
      ASSERT_LE(mask[i], 1);
      ASSERT_EQ(y[i], mask[i] != 0 ? static_cast<float>(1 / (1 - p)) : 0.0f) << p;
    }
    const double deviation = std::sqrt(p * (1 - p) * kCount);
    EXPECT_LE(std::fabs(static_cast<double>(kept) - (1 - p) * kCount), 5 * deviation) << p;
    EXPECT_LE(std::fabs(static_cast<double>(pairs) - (1 - p) * (1 - p) * kCount), 10 * deviation + 1) << p;
  }
}

TEST_P(DropoutOnIsa, ThreadsAndPiecesGiveTheSameBits) {
  for (const DType dtype : kTypes) {
    constexpr std::int64_t kCount = 70001;
    Buffer x(dtype, kCount);
    x.fill(random_);
    const Buffer expected(dtype, kCount);
    const Guarded expected_mask(kCount);
    DropoutArgs args{x.data(), expected.data(), reinterpret_cast<std::uint8_t*>(expected_mask.data()), dtype, kCount, 0.2, 11, 5};
    ASSERT_TRUE(dropout(args, {}, GetParam()));
    for (int threads = 2; threads <= 5; ++threads) {
      const Buffer y(dtype, kCount);
      const Guarded mask(kCount);
      args.to = y.data();
      args.mask = reinterpret_cast<std::uint8_t*>(mask.data());
      ASSERT_TRUE(dropout(args, thread_parallel(threads), GetParam()));
      EXPECT_EQ(y.bytes(), expected.bytes()) << threads;
      EXPECT_EQ(std::memcmp(mask.data(), expected_mask.data(), kCount), 0) << threads;
      const DropoutGradArgs back{x.data(), y.data(), args.mask, dtype, kCount, 0.2};
      ASSERT_TRUE(dropout_grad(back, thread_parallel(threads), GetParam()));
      EXPECT_EQ(y.bytes(), expected.bytes()) << "gradient on " << threads;
    }
    // Two calls, the second where the first left off, in place.
    constexpr std::int64_t kFirst = 640;
    args.to = x.data();
    args.mask = nullptr;
    args.n = kFirst;
    ASSERT_TRUE(dropout(args, {}, GetParam()));
    args.from = args.to = x.data() + kFirst * bytes_of(dtype);
    args.n = kCount - kFirst;
    args.offset += dropout_counters(kFirst);
    ASSERT_TRUE(dropout(args, {}, GetParam()));
    EXPECT_EQ(x.bytes(), expected.bytes());
  }
}

TEST_P(DropoutOnIsa, SeedsAndOffsetsDiffer) {
  std::vector<float> x(640, 1.0f);
  std::vector<std::uint8_t> masks[4];
  const std::uint64_t seeds[] = {1, 2, 1, std::uint64_t{1} << 32 | 1};
  const std::uint64_t offsets[] = {0, 0, 160, 0};
  for (int i = 0; i < 4; ++i) {
    std::vector<float> y(640);
    masks[i].resize(640);
    ASSERT_TRUE(dropout({x.data(), y.data(), masks[i].data(), DType::kF32, 640, 0.5, seeds[i], offsets[i]}, {}, GetParam()));
    for (int j = 0; j < i; ++j) EXPECT_NE(masks[i], masks[j]);
  }
}

TEST_P(DropoutOnIsa, SpecialValuesAndWrongShares) {
  for (const DType dtype : kTypes) {
    for (const float value : {kNan, kInf, -kInf, 1e-39f, -0.0f, __builtin_bit_cast(float, 0x7fffffffu)}) {
      Buffer x(dtype, 100);
      const Buffer y(dtype, 100);
      const Guarded mask(100);
      for (std::int64_t i = 0; i < 100; ++i) x.set(i, value);
      ASSERT_TRUE(dropout({x.data(), y.data(), reinterpret_cast<std::uint8_t*>(mask.data()), dtype, 100, 0.5, 1, 2}, {}, GetParam()));
      for (std::int64_t i = 0; i < 100; ++i) {
        const double expected = x.get(i) * (mask.data()[i] != 0 ? 2.0 : 0.0);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(y.get(i)));
        } else {
          ASSERT_EQ(y.get(i), expected);
        }
      }
    }
  }
  float one = 1;
  for (const double p : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(dropout({&one, &one, nullptr, DType::kF32, 1, p}, {}, GetParam()));
    EXPECT_FALSE(dropout_grad({&one, &one, nullptr, DType::kF32, 1, p}, {}, GetParam()));
  }
  EXPECT_EQ(one, 1.0f);
  EXPECT_EQ(dropout_counters(0), 0u);
  EXPECT_EQ(dropout_counters(1), 16u);
  EXPECT_EQ(dropout_counters(65), 32u);
}

TEST_P(DropoutOnIsa, UsesTheVariantOfItsLevel) {
  const DropoutVariants table = dropout_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(dropout_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(dropout_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, DropoutOnIsa, testing::ValuesIn(levels_of(dropout_variants())),
                         [](const auto& level) { return std::string(dropout_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
