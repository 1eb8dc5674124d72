#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/tuner/fakes.h"
#include "tuner/objective/measured.h"

namespace ipexrun::tuner {
namespace {

using testing::HasSubstr;

TEST(Printed, InfinityIsNoTarget) {
  std::vector<std::string> problems;
  const auto found = parse_printed(
      "@hypertune {'name': 'a', 'target_val': -inf}\n1\n@hypertune {'name': 'b', 'target_val': inf, 'higher_is_better': True}\n2\n",
      &problems);
  ASSERT_EQ(found.size(), 2u) << problems.front();
  EXPECT_FALSE(found[0].objective.target);
  EXPECT_TRUE(found[1].objective.higher_is_better);
}

TEST(Printed, ReadsTheProtocolOfIpex) {
  std::vector<std::string> problems;
  const auto found = parse_printed(
      "noise\n@hypertune {'name': 'latency (ms)'}\n12.5\n"
      "@hypertune {\"name\": \"thr\", 'higher_is_better': True, 'target_val': 1e3}\r\n 99 \r\n"
      "prefix @hypertune {'name': 'it\\'s', 'higher_is_better': False, 'target_val': -5}\n-1\n",
      &problems);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].objective.name, "latency (ms)");
  EXPECT_EQ(found[0].value, 12.5);
  EXPECT_FALSE(found[0].objective.higher_is_better);
  EXPECT_FALSE(found[0].objective.target);
  EXPECT_TRUE(found[1].objective.higher_is_better);
  EXPECT_EQ(found[1].objective.target, 1000);
  EXPECT_EQ(found[2].objective.name, "it's");
  EXPECT_TRUE(problems.empty());
}

TEST(Printed, SaysWhatIsBroken) {
  std::vector<std::string> problems;
  EXPECT_TRUE(parse_printed("@hypertune latency\n3\n@hypertune {'name': 'x'}\nthree\n@hypertune {'name': 'y'}", &problems).empty());
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_THAT(problems[0], HasSubstr("is no objective"));
  EXPECT_THAT(problems[1], HasSubstr("stands 'three' where a number belongs"));
  EXPECT_THAT(problems[2], HasSubstr("stands nothing"));
}

TEST(Printed, InstancesAreKeptApartAndAggregated) {
  const std::string one = "@hypertune {'name': 'thr', 'higher_is_better': True}\n10\n@hypertune {'name': 'lat'}\n3\n";
  const std::string two = "@hypertune {'name': 'thr', 'higher_is_better': True}\n12\n@hypertune {'name': 'lat'}\n5\n";
  const RunOutput run{{one, two}, {}, {}};
  EXPECT_EQ(*value_of(fakes::printed("thr", true), run), 22);  // the sum
  EXPECT_EQ(*value_of(fakes::printed("lat", false), run), 5);  // the largest
  Objective mean = fakes::printed("lat", false);
  mean.aggregate = Aggregate::kMean;
  EXPECT_EQ(*value_of(mean, run), 4);
  const RunOutput half{{one, "nothing\n"}, {}, {}};
  EXPECT_THAT(value_of(fakes::printed("thr", true), half).error().what, HasSubstr("1 of 2 instances"));
  EXPECT_EQ(all_numbers(run).at("thr"), 22);
}

TEST(Objectives, AMissingOneSaysWhatWasSeen) {
  const RunOutput run{{"@hypertune {'name': 'thr'}\n10\nbye\n"}, {{"p50_ms", 1}}, {{"p99_ms", "p99 needs n >= 662, have 20"}}};
  EXPECT_THAT(value_of(fakes::printed("speed", true), run).error().line(), HasSubstr("it printed thr"));
  EXPECT_THAT(value_of(fakes::printed("speed", true), RunOutput{{"only this"}, {}, {}}).error().line(),
              HasSubstr("its last line was 'only this'"));
  EXPECT_THAT(value_of(*parse_objective("bench:p99_ms"), run).error().line(), HasSubstr("p99 needs n >= 662"));
  EXPECT_THAT(value_of(*parse_objective("max:regex:x=([0-9]+)"), run).error().line(), HasSubstr("no line matches"));
}

TEST(Objectives, ByExpressionTheLastLineCounts) {
  const RunOutput run{{"score: 3\nscore: 4.5\n"}, {}, {}};
  EXPECT_EQ(*value_of(*parse_objective("max:regex:score: ([0-9.]+)"), run), 4.5);
  EXPECT_EQ(*value_of(*parse_objective("max:regex:score: ([0-9.,]+)"), RunOutput{{"score: 1,234.5\n"}, {}, {}}), 1234.5);
  EXPECT_TRUE(std::isnan(*value_of(*parse_objective("min:regex:loss: (\\S+)"), RunOutput{{"loss: 0.5\nloss: nan\n"}, {}, {}})));
}

TEST(Objectives, AreToldApartByTheirNames) {
  std::vector<Objective> list;
  for (const char* text : {"max:regex:a=([0-9]+)", "min:regex:b=([0-9]+)", "wall"})
    ASSERT_TRUE(add_objective(*parse_objective(text), &list).ok());
  EXPECT_EQ(objective_names(list), "value, value2, wall");
  EXPECT_THAT(add_objective(*parse_objective("wall"), &list).error().line(), HasSubstr("'wall' is given twice"));
}

TEST(Objectives, WhatIsNoNumberInOneInstanceIsNoneOfAll) {
  const RunOutput run{{"@hypertune {'name': 't'}\n5\n", "@hypertune {'name': 't'}\nnan\n"}, {}, {}};
  EXPECT_TRUE(std::isnan(*value_of(fakes::printed("t", false), run)));
}

TEST(Printed, ColoursAreNoPartOfANumber) {
  std::vector<std::string> problems;
  const auto found = parse_printed("@hypertune {'name': 't'}\n\033[1;32m12.5\033[0m\n", &problems);
  ASSERT_EQ(found.size(), 1u) << problems.front();
  EXPECT_EQ(found[0].value, 12.5);
}

TEST(Objectives, AreParsed) {
  EXPECT_TRUE(parse_objective("throughput")->higher_is_better);
  EXPECT_FALSE(parse_objective("latency")->higher_is_better);
  EXPECT_EQ(parse_objective("wall")->key, "wall_s");
  EXPECT_EQ(parse_objective("memory")->key, "max_rss_mib");
  EXPECT_TRUE(parse_objective("bench:samples_per_s")->higher_is_better);
  EXPECT_FALSE(parse_objective("bench:p99_ms")->higher_is_better);
  EXPECT_TRUE(parse_objective("max:bench:busy")->higher_is_better);
  EXPECT_THAT(parse_objective("bench:p98_ms").error().line(), HasSubstr("did you mean p9"));
  EXPECT_FALSE(parse_objective("regex:a").ok());
  EXPECT_FALSE(parse_objective("max:regex:a").ok());
  EXPECT_FALSE(parse_objective("speed").ok());
}

TEST(Constraints, AreParsedAndHold) {
  EXPECT_TRUE(parse_constraint("p99_ms<20")->holds(19));
  EXPECT_FALSE(parse_constraint("p99_ms < 20")->holds(20));
  EXPECT_TRUE(parse_constraint(" max rss >= 2.5 ")->holds(2.5));
  for (const char* bad : {"p99", "< 3", "p99 < x", "p99 = 3", "p99 < nan", "p99 > inf"}) EXPECT_FALSE(parse_constraint(bad).ok()) << bad;
}

TEST(BenchReport, IsReadWithItsMissingFields) {
  RunOutput run;
  EXPECT_TRUE(read_bench_report(
      R"({"rows": [{"variant": "ipexrun", "instance": "all", "samples_per_s": 12.5, "wall_s": 4, "p99_ms": null, "missing": {"p99_ms": "too few"}},
                                   {"variant": "ipexrun", "instance": "0"}, {"variant": "ipexrun", "instance": "1"}]})",
      &run));
  EXPECT_EQ(run.bench.at("samples_per_s"), 12.5);
  EXPECT_EQ(run.bench.at("runs_per_s"), 0.5);
  EXPECT_EQ(run.missing.at("p99_ms"), "too few");
  EXPECT_FALSE(read_bench_report("{", &run));
  EXPECT_FALSE(read_bench_report("{\"rows\": []}", &run));
}

TEST(Resolving, PrintedObjectivesCountUnlessOthersWereAskedFor) {
  const RunOutput run{
      {"@hypertune {'name': 'a', 'higher_is_better': True}\n1\n@hypertune {'name': 'b'}\n2\n"}, {{"calls_per_s", 3}, {"wall_s", 1}}, {}};
  const auto free = resolve_objectives({*parse_objective("throughput")}, false, run);
  ASSERT_TRUE(free.ok());
  ASSERT_EQ(free->size(), 2u);
  EXPECT_EQ(free->front().name, "a");
  const auto asked = resolve_objectives({*parse_objective("throughput")}, true, run);
  EXPECT_EQ(asked->front().key, "calls_per_s");  // no batch size was known
}

TEST(Resolving, ThroughputIsCallsThenALineThenTheWallTime) {
  const auto key = [](const RunOutput& run, const char* what) {
    return resolve_objectives({*parse_objective(what)}, false, run)->front().key;
  };
  EXPECT_EQ(key({{""}, {{"calls_per_s", 1}, {"samples_per_s", 2}, {"p50_ms", 3}, {"wall_s", 1}}, {}}, "throughput"), "samples_per_s");
  EXPECT_EQ(key({{""}, {{"calls_per_s", 1}, {"p50_ms", 3}, {"wall_s", 1}}, {}}, "latency"), "p50_ms");
  EXPECT_EQ(key({{"throughput: 5 img/s"}, {{"metric", 5}, {"wall_s", 1}}, {}}, "throughput"), "metric");
  EXPECT_EQ(key({{"throughput: 5 img/s"}, {{"metric", 5}, {"wall_s", 1}}, {}}, "latency"), "wall_s");
  EXPECT_EQ(key({{""}, {{"wall_s", 1}, {"runs_per_s", 1}}, {}}, "throughput"), "runs_per_s");
}

TEST(Resolving, AnOldFileWithoutAnyObjectiveSaysWhatWasSeen) {
  const auto none = resolve_objectives({}, false, RunOutput{{"loss 3\n"}, {}, {}});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().line(), AllOf(HasSubstr("never appeared"), HasSubstr("its last line was 'loss 3'")));
}

}  // namespace
}  // namespace ipexrun::tuner
