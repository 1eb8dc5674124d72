// Risk: a run that diverges stays in bf16, or one that does not loses it; the line that says so comes twice.
#include "preload/select/training_guard.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

namespace ipexrun::preload {
namespace {

std::vector<std::string>& said() {
  static std::vector<std::string> lines;
  return lines;
}

class TrainingGuardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    said().clear();
    guard_.on_leave([](const char* reason) { said().emplace_back(reason); });
  }
  /// A weight of these elements in the next forward pass.
  bool next(std::uint32_t version, const TrainingGuard::Sample& sample) {
    guard_.begin_backward();
    return guard_.saw_weight(this, version, sample);
  }
  TrainingGuard guard_;
};

TEST_F(TrainingGuardTest, looks_once_at_each_backward_pass) {
  EXPECT_FALSE(guard_.wants_look());
  guard_.begin_backward();
  EXPECT_TRUE(guard_.wants_look());
  EXPECT_FALSE(guard_.wants_look());
}

TEST_F(TrainingGuardTest, leaves_bf16_after_nan_once_and_for_good) {
  guard_.note_use(false);
  guard_.looked(true);
  EXPECT_FALSE(guard_.off());
  guard_.looked(false);
  guard_.looked(false);
  EXPECT_TRUE(guard_.off());
  guard_.looked(true);
  EXPECT_TRUE(guard_.off());
  EXPECT_EQ(said().size(), 1U);
}

TEST_F(TrainingGuardTest, nan_before_any_bf16_is_the_programs_own) {
  guard_.looked(false);
  EXPECT_FALSE(guard_.off());
  EXPECT_TRUE(said().empty());
}

TEST_F(TrainingGuardTest, expects_a_loss_between_a_forward_pass_in_bf16_and_its_backward_pass) {
  EXPECT_FALSE(guard_.expects_loss());
  guard_.note_use(false);
  EXPECT_FALSE(guard_.expects_loss());
  guard_.note_use(true);
  EXPECT_TRUE(guard_.expects_loss());
  guard_.begin_backward();
  EXPECT_FALSE(guard_.expects_loss());
  guard_.note_use(true);
  guard_.saw_bad_loss();
  EXPECT_TRUE(guard_.off());
  EXPECT_FALSE(guard_.expects_loss());
  EXPECT_EQ(said().size(), 1u);
}

TEST_F(TrainingGuardTest, leaves_bf16_after_several_kinds_of_call_failed) {
  for (int i = 1; i < kFailedChecks; ++i) guard_.note_failure();
  EXPECT_FALSE(guard_.off());
  guard_.note_failure();
  EXPECT_TRUE(guard_.off());
  EXPECT_NE(std::string(guard_.reason()), "");
}

TEST_F(TrainingGuardTest, checks_again_ever_more_seldom) {
  std::vector<std::uint64_t> calls;
  for (std::uint64_t call = 0; call < 5000; ++call) {
    if (TrainingGuard::is_recheck(call)) calls.push_back(call);
  }
  EXPECT_EQ(calls, (std::vector<std::uint64_t>{256, 512, 1024, 2048, 4096}));
}

TEST_F(TrainingGuardTest, trains_while_a_weight_changes_as_often_as_before) {
  const int weight = 0;
  const auto next = [&](std::uint32_t version) {
    guard_.begin_backward();
    return guard_.saw_weight(&weight, version);
  };
  EXPECT_FALSE(guard_.steps());
  EXPECT_FALSE(guard_.saw_weight(&weight, 1));
  EXPECT_FALSE(next(1)) << "it is as it was";
  EXPECT_TRUE(next(2));
  EXPECT_TRUE(guard_.saw_weight(&weight, 2)) << "the same pass";
  EXPECT_TRUE(next(2)) << "gradients of a large batch come in parts, two it seems";
  EXPECT_FALSE(next(2));
  EXPECT_FALSE(guard_.steps());
  EXPECT_FALSE(next(2));
  EXPECT_TRUE(next(3)) << "four";
  EXPECT_TRUE(guard_.steps());
  for (int part = 0; part < 3; ++part) EXPECT_TRUE(next(3));
  EXPECT_FALSE(next(3));
}

TEST_F(TrainingGuardTest, where_steps_are_told_no_other_change_is_one) {
  const auto uses = [&](std::uint32_t version) {
    guard_.begin_backward();
    return guard_.saw_weight(&guard_, version);
  };
  uses(1);
  EXPECT_TRUE(uses(2)) << "nobody tells";
  guard_.steps_are_told();
  for (std::uint32_t version = 3; version < 9; ++version) EXPECT_FALSE(uses(version)) << "a search along a line";
  guard_.stepped();
  EXPECT_TRUE(uses(9));
  for (std::uint32_t version = 10; version < 20; ++version) uses(version);
  EXPECT_FALSE(uses(20)) << "longer than between two steps";
}

TEST_F(TrainingGuardTest, no_more_than_so_many_passes_belong_to_a_step) {
  const int weight = 0;
  guard_.saw_weight(&weight, 1);
  for (std::uint32_t pass = 0; pass < 3 * kPassesOfAStep; ++pass) guard_.begin_backward();
  guard_.saw_weight(&weight, 2);
  guard_.begin_backward();
  guard_.saw_weight(&weight, 3);
  for (std::uint32_t pass = 0; pass < kPassesOfAStep; ++pass) guard_.begin_backward();
  EXPECT_FALSE(guard_.saw_weight(&weight, 3));
}

TEST_F(TrainingGuardTest, a_weight_beside_one_that_trains_does_not) {
  std::array<double, 2> weights{};
  for (std::uint32_t step = 0; step < 8; ++step) {
    guard_.begin_backward();
    EXPECT_EQ(guard_.saw_weight(&weights[0], step), step > 0);
    EXPECT_EQ(guard_.steps(), step > 0) << "the backward pass behind it, and products of no weight";
    guard_.begin_backward();
    EXPECT_FALSE(guard_.saw_weight(&weights[1], 7));
    EXPECT_FALSE(guard_.steps());
  }
  guard_.begin_backward();
  EXPECT_FALSE(guard_.saw_weight(&weights[1], 7));
  EXPECT_TRUE(guard_.saw_weight(&weights[0], 9));
  EXPECT_FALSE(guard_.saw_weight(&weights[1], 7));
  EXPECT_TRUE(guard_.steps()) << "one pass has both";
}

TEST_F(TrainingGuardTest, sees_a_step_of_a_thousand_weights) {
  const std::vector<double> weights(1000);
  for (std::uint32_t step = 0; step < 3; ++step) {
    EXPECT_EQ(guard_.steps(), step > 1) << "the second forward pass finds them changed";
    for (const double& weight : weights) guard_.saw_weight(&weight, step);
    guard_.begin_backward();
  }
}

TEST_F(TrainingGuardTest, sees_elements_that_move_by_a_part_of_their_size) {
  EXPECT_FALSE(next(7, {1, -2, 3, 4}));
  EXPECT_FALSE(next(7, {1, -2, 3, 4})) << "nothing moved";
  EXPECT_FALSE(next(7, {-4, 1, 2, -3})) << "another weight in the same place";
  EXPECT_TRUE(next(7, {-4, 1, 2.01F, -3})) << "one element by its hundredth";
}

TEST_F(TrainingGuardTest, a_version_says_nothing_where_elements_stay) {
  EXPECT_FALSE(next(7, {1, -2, 3, 4}));
  EXPECT_FALSE(next(8, {1, -2, 3, 4})) << "values that were put back";
  EXPECT_TRUE(next(9, {5, 5, 5, 5})) << "a large step";
}

TEST_F(TrainingGuardTest, a_program_that_needs_exact_gradients_is_told_only_what_changed) {
  guard_.needs_exact("its optimizer searches along lines");
  EXPECT_TRUE(guard_.off());
  EXPECT_TRUE(said().empty());
  TrainingGuard used;
  used.on_leave([](const char* reason) { said().emplace_back(reason); });
  used.note_use(true);
  used.needs_exact("gradients of gradients are asked for");
  EXPECT_EQ(said(), std::vector<std::string>{"gradients of gradients are asked for"});
}

TEST_F(TrainingGuardTest, says_it_once_from_many_threads) {
  guard_.note_use(false);
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) threads.emplace_back([this] { guard_.looked(false); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(said().size(), 1U);
}

}  // namespace
}  // namespace ipexrun::preload
