// run_bench() from end to end with a runner that starts nothing: it writes the events and outputs that instances would have written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "configs/contract/event_ring.h"
#include "launcher/bench/bench.h"

namespace ipexrun::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kMs = 1'000'000;

struct Script {
  int calls = 0;
  std::uint64_t ms = 10;
  std::string output;
  int exit_code = 0;
};

/// The variant is in the plan's argv[0]; each run takes that variant's script.
class FakeRunner final : public Runner {
 public:
  std::map<std::string, Script> scripts;
  std::vector<std::string> order;
  std::vector<bool> quiet;
  int ticks = 0;

  Result<RunOutcome> run(const LaunchPlan& plan, const RunSettings& settings) override {
    const std::string variant = plan.instances.front().argv.front();
    order.push_back(variant);
    quiet.push_back(settings.quiet);
    const Script& script = scripts[variant];
    RunOutcome out;
    out.exit_code = script.exit_code;
    for (const InstancePlan& one : plan.instances) out.instances.push_back(instance(one, settings, script));
    return out;
  }

 private:
  InstanceOutcome instance(const InstancePlan& plan, const RunSettings& settings, const Script& script) {
    InstanceOutcome out;
    out.index = plan.index;
    out.exit_code = script.exit_code;
    out.wall_seconds = 1;
    out.events_path = events_path_in(settings.run_dir, plan.index);
    out.output_path = settings.run_dir + "/out-" + std::to_string(plan.index);
    std::ofstream(out.output_path) << script.output;
    std::filesystem::remove(out.events_path);
    if (!create_event_file(out.events_path).ok()) ADD_FAILURE() << out.events_path;
    EventWriter writer;
    EXPECT_TRUE(writer.open(out.events_path));
    IpexrunEvent event{};
    event.kind = IPEXRUN_EVENT_PROCESS;
    writer.write(event, "torch 2.13.0+cpu, amx, 2 threads");
    for (int i = 0; i < script.calls; ++i) {
      event = {};
      event.kind = IPEXRUN_EVENT_CALL;
      event.start_ns = 1000 * kMs + static_cast<std::uint64_t>(i) * 20 * kMs;
      event.duration_ns = script.ms * kMs;
      event.value[0] = 8;
      writer.write(event, "Model");
      if (i % 10 == 9) {
        ++ticks;
        if (settings.tick && !settings.tick()) {
          out.stopped_by_us = true;
          break;
        }
      }
    }
    return out;
  }
};

class RunBench : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "bench-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    options_.bench.enabled = true;
    options_.bench.outputs = {folder_ + "/report.json"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  int run() {
    const auto plan_for = [&](const std::string& variant) -> Result<LaunchPlan> {
      LaunchPlan plan;
      for (int i = 0; i < (variant == "ipexrun" ? instances_ : 1); ++i) {
        InstancePlan one;
        one.index = i;
        one.cpus = {i};
        one.threads = 1;
        one.argv = {variant};
        plan.instances.push_back(one);
      }
      return plan;
    };
    testing::internal::CaptureStderr();
    const Result<int> code = run_bench(options_, Machine{}, plan_for, runner_, folder_);
    text_ = testing::internal::GetCapturedStderr();
    if (!code.ok()) {
      error_ = code.error();
      return -1;
    }
    std::ifstream file(folder_ + "/report.json");
    json_ = nlohmann::json::parse(file, nullptr, false);
    return *code;
  }

  Options options_;
  FakeRunner runner_;
  int instances_ = 1;
  std::string folder_;
  std::string text_;
  nlohmann::json json_;
  Error error_;
};

TEST_F(RunBench, ReportsModuleCalls) {
  runner_.scripts["ipexrun"] = {100, 10, "", 0};
  EXPECT_EQ(run(), 0);
  const auto& row = json_["rows"][0];
  EXPECT_EQ(json_["headline"], "p50 of Model");
  EXPECT_EQ(row["calls"], 90);
  EXPECT_EQ(row["warmup_calls"], 10);
  EXPECT_DOUBLE_EQ(row["p50_ms"].get<double>(), 10);
  EXPECT_NEAR(row["samples_per_s"].get<double>(), 800, 1e-6);
  EXPECT_NEAR(row["busy"].get<double>(), 50, 1);
  EXPECT_EQ(json_["environment"]["torch"], "2.13.0+cpu");
  EXPECT_EQ(json_["environment"]["isa_used"], "amx");
  EXPECT_THAT(text_, HasSubstr("ipexrun: bench: p50 of Model"));
}

TEST_F(RunBench, SumsInstances) {
  instances_ = 3;
  runner_.scripts["ipexrun"] = {50, 10, "", 0};
  EXPECT_EQ(run(), 0);
  ASSERT_EQ(json_["rows"].size(), 4u);
  EXPECT_EQ(json_["rows"][0]["instance"], "all");
  EXPECT_NEAR(json_["rows"][0]["samples_per_s"].get<double>(), 2400, 1e-6);
  EXPECT_NEAR(json_["rows"][3]["samples_per_s"].get<double>(), 800, 1e-6);
  EXPECT_EQ(json_["headline"], "samples/s of Model");
}

TEST_F(RunBench, ComparesInAbbaOrderAndShowsTheOutputOnce) {
  options_.bench.compare = {"launch", "stock"};
  options_.bench.pairs = 3;
  runner_.scripts["stock"] = {60, 20, "same\n", 0};
  runner_.scripts["launch"] = {60, 16, "same\n", 0};
  runner_.scripts["ipexrun"] = {60, 10, "same\n", 0};
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(runner_.order, ElementsAre("stock", "launch", "ipexrun", "ipexrun", "launch", "stock", "stock", "launch", "ipexrun"));
  EXPECT_THAT(runner_.quiet, ElementsAre(true, true, false, true, true, true, true, true, true));
  ASSERT_EQ(json_["comparisons"].size(), 2u);
  EXPECT_NEAR(json_["comparisons"][1]["speedup"].get<double>(), 2, 1e-9);
  EXPECT_NEAR(json_["comparisons"][0]["speedup"].get<double>(), 1.25, 1e-9);
  EXPECT_EQ(json_["rows"][0]["calls"], 3 * 50);
  EXPECT_THAT(text_, HasSubstr("ipexrun against stock: 2.00x"));
  EXPECT_THAT(text_, HasSubstr("stock and ipexrun printed the same output"));
  EXPECT_THAT(text_, HasSubstr("--bench-pairs 6 or more"));
}

TEST_F(RunBench, StopsTheProgramWhenTheWindowIsFull) {
  options_.bench.stop = true;
  options_.bench.iters = 20;
  runner_.scripts["ipexrun"] = {1000, 10, "", 0};
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(runner_.ticks, 3);  // 10 warm-up and 20 measured calls
  EXPECT_EQ(json_["rows"][0]["calls"], 20);
}

TEST_F(RunBench, TakesAMetricLineWhenThereAreNoCalls) {
  options_.bench.compare = {"stock"};
  runner_.scripts["stock"] = {0, 0, "throughput: 100 samples/s\n", 0};
  runner_.scripts["ipexrun"] = {0, 0, "throughput: 300 samples/s\n", 0};
  EXPECT_EQ(run(), 0);
  EXPECT_NEAR(json_["comparisons"][0]["speedup"].get<double>(), 3, 1e-9);
  EXPECT_EQ(json_["rows"][0]["measured"], "metric line");
  EXPECT_THAT(text_, HasSubstr("the same output apart from numbers"));
}

TEST_F(RunBench, TimesTheWholeProgramOtherwise) {
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(json_["rows"][0]["measured"], "whole program");
  EXPECT_THAT(text_, HasSubstr("timed as a whole"));
}

TEST_F(RunBench, AFailingVariantEndsTheComparisonAndIsSaid) {
  options_.bench.compare = {"stock"};
  runner_.scripts["stock"] = {60, 20, "", 0};
  runner_.scripts["ipexrun"] = {60, 10, "", 7};
  EXPECT_EQ(run(), 7);
  EXPECT_EQ(runner_.order.size(), 2u);
  EXPECT_THAT(text_, HasSubstr("the ipexrun run of round 1 ended with exit code 7"));
  EXPECT_TRUE(json_["comparisons"].empty());
}

TEST_F(RunBench, DifferentOutputIsAWarning) {
  options_.bench.compare = {"stock"};
  runner_.scripts["stock"] = {60, 20, "label cat\n", 0};
  runner_.scripts["ipexrun"] = {60, 10, "label dog\n", 0};
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(text_, HasSubstr("warning: the outputs differ from line 1"));
}

TEST_F(RunBench, BadOutputOrMetricStartsNothing) {
  options_.bench.outputs = {"/nonexistent-folder/r.json"};
  EXPECT_EQ(run(), -1);
  EXPECT_THAT(error_.what, HasSubstr("cannot write --bench-output"));
  options_.bench.outputs.clear();
  options_.bench.metric = "[";
  EXPECT_EQ(run(), -1);
  EXPECT_EQ(error_.code, kExitUsage);
  EXPECT_TRUE(runner_.order.empty());
}

}  // namespace
}  // namespace ipexrun::launcher
