#include <gmock/gmock.h>

#include "tests/unit/tuner/fakes.h"
#include "tuner/cli/settings_table.h"
#include "tuner/cli/tune.h"

namespace ipexrun::tuner {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const launcher::Machine kMachine = launcher::made_up::machine({2});
std::vector<std::string> none() { return {}; }

std::string error_of(const std::vector<std::string>& args) {
  const auto made = make_settings(args, kMachine, none);
  return made.ok() ? "no error" : made.error().line();
}

TEST(CommandLine, EverythingAfterTheProgramIsTheProgramS) {
  const auto s = parse_tune_command({"--max-trials", "5", "--seed=7", "--objective=latency", "a.py", "--seed", "9", "--help"});
  ASSERT_TRUE(s.ok()) << s.error().line();
  EXPECT_EQ(s->max_trials, 5);
  EXPECT_EQ(s->seed, 7u);
  EXPECT_THAT(s->program, ElementsAre("a.py", "--seed", "9", "--help"));
  EXPECT_THAT(parse_tune_command({"-m", "mod", "x"})->program, ElementsAre("-m", "mod", "x"));
  EXPECT_THAT(parse_tune_command({"--", "report"})->program, ElementsAre("report"));
  EXPECT_EQ(parse_tune_command({"report", "folder"})->command, TuneCommand::kReport);
  EXPECT_EQ(parse_tune_command({"--conf_file", "x.yaml", "a.py"})->conf_file, "x.yaml");
}

TEST(CommandLine, ErrorsSayWhatWasMeant) {
  EXPECT_THAT(error_of({"--max-trails", "3", "a"}), HasSubstr("did you mean --max-trials?"));
  EXPECT_THAT(error_of({"--ninstances", "2", "a"}), HasSubstr("--set ninstances=VALUE"));
  EXPECT_THAT(error_of({"--max-trials", "0", "a"}), HasSubstr("'0'"));
  EXPECT_THAT(error_of({"--max-trials"}), HasSubstr("needs a value"));
  EXPECT_THAT(error_of({}), HasSubstr("no PROGRAM"));
  EXPECT_THAT(error_of({"-m"}), HasSubstr("no PROGRAM"));
  EXPECT_THAT(error_of({"--strategy", "bayes", "a"}), HasSubstr("one of auto, grid"));
  EXPECT_THAT(error_of({"--topology", "core:2", "a"}), HasSubstr("--dry-run"));
  EXPECT_THAT(error_of({"compare", "a"}), HasSubstr("two studies"));
}

TEST(Settings, TheStrategyIsChosenByTheSizeOfTheGrid) {
  EXPECT_EQ(make_settings({"--set", "env.A=1,2,3", "a"}, kMachine, none)->strategy, "grid");
  EXPECT_EQ(make_settings({"--set", "env.A=1..300", "a"}, kMachine, none)->strategy, "climb");
  EXPECT_EQ(make_settings({"a"}, kMachine, none)->objectives.front().name, "throughput");
  EXPECT_EQ(make_settings({"a"}, kMachine, none)->output_dir, "hypertune");
}

TEST(Settings, SetReplacesOrFixesWhatTheDefaultSpaceHas) {
  const auto fixed = make_settings({"--set", "thp=on", "a"}, kMachine, none);
  ASSERT_TRUE(fixed.ok());
  EXPECT_TRUE(fixed->space.find("thp")->fixed());
  EXPECT_FALSE(fixed->space.find("ninstances")->fixed());
  const auto own = make_settings({"--set", "args.b=1,2", "a", "{b}"}, kMachine, none);
  EXPECT_EQ(own->space.parameters.size(), 1u);
}

TEST(Settings, WhatCannotWorkIsRefused) {
  EXPECT_THAT(error_of({"--set", "args.b=1,2", "a"}), HasSubstr("no {b}"));
  EXPECT_THAT(error_of({"--jobs", "3", "a"}), HasSubstr("on 2 cores"));
  EXPECT_THAT(error_of({"--strategy", "halving", "--budget", "placeholder", "a"}), HasSubstr("{budget}"));
  EXPECT_THAT(error_of({"--objective", "wall", "--prefer", "rate", "a"}), HasSubstr("there are: wall"));
  EXPECT_THAT(error_of({"--conf-file", "/nowhere.yaml", "a"}), HasSubstr("/nowhere.yaml"));
}

TEST(Settings, WhatWouldHaveNoEffectIsRefused) {
  EXPECT_THAT(error_of({"--storage", "sqlite:///x.db", "--set", "env.A=1,2", "a"}),
              HasSubstr("--storage sqlite:///x.db is for strategies of Optuna"));
  EXPECT_THAT(error_of({"--study-name", "x", "--strategy", "climb", "--set", "env.A=1,2", "a"}), HasSubstr("this search is by climb"));
  EXPECT_TRUE(make_settings({"--study-name", "x", "--strategy", "tpe", "--set", "env.A=1,2", "a"}, kMachine, none).ok());
  EXPECT_THAT(error_of({"--output", "x.html", "--set", "env.A=1,2", "a"}), HasSubstr("goes with report and compare"));
}

TEST(Settings, AnOptionOfIpexrunIsPointedToOnlyWhereATrialCanHaveIt) {
  EXPECT_THAT(error_of({"--dtype", "float32", "a"}), HasSubstr("--set dtype=VALUE"));
  for (const char* option : {"--config", "--bench", "--log-dir"})
    EXPECT_THAT(error_of({option, "x", "a"}), testing::AllOf(HasSubstr("not of hypertune"), testing::Not(HasSubstr("--set")))) << option;
}

TEST(Settings, TheCommandLineBeatsTheFile) {
  const fakes::Folder folder;
  std::ofstream(folder.path("s.yaml")) << "tuning: {max_trials: 7, seed: 5}\nspace: {env: {A: [1, 2]}}\n";
  const auto s = make_settings({"--conf-file", folder.path("s.yaml"), "--seed", "9", "a"}, kMachine, none);
  ASSERT_TRUE(s.ok()) << s.error().line();
  EXPECT_EQ(s->max_trials, 7);
  EXPECT_EQ(s->seed, 9u);
}

TEST(Settings, AnOldFileRunsAsIpexRanIt) {
  const fakes::Folder folder;
  std::ofstream(folder.path("s.yaml")) << "hyperparams: {launcher: {hp: [ninstances], ninstances: [1, 2]}}\n";
  const auto s = make_settings({"--conf-file", folder.path("s.yaml"), "a"}, kMachine, none);
  ASSERT_TRUE(s.ok()) << s.error().line();
  EXPECT_TRUE(s->old_rule);
  EXPECT_TRUE(s->objectives.empty());
  EXPECT_EQ(s->strategy, "grid");
  EXPECT_EQ(s->repeats, 1);
  EXPECT_EQ(s->output_dir, ".");
  EXPECT_EQ(make_settings({"--conf-file", folder.path("s.yaml"), "a", "--repeats", "5"}, kMachine, none)->repeats, 1);  // of the program
  EXPECT_EQ(make_settings({"--conf-file", folder.path("s.yaml"), "--repeats", "5", "a"}, kMachine, none)->repeats, 5);
}

TEST(Settings, ATimeThatNoClockHoldsIsRefused) {
  EXPECT_FALSE(parse_tune_command({"--max-time", "nan", "true"}).ok());
  EXPECT_FALSE(make_settings({"--trial-timeout", "1e300", "--set", "env.A=1,2", "a"}, kMachine, none).ok());
  EXPECT_TRUE(make_settings({"--trial-timeout", "1e7", "--set", "env.A=1,2", "a"}, kMachine, none).ok());
}

}  // namespace
}  // namespace ipexrun::tuner
