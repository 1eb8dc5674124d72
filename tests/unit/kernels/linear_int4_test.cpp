// The risk: a wrong nibble, a scale or a zero of another group or column, what the method adds to each weight not taken off exactly.
#include "kernels/linear_int4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

struct Int4Case {
  std::int64_t m = 1, n = 64, k = 32, group = 32;
  std::int64_t extra_lda = 0, extra_ldc = 0;
  int threads = 1;
};

class Int4Problem {
 public:
  explicit Int4Problem(const Int4Case& c)
      : case_(c),
        a_(DType::kBf16, (c.m - 1) * lda() + c.k, 1),
        b_(static_cast<std::size_t>(c.n * c.k / 2)),
        pairs_(DType::kBf16, c.k / c.group * c.n * 2, 1),
        c_(DType::kBf16, (c.m - 1) * ldc() + c.n, 1) {
    std::mt19937 random(20260102);
    a_.fill(random, 0.3f);
    pairs_.fill(random, 0.0f, 0.02f);
    for (std::size_t i = 0; i < b_.bytes(); ++i) b_.data()[i] = static_cast<char>(random() % 256);
  }

  [[nodiscard]] LinearInt4Args args() const {
    LinearInt4Args args;
    args.a = reinterpret_cast<const std::uint16_t*>(a_.data());
    args.lda = lda();
    args.b = reinterpret_cast<const std::uint8_t*>(b_.data());
    args.scales_and_zeros = reinterpret_cast<const std::uint16_t*>(pairs_.data());
    args.c = reinterpret_cast<std::uint16_t*>(c_.data());
    args.ldc = ldc();
    args.m = case_.m;
    args.n = case_.n;
    args.k = case_.k;
    args.group = case_.group;
    return args;
  }

  [[nodiscard]] std::string run(IsaSet isa) const {
    EXPECT_TRUE(linear_int4(args(), case_.threads > 1 ? thread_parallel(case_.threads) : Parallel{}, isa));
    return difference();
  }

  /// Bound: the products themselves, W rounded to bf16 for many rows, C to bf16; the sums in fp32 with what the method adds.
  [[nodiscard]] std::string difference() const {
    const std::int64_t each = case_.m * case_.n * case_.k < 1 << 22 ? 1 : 7;  // rows of large products by samples
    for (std::int64_t row = 0; row < case_.m; ++row) {
      if (row % each != 0 && row + 1 != case_.m) continue;
      for (std::int64_t column = 0; column < ldc() && row * ldc() + column < c_.count(); ++column) {
        const std::int64_t at = row * ldc() + column;
        if (column >= case_.n) {
          if (!c_.untouched(at)) return "written between rows at " + std::to_string(at);
          continue;
        }
        double sum = 0;
        double size = 0;
        double squares = 0;
        for (std::int64_t i = 0; i < case_.k; ++i) {
          const double value = a_.get(row * lda() + i);
          const double scale = pairs_.get(((i / case_.group) * case_.n + column) * 2);
          const double product = value * ((q(i, column) - 8) * scale + pairs_.get(((i / case_.group) * case_.n + column) * 2 + 1));
          sum += product;
          size += std::abs(value * scale) * 160;
          squares += product * product;
        }
        const double rounded_weights = std::ldexp(std::sqrt(squares), -9) * 6;
        const double bound = std::ldexp(size, -22) + rounded_weights + std::ldexp(std::abs(sum), -8);
        if (!(std::abs(c_.get(at) - sum) <= bound))
          return "row " + std::to_string(row) + " column " + std::to_string(column) + ": " + std::to_string(c_.get(at)) + " for " +
                 std::to_string(sum);
      }
    }
    return c_.front_is_clean() ? "" : "written in front";
  }

  Buffer& a() { return a_; }
  [[nodiscard]] const Buffer& c() const { return c_; }

 private:
  [[nodiscard]] std::int64_t lda() const { return case_.k + case_.extra_lda; }
  [[nodiscard]] std::int64_t ldc() const { return case_.n + case_.extra_ldc; }
  [[nodiscard]] int q(std::int64_t k, std::int64_t column) const {
    const std::int64_t in_block = column % kInt4Columns;
    const auto byte = static_cast<unsigned char>(b_.data()[(column / kInt4Columns * case_.k + k) * 32 + in_block % 32]);
    return in_block < 32 ? byte & 15 : byte >> 4;
  }

  Int4Case case_;
  Buffer a_;
  Guarded b_;
  Buffer pairs_;
  Buffer c_;
};

std::vector<IsaSet> int4_levels() {
  std::vector<IsaSet> levels = levels_of(linear_int4_variants());
  for (const IsaSet isa : levels_here()) {
    if (std::find(levels.begin(), levels.end(), isa) == levels.end()) levels.push_back(isa);
  }
  return levels;
}

class LinearInt4 : public testing::TestWithParam<IsaSet> {};

TEST_P(LinearInt4, ShapesAroundEveryBlock) {
  for (const std::int64_t m : {1, 2, 3, 4, 5, 7, 11, 12, 13, 16, 17, 33}) {
    for (const std::int64_t n : {64, 128, 192}) {
      for (const std::int64_t group : {32, 64, 96, 128}) {
        for (const std::int64_t groups : {1, 2, 3}) {
          const Int4Problem problem({m, n, group * groups, group});
          ASSERT_EQ(problem.run(GetParam()), "") << "m " << m << " n " << n << " group " << group << " groups " << groups;
        }
      }
    }
  }
}

TEST_P(LinearInt4, StridesAndThreads) {
  for (const std::int64_t m : {1, 6, 40}) {
    std::string first;
    for (const int threads : {1, 2, 5}) {
      const Int4Problem problem({m, 320, 256, 64, 3, 7, threads});
      ASSERT_EQ(problem.run(GetParam()), "") << "m " << m << " threads " << threads;
      const std::string bytes = problem.c().bytes();
      if (first.empty()) first = bytes;
      EXPECT_EQ(bytes, first) << "any number of threads gives the same bits";
    }
  }
}

TEST_P(LinearInt4, StreamsOfManyBlocks) {
  for (const std::int64_t m : {1, 2, 15, 16, 17}) {
    for (const std::int64_t blocks : {4, 7, 9}) {
      const Int4Problem problem({m, blocks * 64, 192, 64, 1, 2, blocks == 9 ? 2 : 1});
      ASSERT_EQ(problem.run(GetParam()), "") << "m " << m << " blocks " << blocks;
    }
  }
}

TEST_P(LinearInt4, PartsThatDoNotFitOneAnother) {
  for (const std::int64_t m : {13, 16, 17, 64, 65, 300}) {
    const Int4Problem problem({m, 448, 2048, 128, 0, 0, 2});
    ASSERT_EQ(problem.run(GetParam()), "") << "m " << m;
  }
}

TEST_P(LinearInt4, NanAndInfinityGoWhereArithmeticTakesThem) {
  Int4Problem problem({3, 64, 64, 32});
  problem.a().set(64 + 5, std::numeric_limits<float>::infinity());
  static_cast<void>(problem.run(GetParam()));
  for (std::int64_t column = 0; column < 64; ++column) {
    EXPECT_TRUE(std::isinf(problem.c().get(64 + column)) || std::isnan(problem.c().get(64 + column)));
    EXPECT_TRUE(std::isfinite(problem.c().get(column)) && std::isfinite(problem.c().get(128 + column)));
  }
}

TEST_P(LinearInt4, LargeNumbersDoNotOverflowOnTheWay) {
  for (const std::int64_t m : {1, 3}) {
    Int4Problem problem({m, 64, 64, 32});
    for (std::int64_t i = 0; i < 32; ++i) problem.a().set(i, i % 2 == 0 ? 2e37f : -2e37f);
    static_cast<void>(problem.run(GetParam()));
    for (std::int64_t column = 0; column < 64; ++column) EXPECT_TRUE(std::isfinite(problem.c().get(column)));
  }
}

TEST_P(LinearInt4, ShapesThatDoNotFitAreRefused) {
  const Int4Problem problem({1, 64, 64, 32});
  for (int what = 0; what < 4; ++what) {
    LinearInt4Args args = problem.args();
    if (what == 0) args.n = 63;
    if (what == 1) args.group = 16;
    if (what == 2) args.group = 48;
    if (what == 3) args.k = 0;
    EXPECT_FALSE(linear_int4_supported(args, GetParam()));
    EXPECT_FALSE(linear_int4(args, {}, GetParam()));
  }
  EXPECT_TRUE(linear_int4(LinearInt4Args{}, {}, GetParam())) << "nothing to do";
}

INSTANTIATE_TEST_SUITE_P(Isa, LinearInt4, testing::ValuesIn(int4_levels()), [](const auto& which) {
  return std::string(linear_int4_variant(which.param)) + "_" + std::to_string(which.index);
});

}  // namespace
}  // namespace ipexrun::kernels::test
