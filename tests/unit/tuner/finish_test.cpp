// The final measurement: leaders in turn, fresh pairs, constraints and failures in them, and what is claimed.
#include <gmock/gmock.h>

#include "tests/unit/tuner/fakes.h"

namespace ipexrun::tuner {
namespace {

using namespace fakes;  // NOLINT(google-build-using-namespace): a study made up from its parts
using testing::HasSubstr;

/// rate and p99 that grow with n; n = 2 is the default.
Program rate_and_p99(double p99_of_n, double more_when_fresh = 0) {
  return [=](const std::map<std::string, std::string>& env, int call) {
    RunReport out = by_n(env, 0);
    const double n = number(env, "n", 2);
    out.output.texts[0] += "@hypertune {'name': 'p99'}\n" + std::to_string(p99_of_n * n + (call > 10 ? more_when_fresh : 0)) + "\n";
    return out;
  };
}

void with_limit(Settings& s, const char* limit) {
  s.objectives = {fakes::printed("rate", true)};
  s.has_objectives = true;
  s.constraints = {*parse_constraint(limit)};
}

TEST(Finish, ChoosesByTheRoundsAndClaimsFromFreshPairs) {
  const Folder folder;
  // In the search 8 looks best by chance; measured again, 9 is.
  Bench bench(
      folder, ten(),
      [](const std::map<std::string, std::string>& env, int call) {
        const double n = number(env, "n", 2);
        return prints("rate", true, call <= 10 && n == 8 ? 99 : 10 * n + 0.1 * (call % 3));
      },
      [](Settings& s) { s.claim_pairs = 5; });
  ASSERT_TRUE(bench.study->search().ok());
  const auto ended = bench.study->finish();
  ASSERT_TRUE(ended.ok());
  const History& history = bench.study->history();
  EXPECT_EQ(history.best, 9);
  EXPECT_THAT(history.verdict, AllOf(HasSubstr("4.5"), HasSubstr("95% interval"), HasSubstr("5 pairs of fresh runs")));
  std::vector<int> order;
  for (const Round& one : history.rounds)
    if (one.phase == "claim") order.push_back(one.trial);
  EXPECT_THAT(order, testing::ElementsAre(0, 9, 9, 0, 0, 9, 9, 0, 0, 9));
}

TEST(Finish, AnOldFileClaimsNoMoreThanTheInterval) {
  const Folder folder;
  // Ten times the rate in the search, by chance; half of the default's in fresh pairs.
  Bench bench(
      folder, ten(),
      [](const std::map<std::string, std::string>& env, int call) {
        const double n = number(env, "n", 2);
        return prints("rate", true, n == 2 ? 100 : call <= 10 ? 10 * 100 : 50);
      },
      [](Settings& s) { s.old_rule = true; });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().best, 0);
  EXPECT_THAT(bench.study->history().verdict, AllOf(HasSubstr("nothing was shown to be better"), HasSubstr("best.yaml is the default")));
}

TEST(Finish, WithoutFreshPairsASearchThatFoundNothingBetterEndsAtTheDefault) {
  const Folder folder;
  Bench bench(
      folder, ten(),
      [](const std::map<std::string, std::string>& env, int) { return prints("rate", true, number(env, "n", 2) == 2 ? 100 : 20); },
      [](Settings& s) { s.claim_pairs = 0; });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().best, 0);
  EXPECT_THAT(bench.study->history().verdict, HasSubstr("nothing was better than the default in rate in the search"));
}

TEST(Finish, NoiseIsNoWin) {
  const Folder folder;
  Bench bench(folder, ten(), [](const auto&, int call) { return prints("rate", true, 100 + (call * 37) % 11); });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().best, 0);
  EXPECT_THAT(bench.study->history().verdict, HasSubstr("nothing was shown to be better than the default"));
}

TEST(Finish, GoesOnAfterAStop) {
  const Folder folder;
  Bench bench(folder, ten(), by_n);
  ASSERT_TRUE(bench.study->search().ok());
  bench.runner.stop_at = 10 + 7;
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().verdict, "");
  const std::size_t rounds = bench.study->history().rounds.size();
  EXPECT_EQ(rounds, 6u);
  Bench again(folder, ten(), by_n);
  ASSERT_TRUE(again.study->search().ok());
  ASSERT_TRUE(again.study->finish().ok());
  EXPECT_EQ(again.runner.requests.size(), 4 * 3 + 2 * 6 - rounds);
  EXPECT_EQ(again.study->history().best, 9);
}

TEST(Finish, ABrokenDefaultIsSaid) {
  const Folder folder;
  Bench bench(folder, ten(), [](const std::map<std::string, std::string>& env, int) {
    return env.empty() ? fakes::fails(State::kCrashed, 139, "ended by SIGSEGV") : by_n(env, 0);
  });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().best, 9);
  EXPECT_THAT(bench.study->history().verdict, AllOf(HasSubstr("could not be measured"), HasSubstr("SIGSEGV")));
}

TEST(Finish, ASlowerTrialThatKeepsAConstraintBeatsADefaultThatDoesNot) {
  const Folder folder;
  Bench bench(folder, ten(), rate_and_p99(10), [](Settings& s) { with_limit(s, "p99 < 15"); });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().best, 1);  // half of the default's rate
  EXPECT_THAT(bench.study->history().verdict, AllOf(HasSubstr("trial 1 does what the default does not (p99 < 15"), HasSubstr("0.50x")));
}

TEST(Finish, AConstraintHasToHoldInFreshRunsToo) {
  const Folder folder;
  // In the search p99 is 3 n; measured again it is 1 more, so that 5 no longer does.
  Bench bench(folder, ten(), rate_and_p99(3, 1), [](Settings& s) {
    with_limit(s, "p99 <= 15");
    s.leader_rounds = 0;
  });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().best, 4);
  EXPECT_THAT(bench.study->history().verdict,
              AllOf(HasSubstr("beside the default: 2.0"), HasSubstr("trial 5: p99 <= 15 did not hold in fresh runs (16)")));
  const Folder other;
  Bench rounds(other, ten(), rate_and_p99(3, 1), [](Settings& s) { with_limit(s, "p99 <= 15"); });
  ASSERT_TRUE(rounds.study->search().ok());
  ASSERT_TRUE(rounds.study->finish().ok());
  EXPECT_EQ(rounds.study->history().best, 4);
}

TEST(Finish, NothingThatKeepsAConstraintIsNoBest) {
  const Folder folder;
  Bench bench(folder, ten(), rate_and_p99(10, 100), [](Settings& s) { with_limit(s, "p99 < 15"); });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().best, -1);
  EXPECT_THAT(bench.study->history().verdict, HasSubstr("neither does the default"));
}

TEST(Finish, WhatFailsNowAndThenIsNoBest) {
  const Folder folder;
  int calls_of_nine = 0;
  Bench bench(folder, ten(), [&](const std::map<std::string, std::string>& env, int) {
    if (number(env, "n") == 9 && ++calls_of_nine == 6) return fakes::fails(State::kCrashed, 139, "ended by SIGSEGV");
    return by_n(env, 0);
  });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().best, 8);
  EXPECT_THAT(bench.study->history().verdict, HasSubstr("trial 9: 1 of 6 fresh runs failed (ended by SIGSEGV)"));
}

TEST(Finish, FewPairsAreSaidToBeFew) {
  const Folder folder;
  Bench bench(folder, ten(), by_n, [](Settings& s) { s.claim_pairs = 1; });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_THAT(bench.study->history().verdict, HasSubstr("1 pair of fresh runs, too few to rule out chance"));
}

TEST(Finish, ValuesBelowZeroAreComparedByTheirDifference) {
  const auto with = [](double sign, double at_zero) {
    return [=](const std::map<std::string, std::string>& env, int) { return prints("score", true, sign * number(env, "n", at_zero)); };
  };
  const Folder worse;
  Bench below(worse, ten(), with(-1, 0.5));  // the default is best: -0.5 against -1 to -9
  ASSERT_TRUE(below.study->search().ok());
  ASSERT_TRUE(below.study->finish().ok());
  EXPECT_EQ(below.study->history().best, 0);
  EXPECT_THAT(below.study->history().verdict, HasSubstr("nothing was shown to be better"));
  const Folder better;
  Bench above(better, ten(), with(1, 0));
  ASSERT_TRUE(above.study->search().ok());
  ASSERT_TRUE(above.study->finish().ok());
  EXPECT_EQ(above.study->history().best, 9);
  EXPECT_THAT(above.study->history().verdict, HasSubstr("9 instead of 0, better by 9, 95% interval 9 to 9 (6 pairs"));
}

TEST(Finish, FreshRunsAreNotGivenUp) {
  const Folder folder;
  Bench bench(
      folder, ten(),
      [](const std::map<std::string, std::string>& env, int) {
        RunReport out;
        out.output.bench = {{"wall_s", 10 / number(env, "n", 2)}};
        return out;
      },
      [](Settings& s) {
        s.objectives = {*parse_objective("wall")};
        s.has_objectives = true;
      });
  ASSERT_TRUE(bench.study->search().ok());
  EXPECT_GT(bench.runner.requests.back().give_up_after_s, 0);
  const std::size_t searched = bench.runner.requests.size();
  ASSERT_TRUE(bench.study->finish().ok());
  ASSERT_GT(bench.runner.requests.size(), searched);
  for (std::size_t i = searched; i < bench.runner.requests.size(); ++i) EXPECT_EQ(bench.runner.requests[i].give_up_after_s, 0);
}

}  // namespace
}  // namespace ipexrun::tuner
