// The risk: packs that differ by where B came from, or a size that does not hold what is written.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/linear.h"
#include "kernels/packed.h"
#include "tests/unit/kernels/support.h"

namespace ipexrun::kernels::test {
namespace {

TEST(Pack, BytesAreWholePanels) {
  EXPECT_EQ(packed_b_bytes(0, 5), 0u);
  EXPECT_EQ(packed_b_bytes(5, 0), 0u);
  EXPECT_EQ(packed_b_bytes(1, 1), 2048u);
  EXPECT_EQ(packed_b_bytes(32, 32), 2048u);
  EXPECT_EQ(packed_b_bytes(33, 33), 4 * 2048u);
}

TEST(Pack, RefusesShapesItCannotCount) {
  EXPECT_EQ(packed_b_bytes(-1, 4), 0u);
  EXPECT_EQ(packed_b_bytes(4, -1), 0u);
  EXPECT_EQ(packed_b_bytes(std::numeric_limits<std::int64_t>::max(), 4), 0u);
  EXPECT_EQ(packed_b_bytes(std::int64_t{1} << 58, 1 << 20), 0u);
}

class PackOf : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(PackOf, HoldsEveryElementAndZeros) {
  const auto [k_size, n_size] = GetParam();
  std::vector<float> weight(static_cast<std::size_t>(k_size * n_size));
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.37f + static_cast<float>(i);
  std::vector<std::uint16_t> halves;
  for (const float value : weight) halves.push_back(bf16_from_f32(value));
  Guarded from_f32(packed_b_bytes(k_size, n_size));
  Guarded from_bf16(packed_b_bytes(k_size, n_size));
  Guarded threaded(packed_b_bytes(k_size, n_size));
  pack_b({weight.data(), DType::kF32, k_size, n_size, 1, k_size}, from_f32.data(), {});
  pack_b({halves.data(), DType::kBf16, k_size, n_size, 1, k_size}, from_bf16.data(), {});
  pack_b({weight.data(), DType::kF32, k_size, n_size, 1, k_size}, threaded.data(), thread_parallel(4));
  EXPECT_EQ(std::memcmp(from_f32.data(), from_bf16.data(), from_f32.bytes()), 0);
  EXPECT_EQ(std::memcmp(from_f32.data(), threaded.data(), from_f32.bytes()), 0);
  const auto* packed = reinterpret_cast<const std::uint16_t*>(from_f32.data());
  for (std::int64_t n = 0; n < panels_of(n_size) * kPanelColumns; ++n) {
    for (std::int64_t k = 0; k < steps_of(k_size) * kStepK; ++k) {
      const std::uint16_t seen = packed[n / kPanelColumns * steps_of(k_size) * kStepElements + packed_offset(k, n % kPanelColumns)];
      const bool inside = n < n_size && k < k_size;
      ASSERT_EQ(seen, inside ? halves[static_cast<std::size_t>(n * k_size + k)] : 0) << k << "," << n;
    }
  }
}

TEST_P(PackOf, IsTheSameForAnyStrides) {
  const auto [k_size, n_size] = GetParam();
  const std::int64_t gap = 3;
  std::vector<float> by_column(static_cast<std::size_t>((k_size + gap) * n_size));
  std::vector<float> by_row(static_cast<std::size_t>(k_size * (n_size + gap) * 2));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (std::int64_t n = 0; n < n_size; ++n) {
    for (std::int64_t k = 0; k < k_size; ++k) {
      const float value = normal(random);
      by_column[static_cast<std::size_t>(n * (k_size + gap) + k)] = value;
      by_row[static_cast<std::size_t>(k * (n_size + gap) * 2 + n * 2)] = value;
    }
  }
  Guarded first(packed_b_bytes(k_size, n_size));
  Guarded second(packed_b_bytes(k_size, n_size));
  pack_b({by_column.data(), DType::kF32, k_size, n_size, 1, k_size + gap}, first.data(), {});
  pack_b({by_row.data(), DType::kF32, k_size, n_size, (n_size + gap) * 2, 2}, second.data(), {});
  EXPECT_EQ(std::memcmp(first.data(), second.data(), first.bytes()), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PackOf,
                         testing::Values(std::pair{1, 1}, std::pair{2, 3}, std::pair{31, 33}, std::pair{32, 32}, std::pair{33, 31},
                                         std::pair{64, 16}, std::pair{100, 65}, std::pair{128, 96}));

TEST(Bf16, RoundsLikeTheStandard) {
  EXPECT_EQ(bf16_from_f32(1.0f), 0x3f80);
  EXPECT_EQ(bf16_from_f32(1.0f + 1.0f / 256), 0x3f80);
  EXPECT_EQ(bf16_from_f32(1.0f + 3.0f / 256), 0x3f82);
  EXPECT_EQ(bf16_from_f32(-0.0f), 0x8000);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bf16_from_f32(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_EQ(bf16_from_f32(__builtin_bit_cast(float, 0x7f800001u)), 0x7fc0);
  EXPECT_EQ(bf16_from_f32(__builtin_bit_cast(float, 0xffffffffu)), 0xffff);
  EXPECT_EQ(bf16_from_f32(__builtin_bit_cast(float, 0x00010000u)), 0x0001);
}

}  // namespace
}  // namespace ipexrun::kernels::test
