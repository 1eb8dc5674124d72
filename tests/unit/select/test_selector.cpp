// Risk: the user gets an unchecked or slower result, exploring never ends, or a loss is never noticed.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/select/fakes.h"

namespace ipexrun::preload {
namespace {

using testing::FakeClock;
using testing::FakeTrial;

struct Fixture : ::testing::Test {
  FakeClock clock;
  Selector selector{clock, SelectorOptions{}, nullptr};
  Site site;
  FakeTrial trial{clock};

  Fixture() { site.candidates = {1, 2}; }

  void calls(int n) {
    for (int i = 0; i < n; ++i) selector.call(site, trial);
  }
};

using SelectorTest = Fixture;

TEST_F(SelectorTest, the_fastest_accurate_candidate_wins_and_is_used) {
  trial.cost = [](int c) { return c == kStock ? 1000 : c == 1 ? 700 : 400; };
  calls(40);
  EXPECT_EQ(site.state.load(), SiteState::kDecided);
  EXPECT_EQ(site.choice.load(), 2);
  EXPECT_STREQ(site.reason.load(), "faster");
  EXPECT_EQ(site.stock_ns.load(), 1000);
  EXPECT_EQ(site.choice_ns.load(), 400);
  const int before = trial.stock_runs;
  EXPECT_EQ(selector.call(site, trial), 2);
  EXPECT_EQ(trial.taken, 2);
  EXPECT_EQ(trial.stock_runs, before);
}

TEST_F(SelectorTest, a_winner_that_cannot_answer_rests_longer_each_time_and_comes_back) {
  trial.cost = [](int c) { return c == kStock ? 1000 : c == 1 ? 700 : 400; };
  calls(40);
  trial.works = [](int) { return false; };
  int tried = trial.runs[2];
  calls(2000);
  EXPECT_LT(trial.runs[2] - tried, 20);
  EXPECT_EQ(trial.taken, kStock);
  trial.works = [](int) { return true; };
  calls(1100);
  tried = trial.runs[2];
  calls(100);
  EXPECT_EQ(trial.runs[2] - tried, 100);
  EXPECT_EQ(trial.taken, 2);
}

TEST_F(SelectorTest, the_user_gets_stock_while_exploring) {
  trial.cost = [](int c) { return c == kStock ? 1000 : 100; };
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(selector.call(site, trial), kStock);
    EXPECT_EQ(trial.taken, kStock);
  }
  EXPECT_EQ(trial.stock_runs, 5);
  EXPECT_GT(selector.explorations(), 0u);
}

TEST_F(SelectorTest, time_less_what_was_tried_beside_is_that_of_the_answers_to_come) {
  site.candidates = {1, 2, 3};
  trial.cost = [](int c) { return c == kStock ? 1000 : c == 1 ? 300 : c == 2 ? 250 : 400; };
  std::int64_t before = clock.now_ns() - selector.beside_ns();
  for (int i = 0; i < 200; ++i) {
    const int pairs = site.race.pairs();
    const bool stock_answered = site.best == kStock;
    const std::int64_t answer_ns = trial.cost(selector.call(site, trial));
    const std::int64_t now = clock.now_ns() - selector.beside_ns();
    if (stock_answered && pairs > 0) {
      EXPECT_EQ(now - before, site.best == kStock ? 300 : 1000) << "call " << i << ": the first candidate is going to win";
    } else {
      EXPECT_LE(now - before, answer_ns) << "call " << i;
      EXPECT_GE(now - before, 250) << "call " << i;
    }
    before = now;
  }
  ASSERT_EQ(site.choice.load(), 2);
  const std::int64_t beside_ns = selector.beside_ns();
  EXPECT_EQ(selector.call(site, trial), 2);
  EXPECT_EQ(selector.beside_ns(), beside_ns);
  trial.verified = {};  // another weight: checked beside stock
  EXPECT_EQ(selector.call(site, trial), kStock);
  EXPECT_EQ(selector.beside_ns() - beside_ns, trial.cost(2));
}

TEST_F(SelectorTest, the_time_of_what_a_candidate_answered_counts_for_the_thread) {
  trial.cost = [](int c) { return c == kStock ? 1000 : 300; };
  std::int64_t before = Selector::answered_here_ns();
  while (site.state.load() == SiteState::kExploring) {
    const std::int64_t best = site.best == kStock ? 0 : 300;
    selector.call(site, trial);
    EXPECT_LE(Selector::answered_here_ns() - before, best) << "stock's time is not counted";
    before = Selector::answered_here_ns();
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(selector.call(site, trial), site.choice.load());
  EXPECT_EQ(Selector::answered_here_ns() - before, 100 * 300);
  std::thread([&] { EXPECT_EQ(Selector::answered_here_ns(), 0); }).join();
}

TEST_F(SelectorTest, the_best_one_so_far_answers_while_the_others_race) {
  site.candidates = {1, 2, 3};
  trial.cost = [](int c) { return c == kStock ? 1000 : c == 1 ? 300 : c == 2 ? 250 : 400; };
  while (site.best == kStock) calls(1);
  ASSERT_EQ(site.state.load(), SiteState::kExploring);
  const int stock_runs = trial.stock_runs;
  EXPECT_EQ(selector.call(site, trial), kStock) << "the next candidate is checked beside stock";
  for (int i = 0; i < 6; ++i) {
    const int best = site.best;
    EXPECT_EQ(selector.call(site, trial), best);
    EXPECT_EQ(trial.taken, best);
  }
  EXPECT_EQ(trial.stock_runs, stock_runs + 1);
  EXPECT_GT(selector.saved_ns(), 0);
  calls(60);
  EXPECT_EQ(site.state.load(), SiteState::kDecided);
  EXPECT_EQ(site.choice.load(), 2);
}

TEST_F(SelectorTest, a_winner_that_may_not_answer_yet_leaves_the_answer_to_stock) {
  trial.cost = [](int c) { return c == kStock ? 1000 : c == 1 ? 300 : 250; };
  trial.waits = true;
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(selector.call(site, trial), kStock);
    EXPECT_EQ(trial.taken, kStock);
  }
  EXPECT_EQ(site.state.load(), SiteState::kDecided);
  trial.waits = false;
  EXPECT_EQ(selector.call(site, trial), 2);
}

TEST_F(SelectorTest, a_better_winner_is_looked_for_out_of_what_is_saved) {
  trial.cost = [](int c) { return c == kStock ? 40'000'000 : c == 1 ? 20'000'000 : 10'000'000; };
  while (site.best == kStock) calls(1);
  ASSERT_GT(selector.explored_ns(), kStartBudgetOfWinnersNs);
  const std::uint64_t before = selector.explorations();
  calls(3);
  EXPECT_EQ(selector.explorations(), before);
  EXPECT_EQ(trial.taken, 1);
  calls(60);
  EXPECT_EQ(site.choice.load(), 2);
}

// What a loser made for the race takes the room that the next one needs.
TEST_F(SelectorTest, what_a_loser_had_is_needed_no_more_when_the_next_race_begins) {
  static std::vector<std::uint32_t> needed;
  needed.clear();
  Selector tells{clock, SelectorOptions{}, nullptr, [](Site& over) { needed.push_back(needed_candidates(over)); }};
  site.candidates = {1, 2, 3, 4};
  trial.cost = [](int c) { return c == 2 ? 400 : 1000 + c; };  // 1 loses, 2 wins, 3 and 4 lose
  EXPECT_EQ(needed_candidates(site), 0b11111u);
  for (int i = 0; i < 200; ++i) tells.call(site, trial);
  EXPECT_EQ(needed, (std::vector<std::uint32_t>{0b11101, 0b11100, 0b10100}));
  ASSERT_EQ(site.state.load(), SiteState::kDecided);
  EXPECT_EQ(needed_candidates(site), 0b100u);
}

TEST_F(SelectorTest, slower_candidates_leave_stock) {
  trial.cost = [](int c) { return c == kStock ? 1000 : 1010; };
  calls(100);
  EXPECT_EQ(site.state.load(), SiteState::kDecided);
  EXPECT_EQ(site.choice.load(), kStock);
  EXPECT_STREQ(site.reason.load(), "slower");
}

/// Stock takes now 1000, now 10000, the candidate 1050 whoever runs beside it: stock looks faster in most pairs.
std::int64_t disturbed_cost(int candidate, int* n) { return candidate != kStock ? 1050 : ++*n % 4 == 0 ? 10000 : 1000; }

TEST_F(SelectorTest, calls_that_stock_keeps_need_no_trial_but_where_they_are_timed) {
  EXPECT_FALSE(selector.leaves_to_stock(site)) << "nothing is known yet";
  trial.cost = [](int c) { return c == kStock ? 1000 : 2000; };
  while (site.state.load() == SiteState::kExploring) calls(1);
  ASSERT_EQ(site.choice.load(), kStock);
  const std::uint64_t counted = site.calls.load();
  int timed = 0;
  for (std::uint64_t i = 0; i < 4 * kSampleEvery; ++i) {
    if (selector.leaves_to_stock(site)) continue;
    ++timed;
    calls(1);
  }
  EXPECT_EQ(timed, 4);
  EXPECT_EQ(site.calls.load(), counted + 4 * kSampleEvery);
  Site won;
  won.candidates = {1};
  trial.cost = [](int c) { return c == kStock ? 1000 : 100; };
  while (won.choice.load() == kStock) selector.call(won, trial);
  EXPECT_FALSE(selector.leaves_to_stock(won));
  site.rematch_at = counted + 1000;
  EXPECT_FALSE(selector.leaves_to_stock(site)) << "call() asks whether it is time";
}

TEST_F(SelectorTest, a_loss_on_a_busy_machine_is_put_to_the_test_again) {
  site.candidates = {1};
  int n = 0;
  trial.cost = [&](int c) { return disturbed_cost(c, &n); };
  calls(60);
  ASSERT_EQ(site.state.load(), SiteState::kDecided);
  ASSERT_EQ(site.choice.load(), kStock);
  EXPECT_NE(site.rematch_at.load(), 0u);
  trial.cost = [](int c) { return c == kStock ? 1000 : 400; };
  calls(static_cast<int>(kRematchAfterCalls) + 40);
  EXPECT_EQ(site.choice.load(), 1);
  EXPECT_EQ(site.rematch_at.load(), 0u);
}

TEST_F(SelectorTest, a_machine_that_stays_busy_ends_the_rematches) {
  site.candidates = {1};
  int n = 0;
  trial.cost = [&](int c) { return disturbed_cost(c, &n); };
  calls(20'000);
  EXPECT_EQ(site.rematches, kMaxRematches);
  EXPECT_EQ(site.rematch_at.load(), 0u);
  EXPECT_EQ(site.state.load(), SiteState::kDecided);
  const auto explored = selector.explorations();
  calls(5'000);
  EXPECT_EQ(selector.explorations(), explored);
}

TEST_F(SelectorTest, a_loss_on_a_quiet_machine_stands) {
  trial.cost = [](int c) { return c == kStock ? 1000 : 1010; };
  calls(100);
  EXPECT_EQ(site.rematch_at.load(), 0u);
}

TEST_F(SelectorTest, an_inaccurate_candidate_is_never_used_however_fast) {
  trial.cost = [](int c) { return c == kStock ? 1000 : 1; };
  trial.accurate = [](int) { return false; };
  calls(100);
  EXPECT_EQ(site.choice.load(), kStock);
  EXPECT_STREQ(site.reason.load(), "inaccurate");
  EXPECT_EQ(trial.runs[1], 1);
}

TEST_F(SelectorTest, a_candidate_that_fails_is_dropped) {
  trial.works = [](int) { return false; };
  calls(20);
  EXPECT_EQ(site.choice.load(), kStock);
  EXPECT_STREQ(site.reason.load(), "unsupported");
}

TEST_F(SelectorTest, a_new_weight_at_a_decided_site_is_checked_before_its_result_is_used) {
  trial.cost = [](int c) { return c == kStock ? 1000 : 100; };
  calls(40);
  ASSERT_NE(site.choice.load(), kStock);
  trial.verified = {};
  EXPECT_EQ(selector.call(site, trial), kStock);
  EXPECT_NE(selector.call(site, trial), kStock);
}

/// Calls of a remembered winner that take more than half of what exploring may cost at the begin: the warm start was stock's for good.
TEST_F(SelectorTest, a_known_winner_of_long_calls_is_checked_and_used) {
  for (int other = 0; other < 2; ++other) {  // the second one finds the budget used up
    Site known;
    known.candidates = {1};
    settle(known, 1, Decision{.site = {}, .choice = "own", .stock_ns = 200'000'000, .choice_ns = 150'000'000, .reason = ""}, false);
    trial.cost = [](int c) { return c == kStock ? 200'000'000 : 150'000'000; };
    trial.verified = {};
    int waited = 0;
    while (selector.call(known, trial) == kStock && waited < 100) ++waited;
    EXPECT_LE(waited, other == 0 ? 1 : 12);
  }
}

/// It won in an earlier process beside a stock that was held back: it takes as long as it did, so that nothing of its own is suspicious.
TEST_F(SelectorTest, a_remembered_winner_is_held_against_stock_once) {
  static int decisions;
  decisions = 0;
  for (const double share : {0.8, 1.1}) {
    Selector own(clock, SelectorOptions{}, [](Site&) { ++decisions; });
    Site known;
    known.candidates = {1};
    settle(known, 1,
           Decision{.site = {}, .choice = "own", .stock_ns = 3'000'000, .choice_ns = static_cast<std::int64_t>(share * 1e6), .reason = ""},
           false);
    trial.cost = [share](int c) { return c == kStock ? 1'000'000 : static_cast<std::int64_t>(share * 1e6); };
    for (int i = 0; i < 600; ++i) own.call(known, trial);
    EXPECT_EQ(known.choice.load(), share < 1 ? 1 : kStock);
    EXPECT_STREQ(known.reason.load(), share < 1 ? "faster" : "rolled back");
    EXPECT_EQ(known.stock_ns.load(), 1'000'000) << "what a report says it saves is of this process";
    const auto explorations = own.explorations();
    for (int i = 0; i < 2000; ++i) own.call(known, trial);
    EXPECT_EQ(own.explorations(), explorations);
  }
  EXPECT_EQ(decisions, 2) << "the next process is told";
}

TEST_F(SelectorTest, weights_that_wait_leave_time_to_explore_with) {
  Site known;
  known.candidates = {1};
  settle(known, 1, Decision{.site = {}, .choice = "own", .stock_ns = 1'000'000, .choice_ns = 500'000, .reason = ""}, false);
  trial.cost = [](int) { return 1'000'000; };
  trial.readiness = Readiness::kNotNow;
  for (int i = 0; i < 100; ++i) selector.call(known, trial);
  EXPECT_NEAR(static_cast<double>(selector.tier_ns()), 1e8, 5e6);
}

TEST_F(SelectorTest, exploring_stops_at_the_budget_and_goes_on_as_the_program_runs) {
  trial.cost = [](int c) { return c == kStock ? 200'000'000 : 100'000'000; };
  calls(10);
  EXPECT_LE(selector.explored_ns(), std::max(kStartBudgetNs, selector.tier_ns() / kBudgetShare) + 400'000'000);
  EXPECT_EQ(site.state.load(), SiteState::kExploring);
  calls(200);
  EXPECT_EQ(site.state.load(), SiteState::kDecided);
  EXPECT_NE(site.choice.load(), kStock);
}

TEST_F(SelectorTest, time_in_which_the_thread_stood_still_spends_no_budget) {
  int calls_until_decided[2] = {};
  for (const bool throttled : {false, true}) {
    FakeClock own_clock;
    Selector own(own_clock, SelectorOptions{}, nullptr);
    FakeTrial own_trial(own_clock);
    own_trial.cost = [&](int c) {
      if (throttled) own_clock.stand_still(90'000'000);
      return c == kStock ? 10'000'000 : 8'000'000;
    };
    Site own_site;
    own_site.candidates = {1};
    int& n = calls_until_decided[throttled];
    for (; n < 500 && own_site.state.load() == SiteState::kExploring; ++n) own.call(own_site, own_trial);
    EXPECT_LT(own.explored_ns(), kStartBudgetNs) << "throttled " << throttled;
  }
  EXPECT_LT(calls_until_decided[true], 30);
}

/// Somebody else has the core for 4 ms after each 3 ms of ours.
TEST_F(SelectorTest, what_others_take_of_the_core_decides_nothing_about_calls_of_one_thread) {
  for (const double share : {0.85, 1.02}) {
    Selector own(clock, SelectorOptions{}, nullptr);
    Site one;
    one.candidates = {1};
    one.id.threads = 1;
    std::int64_t left_ns = 2'000'000;
    FakeTrial own_trial(clock);
    own_trial.cost = [&](int c) -> std::int64_t {
      std::int64_t ns = c == kStock ? 900'000 : static_cast<std::int64_t>(share * 900'000);
      for (; ns > left_ns; left_ns = 3'000'000) {
        clock.advance(left_ns);
        ns -= left_ns;
        clock.stand_still(4'000'000);
      }
      left_ns -= ns;
      return ns;
    };
    for (int i = 0; i < 2000; ++i) own.call(one, own_trial);
    EXPECT_EQ(one.state.load(), SiteState::kDecided);
    EXPECT_EQ(one.choice.load(), share < 1 ? 1 : kStock);
    if (share < 1) {
      EXPECT_NEAR(static_cast<double>(one.choice_ns.load()) / static_cast<double>(one.stock_ns.load()), share, 0.01);
      EXPECT_LT(own.explorations(), 12u) << "calls that are sampled are not suspicious for it either";
    }
  }
}

TEST_F(SelectorTest, what_a_choice_saved_pays_for_exploring_the_next_site) {
  trial.cost = [](int c) { return c == kStock ? 100'000'000 : c == 1 ? 60'000'000 : 58'000'000; };
  calls(60);
  ASSERT_NE(site.choice.load(), kStock);
  EXPECT_GT(selector.saved_ns(), 1'000'000'000);
  Site second;
  second.candidates = {1, 2};
  const std::int64_t without_savings = std::max(kStartBudgetNs, selector.tier_ns() / kBudgetShare);
  for (int i = 0; i < 40; ++i) selector.call(second, trial);
  EXPECT_EQ(second.state.load(), SiteState::kDecided);
  EXPECT_GT(selector.explored_ns(), without_savings);
}

TEST_F(SelectorTest, a_rival_that_can_run_no_more_does_not_keep_a_race_open) {
  trial.cost = [](int c) { return c == kStock ? 1000 : c == 1 ? 300 : 200; };
  while (site.best == kStock) calls(1);
  trial.works = [](int c) { return c != 1; };  // its pack found no room any more
  calls(60);
  EXPECT_EQ(site.state.load(), SiteState::kDecided);
  EXPECT_EQ(site.choice.load(), 1) << "what could not be compared does not replace what won";
}

TEST_F(SelectorTest, a_needless_candidate_is_not_raced_after_a_clear_win) {
  site.needless_after_clear_win = 1u << 2;
  trial.cost = [](int c) { return c == kStock ? 1000 : c == 1 ? 300 : 100; };
  calls(40);
  EXPECT_EQ(site.choice.load(), 1);
  EXPECT_EQ(trial.runs[2], 0);
}

TEST_F(SelectorTest, a_needless_candidate_is_raced_when_nothing_won_clearly) {
  site.needless_after_clear_win = 1u << 2;
  trial.cost = [](int c) { return c == kStock ? 1000 : c == 1 ? 800 : 500; };
  calls(60);
  EXPECT_EQ(site.choice.load(), 2);
}

TEST_F(SelectorTest, a_choice_that_became_slower_than_stock_is_rolled_back) {
  int slow = 100;
  trial.cost = [&](int c) { return c == kStock ? 1000 : slow; };
  calls(60);
  ASSERT_NE(site.choice.load(), kStock);
  slow = 3000;
  calls(static_cast<int>(kSampleEvery * (kRecentSamples + 2)) + 20);
  EXPECT_EQ(site.choice.load(), kStock);
  EXPECT_STREQ(site.reason.load(), "rolled back");
}

TEST_F(SelectorTest, a_machine_that_became_slower_as_a_whole_changes_nothing) {
  int factor = 1;
  trial.cost = [&](int c) { return (c == kStock ? 1000 : 500) * factor; };
  calls(60);
  const int chosen = site.choice.load();
  ASSERT_NE(chosen, kStock);
  factor = 4;
  calls(2000);
  EXPECT_EQ(site.choice.load(), chosen);
  EXPECT_EQ(site.stock_ns.load(), 4000);
}

TEST_F(SelectorTest, nothing_is_measured_with_selection_off_or_in_a_forked_child) {
  Selector off(clock, SelectorOptions{.timing = false}, nullptr);
  trial.cost = [](int c) { return c == kStock ? 1000 : 10; };
  for (int i = 0; i < 50; ++i) off.call(site, trial);
  EXPECT_EQ(trial.runs[1] + trial.runs[2], 0);
  selector.stop_exploring();
  calls(50);
  EXPECT_EQ(trial.runs[1] + trial.runs[2], 0);
}

TEST_F(SelectorTest, asked_for_bfloat16_a_slower_candidate_is_used_if_accurate) {
  site.must_beat_stock = false;
  trial.cost = [](int c) { return c == kStock ? 1000 : 1200; };
  calls(50);
  EXPECT_EQ(site.choice.load(), 1);
  EXPECT_STREQ(site.reason.load(), "pinned");
}

TEST_F(SelectorTest, a_forced_candidate_answers_at_once_after_its_check) {
  EXPECT_EQ(selector.call_forced(site, trial, 2), 2);
  EXPECT_EQ(selector.call_forced(site, trial, 2), 2);
  EXPECT_EQ(trial.stock_runs, 1);
  trial.verified = {};
  trial.accurate = [](int) { return false; };
  EXPECT_EQ(selector.call_forced(site, trial, 1), kStock);
}

TEST_F(SelectorTest, a_weight_that_is_not_known_yet_costs_no_exploration) {
  trial.weight_id = kUnknownWeight;
  calls(20);
  EXPECT_EQ(selector.explorations(), 0u);
}

TEST_F(SelectorTest, weights_that_never_come_again_are_looked_up_now_and_then) {
  trial.weight_id = kUnknownWeight;
  int looked_at = 0;
  const auto pass = [&](int count) {
    looked_at = 0;
    for (int i = 0; i < count; ++i) {
      if (selector.leaves_to_stock(site)) continue;
      ++looked_at;
      calls(1);
    }
  };
  pass(kStrangersInARow);
  EXPECT_EQ(looked_at, kStrangersInARow) << "a weight has to be met a few times before it is known";
  pass(1600);
  EXPECT_GT(looked_at, 50);
  EXPECT_LT(looked_at, 200);
  trial.weight_id = 7;  // from now on the same one
  trial.cost = [](int c) { return c == kStock ? 1000 : 100; };
  pass(400);
  EXPECT_NE(site.choice.load(), kStock);
  EXPECT_EQ(site.left_out.load(), 0u);
}

TEST_F(SelectorTest, stocks_exception_reaches_the_caller_and_the_next_call_explores_again) {
  calls(2);
  trial.cost = [](int c) -> std::int64_t { return c == kStock ? throw std::runtime_error("user's") : 10; };
  EXPECT_THROW(selector.call(site, trial), std::runtime_error);
  trial.cost = [](int c) { return c == kStock ? 1000 : 100; };
  calls(40);
  EXPECT_EQ(site.state.load(), SiteState::kDecided);
}

TEST_F(SelectorTest, threads_share_a_site) {
  trial.cost = [](int c) { return c == kStock ? 1000 : 300; };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      FakeTrial own(clock);
      own.cost = trial.cost;
      for (int i = 0; i < 300; ++i) selector.call(site, own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(site.calls.load(), 1200u);
  EXPECT_EQ(site.state.load(), SiteState::kDecided);
}

Decision earlier(const char* choice) { return Decision{{}, choice, 1000, 400, 6, "faster", "auto", 0}; }

TEST_F(SelectorTest, a_remembered_choice_is_used_once_its_numbers_were_checked_here) {
  settle(site, 2, earlier("second"), false);
  trial.cost = [](int c) { return c == kStock ? 1000 : 400; };
  EXPECT_EQ(selector.call(site, trial), kStock);  // the first call checks
  EXPECT_EQ(selector.call(site, trial), 2);
  EXPECT_EQ(trial.stock_runs, 1);
  EXPECT_EQ(trial.runs[1], 0);
}

TEST_F(SelectorTest, a_remembered_choice_that_is_inaccurate_here_is_never_returned) {
  settle(site, 2, earlier("second"), false);
  trial.accurate = [](int) { return false; };
  for (int i = 0; i < 50; ++i) {
    selector.call(site, trial);
    ASSERT_EQ(trial.taken, kStock);
  }
}

TEST_F(SelectorTest, a_remembered_choice_that_lost_its_speed_is_rolled_back) {
  settle(site, 2, earlier("second"), false);
  trial.cost = [](int c) { return c == kStock ? 1000 : 2000; };
  calls(1000);
  EXPECT_EQ(site.choice.load(), kStock);
  EXPECT_STREQ(site.reason.load(), "rolled back");
}

TEST_F(SelectorTest, no_timing_changes_a_pinned_choice) {
  settle(site, 2, earlier("second"), true);
  trial.cost = [](int c) { return c == kStock ? 1000 : 2000; };
  calls(1000);
  EXPECT_EQ(site.choice.load(), 2);
  EXPECT_STREQ(site.reason.load(), "pinned");
  EXPECT_EQ(trial.taken, 2);
}

TEST_F(SelectorTest, a_remembered_stock_is_not_measured) {
  settle(site, kStock, earlier("stock"), false);
  calls(100);
  EXPECT_EQ(selector.explorations(), 0u);
  EXPECT_EQ(trial.runs[1] + trial.runs[2], 0);
}

}  // namespace
}  // namespace ipexrun::preload
