// The risk: an element that the bar should have let through, a wrong place, equal elements whose order is stock's alone.
#include "kernels/topk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class TopkOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  std::mt19937 random_{20250103};

  /// Rows without equal elements, in random order.
  Buffer input(std::int64_t rows, std::int64_t columns) {
    Buffer from(DType::kF32, rows * columns, 3);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<float> numbers(static_cast<std::size_t>(columns));
      std::iota(numbers.begin(), numbers.end(), -static_cast<float>(columns) / 2);
      std::shuffle(numbers.begin(), numbers.end(), random_);
      for (std::int64_t i = 0; i < columns; ++i) from.set(row * columns + i, numbers[static_cast<std::size_t>(i)] * 0.37f);
    }
    return from;
  }

  static TopkArgs args_of(const Buffer& from, std::int64_t rows, std::int64_t columns, std::int64_t k, bool largest = true) {
    TopkArgs args;
    args.from = reinterpret_cast<const float*>(from.data());
    args.rows = rows;
    args.columns = columns;
    args.k = k;
    args.largest = largest;
    return args;
  }

  static bool run(TopkArgs args, std::vector<float>* values, std::vector<std::int64_t>* places, const Parallel& parallel = {}) {
    const auto count = static_cast<std::size_t>(args.rows * args.k);
    values->assign(count + 1, -7);
    places->assign(count + 1, -7);
    args.values = values->data();
    args.indices = places->data();
    const bool done = topk(args, parallel, GetParam());
    EXPECT_EQ(values->back(), -7);
    EXPECT_EQ(places->back(), -7);
    return done;
  }

  static void check(const TopkArgs& args) {
    std::vector<float> values;
    std::vector<std::int64_t> places;
    ASSERT_TRUE(run(args, &values, &places)) << args.columns << " k " << args.k;
    const auto before = [&](float a, float b) {
      if (args.largest) return (std::isnan(a) && !std::isnan(b)) || a > b;
      return (!std::isnan(a) && std::isnan(b)) || a < b;
    };
    for (std::int64_t row = 0; row < args.rows; ++row) {
      const float* from = args.from + row * args.columns;
      std::vector<std::int64_t> order(static_cast<std::size_t>(args.columns));
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return before(from[a], from[b]); });
      for (std::int64_t i = 0; i < args.k; ++i) {
        const auto at = static_cast<std::size_t>(row * args.k + i);
        ASSERT_EQ(places[at], order[static_cast<std::size_t>(i)]) << args.columns << " k " << args.k << " at " << row << "," << i;
        if (std::isnan(from[places[at]])) {
          ASSERT_TRUE(std::isnan(values[at]));
        } else {
          ASSERT_EQ(values[at], from[places[at]]);
        }
      }
    }
  }
};

TEST_P(TopkOnIsa, EveryLengthAroundAVector) {
  for (std::int64_t columns = 1; columns <= 70; ++columns) {
    const Buffer from = input(2, columns);
    for (std::int64_t k = 1; k <= columns; k += k < 4 ? 1 : 7) {
      check(args_of(from, 2, columns, k));
      check(args_of(from, 2, columns, k, false));
      if (HasFatalFailure()) return;
    }
    check(args_of(from, 2, columns, columns));
  }
}

TEST_P(TopkOnIsa, LongRows) {
  for (const std::int64_t columns : {1000, 4097, 30000}) {
    const Buffer from = input(1, columns);
    for (const std::int64_t k : {1, 2, 50, 300}) {
      check(args_of(from, 1, columns, k));
      check(args_of(from, 1, columns, k, false));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(TopkOnIsa, RisingAndFallingRows) {
  for (const float step : {1.0f, -1.0f}) {
    Buffer from(DType::kF32, 5000);
    for (std::int64_t i = 0; i < 5000; ++i) from.set(i, step * static_cast<float>(i - 2500));
    check(args_of(from, 1, 5000, 20));
    check(args_of(from, 1, 5000, 20, false));
  }
}

TEST_P(TopkOnIsa, NanAndInfinity) {
  for (const bool largest : {true, false}) {
    Buffer from = input(1, 1000);
    from.set(700, kNan);
    from.set(3, kInf);
    from.set(999, -kInf);
    check(args_of(from, 1, 1000, 10, largest));
    check(args_of(from, 1, 1000, 1000, largest));
  }
}

TEST_P(TopkOnIsa, EqualElementsAreLeftToOthers) {
  std::vector<float> values;
  std::vector<std::int64_t> places;
  Buffer from = input(2, 1000);
  for (std::int64_t i = 0; i < 2000; ++i) from.set(i, static_cast<float>(from.get(i)) - 5000);
  const TopkArgs args = args_of(from, 2, 1000, 4);
  for (const std::int64_t i : {1000, 1100, 1200}) from.set(i, static_cast<float>(i));
  EXPECT_TRUE(run(args, &values, &places));
  from.set(1300, 1000);  // equal to the third of the second row: both are among the four
  EXPECT_FALSE(run(args, &values, &places));
  from.set(1400, 1500);  // the last of the four has an equal one behind it
  EXPECT_FALSE(run(args, &values, &places));
  from.set(1500, 1501);  // both are left out
  EXPECT_TRUE(run(args, &values, &places));
  for (const float value : {kNan, kInf, 3000.0f}) {
    from.set(1600, value);
    from.set(1700, value);
    EXPECT_FALSE(run(args, &values, &places)) << value;
  }
  from.set(1600, 0.0f);
  from.set(1700, -0.0f);
  for (std::int64_t i = 1000; i < 2000; ++i) {
    if (from.get(i) > 0) from.set(i, -100000 - static_cast<float>(i));
  }
  EXPECT_FALSE(run(args, &values, &places)) << "zeros";
  Buffer flat(DType::kF32, 5000);
  for (std::int64_t i = 0; i < 5000; ++i) flat.set(i, 1);
  EXPECT_FALSE(run(args_of(flat, 1, 5000, 10), &values, &places));
}

TEST_P(TopkOnIsa, AnyNumberOfThreads) {
  const Buffer from = input(64, 900);
  std::vector<float> values;
  std::vector<float> expected;
  std::vector<std::int64_t> places;
  std::vector<std::int64_t> expected_places;
  ASSERT_TRUE(run(args_of(from, 64, 900, 5), &expected, &expected_places));
  for (int threads = 2; threads <= 5; ++threads) {
    ASSERT_TRUE(run(args_of(from, 64, 900, 5), &values, &places, thread_parallel(threads)));
    EXPECT_EQ(values, expected);
    EXPECT_EQ(places, expected_places);
  }
}

TEST_P(TopkOnIsa, NothingIsFine) { EXPECT_TRUE(topk({}, {}, GetParam())); }

TEST_P(TopkOnIsa, UsesTheVariantOfItsLevel) {
  const TopkVariants table = topk_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs == GetParam()) {
      EXPECT_STREQ(topk_variant(GetParam()), table.first[i].name);
      EXPECT_EQ(topk_supported(GetParam()), i + 1 < table.count);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, TopkOnIsa, testing::ValuesIn(levels_of(topk_variants())),
                         [](const auto& level) { return std::string(topk_variant(level.param)); });

}  // namespace
}  // namespace ipexrun::kernels::test
