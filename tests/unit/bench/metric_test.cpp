// The risk: a number taken from the wrong line, or with the wrong sense of better.
#include "launcher/bench/metric.h"

#include <gtest/gtest.h>

namespace ipexrun::launcher::bench {
namespace {

TEST(Metric, EveryDocumentedExampleMatchesItsOwnPattern) {
  for (const MetricPattern& pattern : metric_patterns()) {
    const auto found = find_metric(pattern.example, "");
    ASSERT_TRUE(found) << pattern.example;
    EXPECT_EQ(found->unit, pattern.unit) << pattern.example;
    EXPECT_EQ(found->higher_is_better, pattern.higher_is_better) << pattern.example;
    EXPECT_GT(found->value, 0);
  }
}

TEST(Metric, LastLineCounts) {
  const auto found = find_metric("step 1: 10.5 images/sec\nstep 2: 20.5 images/sec\r\ndone\n", "");
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->value, 20.5);
  EXPECT_EQ(found->line, "step 2: 20.5 images/sec");
}

TEST(Metric, OrdinaryOutputHasNone) {
  EXPECT_FALSE(find_metric("", ""));
  EXPECT_FALSE(find_metric("epoch 3, loss 0.25\naccuracy: 91.2%\nsaved 12 images in 3 s\n", ""));
  EXPECT_FALSE(find_metric("throughput: n/a\nlatency: unknown\n", ""));
}

TEST(Metric, OwnExpressionBeatsThePatterns) {
  const std::string text = "throughput: 5 samples/s\nscore = 42.5\n";
  const auto score = find_metric(text, "score = ([0-9.]+)");
  ASSERT_TRUE(score);
  EXPECT_DOUBLE_EQ(score->value, 42.5);
  EXPECT_TRUE(score->higher_is_better);
  const auto time = find_metric("step time 12 ms", "step time ([0-9]+)");
  ASSERT_TRUE(time);
  EXPECT_FALSE(time->higher_is_better);
  EXPECT_FALSE(find_metric(text, "absent ([0-9]+)"));
}

TEST(Metric, BadExpressionsAreRefusedWithOneLine) {
  EXPECT_TRUE(check_metric_regex("a ([0-9]+)").ok());
  const Status none = check_metric_regex("a [0-9]+");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, kExitUsage);
  EXPECT_NE(none.error().what.find("has 0 groups"), std::string::npos);
  EXPECT_FALSE(check_metric_regex("([0-9").ok());
  EXPECT_FALSE(check_metric_regex("(a)(b)").ok());
}

TEST(Metric, LongAndBinaryLinesAreSkipped) {
  EXPECT_FALSE(find_metric(std::string(1 << 20, 'x'), ""));
  EXPECT_TRUE(find_metric(std::string(1 << 16, '\xff') + "\nthroughput: 3\n", ""));
}

TEST(Metric, ANumberIsReadWholeOrNotAtAll) {
  const auto value = [](const char* line) {
    const auto found = find_metric(line, "");
    return found ? found->value : -1;
  };
  EXPECT_EQ(value("throughput: 1,234.5 samples/s"), 1234.5);
  EXPECT_EQ(value("1,234,567 images/sec"), 1234567);
  EXPECT_EQ(value("done,512.7 images/sec"), 512.7);
  EXPECT_EQ(value("throughput: 12,5 samples/s"), 12.5);  // a decimal comma
  EXPECT_EQ(value("0,125 images/sec"), 0.125);
  EXPECT_EQ(value("latency: 1,5 ms"), 1.5);
  EXPECT_EQ(value("throughput: 123.4, 8 threads"), 123.4);
  EXPECT_EQ(value("throughput: 1.5e+03 samples/s."), 1500);
  EXPECT_EQ(value("throughput: 1.234,5 samples/s"), -1);
  EXPECT_EQ(value("1.234,5 images/sec"), -1);
  EXPECT_EQ(find_metric("score 1,234", "score ([0-9,]+)")->value, 1234);
  EXPECT_EQ(find_metric("(score 12, ok)", "score ([^ ]+)")->value, 12);
}

TEST(Metric, ColoursAreNoPartOfALine) {
  const auto found = find_metric("\033[1mThroughput:\033[0m \033[32m12.5\033[0m images/sec\n", "");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, 12.5);
  EXPECT_EQ(found->line, "Throughput: 12.5 images/sec");
  EXPECT_FALSE(find_metric("\033[", ""));
}

}  // namespace
}  // namespace ipexrun::launcher::bench
