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

TEST(TrialBounds, AFormThatLeadsHasNoRest) {
  TrialBounds bounds;
  for (int call = 0; call < 20; ++call) bounds.tried(kSecond, call == 0 ? 0 : kSecond * 9 / 10, kSecond, false, call * kSecond);
  EXPECT_FALSE(bounds.rests(20 * kSecond));
}

TEST(TrialBounds, AFormThatChoosesKernelsHasMoreCalls) {
  TrialBounds bounds;
  for (int call = 0; call < TrialBounds::kFreeCalls * TrialBounds::kChoosing; ++call) {
    EXPECT_FALSE(bounds.rests(call * kSecond));
    bounds.tried(kSecond, kSecond, kSecond, true, call * kSecond);
  }
  EXPECT_TRUE(bounds.rests(12 * kSecond));
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
