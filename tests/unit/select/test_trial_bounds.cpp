// The risk: a form that is as fast as stock's makes each call of a long program take twice as long, or one that would win is not tried any
// more.
#include <gtest/gtest.h>

#include "preload/select/trial_bounds.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(TrialBounds, ShortCallsAreTriedAsOftenAsItTakes) {
  TrialBounds bounds;
  std::int64_t now = 0;
  for (int call = 0; call < 100; ++call, now += kSecond / 50) {
    EXPECT_FALSE(bounds.rests(now));
    bounds.tried(kSecond / 100, kSecond / 100, kSecond / 100, false, now);
  }
}

TEST(TrialBounds, LongCallsOfAFormThatDoesNotLeadTakeAShare) {
  TrialBounds bounds;
  std::int64_t now = 0;
  std::int64_t beside = 0;
  int tries = 0;
  while (now < 600 * kSecond) {
    now += kSecond;
    if (bounds.rests(now)) continue;
    now += kSecond;
    beside += kSecond;
    bounds.tried(kSecond, tries++ == 0 ? 0 : kSecond, kSecond, false, now);
  }
  EXPECT_GE(tries, TrialBounds::kFreeCalls + 10);
  EXPECT_LE(beside, 4 * kSecond + now / 20);
}

TEST(TrialBounds, AFormThatLeadsHasLongerAndThenALargerShare) {
  TrialBounds bounds;
  for (int call = 0; call < 9; ++call) {
    bounds.tried(kSecond, call == 0 ? 0 : kSecond * 9 / 10, kSecond, false, call * kSecond);
    EXPECT_FALSE(bounds.rests(call * kSecond + 1)) << call;
  }
  bounds.tried(kSecond, kSecond * 9 / 10, kSecond, false, 9 * kSecond);
  EXPECT_TRUE(bounds.rests(10 * kSecond));
  EXPECT_FALSE(bounds.rests(9 * kSecond + TrialBounds::kLeadShareOf * kSecond));
}

/// By its single best call it would lead, by most of its last ones it does not: stock's kernels were still being chosen when it did.
TEST(TrialBounds, AFormThatNoLongerLeadsIsTriedSeldom) {
  TrialBounds bounds;
  for (int call = 0; call < 4; ++call) bounds.tried(kSecond, call == 0 ? 0 : kSecond * 8 / 10, kSecond, false, call * kSecond);
  EXPECT_FALSE(bounds.rests(4 * kSecond));
  for (int call = 4; call < 8; ++call) bounds.tried(kSecond * 8 / 10, kSecond * 8 / 10, kSecond, false, call * kSecond);
  EXPECT_TRUE(bounds.rests(8 * kSecond + (TrialBounds::kShareOf - 2) * kSecond));
}

TEST(TrialBounds, AFormThatChoosesKernelsHasMoreCallsButNotForEver) {
  for (const std::int64_t each : {kSecond * 7 / 10, 2 * kSecond}) {
    TrialBounds bounds;
    int call = 0;
    for (std::int64_t now = 0; !bounds.rests(now + 1); now += each) bounds.tried(each, each, each, true, now), ++call;
    EXPECT_EQ(call, each < kSecond ? TrialBounds::kFreeCalls * TrialBounds::kChoosing : 5) << each;
  }
}

TEST(TrialBounds, TheNextFormBeginsAnew) {
  TrialBounds bounds;
  for (int call = 0; call < 4; ++call) bounds.tried(kSecond, kSecond, kSecond, false, call * kSecond);
  EXPECT_TRUE(bounds.rests(4 * kSecond));
  bounds.restart();
  for (int call = 4; call < 7; ++call) {
    EXPECT_FALSE(bounds.rests(call * kSecond));
    bounds.tried(kSecond, kSecond, kSecond, false, call * kSecond);
  }
  EXPECT_FALSE(bounds.rests(7 * kSecond));
  bounds.tried(kSecond, kSecond, kSecond, false, 7 * kSecond);
  EXPECT_TRUE(bounds.rests(8 * kSecond));
}

}  // namespace
}  // namespace ipexrun::preload
