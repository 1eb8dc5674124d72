// The risk: packs that differ by where B came from, or a size that does not hold what is written.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
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

/// B in every order that torch hands out, in memory that ends with it.
struct Laid {
  Laid(DType dtype, std::int64_t k, std::int64_t n, std::int64_t stride_k, std::int64_t stride_n)
      : memory(static_cast<std::size_t>(((k - 1) * stride_k + (n - 1) * stride_n + 1) * (dtype == DType::kF32 ? 4 : 2))),
        b{memory.data(), dtype, k, n, stride_k, stride_n} {}
  Laid(const Laid&) = delete;

  void put(std::int64_t k, std::int64_t n, float value) {
    const std::int64_t at = k * b.stride_k + n * b.stride_n;
    if (b.dtype == DType::kF32) {
      reinterpret_cast<float*>(memory.data())[at] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(memory.data())[at] = bf16_from_f32(value);
    }
  }

  Guarded memory;
  MatrixB b;
};

/// Numbers of every kind: what bf16 cannot hold, halves of a step, denormals, infinities, NaN that only lower bits tell from infinity.
float any_number(std::mt19937* random) {
  const auto bits = static_cast<std::uint32_t>((*random)());
  switch (bits % 8) {
    case 0:
      return __builtin_bit_cast(float, (bits & 0xffff0000u) | 0x8000u);
    case 1:
      return __builtin_bit_cast(float, bits & 0x807fffffu);
    case 2:
      return __builtin_bit_cast(float, (bits & 0x8000ffffu) | 0x7f800000u);
    default:
      return __builtin_bit_cast(float, bits);
  }
}

class PackOf : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(PackOf, HoldsEveryElementAndZerosForAnyStridesOnEveryInstructionSet) {
  const auto [k_size, n_size] = GetParam();
  const std::int64_t gap = 3;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const auto& [stride_k, stride_n] : {std::pair<std::int64_t, std::int64_t>{1, k_size},
                                             {1, k_size + gap},
                                             {n_size, 1},
                                             {n_size + gap, 1},
                                             {2, 2 * k_size + gap},
                                             {2 * n_size + gap, 2}}) {
      Laid laid(dtype, k_size, n_size, stride_k, stride_n);
      std::mt19937 random(7);
      std::vector<std::uint16_t> halves;
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(k_size) * n_size; ++i) {
        const float value = any_number(&random);
        laid.put(i / n_size, i % n_size, value);
        halves.push_back(bf16_from_f32(value));
      }
      for (const IsaSet isa : levels_of(pack_variants())) {
        for (const int threads : {1, 4}) {
          Guarded to(packed_b_bytes(k_size, n_size));
          pack_b(laid.b, to.data(), threads == 1 ? Parallel{} : thread_parallel(threads), isa);
          const auto* packed = reinterpret_cast<const std::uint16_t*>(to.data());
          for (std::int64_t n = 0; n < panels_of(n_size) * kPanelColumns; ++n) {
            for (std::int64_t k = 0; k < steps_of(k_size) * kStepK; ++k) {
              const std::uint16_t seen = packed[n / kPanelColumns * steps_of(k_size) * kStepElements + packed_offset(k, n % kPanelColumns)];
              const bool inside = n < n_size && k < k_size;
              ASSERT_EQ(seen, inside ? halves[static_cast<std::size_t>(k * n_size + n)] : 0)
                  << k << "," << n << " isa " << isa << " strides " << stride_k << " " << stride_n;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PackOf,
                         testing::Values(std::pair{1, 1}, std::pair{2, 3}, std::pair{31, 33}, std::pair{32, 32}, std::pair{33, 31},
                                         std::pair{64, 16}, std::pair{100, 65}, std::pair{128, 96}, std::pair{15, 9}, std::pair{47, 23},
                                         std::pair{17, 40}));

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
