#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "configs/contract/config.h"
#include "launcher/cli/cli.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ConfigFile_ : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "ipexrun_config_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string write(const std::string& text) const {
    std::string path = folder_ + "/c.yaml";
    std::ofstream(path) << text;
    return path;
  }
  [[nodiscard]] Result<Options> parse(const std::string& text, std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {"--config", write(text)};
    args.insert(args.end(), more.begin(), more.end());
    args.emplace_back("app");
    return parse_command_line(args);
  }
  [[nodiscard]] std::string refusal(const std::string& text) const {
    const auto options = parse(text);
    if (options.ok()) return "accepted";
    EXPECT_EQ(options.error().code, kExitUsage);
    EXPECT_EQ(options.error().line().find('\n'), std::string::npos) << "one line";
    return options.error().line();
  }

  std::string folder_;
};

TEST_F(ConfigFile_, sets_options_lists_flags_and_env) {
  const Options options = parse(
                              "schema: 1\nninstances: 2\ncores-list: [0, 2]\nuse_logical_cores: yes\nno-optimize: false\n"
                              "bench-output: [a.json, b.md]\nenv: {MALLOC_CONF: \"x:1\", N: 3}\n")
                              .value();
  EXPECT_EQ(options.ninstances, 2);
  EXPECT_THAT(options.cores_list, ElementsAre(0, 2));
  EXPECT_TRUE(options.use_logical_cores);
  EXPECT_TRUE(options.optimize);
  EXPECT_THAT(options.bench.outputs, ElementsAre("a.json", "b.md"));
  EXPECT_EQ(options.env.at("MALLOC_CONF"), "x:1");
  EXPECT_EQ(options.env.at("N"), "3");
}

TEST_F(ConfigFile_, json_is_yaml) { EXPECT_EQ(parse("{\"ninstances\": 2, \"dtype\": \"float32\"}")->dtype, "float32"); }

TEST_F(ConfigFile_, an_empty_file_changes_nothing) { EXPECT_EQ(parse("# nothing\n")->ninstances, 0); }

TEST_F(ConfigFile_, the_command_line_beats_the_file_wherever_it_stands) {
  EXPECT_EQ(parse("ninstances: 2\n", {"--ninstances", "3"})->ninstances, 3);
  EXPECT_EQ(parse_command_line({"--ninstances", "3", "--config", write("ninstances: 2\n"), "app"})->ninstances, 3);
  EXPECT_THAT(parse("bench-output: a.json\n", {"--bench-output", "b.json"})->bench.outputs, ElementsAre("b.json"));
}

TEST_F(ConfigFile_, what_the_command_line_rules_out_is_dropped_with_a_note) {
  const Options options = parse("latency-mode: true\n", {"--throughput-mode"}).value();
  EXPECT_FALSE(options.latency_mode);
  EXPECT_TRUE(options.throughput_mode);
  EXPECT_THAT(options.notes, ElementsAre(HasSubstr("replaces latency-mode of the config")));
}

TEST_F(ConfigFile_, errors_name_file_line_and_key) {
  EXPECT_THAT(refusal("dtype: auto\nninstance: 2\n"), HasSubstr("c.yaml:2: unknown key 'ninstance' (did you mean ninstances?)"));
  EXPECT_THAT(refusal("ninstances: two\n"), HasSubstr("c.yaml:1: --ninstances needs auto or a whole number"));
  EXPECT_THAT(refusal("a: [1\nb: 2\n"), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal("ninstances: {a: 1}\n"), HasSubstr("needs a value"));
  EXPECT_THAT(refusal("ninstances: [1, 2]\n"), HasSubstr("c.yaml:1: ninstances needs one value, not a list"));
  EXPECT_THAT(refusal("log-dir: [a, b]\n"), HasSubstr("one value"));
  EXPECT_THAT(refusal("use-logical-cores: 7\n"), HasSubstr("true or false"));
  EXPECT_THAT(refusal("- 1\n"), HasSubstr("key: value"));
  EXPECT_THAT(refusal("ninstances: 1\nninstances: 2\n"), HasSubstr("given twice"));
  EXPECT_THAT(refusal("log-dir: a\nlog_path: b\n"), HasSubstr("given twice"));
  EXPECT_THAT(refusal("dry-run: true\n"), HasSubstr("command line only"));
  EXPECT_THAT(refusal("schema: 2\n"), HasSubstr("newer"));
  EXPECT_THAT(refusal("schema: zero\n"), HasSubstr("whole number"));
  EXPECT_THAT(refusal("env: [A]\n"), HasSubstr("NAME: value"));
  EXPECT_THAT(refusal("env: {\"A=B\": 1}\n"), HasSubstr("no name of a variable"));
  EXPECT_THAT(refusal("decisions: [{choice: x}]\n"), HasSubstr("site and choice"));
  EXPECT_THAT(refusal("decisions: [{site: mm, choice: x}]\n"), HasSubstr("site \"mm\" is none"));
  EXPECT_THAT(refusal("decisions: [{site: 7, choice: x}]\n"), HasSubstr("site 7 is none"));
  EXPECT_THAT(refusal("decisions: [{site: 'mm|f32|c|m=1|t=2|amx|2.13', choice: 7}]\n"), HasSubstr("choice 7 is none"));
  EXPECT_THAT(refusal("decisions: [{site: 'mm|f32|c|m=1|t=2|amx|2.13', choice: ''}]\n"), HasSubstr("choice \"\" is none"));
  EXPECT_THAT(refusal("decisions: [{site: 'mm|f32|c|m=1|t=2|amx|2.13', choice: \"x\\ty\"}]\n"),
              HasSubstr("the choice of a decision has a tab"));
  EXPECT_THAT(refusal("latency-mode: true\nthroughput-mode: true\n"), HasSubstr("contradict"));
}

TEST_F(ConfigFile_, decisions_are_utf8) {
  const std::string site = "\"addmm|f32,f32,f32|ct|m=128,n=768,k=768|t=2|amx|2.13\"";
  EXPECT_THAT(refusal("decisions:\n- site: " + site + "\n  choice: \xff\n"), HasSubstr("c.yaml:3: a decision has text that is not UTF-8"));
  EXPECT_THAT(refusal("decisions:\n- {site: \"mm\xc3\", choice: x}\n"), HasSubstr("c.yaml:2: a decision has text that is not UTF-8"));
  EXPECT_THAT(refusal("decisions:\n- {site: " + site + ", choice: x, \xe9: y}\n"), HasSubstr("not UTF-8"));
  const auto fine = parse("decisions:\n- {site: " + site + ", choice: \"\xc3\xa9\"}\n");
  ASSERT_TRUE(fine.ok()) << fine.error().line();
  EXPECT_THAT(fine->decisions, ElementsAre(HasSubstr("\xc3\xa9")));
}

TEST_F(ConfigFile_, two_files_are_one_too_many_whatever_they_hold) {
  for (const char* text : {"ninstances: 2\n", "env: {A: b}\n", "decisions: []\n", "# nothing\n"}) {
    const auto options = parse(text, {"--config", folder_ + "/c.yaml"});
    ASSERT_FALSE(options.ok()) << text;
    EXPECT_EQ(options.error().code, kExitUsage);
    EXPECT_THAT(options.error().line(), HasSubstr("--config is given twice"));
  }
}

TEST_F(ConfigFile_, hostile_files_are_refused) {
  EXPECT_THAT(refusal(std::string(kConfigMaxBytes + 1, '#')), HasSubstr("bytes"));
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("not valid YAML"));
  EXPECT_THAT(refusal("a: &a [x, x]\nb: *c\n"), HasSubstr("not valid YAML"));
  const auto folder = parse_command_line({"--config", folder_, "app"});
  EXPECT_THAT(folder.error().line(), HasSubstr("not a regular file"));
  EXPECT_THAT(parse_command_line({"--config", folder_ + "/none", "app"}).error().line(), HasSubstr("No such file"));
}

TEST_F(ConfigFile_, what_is_saved_reads_back_the_same) {
  const std::vector<std::string> args = {"--ninstances",
                                         "2",
                                         "--cores-list",
                                         "0-3,8",
                                         "--no-optimize",
                                         "--dtype",
                                         "auto",
                                         "--no-pin",
                                         "--pack-memory",
                                         "512M",
                                         "--log-dir",
                                         "a: b #c",
                                         "--bench-iters",
                                         "10",
                                         "--bench-seconds",
                                         "2.5",
                                         "--bench-output",
                                         "x.json",
                                         "--bench-output",
                                         "y, z.md",
                                         "--bench-compare",
                                         "stock,launch",
                                         "--bench-metric",
                                         "[a-z]+: ([0-9.]+)",
                                         "--report-output",
                                         "r.json"};
  std::vector<std::string> with_config = {
      "--config", write("env: {A: \"1\", B: \"two words\"}\n"
                        "decisions:\n  - {site: \"mm|f32,f32|cc|m=1,n=8,k=8|t=2|amx|2.13\", choice: packed, samples: 8, note: \"8\"}\n")};
  with_config.insert(with_config.end(), args.begin(), args.end());
  with_config.emplace_back("app");
  const Options before = parse_command_line(with_config).value();
  const std::string saved = folder_ + "/saved.yaml";
  ASSERT_TRUE(save_config(before, saved).ok());
  const Options after = parse_command_line({"--config", saved, "app"}).value();
  EXPECT_EQ(after.ninstances, before.ninstances);
  EXPECT_EQ(after.cores_list, before.cores_list);
  EXPECT_EQ(after.optimize, before.optimize);
  EXPECT_EQ(after.pin, before.pin);
  EXPECT_EQ(after.pack_memory, before.pack_memory);
  EXPECT_EQ(after.log_dir, "a: b #c");
  EXPECT_EQ(after.bench.enabled, true);
  EXPECT_EQ(after.bench.iters, before.bench.iters);
  EXPECT_EQ(after.bench.seconds, before.bench.seconds);
  EXPECT_EQ(after.bench.outputs, before.bench.outputs);
  EXPECT_EQ(after.bench.compare, before.bench.compare);
  EXPECT_EQ(after.bench.metric, before.bench.metric);
  EXPECT_EQ(after.report_output, "r.json");
  EXPECT_EQ(after.env, before.env);
  EXPECT_EQ(after.decisions, before.decisions);
  EXPECT_THAT(before.decisions,
              ElementsAre(R"({"choice":"packed","note":"8","samples":8,"site":"mm|f32,f32|cc|m=1,n=8,k=8|t=2|amx|2.13"})"));
}

TEST_F(ConfigFile_, ninstances_auto_is_kept) {
  const Options before = parse_command_line({"--ninstances", "auto", "--place", "l3", "app"}).value();
  const std::string saved = folder_ + "/saved.yaml";
  ASSERT_TRUE(save_config(before, saved).ok());
  const Options after = parse_command_line({"--config", saved, "app"}).value();
  EXPECT_TRUE(after.ninstances_auto);
  EXPECT_EQ(after.place, "l3");
  EXPECT_FALSE(parse_command_line({"--config", saved, "--ninstances", "2", "app"})->ninstances_auto);
}

TEST_F(ConfigFile_, a_folder_that_cannot_be_written_is_an_error) {
  const Status saved = save_config(Options{}, folder_ + "/no/such/file.yaml");
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, kExitFailure);
}

}  // namespace
}  // namespace ipexrun::launcher
