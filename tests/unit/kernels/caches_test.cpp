// The risk: on a machine with a smaller L2 than the one where blocks were measured, a block of no rows, scratch that is too small, or a sum
// taken in another order than on the next machine.
#include "kernels/caches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/linear.h"
#include "kernels/linear_f32.h"
#include "tests/unit/kernels/support.h"

namespace ipexrun::kernels::test {
namespace {

constexpr std::int64_t kRows = 450;  // more than a block of rows has anywhere
constexpr std::int64_t kColumns = 1060;
constexpr std::int64_t kDepth = 1100;

class AssumedL2 {
 public:
  explicit AssumedL2(std::int64_t bytes) { assume_l2_bytes(bytes); }
  ~AssumedL2() { assume_l2_bytes(0); }
};

std::vector<float> numbers(std::int64_t count) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> made(static_cast<std::size_t>(count));
  for (float& number : made) number = uniform(random);
  return made;
}

std::vector<float> bf16_product(IsaSet isa, std::int64_t l2_bytes, const std::vector<float>& a, const char* packed) {
  const AssumedL2 assumed(l2_bytes);
  std::vector<float> c(kRows * kColumns);
  LinearArgs args;
  args.a = a.data();
  args.lda = args.k = kDepth;
  args.packed_b = packed;
  args.c = c.data();
  args.ldc = args.n = kColumns;
  args.m = kRows;
  EXPECT_TRUE(linear_bf16(args, thread_parallel(2), isa));
  return c;
}

class AssumedL1 {
 public:
  explicit AssumedL1(std::int64_t bytes) { assume_l1_bytes(bytes); }
  ~AssumedL1() { assume_l1_bytes(0); }
};

/// With a sum in place.
std::vector<float> f32_product(IsaSet isa, std::int64_t l1_bytes, std::int64_t l2_bytes, std::int64_t lda, const std::vector<float>& a,
                               const char* packed) {
  const AssumedL1 l1(l1_bytes);
  const AssumedL2 l2(l2_bytes);
  std::vector<float> c(kRows * kColumns, 0.5f);
  LinearF32Args args;
  args.a = a.data();
  args.lda = lda;
  args.k = kDepth;
  args.packed_b = packed;
  args.c = c.data();
  args.ldc = args.n = kColumns;
  args.m = kRows;
  args.epilogue.unary = Unary::kRelu;
  args.epilogue.binary = Binary::kAdd;
  args.epilogue.binary_first = true;
  args.epilogue.other = c.data();
  args.epilogue.ld_other = kColumns;
  EXPECT_TRUE(linear_f32(args, thread_parallel(2), isa));
  return c;
}

class CachesOnIsa : public testing::TestWithParam<IsaSet> {};

TEST_P(CachesOnIsa, EverySizeOfL2GivesTheSameBits) {
  const std::vector<float> a = numbers(kRows * kDepth);
  const std::vector<float> b = numbers(kColumns * kDepth);
  std::vector<char> storage(packed_b_bytes(kDepth, kColumns) + 64);
  char* packed = storage.data() + (64 - reinterpret_cast<std::uintptr_t>(storage.data()) % 64) % 64;
  pack_b({b.data(), DType::kF32, kDepth, kColumns, 1, kDepth}, packed, thread_parallel(1), isa_of_process());
  const std::vector<float> usual = bf16_product(GetParam(), kUsualL2Bytes, a, packed);
  for (const std::int64_t l2 : {kSmallestL2Bytes, std::int64_t{512 << 10}, std::int64_t{1280 << 10}}) {
    EXPECT_EQ(std::memcmp(usual.data(), bf16_product(GetParam(), l2, a, packed).data(), usual.size() * sizeof(float)), 0) << l2;
  }
}

// Rows that lie a multiple of 4 KiB apart are copied, others are read where they lie; blocks of K are the loop around groups of rows where
// L1 has room.
TEST_P(CachesOnIsa, NeitherDoesWhereRowsOfF32LieNorTheSizeOfL1) {
  constexpr std::int64_t kApart = 2048;
  static_assert(kDepth < kApart && kApart * 4 % 4096 == 0);
  const std::vector<float> a = numbers(kRows * kDepth);
  const std::vector<float> b = numbers(kColumns * kDepth);
  std::vector<float> apart(kRows * kApart);
  for (std::int64_t row = 0; row < kRows; ++row) std::copy_n(a.data() + row * kDepth, kDepth, apart.data() + row * kApart);
  std::vector<char> storage(packed_f32_bytes(kDepth, kColumns, false) + 64);
  char* packed = storage.data() + (64 - reinterpret_cast<std::uintptr_t>(storage.data()) % 64) % 64;
  pack_f32({b.data(), false, kDepth, kColumns, 1, kDepth}, packed, thread_parallel(1), isa_of_process());
  const std::vector<float> usual = f32_product(GetParam(), kUsualL1Bytes, kUsualL2Bytes, kDepth, a, packed);
  for (const std::int64_t l1 : {std::int64_t{32 << 10}, kUsualL1Bytes}) {
    for (const std::int64_t l2 : {kSmallestL2Bytes, kUsualL2Bytes}) {
      for (const std::int64_t lda : {kDepth, kApart}) {
        const std::vector<float> made = f32_product(GetParam(), l1, l2, lda, lda == kDepth ? a : apart, packed);
        EXPECT_EQ(std::memcmp(usual.data(), made.data(), usual.size() * sizeof(float)), 0) << l1 << " " << l2 << " " << lda;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, CachesOnIsa, testing::ValuesIn(levels_here()), [](const auto& level) { return variant_of(level.param); });

TEST(Caches, WhatIsSaidOfThisMachineIsUsable) {
  EXPECT_GE(l2_bytes(), kSmallestL2Bytes);
  EXPECT_LE(l2_bytes(), kUsualL2Bytes);
  const AssumedL2 assumed(kSmallestL2Bytes);
  EXPECT_EQ(l2_bytes(), kSmallestL2Bytes);
  EXPECT_GE(l1_bytes(), 8 << 10);
}

}  // namespace
}  // namespace ipexrun::kernels::test
