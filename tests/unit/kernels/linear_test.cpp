// The risk: a tail in M, N or K, a stride or an alignment that one variant reads past, writes past or leaves out.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
#include "tests/unit/kernels/support.h"
#include "tests/unit/kernels/window_case.h"

namespace ipexrun::kernels::test {
namespace {

class LinearOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  void check(const Case& c) {
    Problem problem(c);
    ASSERT_TRUE(problem.run(GetParam())) << describe(c, GetParam());
    const std::string difference = problem.difference();
    EXPECT_EQ(difference, "") << describe(c, GetParam());
  }
};

TEST_P(LinearOnIsa, UsesTheVariantOfItsLevel) {
  LinearArgs args;
  args.m = args.n = args.k = 64;
  const std::string name = linear_bf16_variant(args, GetParam());
  const LinearVariants table = linear_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_EQ(name, table.first[i].name);
      EXPECT_EQ(linear_bf16_supported(args, GetParam()), table.first[i].native);
      LinearArgs halves = args;
      halves.a_dtype = halves.c_dtype = DType::kBf16;
      EXPECT_EQ(linear_bf16_supported(halves, GetParam()), i + 1 < table.count) << "others widen bf16 as well";
    }
  }
}

TEST_P(LinearOnIsa, RowsAroundEachBlock) {
  for (const std::int64_t m : {0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 255, 257}) {
    check({.m = m, .n = 40, .k = 70, .bias = 1});
    check({.m = m, .n = 64, .k = 64, .a = DType::kBf16, .c = DType::kBf16, .bias = 2});
  }
}

TEST_P(LinearOnIsa, ColumnsAroundEachBlock) {
  for (const std::int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 161}) {
    check({.m = 1, .n = n, .k = 70, .bias = 1});
    check({.m = 18, .n = n, .k = 64, .c = DType::kBf16, .bias = 2});
    check({.m = 33, .n = n, .k = 33, .a = DType::kBf16});
  }
}

TEST_P(LinearOnIsa, DepthsAroundEachBlock) {
  for (const std::int64_t k : {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 511, 512, 513, 1023, 1025}) {
    check({.m = 5, .n = 33, .k = k, .bias = 1});
    check({.m = 35, .n = 35, .k = k, .bias = 2});
    check({.m = 35, .n = 35, .k = k, .a = DType::kBf16, .b = DType::kBf16, .c = DType::kBf16});
  }
}

TEST_P(LinearOnIsa, EveryAlignmentOfAAndC) {
  for (std::int64_t offset = 0; offset < 32; ++offset) {
    check({.m = 17, .n = 37, .k = 45, .bias = 1, .extra_lda = offset % 3, .offset_a = offset, .offset_c = 31 - offset});
    check({.m = 17,
           .n = 37,
           .k = 45,
           .a = DType::kBf16,
           .c = DType::kBf16,
           .extra_ldc = offset % 3,
           .offset_a = 31 - offset,
           .offset_c = offset});
  }
}

TEST_P(LinearOnIsa, ManyBlocksOfEveryKind) {
  // More than one block of rows, of K and of panels; with tails and without.
  check({.m = 300, .n = 97, .k = 1100, .bias = 1, .threads = 2});
  if (GetParam() == 0) return;  // the reference has no blocks
  for (const std::int64_t k : {1024, 1025, 1536, 1537}) check({.m = 35, .n = 33, .k = k, .c = DType::kBf16, .bias = 1});
  check({.m = 64, .n = 300, .k = 1700, .bias = 1});
  check({.m = 400, .n = 900, .k = 300, .c = DType::kBf16, .bias = 1});
  check({.m = 400, .n = 900, .k = 300, .a = DType::kBf16});
}

/// Rows of whole steps that follow each other may be multiplied where they lie, others are copied first: the same bits.
TEST_P(LinearOnIsa, RowsThatLieWhereTilesReadThem) {
  if (GetParam() == 0) return;
  for (const std::int64_t k : {32, 64, 256, 512, 544}) {
    for (const std::int64_t m : {33, 64, 98, 196}) {
      for (const std::int64_t n : {40, 600}) {
        Case c{.m = m,
               .n = n,
               .k = k,
               .a = DType::kBf16,
               .b = DType::kBf16,
               .c = DType::kBf16,
               .bias = 2,
               .threads = m == 98 ? 3 : 1,
               .unary = m == 64 ? Unary::kNone : Unary::kRelu,
               .binary = m == 33 ? Binary::kNone : Binary::kAdd,
               .binary_first = true,
               .other = DType::kBf16,
               .in_place = m == 196};
        if (m == 64) c.binary = Binary::kNone;
        Problem lying(c);
        ASSERT_TRUE(lying.run(GetParam())) << describe(c, GetParam());
        if (n == 40) {
          EXPECT_EQ(lying.difference(), "") << describe(c, GetParam());
        }
        c.offset_a = 8;
        Problem copied(c);
        ASSERT_TRUE(copied.run(GetParam())) << describe(c, GetParam());
        EXPECT_EQ(lying.c_bytes(), copied.c_bytes()) << describe(c, GetParam());
      }
    }
  }
}

TEST_P(LinearOnIsa, EveryEpilogue) {
  for (int unary = 0; unary <= static_cast<int>(Unary::kSilu); ++unary) {
    for (int binary = 0; binary <= static_cast<int>(Binary::kMul); ++binary) {
      for (const bool first : {false, true}) {
        Case c{.m = 35,
               .n = 45,
               .k = 70,
               .bias = 1,
               .unary = static_cast<Unary>(unary),
               .binary = static_cast<Binary>(binary),
               .binary_first = first};
        check(c);
        c.c = c.a = DType::kBf16;
        c.extra_ldc = 3;
        check(c);
        c.m = 5;
        c.n = 130;
        c.other = DType::kBf16;
        c.extra_ld_other = 7;
        check(c);
        c.c = DType::kF32;
        c.in_place = true;
        check(c);
        c.k = 0;
        check(c);
      }
    }
  }
}

TEST_P(LinearOnIsa, EpilogueOfManyBlocks) {
  if (GetParam() == 0) return;  // the reference has no blocks
  for (const DType c : {DType::kF32, DType::kBf16}) {
    check(
        {.m = 420, .n = 520, .k = 1100, .c = c, .bias = 1, .threads = 3, .unary = Unary::kGelu, .binary = Binary::kAdd, .in_place = true});
    check({.m = 64, .n = 64, .k = 96, .c = c, .unary = Unary::kRelu, .binary = Binary::kAdd, .binary_first = true, .other = c});
    check({.m = 1, .n = 300, .k = 64, .c = c, .unary = Unary::kSilu, .binary = Binary::kMul, .other = DType::kBf16});
  }
}

TEST_P(LinearOnIsa, SeededFuzz) {
  std::mt19937 random(20240613);
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (std::uint32_t i = 0; i < 150; ++i) {
    const bool large = pick(0, 9) == 0;
    const Case c{.m = pick(0, large ? 150 : 40),
                 .n = pick(0, large ? 300 : 80),
                 .k = pick(0, large ? 700 : 90),
                 .a = pick(0, 1) != 0 ? DType::kF32 : DType::kBf16,
                 .b = pick(0, 1) != 0 ? DType::kF32 : DType::kBf16,
                 .c = pick(0, 1) != 0 ? DType::kF32 : DType::kBf16,
                 .bias = static_cast<int>(pick(0, 2)),
                 .extra_lda = pick(0, 5),
                 .extra_ldc = pick(0, 5),
                 .plain_b = pick(0, 1) != 0,
                 .offset_a = pick(0, 3),
                 .offset_c = pick(0, 3),
                 .threads = static_cast<int>(pick(1, 8)),
                 .seed = i + 1,
                 .unary = static_cast<Unary>(pick(0, 6)),
                 .binary = static_cast<Binary>(pick(0, 2)),
                 .binary_first = pick(0, 1) != 0,
                 .other = pick(0, 1) != 0 ? DType::kF32 : DType::kBf16,
                 .extra_ld_other = pick(0, 5),
                 .in_place = pick(0, 3) == 0};
    check(c);
    if (HasFailure()) return;
  }
}

TEST_P(LinearOnIsa, NanAndInfinityGoWhereArithmeticTakesThem) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::int64_t m : {3, 20, 40}) {
    for (const DType a : {DType::kF32, DType::kBf16}) {
      Problem problem({.m = m, .n = 50, .k = 40, .a = a, .c = a, .bias = 1});
      problem.set_a(1, 7, kNan);
      problem.set_a(2, 8, kInf);
      problem.set_b(9, 3, -kInf);
      problem.set_b(10, 4, kNan);
      problem.set_bias(5, kInf);
      ASSERT_TRUE(problem.run(GetParam()));
      EXPECT_EQ(problem.difference(), "") << m;
    }
  }
}

TEST_P(LinearOnIsa, NanWithOnlyLowBitsStaysNan) {
  // The upper half of this NaN alone would read as infinity.
  const float nan = __builtin_bit_cast(float, 0x7f800001u);
  Problem problem({.m = 2, .n = 2, .k = 40});
  problem.set_a(0, 3, nan);
  ASSERT_TRUE(problem.run(GetParam()));
  EXPECT_TRUE(std::isnan(problem.c(0, 0)));
  EXPECT_FALSE(std::isnan(problem.c(1, 0)));
  problem.set_a(0, 3, 0.0f);
  problem.set_b(3, 1, nan);
  ASSERT_TRUE(problem.run(GetParam()));
  EXPECT_TRUE(std::isnan(problem.c(1, 1)));
  EXPECT_FALSE(std::isnan(problem.c(1, 0)));
}

TEST_P(LinearOnIsa, RoundsOperandsToNearestEven) {
  // 1 + 2^-8 lies between two bf16 numbers, the even one is 1; 1 + 3 * 2^-8 goes up to 1 + 2^-6.
  Problem problem({.m = 2, .n = 1, .k = 1});
  problem.set_a(0, 0, 1.0f + 1.0f / 256);
  problem.set_a(1, 0, 1.0f + 3.0f / 256);
  problem.set_b(0, 0, 1.0f);
  ASSERT_TRUE(problem.run(GetParam()));
  EXPECT_EQ(problem.c(0, 0), 1.0f);
  EXPECT_EQ(problem.c(1, 0), 1.0f + 1.0f / 64);
}

TEST_P(LinearOnIsa, DenormalsAreKeptOrTakenAsZero) {
  // bf16 instructions take them as zeros, fp32 ones and the reference keep them: both are within the smallest normal number.
  constexpr float kMin = std::numeric_limits<float>::min();
  Problem problem({.m = 1, .n = 1, .k = 2});
  problem.set_a(0, 0, kMin / 4);
  problem.set_a(0, 1, kMin);
  problem.set_b(0, 0, 1.0f);
  problem.set_b(1, 0, 2.0f);
  ASSERT_TRUE(problem.run(GetParam()));
  EXPECT_GE(problem.c(0, 0), 2 * kMin);
  EXPECT_LE(problem.c(0, 0), 2.25f * kMin);
}

TEST_P(LinearOnIsa, PaddingNeverMeetsInfinity) {
  // K and N tails are padded with zeros; 0 * inf in a padded product would be NaN.
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Problem problem({.m = 18, .n = 33, .k = 33});
  for (std::int64_t k = 0; k < 33; ++k) {
    for (std::int64_t m = 0; m < 18; ++m) problem.set_a(m, k, 1.0f);
    for (std::int64_t n = 0; n < 33; ++n) problem.set_b(k, n, kInf);
  }
  ASSERT_TRUE(problem.run(GetParam()));
  EXPECT_EQ(problem.difference(), "");
}

TEST_P(LinearOnIsa, WindowsOfImages) {
  std::mt19937 random(20261126);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (int i = 0; i < 120; ++i) {
    const WindowCase made = window_case(i, random);
    const std::int64_t n = 1 + static_cast<std::int64_t>(random() % 70);
    const DType dtype = i % 2 == 0 ? DType::kBf16 : DType::kF32;
    const auto size = static_cast<std::size_t>(i % 2 == 0 ? 2 : 4);
    Guarded image(static_cast<std::size_t>(made.elements) * size);  // ends at a page that faults
    for (std::int64_t j = 0; j < made.elements; ++j) {
      const float number = uniform(random);
      const std::uint16_t half = bf16_from_f32(number);
      std::memcpy(image.data() + static_cast<std::size_t>(j) * size, dtype == DType::kBf16 ? static_cast<const void*>(&half) : &number,
                  size);
    }
    std::vector<float> b(static_cast<std::size_t>(made.k * n));
    for (float& number : b) number = uniform(random);
    Guarded packed(packed_b_bytes(made.k, n));
    pack_b({b.data(), DType::kF32, made.k, n, 1, made.k}, packed.data(), {}, GetParam());
    LinearArgs args;
    args.a = image.data();
    args.a_dtype = dtype;
    args.windows = &made.windows;
    args.packed_b = packed.data();
    args.m = made.rows;
    args.n = args.ldc = n;
    args.k = made.k;
    args.epilogue.unary = Unary::kRelu;
    std::vector<float> mine(static_cast<std::size_t>(args.m * n), -7.0f);
    std::vector<float> truth = mine;
    args.c = mine.data();
    ASSERT_TRUE(linear_bf16(args, thread_parallel(1 + i % 3), GetParam()));
    args.c = truth.data();
    ASSERT_TRUE(linear_bf16(args, {}, 0));
    for (std::size_t j = 0; j < mine.size(); ++j) {
      ASSERT_NEAR(mine[j], truth[j], 3e-6 * (1 + std::fabs(static_cast<double>(truth[j]))) * std::sqrt(static_cast<double>(made.k + 1)))
          << "windows " << i << ", element " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, LinearOnIsa, testing::ValuesIn(levels_here()), [](const auto& level) { return variant_of(level.param); });

TEST(Linear, EmptyShapesAreFine) {
  LinearArgs args;
  EXPECT_TRUE(linear_bf16(args, {}, 0));
  EXPECT_FALSE(linear_bf16_supported(args, isa_of_process()));
}

TEST(Linear, NothingIsOfferedForFloat32WithoutNativeBf16) {
  LinearArgs args;
  args.m = args.n = args.k = 64;
  EXPECT_FALSE(linear_bf16_supported(args, 0));
  EXPECT_FALSE(linear_bf16_supported(args, kLevelAvx2));
  EXPECT_FALSE(linear_bf16_supported(args, kLevelAvx512));
}

}  // namespace
}  // namespace ipexrun::kernels::test
