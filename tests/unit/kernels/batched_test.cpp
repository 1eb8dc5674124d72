// The risk: a tail in M, N or K, a stride or an alignment that one method reads past, writes past or leaves out; a matrix of the batch, or
// what is added to it, taken from the wrong place; a part of B that is thought to be in scratch already.
#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <vector>

#include "kernels/batched_variants.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

struct Shape {
  std::int64_t batch = 2;
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  DType in = DType::kF32;
  DType out = DType::kF32;
  bool inside = false;  ///< bf16 inside
  int a = 0;            ///< 0: rows, 1: transposed, 2: every second element, 3: rows, one matrix for all
  int b = 0;            ///< the same
  int c = 0;            ///< 0: none, 1: whole, 2: a row for all, 3: a column for all, 4: transposed, in the other dtype
  std::int64_t extra = 0;
  float alpha = 1;
  float beta = 1;
  std::int64_t offset = 0;
  int threads = 1;
  std::uint32_t seed = 1;
};

std::string text_of(const Shape& s, IsaSet isa) {
  std::ostringstream text;
  text << batched_variant({}, isa) << " batch " << s.batch << " m " << s.m << " n " << s.n << " k " << s.k << " in " << bytes_of(s.in)
       << " out " << bytes_of(s.out) << " inside " << s.inside << " a " << s.a << " b " << s.b << " c " << s.c << " extra " << s.extra
       << " alpha " << s.alpha << " beta " << s.beta << " at " << s.offset << " threads " << s.threads << " seed " << s.seed;
  return text.str();
}

/// A batch of rows x columns that ends at a page that faults.
struct Matrices {
  std::int64_t batch, row, column, offset;
  Buffer buffer;

  Matrices(DType dtype, int layout, std::int64_t count, std::int64_t rows, std::int64_t columns, std::int64_t extra, std::int64_t first)
      : offset(first) {
    row = layout == 1 ? 1 : layout == 2 ? 2 * columns : columns + extra;
    column = layout == 1 ? rows + extra : layout == 2 ? 2 : 1;
    const std::int64_t last = rows == 0 || columns == 0 ? 0 : (rows - 1) * row + (columns - 1) * column + 1;
    batch = layout == 3 ? 0 : last + extra;
    buffer = Buffer(dtype, count == 0 || last == 0 ? 0 : (count - 1) * batch + last, first);
  }
  [[nodiscard]] std::int64_t at(std::int64_t i, std::int64_t r, std::int64_t j) const { return i * batch + r * row + j * column; }
  [[nodiscard]] BatchedMatrix matrix(DType dtype) const { return {buffer.data(), dtype, batch, row, column}; }
};

DType other(DType dtype) { return dtype == DType::kF32 ? DType::kBf16 : DType::kF32; }

class ProblemBatched {
 public:
  explicit ProblemBatched(const Shape& s)
      : shape(s),
        a(s.in, s.a, s.batch, s.m, s.k, s.extra, s.offset),
        b(s.in, s.b, s.batch, s.k, s.n, s.extra, s.offset),
        c(c_dtype(), s.c == 4 ? 1 : 0, s.batch, s.m, s.n, 0, 0),
        out(s.out, 0, s.batch, s.m, s.n, s.extra, s.offset) {
    std::mt19937 random(s.seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    // Numbers that bf16 holds, so that rounding the operands changes nothing.
    for (Buffer* buffer : {&a.buffer, &b.buffer, &c.buffer}) {
      for (std::int64_t i = 0; i < buffer->count(); ++i) buffer->set(i, bf16_to_f32(bf16_from_f32(uniform(random))));
    }
  }

  [[nodiscard]] DType c_dtype() const { return shape.c == 4 ? other(shape.out) : shape.out; }
  [[nodiscard]] std::int64_t c_at(std::int64_t i, std::int64_t m, std::int64_t n) const {
    return shape.c == 2 ? n : shape.c == 3 ? m * shape.n : c.at(i, m, n);
  }

  bool run(IsaSet isa) { return run(isa, thread_parallel(shape.threads)); }
  bool run(IsaSet isa, const Parallel& parallel) {
    const Shape& s = shape;
    BatchedArgs args;
    args.a = a.matrix(s.in);
    args.b = b.matrix(s.in);
    if (s.c != 0) args.c = c.matrix(c_dtype());
    if (s.c == 2) args.c.batch = args.c.row = 0;
    if (s.c == 3) args.c.batch = args.c.column = 0;
    args.out = out.buffer.data();
    args.out_dtype = s.out;
    args.out_batch = out.batch;
    args.ldo = out.row;
    args.batch = s.batch;
    args.m = s.m;
    args.n = s.n;
    args.k = s.k;
    args.alpha = s.alpha;
    args.beta = s.beta;
    args.bf16_inside = s.inside;
    return batched(args, parallel, isa);
  }

  /// Empty when `out` is right within the bound of fp32 summation and nothing else was written.
  [[nodiscard]] std::string difference() const {
    const Shape& s = shape;
    if (!out.buffer.front_is_clean()) return "written in front of the result";
    for (std::int64_t i = 0; i < out.buffer.count(); ++i) {
      const std::int64_t in = i % out.batch;
      if ((in / out.row >= s.m || in % out.row >= s.n) && !out.buffer.untouched(i)) return "written between rows at " + std::to_string(i);
    }
    std::vector<double> rows(static_cast<std::size_t>(s.m * s.k));
    std::vector<double> columns(static_cast<std::size_t>(s.n * s.k));
    for (std::int64_t i = 0; i < s.batch; ++i) {
      for (std::int64_t k = 0; k < s.k; ++k) {
        for (std::int64_t m = 0; m < s.m; ++m) rows[static_cast<std::size_t>(m * s.k + k)] = a.buffer.get(a.at(i, m, k));
        for (std::int64_t n = 0; n < s.n; ++n) columns[static_cast<std::size_t>(n * s.k + k)] = b.buffer.get(b.at(i, k, n));
      }
      for (std::int64_t m = 0; m < s.m; ++m) {
        for (std::int64_t n = 0; n < s.n; ++n) {
          double truth = 0;
          double size = 0;
          for (std::int64_t k = 0; k < s.k; ++k) {
            const double product = rows[static_cast<std::size_t>(m * s.k + k)] * columns[static_cast<std::size_t>(n * s.k + k)];
            truth += product;
            size += std::fabs(product);
          }
          truth *= static_cast<double>(s.alpha);
          size *= std::fabs(static_cast<double>(s.alpha));
          if (s.c != 0 && s.beta != 0) {
            const double term = static_cast<double>(s.beta) * c.buffer.get(c_at(i, m, n));
            truth += term;
            size += std::fabs(term);
          }
          const double bound = 1e-7 * (4 + std::sqrt(static_cast<double>(s.k))) * size;
          const double seen = out.buffer.get(out.at(i, m, n));
          if (std::isfinite(truth) || std::isnan(truth) ? near(seen, truth, bound, s.out) : seen == truth) continue;
          std::ostringstream text;
          text << "matrix " << i << " [" << m << ", " << n << "] is " << seen << ", not " << truth << " within " << bound;
          return text.str();
        }
      }
    }
    return "";
  }

  Shape shape;
  Matrices a, b, c, out;
};

class BatchedOnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  void check_one(const Shape& s) {
    ProblemBatched problem(s);
    ASSERT_TRUE(problem.run(GetParam())) << text_of(s, GetParam());
    EXPECT_EQ(problem.difference(), "") << text_of(s, GetParam());
  }
  /// In bf16, in fp32, and in fp32 with bf16 inside.
  void check(Shape s) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      s.in = s.out = dtype;
      s.inside = false;
      check_one(s);
    }
    s.in = s.out = DType::kF32;
    s.inside = true;
    check_one(s);
  }
};

TEST_P(BatchedOnIsa, RowsAroundEachBlock) {
  for (const std::int64_t m : {0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 255, 256, 257}) {
    check({.m = m, .n = 40, .k = 70, .b = static_cast<int>(m % 2)});
  }
}

TEST_P(BatchedOnIsa, ColumnsAroundEachBlock) {
  for (const std::int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 143, 145, 161}) {
    for (const std::int64_t m : {1, 2, 3, 4, 6, 40}) check({.m = m, .n = n, .k = 67, .b = static_cast<int>((n + m) % 2)});
  }
}

TEST_P(BatchedOnIsa, DepthsAroundEachBlock) {
  for (const std::int64_t k : {0, 1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 512, 513, 700}) {
    for (const std::int64_t m : {1, 3, 35}) check({.m = m, .n = 35, .k = k, .b = static_cast<int>((k + m) % 2)});
  }
}

TEST_P(BatchedOnIsa, LayoutsOfBothOperands) {
  for (const std::int64_t m : {1, 3, 5, 36, 64}) {
    for (int a = 0; a < 4; ++a) {
      for (int b = 0; b < 4; ++b) {
        check({.batch = 3, .m = m, .n = 33, .k = 64, .a = a, .b = b, .extra = a + b});
        check({.batch = 3, .m = m, .n = m > 3 ? 32 : 1, .k = 45, .a = a, .b = b});
      }
    }
  }
}

TEST_P(BatchedOnIsa, ScaledAndAdded) {
  for (const std::int64_t m : {1, 5, 32, 70}) {
    for (int c = 0; c < 5; ++c) {
      check({.m = m, .n = 50, .k = 45, .c = c, .extra = c % 2, .alpha = 0.375f, .beta = -2});
      check({.m = m, .n = 64, .k = GetParam() == 0 ? 53 : 530, .c = c});
    }
  }
  // What is not added is not read, and NaN among it does not count.
  ProblemBatched problem({.m = 40, .n = 40, .k = 32, .c = 1, .beta = 0});
  for (std::int64_t i = 0; i < problem.c.buffer.count(); ++i) problem.c.buffer.set(i, NAN);
  ASSERT_TRUE(problem.run(GetParam()));
  EXPECT_EQ(problem.difference(), "");
}

TEST_P(BatchedOnIsa, ResultsInTheOtherDtype) {
  for (const std::int64_t m : {2, 33}) {
    for (const DType in : {DType::kF32, DType::kBf16}) {
      check_one({.m = m, .n = 70, .k = 64, .in = in, .out = other(in), .c = static_cast<int>(m % 2)});
    }
  }
}

TEST_P(BatchedOnIsa, EveryAlignment) {
  for (std::int64_t offset = 0; offset < 33; offset += offset < 8 ? 1 : 5) {
    check({.m = 17, .n = 37, .k = 45, .b = static_cast<int>(offset % 2), .extra = offset % 3, .offset = offset});
    check({.m = 32, .n = 64, .k = 64, .extra = offset % 3, .offset = offset});
    check({.m = 2, .n = 64, .k = 32, .b = static_cast<int>(offset % 2), .offset = offset});
  }
}

TEST_P(BatchedOnIsa, PartsOfB) {
  if (GetParam() == 0) return;  // the reference has none
  check_one({.m = 40, .n = 700, .k = 1100, .inside = true, .threads = 2});
  check_one({.m = 300, .n = 80, .k = 600, .in = DType::kBf16, .out = DType::kBf16, .c = 1, .alpha = 2});
  check_one({.m = 30, .n = 5000, .k = 70, .in = DType::kBf16, .out = DType::kBf16, .b = 3});
  check_one({.batch = 5, .m = 40, .n = 60, .k = 70, .in = DType::kBf16, .out = DType::kBf16, .b = 3});
}

TEST_P(BatchedOnIsa, SeededFuzz) {
  std::mt19937 random(20261122);
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (std::uint32_t i = 0; i < (GetParam() == 0 ? 50 : 150); ++i) {
    const bool large = pick(0, 9) == 0;
    const DType in = pick(0, 1) != 0 ? DType::kBf16 : DType::kF32;
    check_one({.batch = pick(0, 4),
               .m = pick(0, large ? 150 : 40),
               .n = pick(0, large ? 300 : 80),
               .k = pick(0, large ? 700 : 90),
               .in = in,
               .out = pick(0, 7) == 0 ? other(in) : in,
               .inside = pick(0, 1) != 0,
               .a = static_cast<int>(pick(0, 3)),
               .b = static_cast<int>(pick(0, 3)),
               .c = static_cast<int>(pick(0, 8)) % 5,
               .extra = pick(0, 3),
               .alpha = pick(0, 2) == 0 ? -0.5f : 1.0f,
               .beta = static_cast<float>(pick(0, 2)),
               .offset = pick(0, 3),
               .threads = static_cast<int>(pick(1, 4)),
               .seed = i + 1});
    if (HasFailure()) return;
  }
}

TEST_P(BatchedOnIsa, NanInfinityAndDenormals) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::int64_t m : {3, 40}) {
    for (int b = 0; b < 2; ++b) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        ProblemBatched problem({.m = m, .n = 50, .k = 41, .in = dtype, .out = dtype, .b = b});
        problem.a.buffer.set(problem.a.at(1, 1, 7), NAN);
        problem.a.buffer.set(problem.a.at(0, 2, 8), kInf);
        problem.b.buffer.set(problem.b.at(0, 9, 3), -kInf);
        problem.b.buffer.set(problem.b.at(1, 10, 4), NAN);
        ASSERT_TRUE(problem.run(GetParam()));
        EXPECT_EQ(problem.difference(), "") << m << " " << b;
      }
    }
  }
  ProblemBatched problem({.m = 2, .n = 20, .k = 20});
  for (std::int64_t k = 0; k < 20; ++k) problem.b.buffer.set(problem.b.at(0, k, 6), 0.0f);
  problem.b.buffer.set(problem.b.at(0, 5, 6), std::numeric_limits<float>::denorm_min());
  problem.a.buffer.set(problem.a.at(0, 0, 5), 1.0f);
  ASSERT_TRUE(problem.run(GetParam()));
  EXPECT_EQ(problem.out.buffer.get(problem.out.at(0, 0, 6)), static_cast<double>(std::numeric_limits<float>::denorm_min()));
}

TEST_P(BatchedOnIsa, RoundedOperandsStayNear) {
  ProblemBatched problem({.m = 40, .n = 50, .k = 64, .inside = true});
  std::mt19937 random(3);
  problem.a.buffer.fill(random);
  problem.b.buffer.fill(random);
  ASSERT_TRUE(problem.run(GetParam()));
  for (std::int64_t n = 0; n < 50; ++n) {
    double truth = 0;
    double size = 0;
    for (std::int64_t k = 0; k < 64; ++k) {
      const double product = problem.a.buffer.get(problem.a.at(1, 7, k)) * problem.b.buffer.get(problem.b.at(1, k, n));
      truth += product;
      size += std::fabs(product);
    }
    EXPECT_NEAR(problem.out.buffer.get(problem.out.at(1, 7, n)), truth, size / 120);
  }
}

TEST_P(BatchedOnIsa, AnyNumberOfThreadsGivesTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (const std::int64_t m : {1, 4, 70}) {
      for (const std::int64_t k : {100, 600}) {
        if (GetParam() == 0 && m * k > 1000) continue;  // one element after the other, whatever the thread
        ProblemBatched problem({.batch = 3, .m = m, .n = 330, .k = k, .in = dtype, .out = dtype, .b = static_cast<int>(m % 2)});
        ASSERT_TRUE(problem.run(GetParam(), {}));
        const std::string serial = problem.out.buffer.bytes();
        for (int threads = 2; threads <= 4; ++threads) {
          ASSERT_TRUE(problem.run(GetParam(), thread_parallel(threads)));
          EXPECT_TRUE(problem.out.buffer.bytes() == serial) << threads << " threads, m " << m;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, BatchedOnIsa, testing::ValuesIn(levels_of(batched_variants())),
                         [](const auto& level) { return std::string(batched_variant({}, level.param)); });

TEST(Batched, NothingIsOfferedWithoutVectorsOrElements) {
  BatchedArgs args;
  args.batch = args.m = args.n = args.k = 16;
  EXPECT_FALSE(batched_supported(args, 0));
  args.k = 0;
  EXPECT_FALSE(batched_supported(args, isa_of_process()));
}

}  // namespace
}  // namespace ipexrun::kernels::test
