// Risk: memory is kept where nothing takes it again, or for good where that brings nothing.
#include "preload/memory/fresh_pages.h"

#include <gtest/gtest.h>

#include <vector>

namespace ipexrun::preload {
namespace {

constexpr std::uint64_t kPage = 4096;
using Advice = FreshPages::Advice;

/// A process that takes so many pages in each interval of 0.1 s, and grows by some of them.
struct Process {
  FreshPages pages{kPage};
  PageReading now;

  Advice interval(std::uint64_t faults, std::uint64_t grown = 0) {
    now.cpu_ns += FreshPages::kIntervalNs;
    now.faults += faults;
    now.resident_bytes += grown * kPage;
    return pages.read(now);
  }
  Advice intervals(int count, std::uint64_t faults, std::uint64_t grown = 0) {
    Advice last = Advice::kNothing;
    for (int i = 0; i < count; ++i) last = interval(faults, grown);
    return last;
  }
};

constexpr std::uint64_t kMany = 20'000;  // 10 ms of 100
constexpr std::uint64_t kFew = 1'000;

TEST(FreshPages, MemoryThatIsTakenAgainInFourIntervalsInARowIsToBeKept) {
  Process process;
  EXPECT_EQ(process.intervals(1 + 3, kMany), Advice::kNothing);
  EXPECT_EQ(process.interval(kMany), Advice::kKeep);
  EXPECT_EQ(process.pages.state(), FreshPages::State::kTrying);
}

TEST(FreshPages, AProcessThatGrowsTakesNothingAgain) {
  Process process;
  EXPECT_EQ(process.intervals(50, kMany, kMany), Advice::kNothing) << "weights that are loaded";
  EXPECT_EQ(process.intervals(50, kFew), Advice::kNothing);
  EXPECT_EQ(process.intervals(3, kMany), Advice::kNothing);
  EXPECT_EQ(process.interval(kFew), Advice::kNothing);
  EXPECT_EQ(process.intervals(3, kMany), Advice::kNothing) << "in a row";
  EXPECT_EQ(process.pages.state(), FreshPages::State::kWatching);
}

TEST(FreshPages, WhatBringsSomethingStays) {
  Process process;
  process.intervals(1 + 4, kMany);
  EXPECT_EQ(process.interval(kMany), Advice::kNothing) << "it is taken once more";
  EXPECT_EQ(process.intervals(4, kFew), Advice::kNothing);
  EXPECT_EQ(process.pages.state(), FreshPages::State::kKept);
  EXPECT_EQ(process.intervals(15, kMany), Advice::kNothing);
  EXPECT_EQ(process.interval(kMany), Advice::kLook);
}

TEST(FreshPages, WhatBringsNothingIsTakenBackForGood) {
  Process process;
  process.intervals(1 + 4, kMany);
  EXPECT_EQ(process.intervals(1 + 4, kMany), Advice::kAsBefore);
  EXPECT_EQ(process.intervals(100, kMany), Advice::kNothing);
  EXPECT_EQ(process.pages.state(), FreshPages::State::kLeft);
}

TEST(FreshPages, MallocThatKeepsTooMuchAgainAndAgainIsLeftAlone) {
  Process process;
  process.intervals(1 + 4, kMany);
  process.intervals(1 + 4, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(process.pages.is_too_much(true), Advice::kNothing);
  EXPECT_EQ(process.pages.is_too_much(false), Advice::kNothing);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(process.pages.is_too_much(true), Advice::kNothing);
  EXPECT_EQ(process.pages.is_too_much(true), Advice::kAsBefore);
  EXPECT_EQ(process.intervals(100, kMany), Advice::kNothing);
}

TEST(FreshPages, AForkedChildGoesOnFromItsOwnClock) {
  Process process;
  process.intervals(10, kFew);
  process.now = {};
  EXPECT_EQ(process.intervals(1 + 3, kMany), Advice::kNothing);
  EXPECT_EQ(process.interval(kMany), Advice::kKeep);
}

TEST(FreshPages, AClockThatStandsSaysNothing) {
  Process process;
  process.interval(kMany);
  EXPECT_EQ(process.pages.read(process.now), Advice::kNothing);
}

}  // namespace
}  // namespace ipexrun::preload
