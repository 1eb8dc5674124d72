// Risk: noise crowns a candidate that is no faster, or a clear winner needs long to be seen.
#include <gtest/gtest.h>

#include <random>

#include "preload/select/race.h"

namespace ipexrun::preload {
namespace {

TEST(Race, a_steady_winner_is_known_after_six_pairs) {
  Race race;
  for (int i = 0; i < 5; ++i) race.add(1000, 800);
  EXPECT_EQ(race.result(), RaceResult::kUndecided);
  race.add(1000, 800);
  EXPECT_EQ(race.result(), RaceResult::kWon);
  EXPECT_EQ(race.challenger_ns(), 800);
}

TEST(Race, a_clear_winner_is_known_after_three_pairs) {
  Race race;
  for (int i = 0; i < 2; ++i) race.add(1000, 500);
  EXPECT_EQ(race.result(), RaceResult::kUndecided);
  race.add(1000, 500);
  EXPECT_EQ(race.result(), RaceResult::kWon);
}

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(Race, long_calls_are_won_after_two_pairs_where_the_winner_is_plain) {
  Race race;
  race.add(kSecond, kSecond / 4);
  EXPECT_EQ(race.result(), RaceResult::kUndecided);
  race.add(kSecond, kSecond / 3);
  EXPECT_EQ(race.result(), RaceResult::kWon);
}

TEST(Race, two_pairs_decide_nothing_of_short_calls_nor_of_gains_that_a_busy_machine_could_feign) {
  Race shorter;
  Race less;
  Race one_of_them;
  Race doubted;
  doubted.doubt();
  for (int i = 0; i < 2; ++i) {
    shorter.add(kSecond / 20, kSecond / 200);
    less.add(kSecond, kSecond / 2);
    one_of_them.add(kSecond, i == 0 ? kSecond / 4 : kSecond / 2);
    doubted.add(kSecond, kSecond / 4);
  }
  for (const Race* race : {&shorter, &less, &one_of_them, &doubted}) EXPECT_EQ(race->result(), RaceResult::kUndecided);
}

TEST(Race, one_doubtful_pair_of_three_is_no_clear_win) {
  Race race;
  race.add(1000, 300);
  race.add(1000, 900);
  race.add(1000, 300);
  EXPECT_EQ(race.result(), RaceResult::kUndecided);
}

TEST(Race, a_hopeless_challenger_is_dropped_after_three_pairs) {
  Race race;
  race.add(1000, 1500);
  race.add(1000, 1400);
  EXPECT_EQ(race.result(), RaceResult::kUndecided);
  race.add(1000, 1600);
  EXPECT_EQ(race.result(), RaceResult::kLost);
}

/// Each pair of such calls takes as much of the program's time as thousands of others.
TEST(Race, slow_calls_that_gain_nothing_have_few_pairs) {
  const auto pairs_until_lost = [](double ratio, std::int64_t rival_ns) {
    Race race;
    while (race.result() == RaceResult::kUndecided) race.add(rival_ns, static_cast<std::int64_t>(ratio * static_cast<double>(rival_ns)));
    EXPECT_EQ(race.result(), RaceResult::kLost);
    return race.pairs();
  };
  EXPECT_EQ(pairs_until_lost(1.15, 50'000'000), kSlowPairs);
  EXPECT_EQ(pairs_until_lost(1.05, 50'000'000), kSlowMinPairs);
  EXPECT_EQ(pairs_until_lost(0.97, 50'000'000), kSlowMaxPairs);
  EXPECT_EQ(pairs_until_lost(1.15, 50'000), kMinPairs);
  EXPECT_EQ(pairs_until_lost(0.97, 50'000), kMaxPairs);
}

TEST(Race, one_outlier_does_not_save_or_sink_anybody) {
  Race race;
  for (int i = 0; i < 9; ++i) race.add(1000, i == 3 ? 9000 : 600);
  EXPECT_EQ(race.result(), RaceResult::kWon);
}

/// Who comes second finds its memory taken and waits for 6000 more.
RaceResult race_of_large_results(int stock, int challenger) {
  Race race;
  for (int i = 0; race.result() == RaceResult::kUndecided; ++i) race.add(stock + (i % 2) * 6000, challenger + (1 - i % 2) * 6000);
  return race.result();
}

TEST(Race, who_comes_second_may_lose_for_that_alone) {
  EXPECT_EQ(race_of_large_results(8000, 2000), RaceResult::kWon);
  EXPECT_EQ(race_of_large_results(2000, 8000), RaceResult::kLost);
  EXPECT_EQ(race_of_large_results(5000, 5000), RaceResult::kLost);
}

/// Something else ran beside a third of the pairs of one that takes half of the time.
TEST(Race, who_is_far_ahead_in_noise_is_no_loser_after_sixteen_pairs) {
  Race race;
  int pairs = 0;
  for (; pairs < kMaxPairs; ++pairs) {
    EXPECT_EQ(race.result(), RaceResult::kUndecided) << pairs;
    race.add(1000, pairs % 3 == 1 ? 1500 : 500);
  }
  for (; race.result() == RaceResult::kUndecided; ++pairs) race.add(1000, 500);
  EXPECT_EQ(race.result(), RaceResult::kWon);
  EXPECT_EQ(pairs, 26);  // 5 of 26: less than one in 500 of equal rivals lose so few
}

TEST(Race, who_is_far_ahead_and_loses_too_often_is_given_up) {
  Race race;
  int pairs = 0;
  for (; race.result() == RaceResult::kUndecided; ++pairs) race.add(1000, pairs % 5 == 2 || pairs % 5 == 4 ? 1500 : 500);
  EXPECT_EQ(race.result(), RaceResult::kLost);
  EXPECT_EQ(pairs, kMostPairs);
}

TEST(Race, who_is_a_little_ahead_in_noise_has_more_than_sixteen_pairs) {
  Race race;
  int pairs = 0;
  for (; race.result() == RaceResult::kUndecided; ++pairs) race.add(1000, pairs % 4 == 1 ? 1500 : 900);
  EXPECT_EQ(race.result(), RaceResult::kWon);
  EXPECT_GT(pairs, kMaxPairs);
  EXPECT_LT(pairs, kMostPairs);
}

TEST(Race, less_than_five_percent_ahead_has_sixteen_pairs) {
  Race race;
  int pairs = 0;
  for (; race.result() == RaceResult::kUndecided; ++pairs) race.add(1000, pairs % 3 == 1 ? 1500 : 960);
  EXPECT_EQ(race.result(), RaceResult::kLost);
  EXPECT_EQ(pairs, kMaxPairs);
}

TEST(Race, three_percent_is_not_enough) {
  Race race;
  for (int i = 0; i < kMaxPairs; ++i) race.add(1000, 970);
  EXPECT_EQ(race.result(), RaceResult::kLost);
}

TEST(Race, equal_rivals_in_noise_are_rarely_called_different) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> noise(0, 0.2);
  int won = 0;
  for (int trial = 0; trial < 400; ++trial) {
    Race race;
    while (race.result() == RaceResult::kUndecided) {
      race.add(static_cast<std::int64_t>(1e6 * noise(random)), static_cast<std::int64_t>(1e6 * noise(random)));
    }
    won += race.result() == RaceResult::kWon ? 1 : 0;
  }
  EXPECT_LT(won, 20);
}

/// Somebody else uses a core in two of five calls, which take up to 2.2 times as long then.
TEST(Race, fifteen_percent_is_mostly_found_where_others_use_the_cores) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> chance(0, 1);
  const auto call = [&](double ns) { return static_cast<std::int64_t>(ns * (chance(random) < 0.4 ? 1 + 1.2 * chance(random) : 1)); };
  int won = 0;
  for (int trial = 0; trial < 200; ++trial) {
    Race race;
    while (race.result() == RaceResult::kUndecided) {
      const std::int64_t rival = call(1e6);
      race.add(rival, call(8.5e5));
    }
    won += race.result() == RaceResult::kWon ? 1 : 0;
  }
  EXPECT_GT(won, 150);  // 110 where sixteen pairs were all
}

/// The same noise, and a challenger that is level: what chance may win in a second race is less than in the first.
TEST(Race, a_race_that_is_doubted_is_seldom_won_by_chance) {
  std::mt19937 random(4);
  std::lognormal_distribution<double> noise(0, 0.2);
  const auto won = [&](bool doubtful, double share) {
    int count = 0;
    for (int trial = 0; trial < 1000; ++trial) {
      Race race;
      if (doubtful) race.doubt();
      while (race.result() == RaceResult::kUndecided) {
        const auto rival = static_cast<std::int64_t>(1e6 * noise(random));
        race.add(rival, static_cast<std::int64_t>(share * 1e6 * noise(random)));
      }
      count += race.result() == RaceResult::kWon ? 1 : 0;
    }
    return count;
  };
  EXPECT_LT(won(true, 1.0), 20);
  EXPECT_LT(won(true, 1.05), 10);
  EXPECT_GT(won(true, 0.75), 600);
}

TEST(Race, twenty_percent_is_found_in_noise) {
  std::mt19937 random(2);
  std::lognormal_distribution<double> noise(0, 0.05);
  int won = 0;
  for (int trial = 0; trial < 100; ++trial) {
    Race race;
    while (race.result() == RaceResult::kUndecided) {
      race.add(static_cast<std::int64_t>(1e6 * noise(random)), static_cast<std::int64_t>(8e5 * noise(random)));
    }
    won += race.result() == RaceResult::kWon ? 1 : 0;
  }
  EXPECT_GT(won, 90);
}

TEST(Median, of_even_and_odd_counts) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

/// Two programs take turns on a core, every 4 ms: a stall in each fourth call of a row of 1 ms is always the same rival's.
TEST(Race, stalls_that_meet_one_rival_alone_win_nothing) {
  Race race;
  for (int i = 0; i < kMostPairs && race.result() == RaceResult::kUndecided; ++i) race.add(i % 2 == 0 ? 5000 : 1000, 995);
  EXPECT_EQ(race.result(), RaceResult::kLost);
  EXPECT_NEAR(race.ratio(), 0.995, 1e-9) << "no more is believed than what the fastest calls say";
  EXPECT_TRUE(race.disturbed());
}

TEST(Race, stalls_that_meet_the_challenger_alone_lose_nothing_at_once) {
  Race race;
  for (int i = 0; i < 7; ++i) race.add(1000, i % 2 == 0 ? 4800 : 800);
  EXPECT_EQ(race.result(), RaceResult::kUndecided);
  EXPECT_TRUE(race.disturbed()) << "the rival was never met, but the race says little";
  EXPECT_EQ(race.ratio(), 1) << "neither the pairs nor the fastest calls are believed";
  for (int i = 0; i < 12; ++i) race.add(1000, 800);
  EXPECT_NE(race.result(), RaceResult::kLost);
}

}  // namespace
}  // namespace ipexrun::preload
