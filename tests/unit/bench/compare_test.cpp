// The risk: a drift of the machine, or a failed run, taken for a speed-up.
#include "launcher/bench/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ipexrun::launcher::bench {
namespace {

using testing::ElementsAre;

OneRun run(const std::string& variant, double wall, int exit_code = 0) {
  OneRun out;
  out.variant = variant;
  out.exit_code = exit_code;
  OneInstance one;
  one.outcome.wall_seconds = wall;
  out.instances.push_back(one);
  return out;
}

TEST(Compare, EverySecondRoundRunsBackwards) {
  std::vector<std::string> order;
  for (const Step& step : abba_schedule({"stock", "launch", "ipexrun"}, 3)) order.push_back(step.variant + std::to_string(step.round));
  EXPECT_THAT(order, ElementsAre("stock0", "launch0", "ipexrun0", "ipexrun1", "launch1", "stock1", "stock2", "launch2", "ipexrun2"));
}

TEST(Compare, SpeedupIsTheMedianOfPairRatios) {
  const std::vector<OneRun> runs{run("stock", 4), run("ipexrun", 2), run("ipexrun", 1),
                                 run("stock", 3), run("stock", 10),  run("ipexrun", 4)};
  const auto all = compare({"stock", "ipexrun"}, runs, {0, 0, 1, 1, 2, 2}, Headline{});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_THAT(all[0].ratios, ElementsAre(2, 3, 2.5));
  EXPECT_DOUBLE_EQ(all[0].speedup, 2.5);
  EXPECT_TRUE(all[0].interval);
  EXPECT_EQ(all[0].test.n, 3);
  EXPECT_DOUBLE_EQ(all[0].test.p, 0.25);
}

TEST(Compare, FailedRunsAndHalfRoundsAreLeftOut) {
  const std::vector<OneRun> runs{run("stock", 4), run("ipexrun", 2), run("ipexrun", 1, 3), run("stock", 3), run("stock", 9)};
  const auto all = compare({"stock", "ipexrun"}, runs, {0, 0, 1, 1, 2}, Headline{});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_THAT(all[0].ratios, ElementsAre(2));
  EXPECT_FALSE(all[0].interval);
}

TEST(Compare, OnlyCallsThatBothMeasuredAreCompared) {
  // The program's later calls are longer; ours explored in the first two. Over all its calls stock would look faster than it is.
  OneRun stock = run("stock", 1);
  OneRun ours = run("ipexrun", 1);
  Measurement calls;
  calls.module = "Model";
  calls.seen = 4;
  calls.duration_ms = {1, 1, 8, 8};
  calls.position = {0, 1, 2, 3};
  stock.instances[0].modules = {calls};
  calls.duration_ms = {4, 4};
  calls.position = {2, 3};
  ours.instances[0].modules = {calls};
  const Headline headline = choose_headline({stock, ours}, BenchOptions{});
  const auto all = compare({"stock", "ipexrun"}, {stock, ours}, {0, 0}, headline);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_DOUBLE_EQ(all[0].speedup, 2);
}

TEST(Compare, HigherIsBetterTurnsTheRatio) {
  OneRun stock = run("stock", 1);
  OneRun ours = run("ipexrun", 1);
  stock.instances[0].metric = Metric{100, "1/s", true, ""};
  ours.instances[0].metric = Metric{150, "1/s", true, ""};
  const Headline headline = choose_headline({stock, ours}, BenchOptions{});
  EXPECT_EQ(headline.source, Source::kMetricLine);
  const auto all = compare({"stock", "ipexrun"}, {stock, ours}, {0, 0}, headline);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_DOUBLE_EQ(all[0].speedup, 1.5);
}

TEST(Compare, InstancesThatDoTheWholeJobEachAreCountedByTheJob) {
  OneRun two = run("ipexrun", 3);
  two.instances.push_back(two.instances.front());
  const Headline headline = choose_headline({run("stock", 3), two}, BenchOptions{});
  EXPECT_DOUBLE_EQ(headline_value(two, headline).value(), 1.5);
}

TEST(Compare, OutputsMayDifferInNumbersOnly) {
  EXPECT_EQ(compare_outputs("", ""), "");
  EXPECT_THAT(compare_outputs("a\n", "a\n"), testing::HasSubstr("the same output"));
  EXPECT_THAT(compare_outputs("took 1.5 s\nrate 12/s\n", "took   0.75 s\nrate 1,240.5/s\n"), testing::HasSubstr("apart from numbers"));
  EXPECT_THAT(compare_outputs("loss 1e-05\n", "loss 0.001\n"), testing::HasSubstr("apart from numbers"));
  EXPECT_THAT(compare_outputs("checksum: -0.000000\n", "checksum: 0.000000\n"), testing::HasSubstr("apart from numbers"));
  EXPECT_THAT(compare_outputs("label cat\nend\n", "label dog\nend\n"),
              testing::HasSubstr("differ from line 1 on: stock printed 'label cat'"));
  EXPECT_THAT(compare_outputs("a\nb\n", "a\n"), testing::HasSubstr("ipexrun nothing"));
}

}  // namespace
}  // namespace ipexrun::launcher::bench
