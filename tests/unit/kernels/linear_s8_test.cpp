// The risk: a sum that saturates where it must not, a zero point or the +128 of a signed A that is compensated wrongly, a tail that a
// variant reads past, writes past or leaves out, bytes rounded another way.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "kernels/linear_s8_variants.h"
#include "tests/unit/kernels/buffer.h"

namespace ipexrun::kernels::test {
namespace {

using Output = LinearS8Output;
using Kind = LinearS8Activation;

struct Shape {
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  bool a_signed = false;
  Output c = Output::kI32;
  std::int32_t zero = 0;
  int scales = 0;  ///< bit 0: of A per row, bit 1: of B per column, bit 2: none at all
  bool bias = false;
  int residual = 0;  ///< 1 fp32, 2 bf16
  Kind activation = Kind::kNone;
  std::int64_t extra = 0;  ///< in the leading dimensions
  bool plain_b = false;    ///< B stored as [K, N]
  std::int64_t offset = 0;
  int threads = 1;
  bool extreme = false;  ///< only the largest and smallest bytes
  std::uint32_t seed = 1;
};

std::int64_t bytes_of_c(Output type) { return type == Output::kBf16 ? 2 : type <= Output::kF32 ? 4 : 1; }

std::string name_of(IsaSet isa) {
  LinearS8Args args;
  args.m = args.n = args.k = 1;
  return linear_s8_variant(args, isa);
}

std::string text_of(const Shape& s, IsaSet isa) {
  std::ostringstream text;
  text << name_of(isa) << " m " << s.m << " n " << s.n << " k " << s.k << " signed " << s.a_signed << " c " << static_cast<int>(s.c)
       << " zero " << s.zero << " scales " << s.scales << " bias " << s.bias << " residual " << s.residual << " activation "
       << static_cast<int>(s.activation) << " extra " << s.extra << " plain " << s.plain_b << " at " << s.offset << " threads " << s.threads
       << " seed " << s.seed;
  return text.str();
}

std::size_t extent(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return static_cast<std::size_t>(rows == 0 ? 0 : (rows - 1) * stride + columns);
}

class Problem8 {
 public:
  explicit Problem8(const Shape& s)
      : shape_(s),
        a_(static_cast<std::size_t>(s.offset) + extent(s.m, s.k, s.k + s.extra)),
        b_(static_cast<std::size_t>(s.k * s.n)),
        packed_(packed_s8_bytes(s.k, s.n)),
        a_scale_(DType::kF32, (s.scales & 1) != 0 ? s.m : 1),
        b_scale_(DType::kF32, (s.scales & 2) != 0 ? s.n : 1),
        bias_(DType::kF32, s.n),
        residual_(s.residual == 2 ? DType::kBf16 : DType::kF32, static_cast<std::int64_t>(extent(s.m, s.n, s.n + s.extra))) {
    std::mt19937 random(s.seed);
    std::uniform_int_distribution<int> byte(0, 255);
    const auto fill = [&](char* to, std::int64_t count, bool is_signed) {
      for (std::int64_t i = 0; i < count; ++i) {
        const int extreme = is_signed ? (byte(random) < 128 ? 0x80 : 0x7f) : 0xff;
        to[i] = static_cast<char>(s.extreme ? extreme : byte(random));
      }
    };
    for (std::int64_t m = 0; m < s.m; ++m) fill(a_.data() + s.offset + m * (s.k + s.extra), s.k, s.a_signed);
    fill(b_.data(), s.k * s.n, true);
    std::uniform_real_distribution<float> scale(0.001f, 0.01f);
    for (Buffer* buffer : {&a_scale_, &b_scale_}) {
      for (std::int64_t i = 0; i < buffer->count(); ++i) buffer->set(i, scale(random));
    }
    bias_.fill(random);
    residual_.fill(random);
    pack_s8({reinterpret_cast<const std::int8_t*>(b_.data()), s.k, s.n, s.plain_b ? s.n : 1, s.plain_b ? 1 : s.k}, packed_.data(),
            thread_parallel(s.threads));
  }

  [[nodiscard]] LinearS8Args args() const {
    const Shape& s = shape_;
    LinearS8Args args;
    args.a = a_.data() + s.offset;
    args.a_signed = s.a_signed;
    args.lda = s.k + s.extra;
    args.a_zero = s.zero;
    if ((s.scales & 4) == 0) {
      args.a_scale = reinterpret_cast<const float*>(a_scale_.data());
      args.a_scale_per_row = (s.scales & 1) != 0;
      args.b_scale = reinterpret_cast<const float*>(b_scale_.data());
      args.b_scale_per_column = (s.scales & 2) != 0;
    }
    args.packed_b = packed_.data();
    if (s.bias) args.bias = reinterpret_cast<const float*>(bias_.data());
    if (s.residual != 0) args.residual = residual_.data();
    args.residual_dtype = s.residual == 2 ? DType::kBf16 : DType::kF32;
    args.ldr = s.n + s.extra;
    args.activation = s.activation;
    args.c_type = s.c;
    args.ldc = s.n + s.extra;
    args.c_inverse_scale = 7.3f;
    args.c_zero = s.c == Output::kU8 ? 113 : s.c == Output::kS8 ? -5 : 0;
    args.m = s.m;
    args.n = s.n;
    args.k = s.k;
    return args;
  }

  /// All bytes of C's memory, or "failed".
  [[nodiscard]] std::string run(IsaSet isa) const { return run(isa, thread_parallel(shape_.threads)); }
  [[nodiscard]] std::string run(IsaSet isa, const Parallel& parallel) const {
    const std::int64_t element = bytes_of_c(shape_.c);
    Guarded c((static_cast<std::size_t>(shape_.offset) + extent(shape_.m, shape_.n, shape_.n + shape_.extra)) *
              static_cast<std::size_t>(element));
    LinearS8Args args = this->args();
    args.c = c.data() + shape_.offset * element;
    return linear_s8(args, parallel, isa) ? std::string(c.data(), c.bytes()) : "failed";
  }

  /// One number of C by its definition, before it is rounded to a byte or to bf16. Not the reference's code.
  [[nodiscard]] double value(std::int64_t m, std::int64_t n) const {
    const Shape& s = shape_;
    std::int64_t sum = 0;
    for (std::int64_t k = 0; k < s.k; ++k) {
      const char byte = a_.data()[s.offset + m * (s.k + s.extra) + k];
      const int a = s.a_signed ? static_cast<std::int8_t>(byte) : static_cast<std::uint8_t>(byte);
      sum += (a - s.zero) * static_cast<std::int8_t>(b_.data()[s.plain_b ? k * s.n + n : n * s.k + k]);
    }
    if (s.c == Output::kI32) return static_cast<double>(sum);
    double value = static_cast<double>(sum);
    if ((s.scales & 4) == 0) value *= a_scale_.get((s.scales & 1) != 0 ? m : 0) * b_scale_.get((s.scales & 2) != 0 ? n : 0);
    if (s.bias) value += bias_.get(n);
    if (s.residual != 0) value += residual_.get(m * (s.n + s.extra) + n);
    if (s.activation == Kind::kRelu) return std::fmax(value, 0.0);
    if (s.activation == Kind::kGelu) return value * 0.5 * std::erfc(-value * std::sqrt(0.5));
    if (s.activation == Kind::kGeluTanh)
      return value * 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (value + 0.044715 * value * value * value)));
    if (s.activation == Kind::kSilu) return value / (1 + std::exp(-value));
    return value;
  }

  /// Empty when `c` is right and nothing but C was written.
  [[nodiscard]] std::string difference(const std::string& c) const {
    const Shape& s = shape_;
    const std::int64_t element = bytes_of_c(s.c);
    for (std::size_t i = 0; i < c.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i) / element - s.offset;
      const bool inside = at >= 0 && at % (s.n + s.extra) < s.n;
      if (!inside && c[i] != 0x7f) return "written outside C at byte " + std::to_string(i);
    }
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t n = 0; n < s.n; ++n) {
        const char* at = c.data() + (s.offset + m * (s.n + s.extra) + n) * element;
        const double truth = value(m, n);
        double seen = 0;
        double bound = 0;
        if (s.c == Output::kI32) {
          std::int32_t number = 0;
          std::memcpy(&number, at, 4);
          seen = number;
        } else if (s.c == Output::kF32 || s.c == Output::kBf16) {
          std::uint32_t bits = 0;
          std::memcpy(s.c == Output::kF32 ? reinterpret_cast<char*>(&bits) : reinterpret_cast<char*>(&bits) + 2, at,
                      static_cast<std::size_t>(element));
          seen = static_cast<double>(__builtin_bit_cast(float, bits));
          bound = 1e-5 * (1 + std::fabs(truth)) + (s.c == Output::kBf16 ? std::fabs(truth) / 250 : 0);
        } else {
          const LinearS8Args args = this->args();
          seen = s.c == Output::kU8 ? static_cast<std::uint8_t>(*at) : static_cast<std::int8_t>(*at);
          const double exact = truth * static_cast<double>(args.c_inverse_scale) + args.c_zero;
          const double low = s.c == Output::kU8 ? 0 : -128;
          if (std::fabs(seen - std::fmin(std::fmax(exact, low), low + 255)) > 0.501) return where(m, n, seen, exact);
          continue;
        }
        if (!(std::fabs(seen - truth) <= bound)) return where(m, n, seen, truth);
      }
    }
    return "";
  }

 private:
  static std::string where(std::int64_t m, std::int64_t n, double seen, double truth) {
    std::ostringstream text;
    text << "C[" << m << ", " << n << "] is " << seen << ", not " << truth;
    return text.str();
  }

  Shape shape_;
  Guarded a_, b_, packed_;
  Buffer a_scale_, b_scale_, bias_, residual_;
};

class LinearS8OnIsa : public testing::TestWithParam<IsaSet> {
 protected:
  void check(const Shape& s) {
    const Problem8 problem(s);
    const std::string c = problem.run(GetParam());
    EXPECT_EQ(problem.difference(c), "") << text_of(s, GetParam());
    if (GetParam() == 0 || s.activation > Kind::kRelu) return;
    EXPECT_TRUE(c == problem.run(0)) << "other bits than ref: " << text_of(s, GetParam());
  }
};

TEST_P(LinearS8OnIsa, UsesTheVariantOfItsLevel) {
  LinearS8Args args;
  args.m = args.n = args.k = 64;
  const LinearS8Variants table = linear_s8_variants();
  for (std::size_t i = 0; i < table.count; ++i) {
    if (table.first[i].needs != GetParam()) continue;
    EXPECT_STREQ(linear_s8_variant(args, GetParam()), table.first[i].name);
    EXPECT_EQ(linear_s8_supported(args, GetParam()), table.first[i].native);
  }
}

TEST_P(LinearS8OnIsa, RowsAroundEachBlock) {
  for (const std::int64_t m : {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 257}) {
    check({.m = m, .n = 40, .k = 70, .zero = 3});
    check({.m = m, .n = 64, .k = 64, .a_signed = true, .c = Output::kF32, .scales = 3, .bias = true});
    check({.m = m, .n = 130, .k = 64, .a_signed = true, .c = Output::kU8, .scales = 1});
  }
}

TEST_P(LinearS8OnIsa, ColumnsAroundEachBlock) {
  for (const std::int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 160, 161}) {
    check({.m = 1, .n = n, .k = 70, .zero = 200});
    check({.m = 18, .n = n, .k = 64, .a_signed = true, .c = Output::kBf16, .scales = 2, .bias = true, .residual = 2});
    check({.m = 33, .n = n, .k = 33, .c = Output::kS8, .zero = 7, .residual = 1, .activation = Kind::kRelu});
  }
}

TEST_P(LinearS8OnIsa, DepthsAroundEachBlock) {
  for (const std::int64_t k : {0, 1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1023, 1025, 2048, 2049}) {
    check({.m = 5, .n = 33, .k = k, .zero = -9});
    check({.m = 35, .n = 35, .k = k, .a_signed = true, .c = Output::kF32, .zero = -3, .bias = true});
  }
}

TEST_P(LinearS8OnIsa, NothingSaturatesButTheLastByte) {
  for (const bool a_signed : {false, true}) {
    for (const std::int64_t m : {1, 3, 40}) {
      check({.m = m, .n = 37, .k = 300, .a_signed = a_signed, .extreme = true});
      check({.m = m, .n = 37, .k = 300, .a_signed = a_signed, .c = Output::kU8, .zero = 128, .extreme = true});
      check({.m = m, .n = 37, .k = 300, .a_signed = a_signed, .c = Output::kS8, .zero = -128, .extreme = true});
    }
  }
}

TEST_P(LinearS8OnIsa, SumsWrapAround) {
  // 2^31 / (255 * 127) rows of K are too many for int32; all variants agree on what is left.
  const std::int64_t k = 140000;
  Guarded a(static_cast<std::size_t>(k));
  Guarded b(static_cast<std::size_t>(k));
  std::memset(a.data(), 0xff, static_cast<std::size_t>(k));
  std::memset(b.data(), 0x7f, static_cast<std::size_t>(k));
  Guarded packed(packed_s8_bytes(k, 1));
  pack_s8({reinterpret_cast<const std::int8_t*>(b.data()), k, 1, 1, k}, packed.data(), {});
  std::int32_t c = 0;
  LinearS8Args args;
  args.a = a.data();
  args.lda = args.k = k;
  args.packed_b = packed.data();
  args.c = &c;
  args.ldc = args.m = args.n = 1;
  ASSERT_TRUE(linear_s8(args, {}, GetParam()));
  EXPECT_EQ(static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(k * 255 * 127));
}

TEST_P(LinearS8OnIsa, EveryAlignment) {
  for (std::int64_t offset = 0; offset < 64; offset += 3) {
    check({.m = 17, .n = 37, .k = 45, .extra = offset % 4, .offset = offset});
    check({.m = 17, .n = 37, .k = 77, .c = Output::kU8, .extra = offset % 4, .offset = offset});
  }
}

TEST_P(LinearS8OnIsa, EveryActivation) {
  for (const Kind kind : {Kind::kNone, Kind::kRelu, Kind::kGelu, Kind::kGeluTanh, Kind::kSilu}) {
    for (const Output c : {Output::kF32, Output::kBf16, Output::kU8, Output::kS8}) {
      check({.m = 20, .n = 45, .k = 100, .c = c, .zero = 100, .scales = 3, .bias = true, .residual = 1, .activation = kind});
      check({.m = 2, .n = 64, .k = 10, .a_signed = true, .c = c, .scales = 4, .activation = kind});
    }
  }
}

TEST_P(LinearS8OnIsa, ManyBlocksOfEveryKind) {
  if (GetParam() == 0) return;  // the reference has no blocks
  check({.m = 300, .n = 97, .k = 2200, .zero = 5, .threads = 2});
  check({.m = 64, .n = 300, .k = 3400, .a_signed = true, .c = Output::kBf16, .scales = 3, .bias = true});
  check({.m = 400, .n = 900, .k = 300, .a_signed = true, .c = Output::kS8, .scales = 3});
  check({.m = 400, .n = 900, .k = 300});
}

TEST_P(LinearS8OnIsa, RoundsToNearestEvenAndTakesNanAsTheSmallest) {
  const float bias[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 1e30f, -1e30f, INFINITY, -INFINITY, NAN};
  constexpr std::int64_t kN = 10;
  const std::int8_t b[kN] = {};
  Guarded packed(packed_s8_bytes(1, kN));
  pack_s8({b, 1, kN, kN, 1}, packed.data(), {});
  const std::uint8_t a = 1;
  LinearS8Args args;
  args.a = &a;
  args.packed_b = packed.data();
  args.bias = bias;
  args.m = args.k = args.lda = 1;
  args.n = args.ldc = kN;
  std::int8_t c[kN];
  args.c = c;
  args.c_type = Output::kS8;
  args.c_zero = 10;
  ASSERT_TRUE(linear_s8(args, {}, GetParam()));
  const int truth[] = {10, 12, 12, 10, 8, 127, -128, 127, -128, -128};
  for (std::int64_t i = 0; i < kN; ++i) EXPECT_EQ(c[i], truth[i]) << i;
}

TEST_P(LinearS8OnIsa, SeededFuzz) {
  std::mt19937 random(20260722);
  const auto pick = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (std::uint32_t i = 0; i < 200; ++i) {
    const bool large = pick(0, 9) == 0;
    const bool a_signed = pick(0, 1) != 0;
    check({.m = pick(0, large ? 150 : 40),
           .n = pick(0, large ? 300 : 80),
           .k = pick(0, large ? 700 : 150),
           .a_signed = a_signed,
           .c = static_cast<Output>(pick(0, 4)),
           .zero = static_cast<std::int32_t>(a_signed ? pick(-128, 127) : pick(0, 255)),
           .scales = static_cast<int>(pick(0, 4)),
           .bias = pick(0, 1) != 0,
           .residual = static_cast<int>(pick(0, 2)),
           .activation = static_cast<Kind>(pick(0, 4)),
           .extra = pick(0, 5),
           .plain_b = pick(0, 1) != 0,
           .offset = pick(0, 3),
           .threads = static_cast<int>(pick(1, 4)),
           .seed = i + 1});
    if (HasFailure()) return;
  }
}

TEST_P(LinearS8OnIsa, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Kind kind : {Kind::kNone, Kind::kGelu}) {
    const Problem8 problem(
        {.m = 70, .n = 330, .k = 130, .a_signed = true, .c = Output::kF32, .scales = 3, .bias = true, .activation = kind});
    const std::string serial = problem.run(GetParam(), {});
    for (int threads = 2; threads <= 4; ++threads) EXPECT_TRUE(problem.run(GetParam(), thread_parallel(threads)) == serial) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, LinearS8OnIsa, testing::ValuesIn(levels_of(linear_s8_variants())),
                         [](const auto& level) { return name_of(level.param); });

TEST(LinearS8, NothingIsOfferedWithoutByteProducts) {
  LinearS8Args args;
  args.m = args.n = args.k = 64;
  EXPECT_FALSE(linear_s8_supported(args, 0));
  EXPECT_FALSE(linear_s8_supported(args, kLevelAvx2));
  EXPECT_FALSE(linear_s8_supported(args, kLevelAvx512));
  EXPECT_EQ(packed_s8_bytes(0, 5), 0u);
  EXPECT_EQ(packed_s8_bytes(std::numeric_limits<std::int64_t>::max() / 2, 5), 0u);
}

}  // namespace
}  // namespace ipexrun::kernels::test
