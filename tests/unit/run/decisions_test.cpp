// Risk: a decision that the user pinned does not reach the program, or reaches one that must stay stock.
#include "launcher/run/decisions.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "configs/contract/decision.h"
#include "tests/unit/run/temp_folder.h"

namespace ipexrun::launcher {
namespace {

constexpr const char* kSite = "mm|f32,f32|cc|m=1,n=8,k=8|t=2|amx|2.13";

Options with_decision() {
  Options options;
  options.decisions = {std::string(R"({"site": ")") + kSite + R"(", "choice": "own_bf16", "stock_ns": 900, "note": "x"})"};
  return options;
}

TEST(Decisions, text_is_what_the_plugin_reads) {
  Options options = with_decision();
  options.dtype = "bfloat16";
  std::istringstream lines(decisions_text(options));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  Decision parsed;
  ASSERT_TRUE(parse_decision_line(line, &parsed));
  EXPECT_EQ(parsed.site.text(), kSite);
  EXPECT_EQ(parsed.choice, "own_bf16");
  EXPECT_EQ(parsed.stock_ns, 900);
  EXPECT_EQ(parsed.dtype, "bfloat16");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST(Decisions, float16_is_what_it_acts_as_inside) {
  Options options = with_decision();
  options.dtype = "float16";
  Decision parsed;
  ASSERT_TRUE(parse_decision_line(decisions_text(options).substr(0, decisions_text(options).find('\n')), &parsed));
  EXPECT_EQ(parsed.dtype, "float32");
}

TEST(Decisions, numbers_that_no_clock_gave_are_harmless) {
  for (const char* number : {"1e300", "-5", "null", "\"soon\"", "1.5e3"}) {
    Options options;
    options.decisions = {std::string(R"({"site": ")") + kSite + R"(", "choice": "own_bf16", "stock_ns": )" + number + R"(, "samples": )" +
                         number + "}"};
    const std::string text = decisions_text(options);
    Decision parsed;
    ASSERT_TRUE(parse_decision_line(text.substr(0, text.find('\n')), &parsed)) << number;
    EXPECT_GE(parsed.stock_ns, 0);
    EXPECT_GE(parsed.samples, 0);
  }
}

TEST(Decisions, every_instance_is_told_where_they_are) {
  const TempFolder folder;
  LaunchPlan plan;
  plan.instances.resize(2);
  ASSERT_TRUE(pin_decisions(with_decision(), folder.path(), &plan).ok());
  for (const InstancePlan& instance : plan.instances) {
    std::ifstream file(instance.env.at("IPEXRUN_DECISIONS"));
    EXPECT_TRUE(file.good());
  }
}

TEST(Decisions, those_for_another_number_of_threads_are_told) {
  const TempFolder folder;
  const auto said = [&folder](const std::string& threads) {
    LaunchPlan plan;
    plan.instances.resize(1);
    plan.instances[0].env["OMP_NUM_THREADS"] = threads;
    testing::internal::CaptureStderr();
    EXPECT_TRUE(pin_decisions(with_decision(), folder.path(), &plan).ok());
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said("2"), "");
  EXPECT_EQ(said("2,1"), "") << "not known";
  EXPECT_EQ(said("8"), "ipexrun: the config's decisions are for 2 threads, instances have 8: what is faster is measured anew\n");
}

TEST(Decisions, launch_only_and_no_decisions_change_nothing) {
  LaunchPlan plan;
  plan.instances.resize(1);
  Options launch_only = with_decision();
  launch_only.optimize = false;
  EXPECT_TRUE(pin_decisions(launch_only, "", &plan).ok());
  EXPECT_TRUE(pin_decisions(Options{}, "", &plan).ok());
  EXPECT_TRUE(plan.instances[0].env.empty());
}

TEST(Decisions, pinned_ones_that_cannot_be_handed_over_are_an_error) {
  LaunchPlan plan;
  plan.instances.resize(1);
  EXPECT_EQ(pin_decisions(with_decision(), "", &plan).error().code, kExitFailure);
  EXPECT_NE(pin_decisions(with_decision(), "/nowhere", &plan).error().line().find("/nowhere/decisions"), std::string::npos);
}

TEST(Decisions, what_was_pinned_is_found_again) {
  const Options options = with_decision();
  EXPECT_EQ(decisions_found(options, RunOutcome{}), options.decisions);
}

}  // namespace
}  // namespace ipexrun::launcher
