#include "tuner/run/launch.h"

#include <gmock/gmock.h>

#include "tests/unit/tuner/fakes.h"
#include "tuner/run/trial_runner.h"
#include "tuner/space/parameter_names.h"
#include "tuner/space/space_file.h"

namespace ipexrun::tuner {
namespace {

using testing::ElementsAre;

const launcher::Machine kMachine = launcher::made_up::machine({4}, 2);

Result<launcher::PlanContext> made_up_world(const launcher::Options&, const launcher::Machine&) { return launcher::made_up::context(); }

Space space_of(const std::string& yaml) {
  auto file = parse_space_file(yaml, "space.yaml", kMachine);
  EXPECT_TRUE(file.ok()) << file.error().line();
  return file->space;
}

TEST(Launch, WordsOfAPoint) {
  const Space space = space_of(
      "space:\n  launcher: {ninstances: [1, 2], no-pin: [true, false], thp: ['off', 'on'], omp-wait-policy: [default, active]}\n"
      "  env: {A: [x, ~]}\n  args: {batch: [4, 8]}\n");
  const Point point = {{"ninstances", std::int64_t{2}}, {"no-pin", std::string("true")},
                       {"thp", std::string("on")},      {"omp-wait-policy", std::string("default")},
                       {"env.A", std::monostate{}},     {"args.batch", std::int64_t{8}}};
  const LaunchWords words = words_of(space, point, {{"-m", "serve", "--batch={batch}", "{other}", "{budget}"}, false, {2, 3}, 9});
  EXPECT_THAT(words.options, ElementsAre("--ninstances=2", "--no-pin", "--cores-list=2-3"));
  EXPECT_THAT(words.env, ElementsAre(std::pair<const std::string, std::string>("THP_MEM_ALLOC_ENABLE", "1")));
  EXPECT_THAT(words.program, ElementsAre("-m", "serve", "--batch=8", "{other}", "9"));
  const auto options = options_of(words);
  ASSERT_TRUE(options.ok()) << options.error().line();
  EXPECT_EQ(options->program_kind, launcher::ProgramKind::kModule);
  EXPECT_EQ(options->ninstances, 2);
  EXPECT_EQ(options->env.at("THP_MEM_ALLOC_ENABLE"), "1");
}

TEST(Launch, KnobsOfIpexBecomeOptions) {
  const Space space = space_of(
      "hyperparams: {launcher: {hp: [ncore_per_instance, ninstances, use_all_nodes, use_logical_core, disable_numactl, disable_iomp, "
      "malloc]}}");
  const Point point = {{"ncore_per_instance", std::int64_t{2}},
                       {"ninstances", std::int64_t{-1}},
                       {"use_all_nodes", std::string("False")},
                       {"use_logical_core", std::string("True")},
                       {"disable_numactl", std::string("true")},
                       {"disable_iomp", std::string("true")},
                       {"malloc", std::string("je")}};
  EXPECT_THAT(words_of(space, point, {{"a.py"}, false, {}, 1}).options,
              ElementsAre("--ncores-per-instance=2", "--nodes-list=0", "--use-logical-cores", "--no-memory-bind", "--omp-runtime=default",
                          "--memory-allocator=jemalloc"));
}

TEST(Launch, TheCommandOfATrial) {
  RunRequest request;
  request.words.program = {"serve.py", "--log-dir", "theirs"};
  request.folder = "/s/trials/0001/run1";
  request.timeout_s = 12.5;
  EXPECT_THAT(trial_command("/bin/ipexrun", request, "/s/c.yaml"),
              ElementsAre("/bin/ipexrun", "--config", "/s/c.yaml", "--log-dir", "/s/trials/0001/run1/logs", "--timeout", "12.5",
                          "--bench-output", "/s/trials/0001/run1/bench.json", "--", "serve.py", "--log-dir", "theirs"));
  request.bench = false;
  request.words.program = {"-m", "serve"};
  EXPECT_THAT(trial_command("/bin/ipexrun", request, "c"),
              ElementsAre("/bin/ipexrun", "--config", "c", "--log-dir", "/s/trials/0001/run1/logs", "--timeout", "12.5", "-m", "serve"));
}

TEST(Launch, ThePlannerRefusesWhatCannotBe) {
  LaunchPlanner planner(kMachine, made_up_world);
  const Space space = space_of("space: {launcher: {ninstances: [1, 2, 4], ncores-per-instance: [1, 2, 4]}}");
  int refused = 0;
  std::map<std::string, int> plans;
  for (std::uint64_t i = 0; i < grid_size(space); ++i) {
    const Feasibility plan = planner.check(words_of(space, grid_point(space, i), {{"/bin/true"}, false, {}, 1}));
    if (plan.why.empty()) {
      ++plans[plan.plan_key];
    } else {
      ++refused;
    }
  }
  EXPECT_EQ(refused, 3);  // 2 x 4, 4 x 2, 4 x 4
  EXPECT_EQ(plans.size(), 6u);
}

TEST(Launch, EqualPlansAreTold) {
  LaunchPlanner planner(kMachine, made_up_world);
  const Space space = space_of("space: {launcher: {ninstances: [1, 2], latency-mode: [true, false], memory-allocator: [auto, default]}}");
  const auto key = [&](const Point& point) { return planner.check(words_of(space, point, {{"/bin/true"}, false, {}, 1})).plan_key; };
  EXPECT_EQ(key({}), key({{"ninstances", std::int64_t{1}}}));
  EXPECT_NE(key({}), key({{"ninstances", std::int64_t{2}}}));
  // Contradictions are refused like impossible numbers.
  EXPECT_FALSE(
      planner
          .check(words_of(space, {{"ninstances", std::int64_t{1}}, {"latency-mode", std::string("true")}}, {{"/bin/true"}, false, {}, 1}))
          .why.empty());
}

TEST(Slices, AreDisjointAndHoldAllCores) {
  const launcher::Machine machine = launcher::made_up::machine({5, 2}, 2);
  std::vector<int> all;
  for (int i = 0; i < 3; ++i) {
    const std::vector<int> slice = slice_of(machine, 3, i);
    EXPECT_GE(slice.size(), 4u);
    all.insert(all.end(), slice.begin(), slice.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all.size(), 14u);
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(slice_of(machine, 1, 0), all);
}

}  // namespace
}  // namespace ipexrun::tuner
