#include "tuner/space/space_file.h"

#include <gmock/gmock.h>

#include "tests/unit/tuner/fakes.h"
#include "tuner/space/parameter_names.h"

namespace ipexrun::tuner {
namespace {

using testing::HasSubstr;

const launcher::Machine kMachine = launcher::made_up::machine({4, 4}, 2);

Result<SpaceFile> parse(const std::string& text) { return parse_space_file(text, "space.yaml", kMachine); }

std::string error_of(const std::string& text) {
  const auto parsed = parse(text);
  return parsed.ok() ? "no error" : parsed.error().line();
}

TEST(SpaceFile, ReadsOurForm) {
  const auto file = parse(
      "tuning: {strategy: halving, max_trials: 20, trial-timeout: 60.5}\n"
      "output_dir: out\n"
      "objectives: [throughput, {name: p99, printed: 'p99 ms', target: 20}]\n"
      "constraints: ['p99 < 20']\n"
      "space:\n"
      "  launcher:\n"
      "    ninstances: [1, 2, ~]\n"
      "    memory_allocator: [default, jemalloc]\n"
      "    ncores-per-instance: all_physical_cores\n"
      "    thp: ['off', 'on']\n"
      "    no-pin: [true, false]\n"
      "  env:\n"
      "    MALLOC_CONF: {values: ['narenas:1', 'narenas:2'], when: {memory-allocator: jemalloc, ninstances: '> 1'}}\n"
      "  args:\n"
      "    batch: {int: [1, 64], log: true, default: 8}\n");
  ASSERT_TRUE(file.ok()) << file.error().line();
  EXPECT_FALSE(file->old_form);
  EXPECT_EQ(file->output_dir, "out");
  EXPECT_THAT(file->tuning, testing::Contains(std::pair<std::string, std::string>("max-trials", "20")));
  ASSERT_EQ(file->space.parameters.size(), 7u);
  EXPECT_EQ(file->space.parameters[1].name, "memory-allocator");
  EXPECT_EQ(file->space.find("ncores-per-instance")->values.size(), 8u);
  EXPECT_EQ(file->space.find("thp")->target, Target::kKnob);
  EXPECT_EQ(file->space.find("env.MALLOC_CONF")->when.size(), 2u);
  EXPECT_EQ(text_of(*file->space.find("args.batch")->fallback), "8");
  ASSERT_EQ(file->objectives.size(), 2u);
  EXPECT_EQ(file->objectives[1].key, "p99 ms");
  EXPECT_EQ(file->constraints[0].text(), "p99 < 20");
}

TEST(SpaceFile, ReadsTheFormOfIpex) {
  const auto file = parse(
      "tuning:\n  strategy: random\n  max_trials: 100\noutput_dir: /saving/directory\n"
      "hyperparams:\n  launcher:\n    hp: ['ncores_per_instance', 'ninstances', 'use_all_nodes', 'use_logical_cores', 'disable_numactl', "
      "'disable_iomp', 'malloc']\n"
      "    ncores_per_instance: all_physical_cores\n    ninstances: [1]\n");
  ASSERT_TRUE(file.ok()) << file.error().line();
  EXPECT_TRUE(file->old_form);
  EXPECT_EQ(file->space.parameters.size(), 7u);
  EXPECT_EQ(file->space.find("ncores_per_instance")->values.size(), 8u);
  EXPECT_EQ(file->space.find("use_all_nodes")->values.size(), 2u);      // there are two nodes
  EXPECT_EQ(file->space.find("use_logical_cores")->values.size(), 2u);  // and two threads a core
  EXPECT_EQ(file->space.find("malloc")->values.size(), 3u);
}

TEST(SpaceFile, ConditionsNameParametersWithDashesOrUnderscoresAndMistakesHaveALine) {
  const auto file = parse(
      "space:\n  launcher:\n    memory-allocator: [default, jemalloc]\n  env:\n    A: {values: [1, 2], when: {memory_allocator: "
      "jemalloc}}\n");
  ASSERT_TRUE(file.ok()) << file.error().line();
  EXPECT_TRUE(check_space(file->space, {}).ok());
  const auto wrong = parse("space:\n  env:\n    A: [1, 2]\n    B: {values: [1, 2], when: {env.C: 1}}\n");
  ASSERT_TRUE(wrong.ok());
  EXPECT_THAT(check_space(wrong->space, {}).error().line(), AllOf(HasSubstr("space.yaml:4: env.B"), HasSubstr("'env.C'")));
}

TEST(SpaceFile, DefaultsOfIpexAreAllLogicalCores) {
  const auto file = parse("hyperparams: {launcher: {hp: [ncore_per_instance]}}");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->space.parameters.front().values.size(), 16u);
}

TEST(SpaceFile, ErrorsNameLineAndKey) {
  EXPECT_THAT(error_of("tuning:\n  strategy: grid\n  max_trails: 3\n"),
              AllOf(HasSubstr("space.yaml:3:"), HasSubstr("'max_trails'"), HasSubstr("did you mean max-trials?")));
  EXPECT_THAT(error_of("tuning:\n  max_trials: many\n"), AllOf(HasSubstr("space.yaml:2:"), HasSubstr("'many'")));
  EXPECT_THAT(error_of("space:\n  launcher:\n    ninstance: [1]\n"),
              AllOf(HasSubstr("space.yaml:3:"), HasSubstr("did you mean ninstances?")));
  EXPECT_THAT(error_of("space:\n  launcher:\n    dtype: [bf16]\n"), AllOf(HasSubstr("space.yaml:3:"), HasSubstr("'bf16'")));
  EXPECT_THAT(error_of("space:\n  launcher:\n    log-dir: [a, b]\n"), HasSubstr("no option that a trial can have"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {int: [4, 1]}\n"), HasSubstr("ends before it begins"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {int: [0, 8], log: true}\n"), HasSubstr("begins above 0"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {int: [1.5, 8]}\n"), HasSubstr("whole numbers"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {valuess: [1]}\n"), HasSubstr("did you mean values?"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: []\n"), HasSubstr("empty list"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {int: [1, 8], values: [3]}\n"),
              AllOf(HasSubstr("space.yaml:3:"), HasSubstr("n has int and values")));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {int: [1, 8], log: maybe}\n"), HasSubstr("log needs true or false"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {int: [1, 8], step: 0.5}\n"), HasSubstr("step needs a whole number"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {float: [1, 8], points: 2.5}\n"), HasSubstr("points needs a whole number"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {int: [1, 8], default: 9}\n"), HasSubstr("the default 9 is not in the range"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {int: [1, 8], default: two}\n"), HasSubstr("the default two is not in the range"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {float: [0, inf]}\n"), HasSubstr("too wide"));
  EXPECT_THAT(error_of("space:\n  args:\n    n: {int: [0, 9223372036854775807]}\n"), HasSubstr("too wide"));
  EXPECT_THAT(error_of("spaces: {}\n"), AllOf(HasSubstr("space.yaml:1:"), HasSubstr("did you mean space?")));
  EXPECT_THAT(error_of("space: {}\nhyperparams: {launcher: {hp: [malloc]}}\n"), HasSubstr("two forms"));
  EXPECT_THAT(error_of("hyperparams: {launcher: {ninstances: [1]}}\n"), HasSubstr("hp"));
  EXPECT_THAT(error_of("hyperparams: {launcher: {hp: [malloc], malloc: [jemalloc]}}\n"), HasSubstr("does not take 'jemalloc'"));
  EXPECT_THAT(error_of("a: [1\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(error_of("objectives: [{regex: 'x=([0-9]+)', name: x}]\n"), HasSubstr("higher_is_better"));
  EXPECT_THAT(error_of("constraints: [p99]\n"), HasSubstr("no constraint"));
}

TEST(Set, UnderstandsListsAndRanges) {
  EXPECT_EQ(parse_set("ninstances", "1,2,4", kMachine)->values.size(), 3u);
  EXPECT_EQ(parse_set("args.n", "1..64", kMachine)->kind, Kind::kInt);
  EXPECT_TRUE(parse_set("args.n", "1..64*", kMachine)->log);
  EXPECT_EQ(parse_set("args.x", "0.1..2.5", kMachine)->high, 2.5);
  EXPECT_EQ(parse_set("ncores-per-instance", "all_logical_cores", kMachine)->values.size(), 16u);
  EXPECT_TRUE(parse_set("dtype", "float32", kMachine)->fixed());
  EXPECT_FALSE(parse_set("dtype", "float31", kMachine).ok());
  EXPECT_FALSE(parse_set("nonsense", "1", kMachine).ok());
  const auto rates = parse_set("args.lr", "1e-5..1e-2*", kMachine);  // numbers without a point are not all whole
  EXPECT_EQ(rates->kind, Kind::kFloat);
  EXPECT_EQ(grid_values(*rates).size(), 5u);
  EXPECT_FALSE(parse_set("args.lr", "nan..1", kMachine).ok());
}

TEST(DefaultSpace, SuitsMachineAndObjective) {
  const Space throughput = default_space("throughput", kMachine, {"jemalloc"});
  EXPECT_EQ(throughput.find("ninstances")->values.size(), 4u);  // 1, 2, 4, 8
  EXPECT_NE(throughput.find("use-logical-cores"), nullptr);
  EXPECT_EQ(throughput.find("memory-allocator")->values.size(), 2u);
  const Space latency = default_space("latency", kMachine, {});
  EXPECT_NE(latency.find("ncores-per-instance"), nullptr);
  EXPECT_EQ(latency.find("memory-allocator"), nullptr);
  const Space one_core = default_space("throughput", launcher::made_up::machine({1}), {});
  EXPECT_EQ(one_core.find("ninstances"), nullptr);
}

}  // namespace
}  // namespace ipexrun::tuner
