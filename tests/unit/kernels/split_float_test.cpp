// Risk: halves that do not give the float32 back to the bit, a high half that is not the nearest bfloat16, a NaN that becomes a number.
#include "kernels/split_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace ipexrun::kernels {
namespace {

constexpr std::uint32_t kLows[] = {0, 1, 0x1234, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};

TEST(SplitFloatTest, joins_to_the_same_bits) {
  for (std::uint32_t high = 0; high <= 0xffff; ++high) {
    for (const std::uint32_t low : kLows) {
      const float value = std::bit_cast<float>(high << 16 | low);
      const float again = join_float(split_float(value));
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(again)) << high << ' ' << low;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(again), high << 16 | low);
      }
    }
  }
}

TEST(SplitFloatTest, high_half_is_the_nearest_bfloat16) {
  for (std::uint32_t high = 0; high < 0x7f7f; ++high) {  // finite, and so is the next one
    for (const std::uint32_t low : kLows) {
      const std::uint32_t nearest = low >= 0x8000 ? high + 1 : high;
      ASSERT_EQ(split_float(std::bit_cast<float>(high << 16 | low)).high, nearest);
      ASSERT_EQ(split_float(std::bit_cast<float>(0x80000000u | high << 16 | low)).high, nearest | 0x8000u);
    }
  }
}

TEST(SplitFloatTest, nan_and_infinity_are_seen_in_the_high_half) {
  const auto high = [](std::uint32_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(split_float(std::bit_cast<float>(bits)).high) << 16);
  };
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) EXPECT_TRUE(std::isnan(high(bits)));
  EXPECT_EQ(high(0x7f800000u), INFINITY);
  EXPECT_EQ(high(0xff800000u), -INFINITY);
}

}  // namespace
}  // namespace ipexrun::kernels
