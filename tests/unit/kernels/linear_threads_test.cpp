// The risk: a cut of C that leaves out or repeats a part, results that depend on the number of threads, shared scratch.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kernels/grid.h"
#include "tests/unit/kernels/support.h"

namespace ipexrun::kernels::test {
namespace {

class ThreadsOnIsa : public testing::TestWithParam<IsaSet> {};

TEST_P(ThreadsOnIsa, AnyNumberGivesTheSameBits) {
  for (const auto& [m, n, k] : {std::tuple{5, 700, 130}, std::tuple{70, 130, 65}, std::tuple{300, 40, 64}}) {
    Problem problem({.m = m, .n = n, .k = k, .bias = 1});
    ASSERT_TRUE(problem.run(GetParam(), {}));
    EXPECT_EQ(problem.difference(), "");
    const std::string serial = problem.c_bytes();
    for (int threads = 2; threads <= 8; ++threads) {
      ASSERT_TRUE(problem.run(GetParam(), thread_parallel(threads)));
      EXPECT_EQ(problem.c_bytes(), serial) << threads << " threads, m " << m;
    }
  }
}

TEST_P(ThreadsOnIsa, TwoCallersDoNotMix) {
  const auto work = [](IsaSet isa, std::uint32_t seed, bool* right) {
    *right = true;
    for (std::uint32_t i = 0; i < 6; ++i) {
      Problem problem({.m = 3 + i * 9, .n = 90, .k = 100, .c = i % 2 == 0 ? DType::kF32 : DType::kBf16, .threads = 2, .seed = seed + i});
      *right = problem.run(isa) && problem.difference().empty() && *right;
    }
  };
  bool first = false;
  bool second = false;
  std::thread one(work, GetParam(), 1, &first);
  std::thread two(work, GetParam(), 100, &second);
  one.join();
  two.join();
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
}

/// What the slowest worker multiplies, in products of 16 rows and a panel.
std::int64_t slowest(std::int64_t m, std::int64_t n, int threads, GridCosts costs) {
  const Grid grid = choose_grid(m, n, threads, costs);
  EXPECT_LE(grid.rows * grid.panels, threads);
  return ceil_div(ceil_div(m, kRowUnit), grid.rows) * ceil_div(panels_of(n), grid.panels);
}

TEST(Grid, Fp32LeavesNoWorkersIdleWhereRowsCanBeCut) {
  EXPECT_EQ(slowest(128, 768, 32, kGridCostsF32), 6);  // 4 x 8; 24 panels alone would leave 8 workers without any
  EXPECT_EQ(slowest(128, 2304, 16, kGridCostsF32), 36);
  EXPECT_EQ(slowest(128, 768, 16, kGridCostsF32), 12);
  EXPECT_EQ(slowest(128, 768, 2, kGridCostsF32), 96);
  EXPECT_EQ(slowest(3136, 64, 16, kGridCostsF32), 26);
}

TEST(Grid, EveryCutIsWithinTheThreads) {
  for (const GridCosts costs : {GridCosts(), kGridCostsF32}) {
    for (const std::int64_t m : {1, 16, 17, 49, 128, 784, 5000}) {
      for (const std::int64_t n : {1, 32, 33, 768, 3072}) {
        for (const int threads : {1, 2, 3, 16, 24, 64}) {
          const Grid grid = choose_grid(m, n, threads, costs);
          ASSERT_GE(grid.rows, 1);
          ASSERT_GE(grid.panels, 1);
          ASSERT_LE(grid.rows * grid.panels, threads) << m << " " << n;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ThreadsOnIsa, testing::ValuesIn(levels_here()), [](const auto& level) { return variant_of(level.param); });

}  // namespace
}  // namespace ipexrun::kernels::test
