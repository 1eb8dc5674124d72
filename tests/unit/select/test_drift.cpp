// Risk: what fifty roundings do together is not noticed, or what is harmless is never let through.
#include "preload/select/drift.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace ipexrun::preload {
namespace {

std::vector<std::uint64_t> lengths(PassFinder& finder, const std::vector<std::uint64_t>& marks, std::uint32_t epoch = 1,
                                   std::uint32_t span = 1) {
  std::vector<std::uint64_t> found;
  for (const std::uint64_t mark : marks) found.push_back(finder.call(mark, epoch, span));
  return found;
}

TEST(PassFinder, APassEndsWhereItsFirstWeightComesBack) {
  PassFinder finder;
  EXPECT_EQ(lengths(finder, {3, 4, 0, 5, 3, 4, 0, 5, 3}), (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 0, 0, 4}))
      << "one says nothing of the next";
}

TEST(PassFinder, SharedWeightsInsideAPassDoNotEndIt) {
  PassFinder finder;
  EXPECT_EQ(lengths(finder, {1, 7, 7, 7, 1, 7, 7, 7, 1}), (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 0, 0, 4}));
}

TEST(PassFinder, AFirstWeightMayComeSeveralTimesInAPass) {
  PassFinder finder;
  EXPECT_EQ(lengths(finder, {1, 2, 1, 3, 4, 1, 2, 1, 3, 4, 1}, 1, 2), (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5}));
}

TEST(PassFinder, ANetworkThatIsRunForthAndBackIsOnePass) {
  PassFinder finder;
  EXPECT_EQ(lengths(finder, {1, 2, 3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1}), (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 6, 6}));
}

TEST(PassFinder, ALowerNumberTakesOver) {
  PassFinder finder;
  EXPECT_EQ(lengths(finder, {5, 6, 2, 5, 6, 2, 5, 6, 2}), (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 0, 0, 3}));
}

TEST(PassFinder, StartsAnewWithAnotherEpoch) {
  PassFinder finder;
  lengths(finder, {1, 2, 3});
  EXPECT_EQ(lengths(finder, {1, 2, 1, 2, 1}, 2), (std::vector<std::uint64_t>{0, 0, 0, 0, 2}));
}

TEST(PassFinder, AWeightThatNeverComesBackIsForgotten) {
  PassFinder finder;
  finder.call(1, 1, 1);
  for (std::uint64_t i = 0; i <= kLongestPass; ++i) finder.call(0, 1, 1);
  EXPECT_EQ(lengths(finder, {8, 9, 8, 9, 8}), (std::vector<std::uint64_t>{0, 0, 0, 0, 2}));
}

TEST(PassFinder, APreferredMarkBeginsPassesWhateverItsNumberAndEpoch) {
  PassFinder finder;
  lengths(finder, {1, 2, 7, 8, 1});
  finder.prefer(7);
  EXPECT_EQ(lengths(finder, {2, 7, 8, 1, 2, 7, 8, 1, 2, 7}), (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 4}));
  EXPECT_EQ(lengths(finder, {1, 7, 1, 7, 1, 7}, 2), (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 2}));
}

TEST(PassFinder, APreferredMarkThatNeverComesBackIsForgotten) {
  PassFinder finder;
  finder.prefer(7);
  for (std::uint64_t i = 0; i <= kLongestPass + 1; ++i) finder.call(0, 1, 1);
  EXPECT_EQ(lengths(finder, {8, 9, 8, 9, 8}), (std::vector<std::uint64_t>{0, 0, 0, 0, 2}));
}

TEST(ThreadPasses, TwoThreadsThatDidTheSameAreAPass) {
  ThreadPasses passes;
  passes.ended(3, 20);
  EXPECT_EQ(passes.length(3), 0u) << "one says nothing of the next";
  passes.ended(3, 20);
  EXPECT_EQ(passes.length(3), 20u);
  EXPECT_EQ(passes.length(4), 0u) << "begins otherwise";
}

TEST(ThreadPasses, AnotherLengthOrBeginningStartsAnew) {
  ThreadPasses passes;
  passes.ended(3, 20);
  passes.ended(3, 21);
  EXPECT_EQ(passes.length(3), 0u);
  passes.ended(3, 21);
  EXPECT_EQ(passes.length(3), 21u);
}

TEST(ThreadPasses, ThreadsOfSeveralKindsTakeTurns) {
  ThreadPasses passes;
  for (int i = 0; i < 2; ++i) {
    passes.ended(3, 20);
    passes.ended(kAfterWeights + 7, 30);
  }
  EXPECT_EQ(passes.length(3), 20u);
  EXPECT_EQ(passes.length(kAfterWeights + 7), 30u);
  passes.ended(3 + 64, 20);
  EXPECT_EQ(passes.length(3), 0u) << "there is room for so many kinds";
  passes.forget(kAfterWeights + 7);
  passes.ended(kAfterWeights + 7, 30);
  EXPECT_EQ(passes.length(kAfterWeights + 7), 0u);
  passes.ended(kAfterWeights + 7, 30);
  EXPECT_EQ(passes.length(kAfterWeights + 7), 30u);
}

TEST(ThreadPasses, ThreadsWithoutAPassOrWithoutAnEndSayNothing) {
  ThreadPasses passes;
  passes.ended(3, 1);
  passes.ended(0, 5);
  passes.ended(3, 1);
  EXPECT_EQ(passes.length(3), 1u);
  passes.ended(3, kLongestPass);
  passes.ended(3, kLongestPass);
  EXPECT_EQ(passes.length(3), 1u);
  passes.ended(3, kLongestPass - 1);
  passes.ended(3, kLongestPass - 1);
  EXPECT_EQ(passes.length(3), kLongestPass - 1);
}

class Ledger : public testing::Test {
 protected:
  /// Counts the first `count` marks as waiting and lets a pass without news go by.
  void settle(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) ledger.wait(marks[i], 1);
    if (!ledger.begin(0, true, false)) {
      ASSERT_TRUE(ledger.begin(0, true, false));
    }
  }
  /// The marks [0, count) that may be used, as a pass makes them.
  std::vector<DriftUse> uses(std::size_t count) {
    std::vector<DriftUse> made;
    for (std::size_t i = 0; i < count; ++i) {
      if (ledger.may_be_tried(verdict(i))) made.push_back({&marks[i], nullptr});
    }
    return made;
  }
  /// Passes of `count` uses that are good without the first `culprits`; returns how many checks that took.
  int check_until_settled(std::size_t count, std::size_t culprits) {
    int checks = 0;
    do {
      const std::vector<DriftUse> made = uses(count);
      const bool good = made.empty() || made.front().mark >= &marks[culprits];
      ledger.finish(made, good ? 1e-3 : 0.5, 100);
      ++checks;
    } while (ledger.watching(0) && ledger.begin(0, true, false));
    return checks;
  }
  DriftVerdict verdict(std::size_t i) const { return marks[i].verdict; }

  DriftLedger ledger;
  std::array<DriftMark, 64> marks;
};

TEST_F(Ledger, NothingIsWatchedUntilSomethingWaits) {
  EXPECT_FALSE(ledger.watching(1'000'000'000));
  ledger.wait(marks[0], 1);
  EXPECT_TRUE(ledger.watching(0));
  ledger.wait(marks[0], 1);
  EXPECT_EQ(ledger.counts().waiting, 1u) << "a use waits once";
}

TEST_F(Ledger, AFewNewUsesWaitForAPassWithoutNews) {
  ledger.wait(marks[0], 1);
  EXPECT_FALSE(ledger.begin(0, true, false));
  ledger.wait(marks[1], 1);
  EXPECT_FALSE(ledger.begin(0, true, false));
  EXPECT_TRUE(ledger.begin(0, true, false));
}

TEST_F(Ledger, NobodyLooksForPassesUntilWaitingHasLostTheirPrice) {
  ledger.wait(marks[0], 10);
  const std::uint32_t epoch = ledger.finder_epoch();
  ASSERT_TRUE(ledger.watching(0));
  EXPECT_FALSE(ledger.begin(1000, true, false));
  EXPECT_FALSE(ledger.watching(0));
  EXPECT_NE(ledger.finder_epoch(), epoch) << "what is seen next is no continuation";
  ledger.wait(marks[0], 980);
  EXPECT_FALSE(ledger.watching(0));
  ledger.wait(marks[0], -500);  // by noise: no gain, no loss
  ledger.wait(marks[0], 10);
  EXPECT_TRUE(ledger.watching(0));
  EXPECT_FALSE(ledger.begin(1000, true, false)) << "one that is new waits for a pass without news";
  EXPECT_TRUE(ledger.watching(0));
  EXPECT_TRUE(ledger.begin(1000, true, false));
}

TEST_F(Ledger, ACheckThatBeginsIsWatched) {
  ledger.wait(marks[0], 10);
  EXPECT_FALSE(ledger.begin(1000, false, false));
  ledger.wait(marks[0], 1000);
  EXPECT_FALSE(ledger.begin(1000, false, false)) << "new";
  ASSERT_TRUE(ledger.begin(1000, false, false));
  EXPECT_TRUE(ledger.watching(0)) << "what was lost is counted from the begin on";
}

TEST_F(Ledger, PassesOfLongChecksAreLookedForAllTheTime) {
  ledger.wait(marks[0], 10);
  EXPECT_FALSE(ledger.begin(kShortCheckNs, false, false));
  EXPECT_TRUE(ledger.watching(0));
}

TEST_F(Ledger, WhatWaitsLongIsKeptUntilACheckEnds) {
  ledger.wait(marks[0], kLongWaitNs - 1);
  EXPECT_FALSE(ledger.keeps_some());
  ledger.wait(marks[0], 1);
  EXPECT_TRUE(ledger.waits_long());
  EXPECT_TRUE(ledger.keeps_some());
  EXPECT_FALSE(ledger.begin(0, true, false)) << "new";
  ASSERT_TRUE(ledger.begin(0, true, false));
  EXPECT_TRUE(ledger.keeps_some()) << "a check may come to no end";
  ledger.postpone(0);
  EXPECT_TRUE(ledger.keeps_some());
  ASSERT_TRUE(ledger.begin(0, true, false) || ledger.begin(0, true, false));
  ledger.finish(uses(1), 1e-3, 100);
  EXPECT_FALSE(ledger.keeps_some());
}

TEST_F(Ledger, ALongWaitIsOneOfSeveralTimesTheCheck) {
  ledger.wait(marks[0], 1);
  EXPECT_FALSE(ledger.begin(kLongWaitNs, false, false));
  ledger.wait(marks[0], 2 * kLongWaitNs);
  EXPECT_FALSE(ledger.waits_long());
  ledger.wait(marks[0], 2 * kLongWaitNs);
  EXPECT_TRUE(ledger.waits_long());
}

TEST_F(Ledger, ACheckEndsARest) {
  ledger.wait(marks[0], 10);
  EXPECT_FALSE(ledger.begin(1000, false, false));
  EXPECT_FALSE(ledger.watching(0));
  EXPECT_FALSE(ledger.begin(1000, false, true)) << "another thread's, pinned: new";
  EXPECT_TRUE(ledger.begin(1000, false, true));
  ledger.abort();
  EXPECT_TRUE(ledger.watching(0));
}

TEST_F(Ledger, ManyDoNot) {
  for (std::size_t i = 0; i < 8; ++i) ledger.wait(marks[i], 1);
  EXPECT_TRUE(ledger.begin(0, true, false));
}

TEST_F(Ledger, WhereResultsOfModulesMakeNoSenseNothingIsSearched) {
  settle(8);
  ledger.note_beyond_modules();
  ledger.finish(uses(8), 0.5, 100);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(verdict(i), DriftVerdict::kTooFar);
  EXPECT_TRUE(ledger.too_far_beyond_modules());
}

TEST_F(Ledger, OneCheckAtATime) {
  settle(2);
  EXPECT_FALSE(ledger.begin(0, true, false));
  ledger.abort();
  settle(2);
}

TEST_F(Ledger, AGoodPassLetsItsUsesThroughAndIsLookedAtAgainLater) {
  settle(3);
  ledger.finish(uses(3), kMaxDrift, 100);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(verdict(i), DriftVerdict::kFine);
  EXPECT_FALSE(ledger.watching(kLongestPass));
  EXPECT_TRUE(ledger.watching(kLongestPass * kRecheckFactor));
  EXPECT_EQ(ledger.counts().fine, 3u);
  EXPECT_EQ(ledger.counts().waiting, 0u);
}

/// Errors of samples of two numbers each, all of about this size.
SampleErrors of_pairs(std::uint64_t samples, double size) {
  static double next = 0;  // no two are the same
  SampleErrors errors;
  for (std::uint64_t i = 0; i < samples; ++i) errors.add(2, size - 1e-9 * next++);
  return errors;
}

TEST_F(Ledger, AGoodPassOfTooFewSamplesIsFollowedByOthers) {
  settle(8);
  ledger.finish(uses(8), of_pairs(40, 4e-3), 100);  // 2.5e-2 among a thousand
  EXPECT_EQ(verdict(0), DriftVerdict::kUnknown);
  ASSERT_TRUE(ledger.watching(0));
  ASSERT_TRUE(ledger.begin(0, true, false));
  ledger.finish(uses(8), of_pairs(2000, 1e-4), 100);
  EXPECT_EQ(verdict(0), DriftVerdict::kFine);
  EXPECT_FALSE(ledger.watching(kLongestPass));
}

TEST_F(Ledger, WhatFewSamplesNeverShowCountsAsTooFar) {
  settle(8);
  for (int look = 1; look < kMostLooks; ++look) {
    ledger.finish(uses(8), of_pairs(40, 5e-3), 100);
    EXPECT_EQ(verdict(0), DriftVerdict::kUnknown);
    ASSERT_TRUE(ledger.begin(0, true, false));
  }
  ledger.finish(uses(8), of_pairs(40, 5e-3), 100);
  EXPECT_EQ(verdict(0), DriftVerdict::kHeld);
}

TEST_F(Ledger, WhatWasProvedIsNotAskedForTheProofAgain) {
  settle(8);
  ledger.finish(uses(8), of_pairs(2000, 1e-4), 100);
  ASSERT_EQ(verdict(0), DriftVerdict::kFine);
  ASSERT_TRUE(ledger.begin(0, true, false));
  ledger.finish(uses(8), of_pairs(1, 1.5e-2), 100);
  EXPECT_EQ(verdict(0), DriftVerdict::kFine);
  EXPECT_FALSE(ledger.watching(kLongestPass));
}

TEST_F(Ledger, TheSameSamplesOnceMoreSayNothing) {
  const SampleErrors same = of_pairs(40, 4e-3);
  settle(8);
  ledger.finish(uses(8), same, 100);
  EXPECT_EQ(verdict(0), DriftVerdict::kUnknown);
  ASSERT_TRUE(ledger.begin(0, true, false));
  ledger.finish(uses(8), same, 100);
  EXPECT_EQ(verdict(0), DriftVerdict::kHeld);
}

TEST_F(Ledger, WhatNoFurtherSamplesCanShowIsNotLookedAtAgain) {
  settle(8);
  ledger.finish(uses(8), of_pairs(1, 1.5e-2), 100);  // 6e-2 at least, whatever 15 others are
  EXPECT_EQ(verdict(0), DriftVerdict::kHeld);
}

TEST_F(Ledger, WhereOneUseAloneWouldBeTooFarTheLastEighthIsAsked) {
  settle(40);
  ledger.finish(uses(40), 0.6, 100);  // 0.095 of each, 0.08 is 4 times the bound
  EXPECT_EQ(verdict(34), DriftVerdict::kHeld);
  EXPECT_EQ(verdict(35), DriftVerdict::kTried);
  ASSERT_TRUE(ledger.begin(0, true, false));
  ledger.finish(uses(40), 0.2, 100);
  EXPECT_EQ(verdict(39), DriftVerdict::kTooFar) << "one more check, and no search";
  EXPECT_EQ(ledger.counts().too_far, 40u);
}

TEST_F(Ledger, AChoiceAmongThemIsAsFarAsCanBe) {
  settle(40);
  ledger.finish(uses(40), std::numeric_limits<double>::infinity(), 100);
  EXPECT_EQ(verdict(34), DriftVerdict::kHeld);
  EXPECT_EQ(verdict(35), DriftVerdict::kTried);
}

TEST_F(Ledger, WhatTheSameErrorMayBeMadeOfByManyIsHalved) {
  settle(40);
  ledger.finish(uses(40), 0.4, 100);
  EXPECT_EQ(verdict(19), DriftVerdict::kHeld);
  EXPECT_EQ(verdict(20), DriftVerdict::kTried);
}

TEST_F(Ledger, TooFarHoldsTheFirstHalfAndChecksTheRestAtOnce) {
  settle(6);
  ledger.finish(uses(6), 0.05, 100);
  EXPECT_EQ(verdict(2), DriftVerdict::kHeld);
  EXPECT_EQ(verdict(3), DriftVerdict::kTried);
  EXPECT_TRUE(ledger.watching(0));
  EXPECT_TRUE(ledger.begin(0, true, false));
}

TEST_F(Ledger, WhatIsNewWaitsForTheEndOfASearch) {
  settle(6);
  ledger.finish(uses(6), 0.5, 100);
  EXPECT_FALSE(ledger.may_be_tried(verdict(9))) << "it would blur which of the six it was";
  ASSERT_TRUE(ledger.begin(0, true, false));
  check_until_settled(6, 2);
  EXPECT_TRUE(ledger.may_be_tried(verdict(9)));
}

TEST_F(Ledger, ACheckThatBeganAtTheWrongPlaceIsBegunAgainAtOnce) {
  settle(8);
  ledger.postpone(0);
  EXPECT_EQ(ledger.counts().aborted, 0u);
  EXPECT_TRUE(ledger.watching(0));
  ledger.wait(marks[0], 1);
  EXPECT_TRUE(ledger.begin(0, true, false));
}

class Search : public Ledger, public testing::WithParamInterface<std::size_t> {};

TEST(DriftLedger, long_passes_of_few_calls_are_judged_by_two_unless_they_hang_together) {
  EXPECT_EQ(calls_of_check(20, true), 20u);
  EXPECT_EQ(calls_of_check(20, false), 20u);
  EXPECT_EQ(calls_of_check(3, false), 48u);
  EXPECT_EQ(calls_of_check(5, false), 50u) << "whole passes";
  EXPECT_EQ(calls_of_check(3, true), 6u);
  EXPECT_EQ(calls_of_check(0, true), 2u);
  DriftLedger ledger;
  EXPECT_FALSE(ledger.hang_together());
  ledger.note_hang_together();
  EXPECT_TRUE(ledger.hang_together());
}

TEST(DriftLedger, what_was_let_through_is_looked_at_again_though_nobody_waits) {
  DriftLedger ledger;
  DriftMark mark;
  ledger.wait(mark, 100);
  static_cast<void>(ledger.begin(100, true, false));
  ASSERT_TRUE(ledger.begin(100, true, false));
  ledger.finish({{&mark, nullptr}}, 0, 1000);
  ASSERT_TRUE(ledger.watching(kLongestPass * kRecheckFactor));
  EXPECT_FALSE(ledger.begin(100, false, false)) << "not beyond the means of exploring";
  EXPECT_TRUE(ledger.begin(100, true, false));
}

TEST(DriftLedger, a_check_that_met_nothing_that_waits_saw_part_of_a_pass_and_the_next_one_is_dearer) {
  DriftLedger ledger;
  DriftMark met;
  DriftMark missed;
  ledger.wait(met, 100);
  ledger.wait(missed, 0);
  EXPECT_FALSE(ledger.begin(100, false, false)) << "a pass without news comes first";
  ASSERT_TRUE(ledger.begin(100, false, false));
  ledger.finish({{&met, nullptr}}, 0, 1);
  EXPECT_EQ(ledger.span(), 1u);
  const auto check_again = [&](std::int64_t lost_ns) {
    ledger.wait(missed, lost_ns);
    static_cast<void>(ledger.begin(100, false, false));
    return ledger.begin(100, false, false);
  };
  ASSERT_TRUE(check_again(100));
  ledger.finish({{&met, nullptr}}, 0, 1);
  EXPECT_EQ(ledger.span(), 2u);
  EXPECT_FALSE(check_again(199));
  ASSERT_TRUE(check_again(1));
  ledger.finish({{&met, nullptr}, {&missed, nullptr}}, 0, 1);
  EXPECT_EQ(ledger.span(), 2u) << "what was learned of the program stays";
  DriftMark next;
  ledger.wait(next, 100);
  EXPECT_FALSE(ledger.begin(100, false, false));
  EXPECT_TRUE(ledger.begin(100, false, false)) << "the price is the plain one again";
  ledger.abort();
  EXPECT_EQ(ledger.span(), 1u);
}

TEST(DriftLedger, a_check_waits_until_its_want_has_cost_as_much) {
  DriftLedger ledger;
  std::array<DriftMark, 8> marks;
  for (DriftMark& mark : marks) ledger.wait(mark, 10);
  EXPECT_FALSE(ledger.begin(100, true, false));
  ledger.wait(marks[0], 10);
  ledger.wait(marks[0], -50);
  EXPECT_FALSE(ledger.begin(100, true, false)) << "who would be slower loses nothing, and gives nothing back";
  ledger.wait(marks[1], 10);
  EXPECT_TRUE(ledger.begin(100, false, false)) << "what was earned needs no other means";
  EXPECT_EQ(ledger.unearned(150), 50);
  EXPECT_EQ(ledger.unearned(90), 0);
  ledger.postpone(60);
  EXPECT_FALSE(ledger.begin(100, false, false)) << "40 are left";
  EXPECT_TRUE(ledger.begin(40, false, false));
  ledger.abort();
  for (DriftMark& mark : marks) ledger.wait(mark, 10);
  EXPECT_TRUE(ledger.begin(1000, false, true)) << "what the user pinned does not wait";
}

TEST_P(Search, LeavesAsFewOfTheFirstOnesToStockAsSuffice) {
  const std::size_t culprits = GetParam();
  settle(40);
  EXPECT_LE(check_until_settled(40, culprits), 6);
  std::size_t left = 0;
  while (left < 40 && verdict(left) == DriftVerdict::kTooFar) ++left;
  EXPECT_GE(left, culprits);
  EXPECT_LE(left, culprits + 5) << "to an eighth of 40";
  for (std::size_t i = left; i < 40; ++i) EXPECT_EQ(verdict(i), DriftVerdict::kFine) << i;
}

INSTANTIATE_TEST_SUITE_P(Culprits, Search, testing::Values(1u, 5u, 16u, 31u, 40u));

TEST_F(Ledger, WhatPassedBeforeIsKept) {
  settle(4);
  ledger.finish(uses(4), 1e-3, 100);
  settle(8);
  ledger.finish(uses(8), 0.05, 100);
  EXPECT_EQ(verdict(0), DriftVerdict::kFine);
  EXPECT_EQ(verdict(5), DriftVerdict::kHeld);
  EXPECT_EQ(verdict(6), DriftVerdict::kTried);
}

TEST_F(Ledger, InputsThatChangedForTheWorseTakeBackWhatPassedBefore) {
  settle(4);
  ledger.finish(uses(4), 1e-3, 100);
  ASSERT_TRUE(ledger.begin(0, true, false));
  check_until_settled(4, 2);
  EXPECT_EQ(verdict(1), DriftVerdict::kTooFar);
  EXPECT_EQ(verdict(2), DriftVerdict::kFine);
  EXPECT_EQ(ledger.counts().fine, 2u);
  EXPECT_EQ(ledger.counts().too_far, 2u);
}

TEST_F(Ledger, NanCountsAsTooFar) {
  settle(1);
  ledger.finish(uses(1), std::numeric_limits<double>::quiet_NaN(), 0);
  EXPECT_EQ(verdict(0), DriftVerdict::kTooFar);
}

TEST_F(Ledger, AProgramInWhichNoCheckComesToAnEndIsLeftAlone) {
  for (int i = 0; i < kMaxAborts; ++i) {
    settle(2);
    ledger.abort();
  }
  ledger.wait(marks[0], 1);
  EXPECT_FALSE(ledger.watching(0));
  EXPECT_EQ(ledger.counts().aborted, static_cast<std::uint64_t>(kMaxAborts));
}

std::vector<double> errors_of(int passes, double (*error)(int)) {
  std::vector<double> all;
  for (int i = 1; i <= passes; ++i) all.push_back(error(i));
  return all;
}

TEST(Growth, OfAStateThatIsCarriedOnIsSeen) {
  EXPECT_TRUE(grows_from_pass_to_pass(errors_of(12, [](int pass) { return 1e-3 * pass; }))) << "weights that are rounded alike each time";
  EXPECT_TRUE(grows_from_pass_to_pass(errors_of(192, [](int pass) { return 1e-3 * std::sqrt(pass); }))) << "a random walk";
  EXPECT_TRUE(grows_from_pass_to_pass(errors_of(12, [](int pass) { return 1e-3 * std::pow(1.1, pass); })));
}

TEST(Growth, IsNoneWhereStateForgets) {
  EXPECT_FALSE(grows_from_pass_to_pass(errors_of(48, [](int pass) { return 5e-3 * (1 - std::pow(0.8, pass)); })));
  EXPECT_FALSE(grows_from_pass_to_pass(errors_of(48, [](int pass) { return pass % 2 == 0 ? 2e-3 : 3e-3; })));
  EXPECT_FALSE(grows_from_pass_to_pass(errors_of(48, [](int pass) { return 1e-6 * pass; }))) << "next to nothing";
  EXPECT_FALSE(grows_from_pass_to_pass(errors_of(3, [](int pass) { return 1e-2 * pass; }))) << "too few passes to say";
  EXPECT_FALSE(grows_from_pass_to_pass({}));
}

}  // namespace
}  // namespace ipexrun::preload
