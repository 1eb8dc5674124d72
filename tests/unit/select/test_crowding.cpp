#include <gtest/gtest.h>

#include "preload/select/crowding.h"

namespace ipexrun::preload {
namespace {

constexpr std::int64_t kLook = 100'000'000;

class CrowdingTest : public testing::Test {
 protected:
  /// So many looks in which a thread waited for that share of the time; the last answer.
  bool looks(int count, double waited, double left = 0.5) {
    bool crowded = false;
    for (int i = 0; i < count; ++i) {
      now_ += kLook;
      crowded = crowding_.look({now_, kLook, static_cast<std::int64_t>(waited * kLook), static_cast<std::int64_t>(left * kLook)});
    }
    return crowded;
  }

  /// Looks without a sign until it is no longer believed.
  int looks_until_free() {
    int count = 0;
    while (crowding_.crowded() && count < 1000) {
      looks(1, 0);
      ++count;
    }
    return count;
  }

  Crowding crowding_;
  std::int64_t now_ = 0;
};

TEST_F(CrowdingTest, AloneItIsNever) { EXPECT_FALSE(looks(1000, 0.05)); }

TEST_F(CrowdingTest, ThreadsOfTheProgramThatTakeTurnsAreNoOthers) { EXPECT_FALSE(looks(1000, 0.9, 0.1)); }

TEST_F(CrowdingTest, OneLookProvesNothing) {
  for (int i = 0; i < 50; ++i) {
    EXPECT_FALSE(looks(1, 0.9));
    EXPECT_FALSE(looks(1, 0.0));
  }
}

TEST_F(CrowdingTest, ThreeInARowDo) {
  EXPECT_FALSE(looks(2, 0.4));
  EXPECT_TRUE(looks(1, 0.4));
  EXPECT_EQ(crowding_.times(), 1);
}

TEST_F(CrowdingTest, ItIsBelievedForASecondAfterTheLastSign) {
  looks(3, 0.4);
  EXPECT_TRUE(looks(9, 0));
  EXPECT_TRUE(looks(1, 0.4));  // somebody is still there
  EXPECT_EQ(looks_until_free(), 10);
}

TEST_F(CrowdingTest, WhoStaysIsBelievedLonger) {
  for (const int want : {10, 20, 40, 80, 80}) {
    looks(3, 0.4);
    EXPECT_EQ(looks_until_free(), want);
  }
  EXPECT_EQ(crowding_.times(), 5);
  looks(30, 0);  // gone for a while: from the beginning
  looks(3, 0.4);
  EXPECT_EQ(looks_until_free(), 10);
}

TEST_F(CrowdingTest, ALookWithoutTimeSaysNothing) {
  EXPECT_FALSE(crowding_.look({1, 0, 5, 5}));
  EXPECT_FALSE(crowding_.look({2, 0, 5, 5}));
}

}  // namespace
}  // namespace ipexrun::preload
