// Risk: sizes of one kind of call that are many and not seen to be, or few and taken for many; a padded size that is smaller than what it
// holds.
#include <gtest/gtest.h>

#include <cstdint>

#include "preload/select/changing_sizes.h"

namespace ipexrun::preload {
namespace {

TEST(ChangingSizes, FewSizesAreNeverMany) {
  for (int round = 0; round < 10; ++round) {
    for (std::uint64_t size = 0; size < kFewSizes; ++size) EXPECT_FALSE(comes_in_many_sizes(101, size));
  }
}

TEST(ChangingSizes, OneMoreIsManyForGood) {
  for (std::uint64_t size = 0; size < kFewSizes; ++size) EXPECT_FALSE(comes_in_many_sizes(102, size));
  EXPECT_TRUE(comes_in_many_sizes(102, 1000));
  EXPECT_TRUE(comes_in_many_sizes(102, 0));
  EXPECT_FALSE(comes_in_many_sizes(103, 0)) << "another kind";
}

TEST(ChangingSizes, AFewSizesHoldAll) {
  std::int64_t last = 0;
  int sizes = 0;
  for (std::int64_t size = 1; size <= 4096; ++size) {
    const std::int64_t padded = one_of_few_sizes(size);
    EXPECT_GE(padded, size);
    EXPECT_LE(static_cast<double>(padded), 1.125 * static_cast<double>(size));
    EXPECT_GE(padded, last);
    EXPECT_EQ(one_of_few_sizes(padded), padded);
    sizes += padded != last && size > 128;
    last = padded;
  }
  EXPECT_LE(sizes, 8 * 5);
  EXPECT_EQ(one_of_few_sizes(128), 128);
  EXPECT_EQ(one_of_few_sizes(600), 640);
}

}  // namespace
}  // namespace ipexrun::preload
