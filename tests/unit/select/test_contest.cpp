// Risk: a slower candidate answers, a loser is tried again, races never end.
#include <gtest/gtest.h>

#include "preload/select/contest.h"

namespace ipexrun::preload {
namespace {

void race(Contest& contest, std::int64_t best_ns, std::int64_t challenger_ns, int pairs) {
  for (int i = 0; i < pairs; ++i) contest.add(best_ns, challenger_ns);
}

TEST(Contest, one_candidate_is_no_contest) {
  const Contest contest(1);
  EXPECT_TRUE(contest.over());
  EXPECT_EQ(contest.best(), 0);
}

TEST(Contest, a_winner_races_the_next_one) {
  Contest contest(3);
  EXPECT_EQ(contest.challenger(), 1);
  race(contest, 1000, 800, 6);
  EXPECT_EQ(contest.best(), 1);
  EXPECT_EQ(contest.challenger(), 2);
  EXPECT_FALSE(contest.over());
  race(contest, 800, 600, 6);
  EXPECT_TRUE(contest.over());
  EXPECT_EQ(contest.best(), 2);
  EXPECT_DOUBLE_EQ(contest.gain(), 0.6);
  EXPECT_EQ(contest.first_ns(), 1000);
  EXPECT_EQ(contest.best_ns(), 600);
  EXPECT_EQ(contest.pairs(), 12);
}

TEST(Contest, within_noise_the_first_one_stays) {
  Contest contest(2);
  for (int i = 0; i < 16 && !contest.over(); ++i) contest.add(1000, i % 2 == 0 ? 980 : 990);
  EXPECT_TRUE(contest.over());
  EXPECT_EQ(contest.best(), 0);
  EXPECT_DOUBLE_EQ(contest.gain(), 1);
}

TEST(Contest, one_far_behind_runs_once) {
  Contest contest(3);
  contest.add(1000, 3100);
  EXPECT_EQ(contest.challenger(), 2);
  EXPECT_EQ(contest.best(), 0);
}

TEST(Contest, pairs_alternate_in_each_race) {
  Contest contest(3);
  EXPECT_FALSE(contest.challenger_first());
  contest.add(1000, 900);
  EXPECT_TRUE(contest.challenger_first());
  contest.refuse();
  EXPECT_EQ(contest.challenger(), 2);
  EXPECT_FALSE(contest.challenger_first());
  contest.refuse();
  EXPECT_TRUE(contest.over());
  EXPECT_EQ(contest.best(), 0);
}

TEST(Contest, a_disturbed_loss_is_known) {
  Contest contest(2);
  contest.add(1000, 1500);
  contest.add(5000, 7500);
  contest.add(1000, 1500);
  EXPECT_TRUE(contest.over());
  EXPECT_TRUE(contest.disturbed());
}

TEST(Contest, what_another_process_decided_is_taken_and_given_up) {
  Contest contest(3);
  contest.take(2, 0.5);
  EXPECT_TRUE(contest.over());
  EXPECT_EQ(contest.best(), 2);
  contest.add(1000, 100);
  EXPECT_EQ(contest.best(), 2);
  EXPECT_DOUBLE_EQ(contest.gain(), 0.5);
  contest.give_up();
  EXPECT_EQ(contest.best(), 0);
  EXPECT_DOUBLE_EQ(contest.gain(), 1);
}

}  // namespace
}  // namespace ipexrun::preload
