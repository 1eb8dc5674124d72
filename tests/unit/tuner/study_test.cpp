// The search as a whole: what is run, written down, repeated, chosen and claimed.
#include "tuner/study/study.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/tuner/fakes.h"

namespace ipexrun::tuner {
namespace {

using namespace fakes;  // NOLINT(google-build-using-namespace): a study made up from its parts
using testing::HasSubstr;

TEST(Search, MeasuresTheDefaultFirst) {
  const Folder folder;
  Bench bench(folder, ten(), by_n, [](Settings& s) { s.warmup = 2; });
  ASSERT_TRUE(bench.study->search().ok());
  const History& history = bench.study->history();
  ASSERT_EQ(history.trials.size(), 10u);
  EXPECT_TRUE(history.trials[0].point.empty());
  EXPECT_EQ(bench.runner.requests.size(), 12u);
  EXPECT_THAT(bench.runner.requests[0].folder, HasSubstr("trials/0000/warmup1"));
  EXPECT_EQ(history.stop, "every combination of the grid was tried");
  EXPECT_EQ(history.objectives.front().name, "rate");
}

TEST(Search, AKillAtAnyRecordLosesNothingAndRunsNothingTwice) {
  const Folder whole;
  Bench straight(whole, ten(), by_n, [](Settings& s) { s.repeats = 2; });
  ASSERT_TRUE(straight.study->search().ok());
  std::ifstream in(whole.path("journal.jsonl"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  const std::size_t runs = straight.runner.requests.size();
  for (std::size_t kept = 1; kept <= lines.size(); ++kept) {
    const Folder folder;
    std::size_t recorded = 0;
    {
      std::ofstream out(folder.path("journal.jsonl"));
      for (std::size_t i = 0; i < kept; ++i) {
        out << lines[i] << "\n";
        recorded += lines[i].find("\"kind\":\"run\"") != std::string::npos ? 1 : 0;
      }
      out << lines[kept < lines.size() ? kept : 0].substr(0, 10);  // a torn line
    }
    Bench rest(folder, ten(), by_n, [](Settings& s) { s.repeats = 2; });
    ASSERT_TRUE(rest.study->search().ok()) << kept;
    EXPECT_EQ(rest.runner.requests.size() + recorded, runs) << kept;
    ASSERT_EQ(rest.study->history().trials.size(), 10u);
    for (const Trial& one : rest.study->history().trials)
      EXPECT_EQ(one.runs.size(), straight.study->history().trials[static_cast<std::size_t>(one.number)].runs.size());
  }
}

TEST(Search, TwoWorkersShareAStudyWithoutDoubleWork) {
  const Folder folder;
  std::map<std::string, int> ran;
  const auto program = [&](const std::map<std::string, std::string>& env, int) {
    ++ran[env.count("n") != 0 ? env.at("n") : ""];
    return by_n(env, 0);
  };
  Bench one(folder, ten(), program, {}, "one");
  Bench two(folder, ten(), program, {}, "two");
  one.alive["two"] = two.alive["one"] = true;
  one.runner.stop_at = 4;  // the first worker leaves in the middle of a trial
  ASSERT_TRUE(one.study->search().ok());
  two.alive.clear();
  ASSERT_TRUE(two.study->search().ok());
  EXPECT_EQ(ran.size(), 10u);
  for (const auto& [n, times] : ran) EXPECT_EQ(times, 1) << n;
}

TEST(Search, ATrialOfALivingWorkerIsLeftToIt) {
  const Folder folder;
  Bench one(folder, ten(), by_n, {}, "one");
  one.runner.stop_at = 4;
  ASSERT_TRUE(one.study->search().ok());
  Bench two(
      folder, ten(), by_n, [](Settings& s) { s.max_trials = 5; }, "two");
  two.alive["one"] = true;
  two.on_wait = [&two] { two.alive.clear(); };  // it waits for the trial that is under way, until that worker is gone
  ASSERT_TRUE(two.study->search().ok());
  EXPECT_EQ(two.study->history().ended(), 5);
  EXPECT_EQ(two.study->history().trials[3].attempts, 1);  // an end that the user asked for is no failed attempt
}

TEST(Search, AProgramThatAlwaysFailsEndsItEarly) {
  const Folder folder;
  Bench bench(folder, ten(),
              [](const auto&, int) { return fakes::fails(State::kFailed, 3, "exit code 3\nImportError: no module named x"); });
  const auto ended = bench.study->search();
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(ended.error().what, AllOf(HasSubstr("failed in each"), HasSubstr("ImportError")));
  EXPECT_EQ(bench.runner.requests.size(), 3u);
}

TEST(Search, AnObjectiveThatNeverAppearsEndsItAtOnce) {
  const Folder folder;
  Bench bench(folder, ten(), by_n, [](Settings& s) {
    s.objectives = {fakes::printed("speed", true)};
    s.has_objectives = true;
  });
  const auto ended = bench.study->search();
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(ended.error().what, AllOf(HasSubstr("'speed'"), HasSubstr("it printed rate")));
  EXPECT_EQ(bench.runner.requests.size(), 1u);
}

TEST(Search, ACrashIsData) {
  const Folder folder;
  Bench bench(folder, ten(), [](const std::map<std::string, std::string>& env, int) {
    return number(env, "n") == 9 ? fakes::fails(State::kOutOfMemory, 137, "ended by the kernel for want of memory") : by_n(env, 0);
  });
  ASSERT_TRUE(bench.study->search().ok());
  EXPECT_EQ(bench.study->history().trials[9].state, State::kOutOfMemory);
  EXPECT_EQ(ranked(bench.study->history(), bench.study->history().objectives[0]).front()->number, 8);
}

TEST(Search, WhatIsNoNumberIsAFailureAndNothingMore) {
  const Folder folder;
  Bench bench(folder, ten(), [](const std::map<std::string, std::string>& env, int) {
    return prints("rate", true, number(env, "n") == 9 ? std::nan("") : number(env, "n") == 8 ? HUGE_VAL : 10 * number(env, "n", 2));
  });
  ASSERT_TRUE(bench.study->search().ok());
  const History& history = bench.study->history();
  EXPECT_EQ(history.trials[9].state, State::kFailed);
  EXPECT_THAT(history.trials[9].why, HasSubstr("rate was nan"));
  EXPECT_EQ(history.trials[8].state, State::kFailed);
  EXPECT_EQ(ranked(history, history.objectives[0]).front()->number, 7);
  const Folder other;
  Bench never(other, ten(), [](const auto&, int) { return prints("rate", true, std::nan("")); });
  const auto ended = never.study->search();
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(ended.error().what, HasSubstr("rate was nan"));
}

TEST(Search, NobodyWaitsForPlansAfterCtrlC) {
  const Folder folder;
  Space space;
  space.parameters = {category("n", fakes::numbers(1, 500)), category("m", fakes::numbers(1, 500))};
  Bench bench(folder, space, by_n, [](Settings& s) { s.max_trials = 1000000; });
  int planned = 0;
  bench.plan = [&](const LaunchWords& words) {
    if (++planned == 100) bench.runner.stopped = true;
    Feasibility out;
    if (!words.env.empty()) out.why = "no";
    return out;
  };
  const auto ended = bench.study->search();
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(ended->signal, 2);
  EXPECT_EQ(planned, 100);
  EXPECT_EQ(bench.study->history().stop, "");
}

TEST(Search, HopelessTrialsAreNotRepeated) {
  const Folder folder;
  Bench bench(folder, ten(), by_n, [](Settings& s) { s.repeats = 4; });
  ASSERT_TRUE(bench.study->search().ok());
  const History& history = bench.study->history();
  EXPECT_EQ(history.trials[0].runs.size(), 4u);
  EXPECT_EQ(history.trials[1].runs.size(), 1u);  // n = 1, half of the default
  EXPECT_THAT(history.trials[1].why, HasSubstr("not repeated"));
  EXPECT_EQ(history.trials[9].runs.size(), 4u);
}

TEST(Search, ConstraintsRuleOut) {
  const Folder folder;
  Bench bench(
      folder, ten(),
      [](const std::map<std::string, std::string>& env, int) {
        RunReport out = by_n(env, 0);
        out.output.texts[0] += "@hypertune {'name': 'p99'}\n" + std::to_string(3 * number(env, "n", 2)) + "\n";
        return out;
      },
      [](Settings& s) {
        s.objectives = {fakes::printed("rate", true)};
        s.has_objectives = true;
        s.constraints = {*parse_constraint("p99 <= 15")};
      });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  EXPECT_EQ(bench.study->history().best, 5);
}

TEST(Search, AnOldFileStopsWhenAllTargetsAreMet) {
  const Folder folder;
  Bench bench(
      folder, ten(),
      [](const std::map<std::string, std::string>& env, int) {
        RunReport out;
        out.seconds = 1;
        out.output.texts = {"@hypertune {'name': 'rate', 'higher_is_better': True, 'target_val': 45}\n" +
                            std::to_string(10 * number(env, "n", 2)) + "\n"};
        return out;
      },
      [](Settings& s) { s.old_rule = true; });
  ASSERT_TRUE(bench.study->search().ok());
  EXPECT_EQ(bench.study->history().stop, "all targets are met");
  EXPECT_EQ(bench.study->history().trials.size(), 6u);  // the default and n = 1 to 5
}

TEST(Search, AConstraintOnWhatDoesNotExistEndsItAtOnce) {
  const Folder folder;
  Bench bench(folder, ten(), by_n, [](Settings& s) { s.constraints = {*parse_constraint("p99 < 15")}; });
  const auto ended = bench.study->search();
  ASSERT_FALSE(ended.ok());
  EXPECT_THAT(ended.error().line(), AllOf(HasSubstr("'p99'"), HasSubstr("did you mean p99_ms?")));
  EXPECT_EQ(bench.runner.requests.size(), 1u);
  Bench again(folder, ten(), by_n, [](Settings& s) { s.constraints = {*parse_constraint("p99 < 15")}; });
  const auto same = again.study->search();  // what was found out is not searched again
  ASSERT_FALSE(same.ok());
  EXPECT_THAT(same.error().line(), AllOf(HasSubstr("'p99'"), HasSubstr("--fresh")));
  EXPECT_TRUE(again.runner.requests.empty());
}

TEST(Search, WhyAConstraintCouldNotBeJudgedIsKept) {
  const Folder folder;
  Bench bench(
      folder, ten(),
      [](const std::map<std::string, std::string>& env, int) {
        RunReport out = by_n(env, 0);
        out.output.missing["p99_ms"] = "p99 needs n >= 662, have 64";
        return out;
      },
      [](Settings& s) { s.constraints = {*parse_constraint("p99_ms < 15")}; });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  const History read = *read_study(folder.path());
  EXPECT_THAT(read.verdict, HasSubstr("p99_ms was not measured: p99 needs n >= 662, have 64"));
}

TEST(History, ASearchThatGoesOnHasNotEnded) {
  const Folder folder;
  Bench first(folder, ten(), by_n, [](Settings& s) { s.max_trials = 3; });
  ASSERT_TRUE(first.study->search().ok());
  EXPECT_EQ(first.study->history().stop, "3 trials were made");
  Bench more(folder, ten(), by_n, [](Settings& s) { s.max_trials = 9; });
  more.runner.stop_at = 2;
  ASSERT_TRUE(more.study->search().ok());
  EXPECT_EQ(more.study->history().stop, "");
}

TEST(Pareto, FrontAndPreference) {
  History history;
  history.head = StudyHead{};
  history.objectives = {fakes::printed("rate", true), fakes::printed("latency", false)};
  const std::vector<std::pair<double, double>> values = {{5, 5}, {10, 9}, {8, 3}, {7, 4}, {10, 8}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    Trial trial;
    trial.number = static_cast<int>(i);
    trial.ended = true;
    trial.state = State::kComplete;
    tuner::Run run;
    run.state = State::kComplete;
    run.numbers = {{"rate", values[i].first}, {"latency", values[i].second}};
    trial.runs = {run};
    history.trials.push_back(trial);
  }
  std::vector<int> front;
  for (const Trial* one : pareto_front(history)) front.push_back(one->number);
  EXPECT_THAT(front, testing::ElementsAre(4, 2));
  EXPECT_EQ(chosen_objective(history).name, "rate");
  history.head->prefer = "latency";
  EXPECT_EQ(ranked(history, chosen_objective(history)).front()->number, 2);
  EXPECT_EQ(best_by_old_rule(history)->number, 1);  // the first one, and none is better in both
}

TEST(Warnings, DriftAndSpreadAreSaid) {
  const Folder folder;
  Bench bench(
      folder, ten(),
      [](const std::map<std::string, std::string>& env, int call) {
        return prints("rate", true, number(env, "n", 2) * (call > 12 ? 5 : 10) + (call == 1 ? 6 : 0));
      },
      [](Settings& s) { s.repeats = 2; });
  ASSERT_TRUE(bench.study->search().ok());
  ASSERT_TRUE(bench.study->finish().ok());
  const auto warnings = study_warnings(bench.study->history());
  EXPECT_THAT(warnings, testing::Contains(HasSubstr("drifted")));
  EXPECT_THAT(warnings, testing::Contains(HasSubstr("runs of the default differ by")));
}

TEST(Warnings, OfValuesBelowZeroAreShares) {
  History history;
  history.objectives = {fakes::printed("loss", false)};
  history.trials.resize(1);
  for (const double value : {-5.0, -5.1, -5.2}) history.trials[0].runs.push_back({State::kComplete, 0, 1, {{"loss", value}}, "", "", {}});
  EXPECT_THAT(study_warnings(history), testing::IsEmpty());
  history.trials[0].runs.back().numbers["loss"] = -6.1;
  EXPECT_THAT(study_warnings(history), testing::ElementsAre(HasSubstr("differ by 22%")));
}

TEST(TimeLimit, FollowsTheDefaultAndTheNumberOfInstances) {
  const Folder folder;
  Bench bench(folder, ten(), by_n);
  bench.plan = [](const LaunchWords& words) {
    Feasibility out;
    out.instances = static_cast<int>(number(words.env, "n", 1));
    for (const auto& [name, value] : words.env) out.plan_key += name + "=" + value;
    return out;
  };
  ASSERT_TRUE(bench.study->search().ok());
  EXPECT_EQ(bench.runner.requests.front().timeout_s, 3600);
  EXPECT_EQ(bench.runner.requests.back().timeout_s, 30 + 5 * 9);
}

}  // namespace
}  // namespace ipexrun::tuner
