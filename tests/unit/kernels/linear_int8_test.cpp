// The risk: a wrong sum at a tail of rows, columns or K, a scale at the wrong column, a read beyond a buffer.
#include "kernels/linear_int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "kernels/dispatch.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

struct Int8Case {
  std::int64_t m = 1, n = 1, k = 1;
  DType dtype = DType::kBf16;
  DType scales = DType::kBf16;
  std::int64_t extra_lda = 0, extra_ldb = 0, extra_ldc = 0;
  int threads = 1;
};

class Int8Problem {
 public:
  explicit Int8Problem(const Int8Case& c)
      : case_(c),
        a_(c.dtype, std::max<std::int64_t>((c.m - 1) * lda() + c.k, 0), 1),
        b_(static_cast<std::size_t>((c.n - 1) * ldb() + c.k)),
        scales_(c.scales, c.n, 1),
        c_(c.dtype, std::max<std::int64_t>((c.m - 1) * ldc() + c.n, 0), 1) {
    std::mt19937 random(20260101);
    a_.fill(random);
    scales_.fill(random, 0.01f, 0.005f);
    for (std::size_t i = 0; i < b_.bytes(); ++i) b_.data()[i] = static_cast<char>(random() % 256);
  }

  [[nodiscard]] LinearInt8Args args() const {
    LinearInt8Args args;
    args.a = a_.data();
    args.a_dtype = args.c_dtype = case_.dtype;
    args.lda = lda();
    args.b = reinterpret_cast<const std::int8_t*>(b_.data());
    args.ldb = ldb();
    args.scales = scales_.data();
    args.scales_dtype = case_.scales;
    args.c = c_.data();
    args.ldc = ldc();
    args.m = case_.m;
    args.n = case_.n;
    args.k = case_.k;
    return args;
  }

  [[nodiscard]] std::string run(IsaSet isa) const {
    EXPECT_TRUE(linear_int8(args(), case_.threads > 1 ? thread_parallel(case_.threads) : Parallel{}, isa));
    return difference();
  }

  [[nodiscard]] std::string difference() const {
    for (std::int64_t row = 0; row < case_.m; ++row) {
      for (std::int64_t column = 0; column < ldc() && row * ldc() + column < c_.count(); ++column) {
        const std::int64_t at = row * ldc() + column;
        if (column >= case_.n) {
          if (!c_.untouched(at)) return "written between rows at " + std::to_string(at);
          continue;
        }
        double sum = 0;
        double size = 0;
        for (std::int64_t i = 0; i < case_.k; ++i) {
          const double product = a_.get(row * lda() + i) * static_cast<double>(static_cast<std::int8_t>(b_.data()[column * ldb() + i]));
          sum += product;
          size += std::abs(product);
        }
        const double scale = scales_.get(column);
        const double bound = std::ldexp(std::abs(scale) * size * (2 + std::sqrt(static_cast<double>(case_.k))), -24) +
                             std::ldexp(std::abs(sum * scale), case_.dtype == DType::kBf16 ? -8 : -23) + 1e-38;
        if (!(std::abs(c_.get(at) - sum * scale) <= bound))
          return "row " + std::to_string(row) + " column " + std::to_string(column) + ": " + std::to_string(c_.get(at)) + " for " +
                 std::to_string(sum * scale);
      }
    }
    return c_.front_is_clean() ? "" : "written in front";
  }

  Buffer& a() { return a_; }
  Buffer& c() { return c_; }

 private:
  [[nodiscard]] std::int64_t lda() const { return case_.k + case_.extra_lda; }
  [[nodiscard]] std::int64_t ldb() const { return case_.k + case_.extra_ldb; }
  [[nodiscard]] std::int64_t ldc() const { return case_.n + case_.extra_ldc; }

  Int8Case case_;
  Buffer a_;
  Guarded b_;
  Buffer scales_;
  Buffer c_;
};

/// What linear's variants and this kernel's own need, in all combinations that this machine can run.
std::vector<IsaSet> int8_levels() {
  std::vector<IsaSet> levels = levels_of(linear_int8_variants());
  for (const IsaSet isa : levels_here()) {
    if (std::find(levels.begin(), levels.end(), isa) == levels.end()) levels.push_back(isa);
  }
  return levels;
}

class LinearInt8 : public testing::TestWithParam<IsaSet> {};

TEST_P(LinearInt8, ShapesAroundEveryBlock) {
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 8, 16, 17, 33}) {
      for (const std::int64_t n : {1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 65}) {
        for (const std::int64_t k : {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 130}) {
          const Int8Problem problem({m, n, k, dtype, dtype});
          ASSERT_EQ(problem.run(GetParam()), "") << "m " << m << " n " << n << " k " << k << " dtype " << static_cast<int>(dtype);
        }
      }
    }
  }
}

TEST_P(LinearInt8, StridesMixedScalesAndThreads) {
  for (const std::int64_t m : {1, 4, 6, 40}) {
    for (const int threads : {1, 2, 5}) {
      const Int8Problem problem({m, 101, 263, DType::kBf16, DType::kF32, 3, 5, 7, threads});
      ASSERT_EQ(problem.run(GetParam()), "") << "m " << m << " threads " << threads;
    }
  }
}

TEST_P(LinearInt8, PartsThatDoNotFitOneAnother) {
  for (const std::int64_t m : {5, 64, 65, 300}) {
    const Int8Problem problem({m, 200, 4100, DType::kBf16, DType::kBf16, 0, 0, 0, 2});
    ASSERT_EQ(problem.run(GetParam()), "") << "m " << m;
  }
  for (const std::int64_t m : {96, 288}) {  // 21 panels and 8, which linear cuts otherwise
    const Int8Problem problem({m, 29 * 32, 3072, DType::kBf16, DType::kBf16});
    ASSERT_TRUE(linear_int8(problem.args(), {}, GetParam()));
  }
}

TEST_P(LinearInt8, StreamsOfManyColumns) {
  for (const std::int64_t m : {1, 4, 5, 16, 17, 32, 33, 48, 49, 64}) {
    for (const std::int64_t n : {95, 256, 545}) {
      const Int8Problem problem({m, n, 200, DType::kBf16, DType::kBf16, 1, 3, 2, n == 545 ? 2 : 1});
      ASSERT_EQ(problem.run(GetParam()), "") << "m " << m << " n " << n;
    }
  }
}

TEST_P(LinearInt8, TinyAndLargeNumbersKeepTheirPrecision) {
  for (const std::int64_t m : {3, 9}) {
    for (const float size : {1e-30f, 6.7e7f, 6.8e7f, 1e30f}) {
      Int8Problem problem({m, 70, 90, DType::kBf16, DType::kF32});
      for (std::int64_t i = 0; i < m * 90; ++i) problem.a().set(i, i % 3 == 0 ? size : -size / static_cast<float>(1 + i % 7));
      ASSERT_EQ(problem.run(GetParam()), "") << "m " << m << " size " << size;
    }
  }
}

TEST_P(LinearInt8, AnyNumberOfThreadsGivesTheSameBits) {
  for (const std::int64_t m : {3, 20}) {
    std::string first;
    for (const int threads : {1, 2, 3, 7}) {
      const Int8Problem problem({m, 96, 700, DType::kBf16, DType::kBf16, 0, 0, 0, threads});
      ASSERT_EQ(problem.run(GetParam()), "");
      const std::string bytes(static_cast<const char*>(problem.args().c), static_cast<std::size_t>(m * 96 * 2));
      if (first.empty()) first = bytes;
      EXPECT_EQ(bytes, first) << threads;
    }
  }
}

TEST_P(LinearInt8, NanAndInfinityStayInTheirRow) {
  for (const std::int64_t m : {2, 9}) {
    Int8Problem problem({m, 40, 70, DType::kBf16, DType::kBf16});
    problem.a().set(70 + 69, std::numeric_limits<float>::quiet_NaN());
    static_cast<void>(problem.run(GetParam()));
    for (std::int64_t column = 0; column < 40; ++column) {
      EXPECT_TRUE(std::isnan(problem.c().get(40 + column)));
      EXPECT_FALSE(std::isnan(problem.c().get(column)));
    }
  }
}

TEST_P(LinearInt8, NothingToDo) {
  LinearInt8Args args;
  EXPECT_TRUE(linear_int8(args, {}, GetParam()));
  EXPECT_FALSE(linear_int8_supported(args, GetParam()));
  const Int8Problem problem({3, 5, 0, DType::kF32, DType::kF32});
  EXPECT_EQ(problem.run(GetParam()), "") << "no K: zeros";
}

INSTANTIATE_TEST_SUITE_P(Isa, LinearInt8, testing::ValuesIn(int8_levels()), [](const auto& which) {
  LinearInt8Args args;
  args.a_dtype = DType::kBf16;
  args.m = args.n = args.k = 64;
  std::string name = linear_int8_variant(args, which.param);
  for (char& c : name) c = c == '+' ? '_' : c;
  return name + "_" + std::to_string(which.index);
});

}  // namespace
}  // namespace ipexrun::kernels::test
