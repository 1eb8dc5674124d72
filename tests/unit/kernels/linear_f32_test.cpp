// The risk: a tail in M, N or K, a stride or an alignment that one variant reads past, writes past or leaves out; blocks of K whose rows of
// A are taken from the wrong place; fp16 pairs added to the wrong column.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <vector>

#include "kernels/linear_f32_variants.h"
#include "kernels/ref/convert.h"
#include "tests/unit/kernels/support.h"
#include "tests/unit/kernels/window_case.h"

namespace ipexrun::kernels::test {
namespace {

struct Shape {
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  bool half = false;
  bool bias = false;
  std::int64_t extra = 0;  ///< in the leading dimensions
  int b = 0;               ///< 0: a weight [N, K], 1: [K, N], 2: every second number
  std::int64_t offset = 0;
  int threads = 1;
  std::uint32_t seed = 1;
};

std::string name_of(IsaSet isa) {
  LinearF32Args args;
  args.half = true;
  args.m = args.n = args.k = 1;
  return linear_f32_variant(args, isa);
}

std::string text_of(const Shape& s, IsaSet isa) {
  std::ostringstream text;
  text << name_of(isa) << " m " << s.m << " n " << s.n << " k " << s.k << " half " << s.half << " bias " << s.bias << " extra " << s.extra
       << " b " << s.b << " at " << s.offset << " threads " << s.threads << " seed " << s.seed;
  return text.str();
}

/// Numbers of fp32 or fp16 that end at a page that faults.
class Numbers {
 public:
  Numbers(bool half, std::int64_t count) : half_(half), memory_(static_cast<std::size_t>(count * (half ? 2 : 4))) {}
  [[nodiscard]] char* at(std::int64_t i) const { return memory_.data() + i * (half_ ? 2 : 4); }
  [[nodiscard]] std::string bytes() const { return {memory_.data(), memory_.bytes()}; }
  void set(std::int64_t i, float value) {
    const std::uint16_t half = ref::f16_from_f32(value);
    half_ ? std::memcpy(at(i), &half, 2) : std::memcpy(at(i), &value, 4);
  }
  [[nodiscard]] double get(std::int64_t i) const {
    std::uint16_t half = 0;
    float value = 0;
    half_ ? std::memcpy(&half, at(i), 2) : std::memcpy(&value, at(i), 4);
    return static_cast<double>(half_ ? ref::f16_to_f32(half) : value);
  }

 private:
  bool half_;
  Guarded memory_;
};

std::int64_t extent(std::int64_t rows, std::int64_t columns, std::int64_t stride) { return rows == 0 ? 0 : (rows - 1) * stride + columns; }

class ProblemF32 {
 public:
  explicit ProblemF32(const Shape& s)
      : shape(s),
        a(s.half, s.offset + extent(s.m, s.k, s.k + s.extra)),
        b(s.half, s.k * s.n * (s.b == 2 ? 2 : 1)),
        bias(s.half, s.n),
        c(s.half, s.offset + extent(s.m, s.n, s.n + s.extra)),
        packed_(packed_f32_bytes(s.k, s.n, s.half)) {
    std::mt19937 random(s.seed);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t k = 0; k < s.k; ++k) a.set(a_index(m, k), uniform(random));
    }
    for (std::int64_t k = 0; k < s.k; ++k) {
      for (std::int64_t n = 0; n < s.n; ++n) b.set(b_index(k, n), uniform(random));
    }
    for (std::int64_t n = 0; n < s.n; ++n) bias.set(n, uniform(random));
  }

  [[nodiscard]] std::int64_t a_index(std::int64_t m, std::int64_t k) const { return shape.offset + m * (shape.k + shape.extra) + k; }
  [[nodiscard]] std::int64_t b_index(std::int64_t k, std::int64_t n) const {
    return shape.b == 1 ? k * shape.n + n : (n * shape.k + k) * (shape.b == 2 ? 2 : 1);
  }
  [[nodiscard]] std::int64_t c_index(std::int64_t m, std::int64_t n) const { return shape.offset + m * (shape.n + shape.extra) + n; }

  bool run(IsaSet isa) { return run(isa, thread_parallel(shape.threads)); }
  bool run(IsaSet isa, const Parallel& parallel) {
    const Shape& s = shape;
    isa_ = isa;
    const std::int64_t step = s.b == 2 ? 2 : 1;
    pack_f32({b.at(0), s.half, s.k, s.n, s.b == 1 ? s.n : step, s.b == 1 ? 1 : s.k * step}, packed_.data(), parallel, isa);
    LinearF32Args args;
    args.half = s.half;
    args.a = a.at(s.offset);
    args.lda = s.k + s.extra;
    args.packed_b = packed_.data();
    if (s.bias) args.bias = bias.at(0);
    args.c = c.at(s.offset);
    args.ldc = s.n + s.extra;
    args.m = s.m;
    args.n = s.n;
    args.k = s.k;
    return linear_f32(args, parallel, isa);
  }

  [[nodiscard]] bool half_sums() const { return shape.half && isa_has(isa_, kIsaAvx512Fp16); }

  /// Empty when C is right within the bound of fp32 summation and nothing else was written.
  [[nodiscard]] std::string difference() const {
    const Shape& s = shape;
    const std::string bytes = c.bytes();
    const std::int64_t element = s.half ? 2 : 4;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i) / element - s.offset;
      if ((at < 0 || at % (s.n + s.extra) >= s.n) && bytes[i] != 0x7f) return "written outside C at byte " + std::to_string(i);
    }
    std::vector<double> columns(static_cast<std::size_t>(s.k * s.n));  // of B
    for (std::int64_t n = 0; n < s.n; ++n) {
      for (std::int64_t k = 0; k < s.k; ++k) columns[static_cast<std::size_t>(n * s.k + k)] = b.get(b_index(k, n));
    }
    std::vector<double> row(static_cast<std::size_t>(s.k));
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t k = 0; k < s.k; ++k) row[static_cast<std::size_t>(k)] = a.get(a_index(m, k));
      for (std::int64_t n = 0; n < s.n; ++n) {
        double truth = s.bias ? bias.get(n) : 0;
        double size = std::fabs(truth);
        for (std::int64_t k = 0; k < s.k; ++k) {
          const double product = row[static_cast<std::size_t>(k)] * columns[static_cast<std::size_t>(n * s.k + k)];
          truth += product;
          size += std::fabs(product);
        }
        const double seen = c.get(c_index(m, n));
        double bound =
            1e-7 * (4 + std::sqrt(static_cast<double>(s.k))) * size + static_cast<double>(std::numeric_limits<float>::denorm_min());
        if (half_sums()) bound += std::ldexp(size, -10);  // of up to 32 products
        if (s.half) bound += std::ldexp(std::fabs(truth) + bound, -11) + std::ldexp(1.0, -25);
        const bool right = std::isfinite(truth) ? std::fabs(seen - truth) <= bound : (std::isnan(truth) ? std::isnan(seen) : seen == truth);
        if (right) continue;
        std::ostringstream text;
        text << "C[" << m << ", " << n << "] is " << seen << ", not " << truth << " within " << bound;
        return text.str();
      }
    }
    return "";
  }

  Shape shape;
  Numbers a, b, bias, c;

 private:
  Guarded packed_;
  IsaSet isa_ = 0;
};

class LinearF32OnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  void check(Shape s) {
    for (const bool half : {false, true}) {
      s.half = half;
      ProblemF32 problem(s);
      ASSERT_TRUE(problem.run(GetParam())) << text_of(s, GetParam());
      EXPECT_EQ(problem.difference(), "") << text_of(s, GetParam());
    }
  }
};

TEST_P(LinearF32OnIsa, RowsAroundEachBlock) {
  for (const std::int64_t m : {0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 27, 28, 29, 43, 64, 65, 300}) {
    check({.m = m, .n = 40, .k = 70, .bias = true});
    check({.m = m, .n = 160, .k = 64});
  }
}

TEST_P(LinearF32OnIsa, ColumnsAroundEachBlock) {
  for (const std::int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 161}) {
    for (const std::int64_t m : {1, 2, 3, 5, 18}) check({.m = m, .n = n, .k = 37, .bias = true});
  }
}

TEST_P(LinearF32OnIsa, DepthsAroundEachBlock) {
  for (const std::int64_t k : {0, 1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1100}) {
    for (const std::int64_t m : {1, 3, 5, 9, 35}) check({.m = m, .n = 35, .k = k, .bias = true});
  }
}

TEST_P(LinearF32OnIsa, EveryAlignment) {
  for (std::int64_t offset = 0; offset < 32; ++offset) {
    check({.m = 17, .n = 37, .k = 45, .bias = true, .extra = offset % 3, .offset = offset});
    check({.m = 2, .n = 64, .k = 32, .extra = offset % 3, .b = static_cast<int>(offset % 3), .offset = offset});
  }
}

TEST_P(LinearF32OnIsa, ManyBlocksOfEveryKind) {
  if (GetParam() == 0) return;  // the reference has no blocks
  check({.m = 300, .n = 97, .k = 1100, .bias = true, .threads = 2});
  check({.m = 70, .n = 70, .k = 6000, .b = 1});
  check({.m = 400, .n = 300, .k = 300});
}

TEST_P(LinearF32OnIsa, SeededFuzz) {
  std::mt19937 random(20261122);
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (std::uint32_t i = 0; i < 150; ++i) {
    const bool large = pick(0, 9) == 0;
    check({.m = pick(0, large ? 150 : 40),
           .n = pick(0, large ? 300 : 140),
           .k = pick(0, large ? 700 : 90),
           .bias = pick(0, 1) != 0,
           .extra = pick(0, 5),
           .b = static_cast<int>(pick(0, 2)),
           .offset = pick(0, 3),
           .threads = static_cast<int>(pick(1, 4)),
           .seed = i + 1});
    if (HasFailure()) return;
  }
}

TEST_P(LinearF32OnIsa, NanInfinityAndDenormals) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::int64_t m : {3, 9, 40}) {
    for (const bool half : {false, true}) {
      ProblemF32 problem({.m = m, .n = 50, .k = 41, .half = half, .bias = true});
      problem.a.set(problem.a_index(1, 7), NAN);
      problem.a.set(problem.a_index(2, 8), kInf);
      problem.b.set(problem.b_index(9, 3), -kInf);
      problem.b.set(problem.b_index(10, 4), NAN);
      problem.bias.set(5, kInf);
      const float least = half ? std::ldexp(1.0f, -24) : std::numeric_limits<float>::denorm_min();
      for (std::int64_t k = 0; k < 41; ++k) problem.b.set(problem.b_index(k, 6), k == 11 ? least : 0.0f);
      problem.a.set(problem.a_index(0, 11), 1.0f);
      problem.bias.set(6, 0.0f);
      ASSERT_TRUE(problem.run(GetParam()));
      EXPECT_EQ(problem.difference(), "") << m << " " << half;
      EXPECT_EQ(problem.c.get(problem.c_index(0, 6)), static_cast<double>(least));
    }
  }
}

/// Sums in fp16 would overflow, or end among its denormals, where C does not.
TEST_P(LinearF32OnIsa, HalvesOfAnySize) {
  for (const float size : {300.0f, 1e-3f, 1e-5f}) {
    ProblemF32 problem({.m = 20, .n = 40, .k = 100, .half = true});
    const float large = size < 1 ? 3000.0f : 2.0f;
    for (std::int64_t k = 0; k < 100; ++k) {
      for (std::int64_t m = 0; m < 20; ++m) {
        const auto number = static_cast<float>(problem.a.get(problem.a_index(m, k)));
        problem.a.set(problem.a_index(m, k), (m == 3 ? 1 : number) * size);
      }
      for (std::int64_t n = 0; n < 40; ++n) problem.b.set(problem.b_index(k, n), n != 7 ? 0.02f : k < 50 ? large : -large);
    }
    ASSERT_TRUE(problem.run(GetParam()));
    EXPECT_EQ(problem.difference(), "") << size;
  }
}

TEST_P(LinearF32OnIsa, AnyNumberOfThreadsGivesTheSameBits) {
  for (const bool half : {false, true}) {
    for (const std::int64_t m : {4, 70}) {
      ProblemF32 problem({.m = m, .n = 330, .k = 230, .half = half, .bias = true});
      ASSERT_TRUE(problem.run(GetParam(), {}));
      const std::string serial = problem.c.bytes();
      for (int threads = 2; threads <= 4; ++threads) {
        ASSERT_TRUE(problem.run(GetParam(), thread_parallel(threads)));
        EXPECT_TRUE(problem.c.bytes() == serial) << threads << " threads, m " << m;
      }
    }
  }
}

TEST_P(LinearF32OnIsa, WhoComputesWhatDoesNotChangeTheBits) {
  for (const bool half : {false, true}) {
    for (const auto& [m, n, k] : {std::tuple{40, 700, 300}, std::tuple{500, 100, 90}, std::tuple{130, 260, 1100}}) {
      ProblemF32 problem({.m = m, .n = n, .k = k, .half = half, .bias = true});
      ASSERT_TRUE(problem.run(GetParam(), {}));
      const std::string serial = problem.c.bytes();
      for (const int threads : {2, 5}) {
        for (const Parallel& parallel : {thread_parallel(threads), backward_parallel(threads)}) {
          ASSERT_TRUE(problem.run(GetParam(), parallel));
          EXPECT_TRUE(problem.c.bytes() == serial) << threads << " threads, m " << m;
        }
      }
    }
  }
}

/// What the variant gives, beside the reference.
void check_beside_reference(LinearF32Args args, IsaSet isa, int threads, const std::string& text) {
  const auto count = static_cast<std::size_t>(args.m * args.n);
  std::vector<float> mine(count, -7.0f);
  std::vector<float> truth(count, -7.0f);
  const bool in_place = args.epilogue.other != nullptr && args.epilogue.ld_other == args.n;
  for (std::vector<float>* to : {&mine, &truth}) {
    if (in_place) std::memcpy(to->data(), args.epilogue.other, count * 4);
    LinearF32Args call = args;
    call.c = to->data();
    call.ldc = args.n;
    if (in_place) call.epilogue.other = to->data();
    ASSERT_TRUE(linear_f32(call, thread_parallel(threads), to == &mine ? isa : 0));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double bound = 3e-6 * (1 + std::fabs(static_cast<double>(truth[i]))) * std::sqrt(static_cast<double>(args.k + 1));
    if (std::isnan(truth[i]) ? std::isnan(mine[i]) : std::fabs(static_cast<double>(mine[i]) - static_cast<double>(truth[i])) <= bound)
      continue;
    FAIL() << text << ": element " << i << " is " << mine[i] << ", not " << truth[i];
  }
}

std::vector<float> random_numbers(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = uniform(random);
  return numbers;
}

TEST_P(LinearF32OnIsa, EveryEpilogueAsTheReferenceHasIt) {
  for (const std::int64_t m : {1, 4, 19, 70}) {
    for (const std::int64_t n : {1, 31, 32, 100}) {
      const std::int64_t k = 300;
      std::vector<float> a = random_numbers(m * k, 1);
      a[0] = NAN;  // which relu keeps
      const std::vector<float> b = random_numbers(k * n, 2);
      const std::vector<float> bias = random_numbers(n, 3);
      const std::vector<float> other = random_numbers(m * (n + 5), 4);
      Guarded packed(packed_f32_bytes(k, n, false));
      pack_f32({b.data(), false, k, n, 1, k}, packed.data(), {}, GetParam());
      for (const Unary unary : {Unary::kNone, Unary::kRelu, Unary::kGelu, Unary::kGeluTanh, Unary::kTanh, Unary::kSigmoid, Unary::kSilu}) {
        for (const Binary binary : {Binary::kNone, Binary::kAdd, Binary::kMul}) {
          for (const std::int64_t extra : {0, 5}) {
            LinearF32Args args;
            args.a = a.data();
            args.lda = k;
            args.packed_b = packed.data();
            args.bias = bias.data();
            args.m = m;
            args.n = n;
            args.k = k;
            args.epilogue.unary = unary;
            args.epilogue.binary = binary;
            args.epilogue.binary_first = extra == 0;
            if (binary != Binary::kNone) {
              args.epilogue.other = other.data();
              args.epilogue.ld_other = n + extra;
            }
            check_beside_reference(args, GetParam(), 2, "m " + std::to_string(m) + " n " + std::to_string(n));
          }
        }
      }
    }
  }
}

TEST_P(LinearF32OnIsa, WindowsOfImages) {
  std::mt19937 random(20261125);
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 120; ++i) {
    const WindowCase made = window_case(i, random);
    const ImageWindows& w = made.windows;
    const std::int64_t k = made.k;
    const std::int64_t n = pick(1, 70);
    Guarded image(static_cast<std::size_t>(made.elements * 4));  // ends at a page that faults
    const std::vector<float> pixels = random_numbers(made.elements, static_cast<std::uint32_t>(i));
    std::memcpy(image.data(), pixels.data(), pixels.size() * 4);
    const std::vector<float> b = random_numbers(k * n, 2);
    Guarded packed(packed_f32_bytes(k, n, false));
    pack_f32({b.data(), false, k, n, 1, k}, packed.data(), {}, GetParam());
    LinearF32Args args;
    args.a = image.data();
    args.windows = &w;
    args.packed_b = packed.data();
    args.m = made.rows;
    args.n = n;
    args.k = k;
    args.epilogue.unary = Unary::kRelu;
    check_beside_reference(args, GetParam(), static_cast<int>(pick(1, 3)), "windows " + std::to_string(i));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, LinearF32OnIsa, testing::ValuesIn(levels_of(linear_f32_variants(true))),
                         [](const auto& level) { return name_of(level.param); });

TEST(LinearF32, NothingIsOfferedWithoutVectors) {
  LinearF32Args args;
  args.m = args.n = args.k = 64;
  EXPECT_FALSE(linear_f32_supported(args, 0));
  EXPECT_EQ(packed_f32_bytes(0, 5, false), 0u);
  EXPECT_EQ(packed_f32_bytes(std::numeric_limits<std::int64_t>::max() / 2, 5, true), 0u);
}

}  // namespace
}  // namespace ipexrun::kernels::test
