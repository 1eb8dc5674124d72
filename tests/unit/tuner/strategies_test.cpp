// One contract for every strategy of ours: finds the optimum of toy functions, same seed same trials, survives failures, goes on from a
// journal, asks for nothing twice and for nothing that the planner refuses.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "tests/unit/tuner/fakes.h"

namespace ipexrun::tuner {
namespace {

using namespace fakes;  // NOLINT(google-build-using-namespace): a study made up from its parts

Space toy() {
  Space space;
  space.parameters = {category("n", fakes::numbers(1, 4)), category("mode", {std::string("a"), std::string("b"), std::string("c")}),
                      fakes::range("wait", 1, 64, true)};
  return space;
}

/// Largest at n = 3, mode b, wait 16.
double height(const std::map<std::string, std::string>& env) {
  const double n = number(env, "n", 1);
  const double wait = std::log2(number(env, "wait", 1));
  const auto mode = env.find("mode");
  return 100 - 5 * (n - 3) * (n - 3) - 2 * (wait - 4) * (wait - 4) + (mode != env.end() && mode->second == "b" ? 20 : 0);
}

RunReport toy_program(const std::map<std::string, std::string>& env, int) { return fakes::prints("height", true, height(env)); }

std::vector<std::string> keys(const History& history) {
  std::vector<std::string> out;
  for (const Trial& one : history.trials) out.push_back(key_of(one.point));
  return out;
}

class Contract : public testing::TestWithParam<std::string> {
 protected:
  std::function<void(Settings&)> with(int trials, std::uint64_t seed = 3) const {
    return [trials, seed, name = GetParam()](Settings& s) {
      s.strategy = name;
      s.max_trials = trials;
      s.seed = seed;
    };
  }
};

TEST_P(Contract, FindsTheOptimum) {
  const Folder folder;
  Bench bench(folder, toy(), toy_program, with(90));
  ASSERT_TRUE(bench.study->search().ok());
  const auto best = ranked(bench.study->history(), bench.study->history().objectives.front());
  ASSERT_FALSE(best.empty());
  EXPECT_GE(*best.front()->value("height"), GetParam() == "halving" ? 105 : 118) << key_of(best.front()->point);
}

TEST_P(Contract, SameSeedSameTrials) {
  const Folder a;
  const Folder b;
  const Folder c;
  Bench one(a, toy(), toy_program, with(25));
  Bench two(b, toy(), toy_program, with(25));
  ASSERT_TRUE(one.study->search().ok());
  ASSERT_TRUE(two.study->search().ok());
  EXPECT_EQ(keys(one.study->history()), keys(two.study->history()));
  EXPECT_GT(keys(one.study->history()).size(), 20u);
}

TEST_P(Contract, GoesOnFromTheJournalAsIfNothingHadHappened) {
  const Folder whole;
  Bench straight(whole, toy(), toy_program, with(25));
  ASSERT_TRUE(straight.study->search().ok());
  const Folder folder;
  for (const int stop : {5, 3, 1, 9, -1}) {  // ctrl-C in the n-th run of each start
    Bench part(folder, toy(), toy_program, with(25));
    part.runner.stop_at = stop;
    ASSERT_TRUE(part.study->search().ok());
    if (stop < 0) {
      EXPECT_EQ(keys(part.study->history()), keys(straight.study->history()));
    }
  }
}

TEST_P(Contract, SurvivesFailures) {
  const Folder folder;
  Bench bench(
      folder, toy(),
      [](const std::map<std::string, std::string>& env, int) {
        if (number(env, "n", 1) == 2) return fakes::fails(State::kCrashed, 139, "ended by SIGSEGV");
        if (number(env, "n", 1) == 4) return fakes::fails(State::kTimeout, 124, "ended at the time limit");
        return toy_program(env, 0);
      },
      with(60));
  ASSERT_TRUE(bench.study->search().ok());
  const auto best = ranked(bench.study->history(), bench.study->history().objectives.front());
  ASSERT_FALSE(best.empty());
  EXPECT_GE(*best.front()->value("height"), 100);
}

TEST_P(Contract, NothingTwiceAndNothingInfeasible) {
  const Folder folder;
  Bench bench(folder, toy(), toy_program, with(500));
  bench.plan = [](const LaunchWords& words) {
    Feasibility out;
    if (number(words.env, "n", 1) == 4) out.why = "4 do not fit";
    for (const auto& [name, value] : words.env) out.plan_key += name + "=" + value + " ";
    return out;
  };
  ASSERT_TRUE(bench.study->search().ok());
  std::set<std::string> first_rung;
  int of_first_rung = 0;
  for (const Trial& one : bench.study->history().trials) {
    EXPECT_NE(number({{"n", one.point.count("n") != 0 ? text_of(one.point.at("n")) : ""}}, "n"), 4);
    if (one.rung > 0) continue;
    first_rung.insert(key_of(one.point));
    ++of_first_rung;
  }
  EXPECT_EQ(static_cast<int>(first_rung.size()), of_first_rung);
  EXPECT_GT(bench.study->history().dropped.at("4 do not fit"), 0);
  // 3 numbers, 3 modes, 7 waits of the grid or 64 in all, and the default.
  EXPECT_GE(of_first_rung, 3 * 3 * 7);
}

INSTANTIATE_TEST_SUITE_P(Ours, Contract, testing::Values("grid", "random", "climb", "halving"), [](const auto& of) { return of.param; });

TEST(Grid, IsInOrderWhereItFits) {
  const Folder folder;
  Space space;
  space.parameters = {category("a", fakes::numbers(1, 2)), category("b", fakes::numbers(1, 2))};
  Bench bench(folder, space, [](const auto&, int) { return fakes::prints("v", true, 1); });
  ASSERT_TRUE(bench.study->search().ok());
  EXPECT_THAT(keys(bench.study->history()), testing::ElementsAre("", "a=1; b=1", "a=1; b=2", "a=2; b=1", "a=2; b=2"));
}

TEST(Climb, NeedsAFewTrialsWhereParametersDoNotInteract) {
  const Folder folder;
  Bench bench(folder, toy(), toy_program, [](Settings& s) {
    s.strategy = "climb";
    s.max_trials = 21;  // a quarter of the grid of 84
  });
  ASSERT_TRUE(bench.study->search().ok());
  EXPECT_EQ(*ranked(bench.study->history(), bench.study->history().objectives.front()).front()->value("height"), 120);
}

TEST(Halving, GivesThreeTimesTheBudgetToAThird) {
  const Folder folder;
  Bench bench(folder, toy(), toy_program, [](Settings& s) {
    s.strategy = "halving";
    s.max_trials = 13;
  });
  ASSERT_TRUE(bench.study->search().ok());
  std::map<int, int> rungs;
  double worst_promoted = 1e9;
  for (const Trial& one : bench.study->history().trials) {
    if (one.number == 0) continue;
    ++rungs[one.rung];
    EXPECT_EQ(one.budget, std::pow(3, one.rung));
    EXPECT_EQ(static_cast<double>(one.runs.size()), one.budget);
    if (one.rung == 1) worst_promoted = std::min(worst_promoted, *one.value("height"));
  }
  EXPECT_THAT(rungs, testing::ElementsAre(std::pair(0, 9), std::pair(1, 3), std::pair(2, 1)));
  int better = 0;
  for (const Trial& one : bench.study->history().trials)
    better += one.number != 0 && one.rung == 0 && *one.value("height") > worst_promoted ? 1 : 0;
  EXPECT_EQ(better, 2);
}

}  // namespace
}  // namespace ipexrun::tuner
