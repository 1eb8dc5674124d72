// pointwise, a tile at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// Loops of plain arithmetic are left to the compiler's vectorizer (-O3); a tile may be written where it is read, element by element.
#include "kernels/simd/pointwise.h"

#include "kernels/simd/activation_kinds.h"
#include "kernels/simd/element.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;

constexpr float kHugeF32 = 3.4028235e38f;
constexpr float kInfinity = __builtin_inff();

/// e^x = 2^n 2^f, by two factors 2^n: the first alone may be beyond fp32.
[[gnu::always_inline]] inline void split_exp(Vector x, Vector* n, Vector* f) {
  const Vector bounded = Floats::at_most(Floats::all(89.0f), Floats::at_least(Floats::all(-104.0f), x));
  *n = Floats::nearest(Floats::multiply(bounded, Floats::all(kLog2E)));
  *f = Floats::fma(bounded, Floats::all(kLog2ERest), Floats::fms(bounded, Floats::all(kLog2E), *n));
}

[[gnu::always_inline]] inline Vector scaled(Vector value, Vector n) {
  const Vector half = Floats::nearest(Floats::multiply(n, Floats::all(0.5f)));
  return Floats::scale(Floats::scale(value, half), Floats::subtract(n, half));
}

struct Exp {
  [[gnu::always_inline]] static Vector run(Vector x) {
    Vector n;
    Vector f;
    split_exp(x, &n, &f);
    const Vector power = scaled(exp2_of(f), n);
    return Floats::pick(Floats::above(Floats::all(-126.0f), n), Floats::all(0.0f), power);
  }
};

/// 2^n (2^f - 1) + (2^n - 1): with n = 0, where x is small, nothing cancels.
struct ExpLess1 {
  [[gnu::always_inline]] static Vector run(Vector x) {
    Vector n;
    Vector f;
    split_exp(x, &n, &f);
    const Vector less = Floats::multiply(f, polynomial(kExp2Less1, f));
    const Vector large = Floats::subtract(scaled(Floats::add(less, Floats::all(1.0f)), n), Floats::all(1.0f));
    const Vector power = scaled(Floats::all(1.0f), n);
    const Vector small = Floats::fma(power, less, Floats::subtract(power, Floats::all(1.0f)));
    return Floats::pick(Floats::above(n, Floats::all(24.0f)), large, small);
  }
};

/// (log(1 + f) - f + f^2 / 2) / f^3 for 1 + f between the roots of 1/2 and 2, lowest power first: 2.3e-9 of f^2 (tools/fit_activation.py)
constexpr float kLogRest[] = {0.333333045f,  -0.249999836f, 0.200025916f,  -0.16669625f, 0.142110288f,
                              -0.123731919f, 0.119216628f,  -0.118775934f, 0.0690761432f};

[[gnu::always_inline]] inline std::int32_t bits_of_float(float value) { return __builtin_bit_cast(std::int32_t, value); }
[[gnu::always_inline]] inline float float_of_bits(std::int32_t bits) { return __builtin_bit_cast(float, bits); }

[[gnu::always_inline]] inline float log_of(float x) {
  constexpr std::int32_t kRootHalf = 0x3f3504f3;
  const float lifted = x < 1.17549435e-38f ? x * 8388608.0f : x;
  const float lift = x < 1.17549435e-38f ? -23.0f : 0.0f;
  // Unsigned: what is negative wraps, and is NaN in the end.
  const auto above = static_cast<std::int32_t>(static_cast<std::uint32_t>(bits_of_float(lifted)) - static_cast<std::uint32_t>(kRootHalf));
  const float e = static_cast<float>(above >> 23) + lift;
  const float f = float_of_bits((above & 0x7fffff) + kRootHalf) - 1.0f;
  float rest = kLogRest[8];
  rest = __builtin_fmaf(rest, f, kLogRest[7]);
  rest = __builtin_fmaf(rest, f, kLogRest[6]);
  rest = __builtin_fmaf(rest, f, kLogRest[5]);
  rest = __builtin_fmaf(rest, f, kLogRest[4]);
  rest = __builtin_fmaf(rest, f, kLogRest[3]);
  rest = __builtin_fmaf(rest, f, kLogRest[2]);
  rest = __builtin_fmaf(rest, f, kLogRest[1]);
  rest = __builtin_fmaf(rest, f, kLogRest[0]);
  const float square = f * f;
  // log(2) as a number of 9 bits, which e times is exact, and the rest.
  const float low = __builtin_fmaf(e, -2.12194440e-4f, __builtin_fmaf(rest, square * f, -0.5f * square));
  const float log = __builtin_fmaf(e, 0.693359375f, f + low);
  const float usual = x > kHugeF32 ? x : log;
  const float positive = x == 0.0f ? -kInfinity : usual;
  return x >= 0.0f ? positive : __builtin_nanf("");
}

/// log(u) of u = 1 + x as rounded, and what rounding left.
[[gnu::always_inline]] inline float log1p_of(float x) {
  const float u = 1.0f + x;
  const float left = (x - (u - 1.0f)) / u;
  const float sum = log_of(u) + (x < 1e30f ? left : 0.0f);
  return u == 0.0f ? -kInfinity : sum;
}

template <typename Kind>
void each(const float* a, float* to, std::int64_t n) {
  constexpr auto kStep = static_cast<std::int64_t>(sizeof(Vector) / sizeof(float));
  for (std::int64_t i = 0; i < n; i += kStep) Lanes::store(to + i, Floats::bits_of(Kind::run(Floats::of_bits(Lanes::load(a + i)))));
}

/// run(i) for each element.
template <typename Run>
[[gnu::always_inline]] inline void loop(std::int64_t n, const Run& run) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) run(i);
}

void softplus(const float* a, float* to, std::int64_t n) {
  constexpr auto kStep = static_cast<std::int64_t>(sizeof(Vector) / sizeof(float));
  alignas(64) float decayed[kPointTile];
  for (std::int64_t i = 0; i < n; i += kStep) {
    const Vector x = Floats::of_bits(Lanes::load(a + i));
    Lanes::store(decayed + i, Floats::bits_of(Exp::run(Floats::subtract(Floats::all(0.0f), Floats::magnitude(x)))));
  }
  loop(n, [&](std::int64_t i) { to[i] = (a[i] < 0.0f ? 0.0f : a[i]) + log1p_of(decayed[i]); });
}

[[gnu::always_inline]] inline float truth(bool holds) { return holds ? 1.0f : 0.0f; }

}  // namespace

void point_run(const PointInstruction* instructions, int count, float* const* slots, std::int64_t n) {
  for (int k = 0; k < count; ++k) {
    const PointInstruction one = instructions[k];
    const float* a = slots[one.a];
    const float* b = slots[one.b];
    const float* c = slots[one.c];
    float* to = slots[one.to];
    switch (one.what) {
      case Point::kCopy:
        loop(n, [&](std::int64_t i) { to[i] = a[i]; });
        break;
      case Point::kNegative:
        loop(n, [&](std::int64_t i) { to[i] = -a[i]; });
        break;
      case Point::kAbsolute:
        loop(n, [&](std::int64_t i) { to[i] = __builtin_fabsf(a[i]); });
        break;
      case Point::kRoot:
        loop(n, [&](std::int64_t i) { to[i] = __builtin_sqrtf(a[i]); });
        break;
      case Point::kReciprocalRoot:
        loop(n, [&](std::int64_t i) { to[i] = 1.0f / __builtin_sqrtf(a[i]); });
        break;
      case Point::kReciprocal:
        loop(n, [&](std::int64_t i) { to[i] = 1.0f / a[i]; });
        break;
      case Point::kExp:
        each<Exp>(a, to, n);
        break;
      case Point::kExpLess1:
        each<ExpLess1>(a, to, n);
        break;
      case Point::kLog:
        loop(n, [&](std::int64_t i) { to[i] = log_of(a[i]); });
        break;
      case Point::kLog1Plus:
        loop(n, [&](std::int64_t i) { to[i] = log1p_of(a[i]); });
        break;
      case Point::kSoftplus:
        softplus(a, to, n);
        break;
      case Point::kRelu:
        loop(n, [&](std::int64_t i) { to[i] = a[i] < 0.0f ? 0.0f : a[i]; });
        break;
      case Point::kTanh:
        each<Tanh>(a, to, n);
        break;
      case Point::kSigmoid:
        each<Sigmoid>(a, to, n);
        break;
      case Point::kSilu:
        each<Silu>(a, to, n);
        break;
      case Point::kGelu:
        each<Gelu>(a, to, n);
        break;
      case Point::kGeluTanh:
        each<GeluTanh>(a, to, n);
        break;
      case Point::kNot:
        loop(n, [&](std::int64_t i) { to[i] = truth(a[i] == 0.0f); });
        break;
      case Point::kRoundBf16:
        loop(n, [&](std::int64_t i) { to[i] = bf16_to_f32(bf16_from_f32(a[i])); });
        break;
      case Point::kAdd:
        loop(n, [&](std::int64_t i) { to[i] = a[i] + b[i]; });
        break;
      case Point::kSubtract:
        loop(n, [&](std::int64_t i) { to[i] = a[i] - b[i]; });
        break;
      case Point::kMultiply:
        loop(n, [&](std::int64_t i) { to[i] = a[i] * b[i]; });
        break;
      case Point::kDivide:
        loop(n, [&](std::int64_t i) { to[i] = a[i] / b[i]; });
        break;
      case Point::kMaximum:
        loop(n, [&](std::int64_t i) {
          const float most = a[i] < b[i] ? b[i] : a[i];
          to[i] = b[i] != b[i] ? b[i] : most;
        });
        break;
      case Point::kMinimum:
        loop(n, [&](std::int64_t i) {
          const float least = a[i] > b[i] ? b[i] : a[i];
          to[i] = b[i] != b[i] ? b[i] : least;
        });
        break;
      case Point::kGreater:
        loop(n, [&](std::int64_t i) { to[i] = truth(a[i] > b[i]); });
        break;
      case Point::kGreaterEqual:
        loop(n, [&](std::int64_t i) { to[i] = truth(a[i] >= b[i]); });
        break;
      case Point::kEqual:
        loop(n, [&](std::int64_t i) { to[i] = truth(a[i] == b[i]); });
        break;
      case Point::kUnequal:
        loop(n, [&](std::int64_t i) { to[i] = truth(a[i] != b[i]); });
        break;
      case Point::kWhere:
        loop(n, [&](std::int64_t i) { to[i] = a[i] != 0.0f ? b[i] : c[i]; });
        break;
    }
  }
}

namespace {

/// Rows of a number of elements that the compiler knows: a vector or two each, without a loop around them.
template <std::int64_t kN, typename T, typename Value>
void load_short_rows(const T* from, std::int64_t stride, std::int64_t next_row, std::int64_t rows, float* to, const Value& value) {
  if (stride == 0) {
    for (std::int64_t row = 0; row < rows; ++row, from += next_row, to += kN) {
      const float all = value(*from);
      for (std::int64_t i = 0; i < kN; ++i) to[i] = all;
    }
  } else {
    for (std::int64_t row = 0; row < rows; ++row, from += next_row, to += kN) {
      for (std::int64_t i = 0; i < kN; ++i) to[i] = value(from[i]);
    }
  }
}

template <typename T, typename Value>
void load_rows(const T* from, std::int64_t stride, std::int64_t n, std::int64_t next_row, std::int64_t rows, float* to,
               const Value& value) {
  if (stride <= 1 && rows > 1) {
    switch (n) {
      case 2:
        return load_short_rows<2>(from, stride, next_row, rows, to, value);
      case 4:
        return load_short_rows<4>(from, stride, next_row, rows, to, value);
      case 8:
        return load_short_rows<8>(from, stride, next_row, rows, to, value);
      case 16:
        return load_short_rows<16>(from, stride, next_row, rows, to, value);
      case 32:
        return load_short_rows<32>(from, stride, next_row, rows, to, value);
      default:
        break;
    }
  }
  for (std::int64_t row = 0; row < rows; ++row, from += next_row, to += n) {
    if (stride == 0) {
      const float all = value(*from);
      loop(n, [&](std::int64_t i) { to[i] = all; });
    } else if (stride == 1) {
      loop(n, [&](std::int64_t i) { to[i] = value(from[i]); });
    } else {
      for (std::int64_t i = 0; i < n; ++i) to[i] = value(from[i * stride]);
    }
  }
}

}  // namespace

void point_load(const void* from, PointType type, std::int64_t stride, std::int64_t n, std::int64_t next_row, std::int64_t rows,
                float* to) {
  const auto read = [&](const auto* typed, const auto& value) { load_rows(typed, stride, n, next_row, rows, to, value); };
  switch (type) {
    case PointType::kF32:
      return read(static_cast<const float*>(from), [](float value) { return value; });
    case PointType::kBf16:
      return read(static_cast<const std::uint16_t*>(from), [](std::uint16_t value) { return bf16_to_f32(value); });
    case PointType::kBool:
      return read(static_cast<const std::uint8_t*>(from), [](std::uint8_t value) { return truth(value != 0); });
  }
}

void point_store(const float* from, PointType type, std::int64_t stride, std::int64_t n, void* to) {
  const auto write = [&](auto* typed, const auto& value) {
    if (stride == 1) {
      loop(n, [&](std::int64_t i) { typed[i] = value(from[i]); });
    } else {
      for (std::int64_t i = 0; i < n; ++i) typed[i * stride] = value(from[i]);
    }
  };
  switch (type) {
    case PointType::kF32:
      return write(static_cast<float*>(to), [](float value) { return value; });
    case PointType::kBf16:
      return write(static_cast<std::uint16_t*>(to), [](float value) { return bf16_from_f32(value); });
    case PointType::kBool:
      return write(static_cast<std::uint8_t*>(to), [](float value) { return static_cast<std::uint8_t>(value != 0.0f ? 1 : 0); });
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
