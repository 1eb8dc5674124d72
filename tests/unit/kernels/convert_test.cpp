// The risk: a tie that goes the wrong way, a denormal or a NaN that gets lost, a tail.
#include "kernels/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/ref/convert.h"
#include "tests/unit/kernels/support.h"

namespace ipexrun::kernels::test {
namespace {

constexpr Format kFormats[] = {Format::kF32, Format::kBf16, Format::kF16};
constexpr std::size_t size_of(Format format) { return format == Format::kF32 ? 4 : 2; }

/// Every sign and exponent of fp32 with random mantissas, and what lies at and beside the middle between neighbours of fewer bits.
std::vector<std::uint32_t> samples() {
  std::vector<std::uint32_t> bits;
  std::mt19937 random(20240613);
  for (std::uint32_t high = 0; high < 512; ++high) {
    for (int i = 0; i < 30; ++i) bits.push_back(high << 23 | static_cast<std::uint32_t>(random()) >> 9);
    for (const std::uint32_t mantissa : {0u, 1u, 0x7fffffu, 0x400000u, 0x3fffffu}) bits.push_back(high << 23 | mantissa);
    for (const int kept : {7, 10, 9, 8, 5, 1}) {
      for (const std::uint32_t upper : {0u, 1u, 2u, (1u << kept) - 1}) {
        const std::uint32_t middle = upper << (23 - kept) | 1u << (22 - kept);
        for (const std::uint32_t mantissa : {middle - 1, middle, middle + 1}) bits.push_back(high << 23 | (mantissa & 0x7fffffu));
      }
    }
  }
  return bits;
}

/// All numbers of a format, or many of them.
std::string numbers_of(Format format) {
  if (format == Format::kF32) {
    const std::vector<std::uint32_t> bits = samples();
    return {reinterpret_cast<const char*>(bits.data()), bits.size() * 4};
  }
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return {reinterpret_cast<const char*>(all.data()), all.size() * 2};
}

std::string run(const std::string& from, Format from_format, Format to_format, IsaSet isa, const Parallel& parallel = {}) {
  const std::size_t n = from.size() / size_of(from_format);
  std::string to(n * size_of(to_format), '\0');
  convert({from.data(), from_format, to.data(), to_format, static_cast<std::int64_t>(n)}, parallel, isa);
  return to;
}

/// The reference against arithmetic: nothing lies nearer, ties are even, NaN, infinities and signs stay.
TEST(Convert, TheReferenceRoundsToTheNearestHalf) {
  for (const std::uint32_t bits : samples()) {
    const auto value = __builtin_bit_cast(float, bits);
    const std::uint16_t half = ref::f16_from_f32(value);
    EXPECT_EQ(half >> 15, bits >> 31);
    if (std::isnan(value)) {
      EXPECT_GT(half & 0x7fff, 0x7c00);
      EXPECT_NE(half & 0x200, 0);
      continue;
    }
    const double size = std::fabs(static_cast<double>(value));
    const int step = size < 6.2e-5 ? -24 : std::ilogb(size) - 10;
    const double steps = std::nearbyint(std::ldexp(size, -step));  // to even in the default rounding mode
    const double rounded = std::ldexp(steps, step);
    const double seen = std::fabs(static_cast<double>(ref::f16_to_f32(half)));
    EXPECT_EQ(seen, rounded >= 65536 ? static_cast<double>(std::numeric_limits<float>::infinity()) : rounded) << value;
  }
  for (std::uint32_t half = 0; half < 1u << 16; ++half) {
    const float value = ref::f16_to_f32(static_cast<std::uint16_t>(half));
    const std::uint32_t quiet = (half & 0x7fffu) > 0x7c00u ? half | 0x200u : half;
    EXPECT_EQ(ref::f16_from_f32(value), quiet);
  }
}

class ConvertOnIsa : public testing::TestWithParam<IsaSet> {};

TEST_P(ConvertOnIsa, EveryNumberAsTheReference) {
  for (const Format from : kFormats) {
    for (const Format to : kFormats) {
      const std::string numbers = numbers_of(from);
      const std::string truth = run(numbers, from, to, 0);
      const std::string seen = run(numbers, from, to, GetParam());
      if (from == to) {
        EXPECT_EQ(seen, numbers);
      }
      for (std::size_t i = 0; i < truth.size(); i += size_of(to)) {
        ASSERT_EQ(seen.compare(i, size_of(to), truth, i, size_of(to)), 0)
            << static_cast<int>(from) << " to " << static_cast<int>(to) << " at " << i / size_of(to);
      }
    }
  }
}

TEST_P(ConvertOnIsa, SizesAndAlignments) {
  std::mt19937 random(7);
  for (const Format from : kFormats) {
    for (const Format to : kFormats) {
      for (std::size_t n = 0; n < 140; ++n) {
        const std::size_t offset = n * 7 % 32;
        const Guarded source((offset + n) * size_of(from));
        const Guarded target((31 - offset + n) * size_of(to));
        char* first = source.data() + offset * size_of(from);
        char* begin = target.data() + (31 - offset) * size_of(to);
        for (std::size_t i = 0; i < n * size_of(from); ++i) first[i] = static_cast<char>(random());
        const std::string truth = run({first, n * size_of(from)}, from, to, 0);
        convert({first, from, begin, to, static_cast<std::int64_t>(n)}, {}, GetParam());
        for (const char* byte = target.data(); byte < begin; ++byte) ASSERT_EQ(*byte, 0x7f) << "memory in front was written";
        ASSERT_EQ(std::memcmp(begin, truth.data(), truth.size()), 0)
            << static_cast<int>(from) << " to " << static_cast<int>(to) << " n " << n;
      }
    }
  }
}

TEST_P(ConvertOnIsa, InPlaceAndAnyNumberOfThreads) {
  for (const Format from : kFormats) {
    std::string numbers = numbers_of(from);
    while (numbers.size() < 200000 * size_of(from)) numbers += numbers_of(from);
    for (const Format to : kFormats) {
      const std::string expected = run(numbers, from, to, GetParam());
      for (int threads = 2; threads <= 5; ++threads) {
        EXPECT_TRUE(run(numbers, from, to, GetParam(), thread_parallel(threads)) == expected) << threads;
      }
      if (size_of(from) != size_of(to)) continue;
      std::string same = numbers;
      convert({same.data(), from, same.data(), to, static_cast<std::int64_t>(same.size() / size_of(from))}, {}, GetParam());
      EXPECT_TRUE(same == expected);
    }
  }
}

TEST_P(ConvertOnIsa, UsesTheVariantOfItsLevel) {
  const ConvertVariants table = convert_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(convert_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(convert_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ConvertOnIsa, testing::ValuesIn(levels_of(convert_variants())),
                         [](const auto& level) { return std::string(convert_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
