// The risk: a product of parts that is left out or counted twice; parts of A and B that are paired differently in K; numbers that parts
// cannot stand for; a tail in M, N or K that is read or written past; rows whose epilogue runs twice when a block goes over to vectors.
#include "kernels/linear_f32.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <vector>

#include "kernels/linear_f32_variants.h"
#include "tests/unit/kernels/support.h"
#include "tests/unit/kernels/window_case.h"

namespace ipexrun::kernels::test {
namespace {

/// The suite's name says what it needs: CPUs with tiles, or tiles in memory.
class LinearF32Parts_amx : public testing::Test {
 protected:
  void SetUp() override {
    LinearF32Args args;
    args.m = args.n = args.k = 64;
    if (!linear_f32_has_parts(args, isa_of_process())) GTEST_SKIP() << "no tiles here";
  }
};

struct Shape {
  std::int64_t m = 40;
  std::int64_t n = 40;
  std::int64_t k = 40;
  std::int64_t extra = 0;  ///< in the leading dimensions
  bool bias = false;
  bool plain_b = false;  ///< [K, N], not a weight [N, K]
  int threads = 1;
  std::uint32_t seed = 1;
  Unary unary = Unary::kNone;
  Binary binary = Binary::kNone;
  bool binary_first = false;
  bool in_place = false;  ///< what is added lies where C does
};

/// Buffers that end at pages that fault, with what tiles and the reference make of them.
class Problem {
 public:
  explicit Problem(const Shape& s)
      : shape(s),
        a(floats((s.m - 1) * (s.k + s.extra) + s.k)),
        b(floats(s.k * s.n)),
        bias(floats(s.n)),
        other(floats((s.m - 1) * (s.n + s.extra) + s.n)),
        c(floats((s.m - 1) * (s.n + s.extra) + s.n)),
        packed_(packed_f32_bytes(s.k, s.n, false)) {
    std::mt19937 random(s.seed);
    std::normal_distribution<float> normal;
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t k = 0; k < s.k; ++k) *number(a, m * (s.k + s.extra) + k) = normal(random);
      for (std::int64_t n = 0; n < s.n; ++n) *number(other, m * (s.n + s.extra) + n) = normal(random);
    }
    for (std::int64_t i = 0; i < s.k * s.n; ++i) *number(b, i) = normal(random);
    for (std::int64_t i = 0; i < s.n; ++i) *number(bias, i) = normal(random);
  }

  static Guarded floats(std::int64_t count) { return Guarded(static_cast<std::size_t>(count) * 4); }
  static float* number(const Guarded& of, std::int64_t i) { return reinterpret_cast<float*>(of.data()) + i; }
  [[nodiscard]] float* a_at(std::int64_t m, std::int64_t k) const { return number(a, m * (shape.k + shape.extra) + k); }
  [[nodiscard]] float* b_at(std::int64_t k, std::int64_t n) const { return number(b, shape.plain_b ? k * shape.n + n : n * shape.k + k); }
  [[nodiscard]] float c_at(std::int64_t m, std::int64_t n) const { return *number(c, m * (shape.n + shape.extra) + n); }

  [[nodiscard]] MatrixF32 matrix() const {
    return {b.data(), false, shape.k, shape.n, shape.plain_b ? shape.n : 1, shape.plain_b ? 1 : shape.k};
  }

  [[nodiscard]] LinearF32Args args() const {
    const bool in_place = shape.binary != Binary::kNone && shape.in_place;
    if (in_place) std::memcpy(c.data(), other.data(), c.bytes());
    return args_to(c, in_place ? c : other);
  }

  [[nodiscard]] LinearF32Args args_to(const Guarded& to, const Guarded& added) const {
    LinearF32Args args;
    args.a = a.data();
    args.lda = shape.k + shape.extra;
    if (shape.bias) args.bias = bias.data();
    args.c = to.data();
    args.ldc = shape.n + shape.extra;
    args.m = shape.m;
    args.n = shape.n;
    args.k = shape.k;
    args.epilogue.unary = shape.unary;
    args.epilogue.binary = shape.binary;
    args.epilogue.binary_first = shape.binary_first;
    if (shape.binary != Binary::kNone) {
      args.epilogue.other = added.data();
      args.epilogue.ld_other = args.ldc;
    }
    return args;
  }

  bool run(const Parallel& parallel) {
    LinearF32Args call = args();
    call.parts = true;
    call.packed_b = packed_.data();
    pack_f32(matrix(), packed_.data(), parallel, isa_of_process());
    return linear_f32(call, parallel, isa_of_process());
  }
  bool run() { return run(thread_parallel(shape.threads)); }

  /// Empty when C is right within the bound of fp32 summation and nothing else was written.
  [[nodiscard]] std::string difference() const {
    const Shape& s = shape;
    const Guarded packed(packed_f32_bytes(s.k, s.n, false));
    pack_f32(matrix(), packed.data(), {}, 0);
    const Guarded truth = floats((s.m - 1) * (s.n + s.extra) + s.n);
    LinearF32Args call = args_to(truth, other);
    call.packed_b = packed.data();
    if (!linear_f32(call, {}, 0)) return "no truth";
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t n = 0; n < s.n + s.extra; ++n) {
        const std::int64_t at = m * (s.n + s.extra) + n;
        if (n >= s.n) {
          const bool last = m + 1 == s.m;
          if (!last && std::memcmp(number(c, at), number(s.in_place ? other : truth, at), 4) != 0) return "written outside C";
          continue;
        }
        double size = 2;  // the bias as well
        for (std::int64_t k = 0; k < s.k; ++k) size += std::fabs(static_cast<double>(*a_at(m, k)) * static_cast<double>(*b_at(k, n)));
        if (s.binary == Binary::kMul) size *= 1 + std::fabs(static_cast<double>(*number(other, at)));
        const auto seen = static_cast<double>(*number(c, at));
        const auto right = static_cast<double>(*number(truth, at));
        const double bound = 3e-7 * size;
        if (std::isfinite(right) ? std::fabs(seen - right) <= bound : (std::isnan(right) ? std::isnan(seen) : seen == right)) continue;
        std::ostringstream text;
        text << "C[" << m << ", " << n << "] is " << seen << ", not " << right << " within " << bound;
        return text.str();
      }
    }
    return "";
  }

  Shape shape;
  Guarded a, b, bias, other, c;

 private:
  Guarded packed_;
};

void check(const Shape& s) {
  Problem problem(s);
  std::ostringstream text;
  text << "m " << s.m << " n " << s.n << " k " << s.k << " extra " << s.extra << " threads " << s.threads << " seed " << s.seed;
  ASSERT_TRUE(problem.run()) << text.str();
  EXPECT_EQ(problem.difference(), "") << text.str();
}

TEST_F(LinearF32Parts_amx, EveryTail) {
  for (const std::int64_t m : {1, 3, 15, 16, 17, 31, 32, 33, 48, 64, 65, 200}) check({.m = m, .n = 70, .k = 100, .bias = true});
  for (const std::int64_t n : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 600}) check({.m = 37, .n = n, .k = 50, .extra = 3});
  for (const std::int64_t k : {1, 2, 15, 16, 17, 31, 32, 33, 159, 160, 161, 513, 1100}) check({.m = 70, .n = 40, .k = k, .bias = true});
}

TEST_F(LinearF32Parts_amx, ManyBlocksOfEveryKind) {
  check({.m = 500, .n = 97, .k = 700, .bias = true, .threads = 2});
  check({.m = 260, .n = 1100, .k = 300, .plain_b = true, .threads = 3});
  check({.m = 70, .n = 70, .k = 5000});
}

TEST_F(LinearF32Parts_amx, SeededFuzz) {
  std::mt19937 random(20261126);
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(sampled(120)); ++i) {
    check({.m = pick(1, 150),
           .n = pick(1, 150),
           .k = pick(1, 400),
           .extra = pick(0, 3),
           .bias = pick(0, 1) != 0,
           .plain_b = pick(0, 1) != 0,
           .threads = static_cast<int>(pick(1, 4)),
           .seed = i + 1,
           .unary = static_cast<Unary>(pick(0, 6)),
           .binary = static_cast<Binary>(pick(0, 2)),
           .binary_first = pick(0, 1) != 0,
           .in_place = pick(0, 1) != 0});
    if (HasFailure()) return;
  }
}

/// Beside what fp32 sums are expected to be wrong by, for numbers of any bits in their last places.
TEST_F(LinearF32Parts_amx, AsExactAsVectors) {
  Problem problem({.m = 64, .n = 64, .k = 768});
  ASSERT_TRUE(problem.run());
  Guarded packed(packed_f32_bytes(768, 64, false));
  pack_f32(problem.matrix(), packed.data(), {}, isa_of_process());
  std::vector<float> by_vectors(64 * 64);
  LinearF32Args call = problem.args();
  call.packed_b = packed.data();
  call.c = by_vectors.data();
  ASSERT_TRUE(linear_f32(call, {}, isa_of_process()));
  double of_parts = 0;
  double of_vectors = 0;
  for (std::int64_t m = 0; m < 64; ++m) {
    for (std::int64_t n = 0; n < 64; ++n) {
      double truth = 0;
      for (std::int64_t k = 0; k < 768; ++k) truth += static_cast<double>(*problem.a_at(m, k)) * static_cast<double>(*problem.b_at(k, n));
      of_parts += std::pow(static_cast<double>(problem.c_at(m, n)) - truth, 2);
      of_vectors += std::pow(static_cast<double>(by_vectors[static_cast<std::size_t>(m * 64 + n)]) - truth, 2);
    }
  }
  EXPECT_LE(std::sqrt(of_parts), 1.5 * std::sqrt(of_vectors));
}

TEST_F(LinearF32Parts_amx, RowsThatPartsCannotStandFor) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::int64_t m : {5, 40, 500}) {
    for (const float number : {kInf, -kInf, NAN, 3e38f, 1e-44f, 2e-38f, 1e20f}) {
      for (const auto& [k, threads] : {std::pair{300, 1}, std::pair{300, 3}, std::pair{1700, 2}}) {
        Problem problem({.m = m,
                         .n = 100,
                         .k = k,
                         .bias = true,
                         .threads = threads,
                         .unary = Unary::kRelu,
                         .binary = Binary::kAdd,
                         .binary_first = true,
                         .in_place = true});
        const bool tiny = std::fabs(number) < 1;
        for (std::int64_t i = 0; i < k; ++i) {
          if (tiny) *problem.a_at(m - 2, i) = number;
        }
        *problem.a_at(m - 2, k - 1) = number;
        ASSERT_TRUE(problem.run());
        EXPECT_EQ(problem.difference(), "") << m << " " << number << " k " << k << " threads " << threads;
      }
    }
  }
}

TEST_F(LinearF32Parts_amx, RowsOfZerosAndOfEveryMagnitude) {
  Problem problem({.m = 120, .n = 60, .k = 90});
  for (std::int64_t m = 0; m < 120; ++m) {
    for (std::int64_t k = 0; k < 90; ++k) *problem.a_at(m, k) *= m == 7 ? 0.0f : std::ldexp(1.0f, static_cast<int>(m - 60));
  }
  ASSERT_TRUE(problem.run());
  const Guarded packed(packed_f32_bytes(90, 60, false));
  for (std::int64_t m = 0; m < 120; ++m) {
    for (std::int64_t n = 0; n < 60; ++n) {
      double truth = 0;
      double size = 0;
      for (std::int64_t k = 0; k < 90; ++k) {
        const double product = static_cast<double>(*problem.a_at(m, k)) * static_cast<double>(*problem.b_at(k, n));
        truth += product;
        size += std::fabs(product);
      }
      EXPECT_LE(std::fabs(static_cast<double>(problem.c_at(m, n)) - truth), 3e-7 * size) << m << " " << n;
    }
  }
}

TEST_F(LinearF32Parts_amx, ColumnsThatPartsCannotStandFor) {
  for (const std::int64_t k : {70, 1700}) {
    for (const float number : {std::numeric_limits<float>::infinity(), NAN, 1e20f, 1e-15f, 1e-40f, 0.0f}) {
      Problem problem({.m = 500,
                       .n = 150,
                       .k = k,
                       .bias = true,
                       .threads = 2,
                       .unary = Unary::kRelu,
                       .binary = Binary::kAdd,
                       .binary_first = true,
                       .in_place = true});
      for (std::int64_t i = 0; i < k; ++i) {
        if (number < 1) *problem.b_at(i, 33) = number;
      }
      *problem.b_at(k - 1, 33) = number;
      *problem.b_at(5, 70) = number;
      ASSERT_TRUE(problem.run()) << number;
      EXPECT_EQ(problem.difference(), "") << number << " k " << k;
    }
  }
}

/// Scratch that ends at a page that faults; vectors, when they take over, want more for some short blocks of rows than for long ones.
TEST_F(LinearF32Parts_amx, ScratchIsAsLongAsItSays) {
  for (const auto& [m, n, k] : {std::tuple{197, 70, 3072}, std::tuple{200, 40, 2048}, std::tuple{300, 33, 1536}, std::tuple{450, 40, 1024},
                                std::tuple{130, 300, 96}}) {
    for (int refused = 0; refused < 3; ++refused) {
      Problem problem({.m = m, .n = n, .k = k, .bias = true, .binary = Binary::kMul});
      if (refused == 1) *problem.a_at(m - 1, 3) = NAN;
      if (refused == 2) *problem.b_at(k - 1, n - 1) = 1e20f;
      const Guarded packed(packed_f32_bytes(k, n, false));
      pack_f32(problem.matrix(), packed.data(), {}, isa_of_process());
      LinearF32Args args = problem.args();
      args.packed_b = packed.data();
      const LinearF32Variant& variant = linear_f32_variants(false).first[0];
      const LinearBlock block{0, m, 0, panels_of(n)};
      const std::size_t bytes = variant.scratch_bytes(args, block);
      ASSERT_EQ(bytes % 64, 0u);
      const Guarded scratch(bytes);
      variant.run(args, block, scratch.data());
      EXPECT_EQ(problem.difference(), "") << m << " " << refused;
    }
  }
}

TEST_F(LinearF32Parts_amx, WhoComputesWhatDoesNotChangeTheBits) {
  for (const auto& [m, n, k] : {std::tuple{40, 700, 300}, std::tuple{500, 100, 90}, std::tuple{130, 260, 1100}}) {
    Problem problem({.m = m, .n = n, .k = k, .bias = true});
    ASSERT_TRUE(problem.run({}));
    const std::string serial(problem.c.data(), problem.c.bytes());
    for (const int threads : {2, 3, 5}) {
      for (const Parallel& parallel : {thread_parallel(threads), backward_parallel(threads)}) {
        ASSERT_TRUE(problem.run(parallel));
        EXPECT_TRUE(std::string(problem.c.data(), problem.c.bytes()) == serial) << threads << " threads, m " << m;
      }
    }
  }
}

TEST_F(LinearF32Parts_amx, WindowsOfImages) {
  std::mt19937 random(20261127);
  for (int i = 0; i < sampled(100); ++i) {
    const WindowCase made = window_case(i, random);
    const auto n = std::uniform_int_distribution<std::int64_t>(1, 70)(random);
    const Guarded image = Problem::floats(made.elements);
    std::normal_distribution<float> normal;
    for (std::int64_t at = 0; at < made.elements; ++at) *Problem::number(image, at) = normal(random);
    const Guarded weight = Problem::floats(n * made.k);
    for (std::int64_t at = 0; at < n * made.k; ++at) *Problem::number(weight, at) = normal(random);
    const MatrixF32 b{weight.data(), false, made.k, n, 1, made.k};
    const Guarded packed(packed_f32_bytes(made.k, n, false));
    pack_f32(b, packed.data(), {}, 0);
    std::vector<float> mine(static_cast<std::size_t>(made.rows * n));
    std::vector<float> truth(mine.size());
    LinearF32Args args;
    args.a = image.data();
    args.windows = &made.windows;
    args.m = made.rows;
    args.n = args.ldc = n;
    args.k = made.k;
    args.epilogue.unary = Unary::kRelu;
    args.c = mine.data();
    args.packed_b = packed.data();
    args.parts = true;
    ASSERT_TRUE(linear_f32(args, thread_parallel(1 + i % 3), isa_of_process()));
    args.c = truth.data();
    ASSERT_TRUE(linear_f32(args, {}, 0));
    for (std::size_t at = 0; at < mine.size(); ++at) {
      ASSERT_NEAR(mine[at], truth[at], 3e-6 * std::sqrt(static_cast<double>(made.k))) << "windows " << i << " element " << at;
    }
  }
}

TEST(LinearF32Parts, AreNotOfferedForFewRowsNorWithoutTiles) {
  LinearF32Args args;
  args.m = 8;
  args.n = args.k = 512;
  EXPECT_FALSE(linear_f32_has_parts(args, isa_of_process()));
  args.m = 512;
  EXPECT_FALSE(linear_f32_has_parts(args, kLevelAvx512));
  args.parts = true;
  EXPECT_STRNE(linear_f32_variant(args, kLevelAvx512), "amx");
}

}  // namespace
}  // namespace ipexrun::kernels::test
