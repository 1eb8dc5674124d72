// The risk: a cut of C that leaves out or repeats a part, results that depend on the number of threads, shared scratch.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kernels/grid.h"
#include "kernels/shares.h"
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

TEST(Grid, OfEqualCutsTilesTakeTheOneByRows) {
  const Grid tiles = choose_grid(196, 1024, 2);
  EXPECT_EQ(tiles.rows, 2);
  EXPECT_EQ(tiles.panels, 1);
  const Grid vectors = choose_grid(128, 768, 2, kGridCostsF32);  // weights are read once
  EXPECT_EQ(vectors.rows, 1);
  EXPECT_EQ(vectors.panels, 2);
}

TEST(Grid, EveryCutIsWithinTheThreads) {
  for (const GridCosts& costs : {GridCosts(), kGridCostsF32}) {
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

/// How often each unit of 16 rows of each panel is computed by parts and pieces.
std::vector<int> times_computed(const Shares& shares) {
  const std::int64_t panels = panels_of(shares.n);
  std::vector<int> times(static_cast<std::size_t>(ceil_div(shares.m, shares.unit) * panels));
  const auto count = [&](const LinearBlock& block) {
    for (std::int64_t row = block.row_begin; row < block.row_end; row += shares.unit) {
      for (std::int64_t panel = block.panel_begin; panel < block.panel_end; ++panel)
        ++times[static_cast<std::size_t>(row / shares.unit * panels + panel)];
    }
  };
  for (std::int64_t part = 0; part < shares.parts(); ++part) {
    count(shares.first(part));
    for (std::int64_t piece = 0; piece < shares.pieces; ++piece) count(shares.later(part, piece));
  }
  return times;
}

TEST(Shares, EveryElementIsComputedOnce) {
  int shared = 0;
  for (const GridCosts& costs : {GridCosts(), kGridCostsF32}) {
    for (const std::int64_t m : {1, 16, 17, 33, 49, 128, 197, 784, 3136}) {
      for (const std::int64_t n : {1, 32, 33, 64, 250, 768, 3072}) {
        for (const std::int64_t steps : {1, 2, 24, 96}) {
          for (const int threads : {1, 2, 3, 7, 16, 32, 64, 200}) {
            const Shares shares = shares_of(m, n, steps, threads, costs);
            ASSERT_LE(shares.parts(), threads);
            shared += shares.pieces > 0 ? 1 : 0;
            for (const int times : times_computed(shares))
              ASSERT_EQ(times, 1) << m << " x " << steps << " x " << n << ", " << threads << " threads";
          }
        }
      }
    }
  }
  EXPECT_GT(shared, 500);
}

TEST(Shares, WorkersTakeWhatOthersHaveNotReached) {
  const Shares shares = shares_of(784, 768, 24, 4);
  ASSERT_GT(shares.pieces, 0);
  ASSERT_EQ(shares.parts(), 4);
  // Workers one after the other: the first finds all pieces, the others compute their own first blocks alone.
  std::vector<int> blocks;
  const auto begin = [&] {
    blocks.push_back(0);
    return blocks.size() - 1;
  };
  run_shares(shares, {}, begin, [&](std::size_t worker, const LinearBlock&) { ++blocks[worker]; });
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_GT(blocks[0], static_cast<int>(shares.pieces));
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(blocks[i], 1);
}

TEST(Shares, SmallCallsAndFewRowsAreNotShared) {
  EXPECT_EQ(shares_of(16, 3072, 24, 16).pieces, 0);  // memory bounds it
  EXPECT_EQ(shares_of(3136, 64, 2, 16).pieces, 0);   // 12 us
  EXPECT_GT(shares_of(1576, 3072, 24, 16).pieces, 0);
  EXPECT_GT(shares_of(128, 3072, 24, 16, kGridCostsF32).pieces, 0);
}

TEST_P(ThreadsOnIsa, WhoComputesWhatDoesNotChangeTheBits) {
  for (const auto& [m, n, k] : {std::tuple{200, 900, 520}, std::tuple{700, 130, 200}, std::tuple{40, 1300, 900}}) {
    Problem problem({.m = m, .n = n, .k = k, .bias = 1});
    ASSERT_TRUE(problem.run(GetParam(), {}));
    const std::string serial = problem.c_bytes();
    for (const int threads : {2, 3, 5}) {
      ASSERT_TRUE(problem.run(GetParam(), backward_parallel(threads)));
      EXPECT_EQ(problem.c_bytes(), serial) << threads << " threads, m " << m;
      ASSERT_TRUE(problem.run(GetParam(), thread_parallel(threads)));
      EXPECT_EQ(problem.c_bytes(), serial) << threads << " threads, m " << m;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ThreadsOnIsa, testing::ValuesIn(levels_here()), [](const auto& level) { return variant_of(level.param); });

}  // namespace
}  // namespace ipexrun::kernels::test
