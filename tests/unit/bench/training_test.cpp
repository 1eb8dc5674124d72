// Risk: steps that selection disturbed count, time is lost between phases, or the wrong part is named as the bottleneck.
#include "launcher/bench/training.h"

#include <gtest/gtest.h>

namespace ipexrun::launcher::bench {
namespace {

constexpr std::int64_t kMs = 1'000'000;

StepSample step(std::int64_t data_ms, std::int64_t forward_ms, std::int64_t backward_ms, std::int64_t optimizer_ms, std::int64_t other_ms) {
  StepSample out;
  out.duration_ns = static_cast<std::uint64_t>((data_ms + forward_ms + backward_ms + optimizer_ms + other_ms) * kMs);
  out.data_ns = data_ms * kMs;
  out.forward_ns = forward_ms * kMs;
  out.backward_ns = backward_ms * kMs;
  out.optimizer_ns = optimizer_ms * kMs;
  out.samples = 16;
  out.batches = 1;
  return out;
}

InstanceSamples of(const StepSample& one, int count) {
  InstanceSamples out;
  out.steps.assign(static_cast<std::size_t>(count), one);
  return out;
}

TEST(TrainingRow, AddsUpWhatIsMeasured) {
  InstanceSamples samples = of(step(10, 20, 40, 20, 10), 40);
  samples.steps[20].flags = IPEXRUN_CALL_EXPLORING;
  BenchOptions options;
  options.warmup = 9;
  const auto row = training_row(samples, "ipexrun", options);
  ASSERT_TRUE(row);
  EXPECT_EQ(row->steps, 30);
  EXPECT_EQ(row->left_out, 10);
  EXPECT_NEAR(row->seconds, 3.0, 1e-9);
  EXPECT_NEAR(row->backward_s, 1.2, 1e-9);
  EXPECT_NEAR(row->other_s(), 0.3, 1e-9);
  EXPECT_NEAR(*row->samples, 480, 1e-9);
  EXPECT_EQ(row->bottleneck(), "most of a step is backward (40%)");
}

TEST(TrainingRow, NamesTheLoader) {
  const auto row = training_row(of(step(50, 10, 15, 5, 0), 20), "ipexrun", {});
  ASSERT_TRUE(row);
  EXPECT_EQ(row->bottleneck().rfind("the loader gives 12.5 batches/s; the model could take 33.3", 0), 0u) << row->bottleneck();
}

TEST(TrainingRow, SaysNothingOfTheLoaderWhereThereIsNone) {
  StepSample one = step(0, 10, 20, 5, 40);
  one.batches = 0;
  one.samples = 0;
  const auto row = training_row(of(one, 20), "stock", {});
  ASSERT_TRUE(row);
  EXPECT_FALSE(row->samples);
  EXPECT_EQ(row->bottleneck(), "most of a step is the program's own code between (53%)");
}

TEST(TrainingRow, NeedsAFewSteps) {
  EXPECT_FALSE(training_row(of(step(1, 1, 1, 1, 1), 2), "ipexrun", {}));
  EXPECT_EQ(training_text({}), "");
}

TEST(TrainingText, HasATableAndASentence) {
  const std::string text = training_text({*training_row(of(step(50, 10, 15, 5, 0), 20), "ipexrun", {})});
  EXPECT_NE(text.find("steps/s"), std::string::npos);
  EXPECT_NE(text.find("19%"), std::string::npos) << text;
  EXPECT_NE(text.find("ipexrun: the loader gives"), std::string::npos) << text;
}

}  // namespace
}  // namespace ipexrun::launcher::bench
