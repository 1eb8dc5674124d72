// The risk: warm-up, exploration or a failed call counted as steady state; a ring that wraps and silently loses calls.
#include "launcher/bench/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "configs/contract/event_ring.h"

namespace ipexrun::launcher::bench {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

/// Calls of `ms` each that start every 10 ms.
InstanceSamples calls(const std::vector<int>& ms, const std::string& module = "Model") {
  InstanceSamples out;
  out.modules = {module};
  std::uint64_t start = 1000 * kMs;
  for (const int duration : ms) {
    out.calls.push_back({start, static_cast<std::uint64_t>(duration) * kMs, 0, 4, 0});
    start += 10 * kMs;
  }
  return out;
}

TEST(Measure, DefaultWarmupIsTenCallsAndAtMostAQuarter) {
  const BenchOptions options;
  EXPECT_EQ(warmup_calls(options, 1000), 10);
  EXPECT_EQ(warmup_calls(options, 40), 10);
  EXPECT_EQ(warmup_calls(options, 20), 5);
  EXPECT_EQ(warmup_calls(options, 3), 0);
  BenchOptions asked;
  asked.warmup = 7;
  EXPECT_EQ(warmup_calls(asked, 1000), 7);
  EXPECT_EQ(warmup_calls(asked, 5), 5);
}

TEST(Measure, ExploringAndFailedCallsNeverCount) {
  InstanceSamples samples = calls({9, 5, 5, 5, 5});
  samples.calls[1].flags = IPEXRUN_CALL_EXPLORING;
  samples.calls[2].flags = IPEXRUN_CALL_FAILED;
  samples.calls[3].flags = IPEXRUN_CALL_TRAINING;
  BenchOptions options;
  options.warmup = 1;
  const auto all = measure(samples, options);
  ASSERT_EQ(all.size(), 1u);
  const Measurement& one = all.front();
  EXPECT_EQ(one.seen, 5);
  EXPECT_EQ(one.explored, 1);
  EXPECT_EQ(one.failed, 1);
  EXPECT_EQ(one.warmup, 1);
  EXPECT_EQ(one.training, 1);
  EXPECT_DOUBLE_EQ(one.first_ms, 9);
  EXPECT_THAT(one.duration_ms, testing::ElementsAre(5, 5));
  EXPECT_DOUBLE_EQ(one.samples().value(), 8);
  EXPECT_NEAR(one.busy_seconds, 0.010, 1e-12);
  EXPECT_NEAR(one.span_seconds, 0.015, 1e-12);
}

TEST(Measure, ItersAndSecondsBoundTheWindow) {
  BenchOptions options;
  options.warmup = 2;
  options.iters = 3;
  const InstanceSamples samples = calls(std::vector<int>(20, 1));
  EXPECT_EQ(measure(samples, options).front().duration_ms.size(), 3u);
  EXPECT_TRUE(window_full(samples, options));
  EXPECT_FALSE(window_full(calls({1, 1, 1, 1}), options));
  options.iters.reset();
  options.seconds = 0.05;  // starts at 0, 10, 20, 30 and 40 ms
  EXPECT_EQ(measure(samples, options).front().duration_ms.size(), 5u);
  EXPECT_TRUE(window_full(samples, options));
  EXPECT_FALSE(window_full(calls(std::vector<int>(7, 1)), options));
  EXPECT_FALSE(window_full(samples, BenchOptions{}));
}

TEST(Measure, CallsOfSeveralThreadsOverlapOnlyOnce) {
  InstanceSamples samples;
  samples.modules = {"Model"};
  samples.calls = {{0, 10 * kMs, 0, 1, 0}, {5 * kMs, 10 * kMs, 0, 1, 0}, {20 * kMs, 5 * kMs, 0, 1, 0}};
  BenchOptions options;
  options.warmup = 0;
  EXPECT_NEAR(measure(samples, options).front().busy_seconds, 0.020, 1e-12);
}

TEST(Measure, UnknownBatchMakesSamplesUnknown) {
  InstanceSamples samples = calls({1, 1});
  samples.calls[1].batch = 0;
  EXPECT_FALSE(measure(samples, BenchOptions{}).front().samples());
}

TEST(Measure, DominantModuleIsTheOneThatTakesTheTime) {
  InstanceSamples samples = calls({1, 1, 1, 1, 1});
  samples.modules.push_back("Big");
  samples.calls.push_back({2000 * kMs, 50 * kMs, 0, 1, 1});
  EXPECT_EQ(dominant_module(measure(samples, BenchOptions{})), "Big");
  EXPECT_EQ(dominant_module({}), "");
}

class Ring : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "ring-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/events";
    ASSERT_TRUE(create_event_file(path_).ok());
    ASSERT_TRUE(writer_.open(path_));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(int count) {
    IpexrunEvent event{};
    event.kind = IPEXRUN_EVENT_CALL;
    event.duration_ns = kMs;
    for (int i = 0; i < count; ++i) writer_.write(event, "Model");
  }
  std::string folder_;
  std::string path_;
  EventWriter writer_;
};

TEST_F(Ring, ReadsOnAfterItWrapped) {
  Collector collector({0}, {path_});
  write(40000);
  collector.poll();
  write(40000);
  collector.poll();
  collector.poll(true);
  EXPECT_EQ(collector.instances()[0].calls.size(), 80000u);
  EXPECT_EQ(collector.instances()[0].lost, 0u);
}

TEST_F(Ring, CountsWhatWasOverwritten) {
  Collector collector({0}, {path_});
  write(static_cast<int>(IPEXRUN_EVENT_CAPACITY) + 500);
  collector.poll(true);
  EXPECT_EQ(collector.instances()[0].calls.size(), IPEXRUN_EVENT_CAPACITY);
  EXPECT_EQ(collector.instances()[0].lost, 500u);
}

TEST_F(Ring, ATornRecordIsReadLaterOrCountedAsLost) {
  write(3);
  std::FILE* file = std::fopen(path_.c_str(), "r+b");
  const long slot = IPEXRUN_EVENT_HEADER_BYTES + static_cast<long>(sizeof(IpexrunEvent));
  const std::uint64_t torn = 0;
  const std::uint64_t whole = 2;
  const auto set_sequence = [&](std::uint64_t value) {
    std::fseek(file, slot, SEEK_SET);
    std::fwrite(&value, sizeof value, 1, file);
    std::fflush(file);
  };
  set_sequence(torn);
  Collector collector({0}, {path_});
  collector.poll();
  EXPECT_EQ(collector.instances()[0].calls.size(), 1u);
  Collector late({0}, {path_});
  late.poll(true);
  EXPECT_EQ(late.instances()[0].calls.size(), 2u);
  EXPECT_EQ(late.instances()[0].lost, 1u);
  set_sequence(whole);
  collector.poll();
  EXPECT_EQ(collector.instances()[0].calls.size(), 3u);
  EXPECT_EQ(collector.instances()[0].lost, 0u);
  std::fclose(file);
}

TEST_F(Ring, MissingFileIsNoSamples) {
  Collector collector({0}, {folder_ + "/absent"});
  collector.poll(true);
  EXPECT_TRUE(collector.instances()[0].calls.empty());
}

}  // namespace
}  // namespace ipexrun::launcher::bench
