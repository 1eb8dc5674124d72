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

TEST(Grid, OfManyMillionsIsVisitedByChanceAndComesToAnEnd) {
  Space space;
  for (const char* name : {"a", "b", "c", "d"}) space.parameters.push_back(category(name, fakes::numbers(1, 2000)));
  const auto firsts = [&space](std::uint64_t seed) {
    const auto grid = grid_strategy(space, {seed, 100, false});
    std::vector<std::string> out;
    for (int i = 0; i < 20; ++i) out.push_back(key_of(grid->ask({}, [](const Point&) { return Judgement{}; })->proposal.point));
    return out;
  };
  EXPECT_EQ(firsts(1), firsts(1));
  EXPECT_NE(firsts(1), firsts(2));
  std::set<std::string> of_a;
  for (const std::string& one : firsts(1)) of_a.insert(one.substr(0, one.find(';')));
  EXPECT_GT(of_a.size(), 10u);
  const auto none = grid_strategy(space, {0, 100, false})->ask({}, [](const Point&) { return Judgement{Use::kInfeasible, "no", -1}; });
  EXPECT_EQ(none->what, Answer::What::kDone);
  for (std::size_t i = 1; i < 4; ++i) space.parameters[i].when = {{"a", Condition::Op::kIn, {std::string("never")}}};
  const auto few = grid_strategy(space, {0, 100, false});  // 2000 points
  int met = 0;
  while (few->ask({}, [](const Point&) { return Judgement{}; })->what == Answer::What::kPoint) ++met;
  EXPECT_EQ(met, 2000);
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

/// Sentences a second of a small encoder on 16 cores, and the 99th percentile of a call in ms, as a search in full measured them:
/// 1, 2, 4, 8, 16 instances, four allocators, three ways of waiting.
RunReport sixteen_cores(const std::map<std::string, std::string>& env, int) {
  constexpr double kRate[5][4][3] = {{{507, 448, 330}, {579, 409, 288}, {450, 468, 242}, {518, 501, 301}},
                                     {{706, 775, 614}, {845, 817, 556}, {876, 470, 514}, {808, 817, 522}},
                                     {{1257, 1361, 994}, {1322, 1234, 854}, {1102, 1152, 876}, {1212, 1208, 1012}},
                                     {{1487, 1388, 1258}, {1758, 1318, 1283}, {1943, 1763, 1355}, {1570, 1754, 1310}},
                                     {{2040, 2148, 1984}, {1901, 1950, 2086}, {1880, 1917, 1972}, {1877, 1782, 2120}}};
  constexpr double kP99[5][4][3] = {{{3.2, 2.7, 4.2}, {2.3, 5.9, 5.2}, {3.7, 4.9, 7.2}, {2.5, 3.0, 5.2}},
                                    {{4.0, 3.6, 4.4}, {3.7, 3.4, 5.7}, {4.6, 10.0, 5.8}, {5.0, 3.8, 6.1}},
                                    {{4.4, 4.3, 5.6}, {4.3, 4.6, 6.7}, {5.0, 4.8, 7.6}, {4.9, 5.0, 6.0}},
                                    {{7.3, 7.8, 9.0}, {7.0, 8.8, 8.6}, {6.5, 6.9, 8.7}, {9.3, 7.1, 9.2}},
                                    {{13.2, 11.7, 11.0}, {12.8, 12.4, 12.0}, {13.8, 11.4, 12.6}, {13.7, 13.6, 10.7}}};
  const int n = static_cast<int>(std::log2(number(env, "ninstances", 1)));
  const int allocator = static_cast<int>(number(env, "allocator"));
  const int wait = static_cast<int>(number(env, "wait"));
  RunReport out = fakes::prints("rate", true, kRate[n][allocator][wait]);
  out.output.bench = {{"p99_ms", kP99[n][allocator][wait]}};
  return out;
}

/// The best rate that climb finds in a quarter of the grid's trials.
double climbed(std::vector<Constraint> constraints) {
  const Folder folder;
  Space space;
  space.parameters = {category("ninstances", {1, 2, 4, 8, 16}), category("allocator", fakes::numbers(0, 3)),
                      category("wait", fakes::numbers(0, 2))};
  Bench bench(folder, space, sixteen_cores, [&](Settings& s) {
    s.strategy = "climb";
    s.max_trials = 15;
    s.constraints = std::move(constraints);
  });
  bench.plan = [](const LaunchWords& words) {  // what is not set is the same launch as its first value
    Feasibility out;
    for (const std::string name : {"ninstances", "allocator", "wait"})
      out.plan_key += std::to_string(number(words.env, name, name == "ninstances" ? 1 : 0)) + " ";
    return out;
  };
  EXPECT_TRUE(bench.study->search().ok());
  const auto best = ranked(bench.study->history(), bench.study->history().objectives.front());
  return best.empty() ? 0 : *best.front()->value("rate");
}

TEST(Climb, FindsTheBestOfAMeasuredGridInAQuarterOfItsTrials) { EXPECT_EQ(climbed({}), 2148); }

TEST(Climb, GoesThroughWhatBreaksAConstraintByLittle) {
  // Eight instances keep the limit with one allocator of four only: no single change of a launch that keeps it leads there.
  EXPECT_EQ(climbed({*parse_constraint("p99_ms < 6.8")}), 1943);
}

TEST(Climb, ComesFromADefaultThatBreaksAConstraint) { EXPECT_GT(climbed({*parse_constraint("p99_ms < 3")}), 0); }

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
