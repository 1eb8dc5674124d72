// The risk: an element that is drawn otherwise than one word after the other would draw it, or a state that is left elsewhere: all random
// numbers that follow would be others.
#include "kernels/bernoulli.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/bernoulli_variants.h"
#include "tests/unit/kernels/support.h"

namespace ipexrun::kernels::test {
namespace {

/// torch's state behind a seed, and its generator of 53 bits, by the standard library.
struct Stream {
  explicit Stream(std::uint32_t seed) : words(seed) {
    state[0] = seed;
    for (std::uint32_t i = 1; i < kTwisterWords; ++i) state[i] = 1812433253u * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    twister.state = state.data();
  }
  double uniform() {
    const std::uint64_t upper = words();
    return static_cast<double>((upper << 32 | words()) & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53;
  }

  std::mt19937 words;
  std::array<std::uint32_t, kTwisterWords> state{};
  Twister twister;
};

class BernoulliOnIsa : public testing::TestWithParam<IsaSet> {};

TEST_P(BernoulliOnIsa, DrawsWhatOneWordAfterTheOtherGives) {
  Stream mine(17);
  Stream theirs(17);
  int size = 0;
  for (const double p : {0.1, 0.5, 0.9, 0.0, 1.0, 0x1p-53, 1 - 0x1p-53, 0.3}) {
    for (const std::int64_t count : {0, 1, 2, 3, 311, 312, 313, 623, 624, 625, 4001}) {
      const int bytes = 1 << (size++ % 4);
      const std::uint64_t one = bytes == 4 ? 0x3f800000u : 1;
      std::vector<char> seen(static_cast<std::size_t>((count + 1) * bytes), 0x55);
      BernoulliArgs args{.to = seen.data(), .element_bytes = bytes, .one = one, .count = count, .p = p};
      bernoulli(args, &mine.twister, GetParam());
      for (std::int64_t i = 0; i < count; ++i) {
        std::uint64_t element = 0;
        std::memcpy(&element, seen.data() + i * bytes, static_cast<std::size_t>(bytes));
        ASSERT_EQ(element, theirs.uniform() < p ? one : 0) << "p " << p << ", " << count << " elements, at " << i;
      }
      for (int i = 0; i < bytes; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(count * bytes + i)], 0x55);
    }
  }
}

/// A float between two pairs, as normal numbers draw them, leaves an odd place.
TEST_P(BernoulliOnIsa, BeginsAtAnyPlaceAndLeavesTheReferencesState) {
  for (int place = 0; place < 5; ++place) {
    Stream mine(99);
    Stream theirs(99);
    std::vector<std::uint8_t> seen(1000);
    std::vector<std::uint8_t> truth(1000);
    for (Stream* one : {&mine, &theirs}) {
      BernoulliArgs args{.to = truth.data(), .element_bytes = 1, .one = 1, .count = 310 + place, .p = 0.5};
      bernoulli(args, &one->twister, 0);
      one->twister.next += 1;
      one->twister.left -= 1;
    }
    BernoulliArgs args{.to = seen.data(), .element_bytes = 1, .one = 1, .count = 1000, .p = 0.4};
    if (mine.twister.left < 1) continue;
    bernoulli(args, &mine.twister, GetParam());
    args.to = truth.data();
    bernoulli(args, &theirs.twister, 0);
    EXPECT_EQ(seen, truth);
    EXPECT_EQ(mine.state, theirs.state);
    EXPECT_EQ(mine.twister.left, theirs.twister.left);
    EXPECT_EQ(mine.twister.next, theirs.twister.next);
  }
}

TEST_P(BernoulliOnIsa, HasItsName) {
  const BernoulliVariants table = bernoulli_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs != GetParam()) continue;
    EXPECT_STREQ(bernoulli_variant(GetParam()), table.first[i].name);
    EXPECT_EQ(bernoulli_supported(GetParam()), i + 1 < table.count);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, BernoulliOnIsa, testing::ValuesIn(levels_of(bernoulli_variants())),
                         [](const auto& level) { return std::string(bernoulli_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
