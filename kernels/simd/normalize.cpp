// normalize, a row at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// A row is walked in steps: one vector of fp32, or one register of bf16 that is widened to two vectors (the elements at even places,
// then those at odd places). Four sums run side by side, so that an addition need not wait for the one before it.
#include "kernels/simd/normalize.h"

#include "kernels/bf16.h"
#include "kernels/dispatch.h"
#include "kernels/simd/floats.h"
//
#include "kernels/simd/exp2.h"
#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr int kLanes = Lanes::kCount;
constexpr int kSums = 4;

template <int N>
struct Step {
  Vector v[N];
};

struct F32 {
  using Element = float;
  static constexpr int kVectors = 1;
  static constexpr std::int64_t kStep = kLanes;
  using Step = IPEXRUN_KERNEL_ISA::Step<kVectors>;

  [[gnu::always_inline]] static Step load(const float* from) { return {{Floats::of_bits(Lanes::load(from))}}; }
  [[gnu::always_inline]] static Step load_part(const float* from, std::int64_t n) {
    return {{Floats::of_bits(Lanes::load_part(from, Lanes::part(n * 4)))}};
  }
  [[gnu::always_inline]] static void store(float* to, const Step& step) { Lanes::store(to, Floats::bits_of(step.v[0])); }
  [[gnu::always_inline]] static void store_part(float* to, const Step& step, std::int64_t n) {
    Lanes::store_part(to, Floats::bits_of(step.v[0]), Lanes::part(n * 4));
  }
  /// Of the first n elements of a step, how many lie in vector `s`.
  [[gnu::always_inline]] static std::int64_t lanes_of(std::int64_t n, int) { return n; }
};

struct Bf16 {
  using Element = std::uint16_t;
  static constexpr int kVectors = 2;
  static constexpr std::int64_t kStep = 2 * kLanes;
  using Step = IPEXRUN_KERNEL_ISA::Step<kVectors>;

  [[gnu::always_inline]] static Step widened(Lanes::Vector pairs) {
    return {{Floats::of_bits(Lanes::shift_left_16(pairs)), Floats::of_bits(Lanes::upper_half(pairs))}};
  }
  [[gnu::always_inline]] static Lanes::Vector narrowed(const Step& step) {
    const Lanes::Vector even = Lanes::rounded_result(Floats::bits_of(step.v[0]));
    const Lanes::Vector odd = Lanes::rounded_result(Floats::bits_of(step.v[1]));
    return Lanes::halves(Lanes::shift_right_16(even), odd);
  }
  [[gnu::always_inline]] static Step load(const std::uint16_t* from) { return widened(Lanes::load(from)); }
  [[gnu::always_inline]] static Step load_part(const std::uint16_t* from, std::int64_t n) {
    return widened(Lanes::load_part(from, Lanes::part(n * 2)));
  }
  [[gnu::always_inline]] static void store(std::uint16_t* to, const Step& step) { Lanes::store(to, narrowed(step)); }
  [[gnu::always_inline]] static void store_part(std::uint16_t* to, const Step& step, std::int64_t n) {
    Lanes::store_part(to, narrowed(step), Lanes::part(n * 2));
  }
  [[gnu::always_inline]] static std::int64_t lanes_of(std::int64_t n, int s) { return (n + 1 - s) / 2; }
};

/// Folds a row: F::add(sum, x) over all elements, F::add over the sums. What is missing in the last vector counts as `fill`.
template <typename Row, typename Fold>
[[gnu::always_inline]] inline Vector fold(const typename Row::Element* row, std::int64_t n, float start, float fill, const Fold& of) {
  constexpr int kSteps = kSums / Row::kVectors;
  Vector sums[kSums];
  for (Vector& sum : sums) sum = Floats::all(start);
  std::int64_t i = 0;
  for (; i + kSteps * Row::kStep <= n; i += kSteps * Row::kStep) {
#pragma GCC unroll 4
    for (int u = 0; u < kSteps; ++u) {
      const auto step = Row::load(row + i + u * Row::kStep);
#pragma GCC unroll 2
      for (int s = 0; s < Row::kVectors; ++s) sums[u * Row::kVectors + s] = of.add(sums[u * Row::kVectors + s], step.v[s]);
    }
  }
  for (; i + Row::kStep <= n; i += Row::kStep) {
    const auto step = Row::load(row + i);
#pragma GCC unroll 2
    for (int s = 0; s < Row::kVectors; ++s) sums[s] = of.add(sums[s], step.v[s]);
  }
  if (i < n) {
    const auto step = Row::load_part(row + i, n - i);
#pragma GCC unroll 2
    for (int s = 0; s < Row::kVectors; ++s) {
      sums[s] = of.add(sums[s], Floats::keep(step.v[s], Row::lanes_of(n - i, s), Floats::all(fill)));
    }
  }
  return Fold::both(Fold::both(sums[0], sums[1]), Fold::both(sums[2], sums[3]));
}

struct Largest {
  [[gnu::always_inline]] static Vector add(Vector most, Vector x) { return Floats::at_least(most, x); }
  [[gnu::always_inline]] static Vector both(Vector a, Vector b) { return Floats::at_least(a, b); }
};

struct Sum {
  [[gnu::always_inline]] static Vector add(Vector sum, Vector x) { return Floats::add(sum, x); }
  [[gnu::always_inline]] static Vector both(Vector a, Vector b) { return Floats::add(a, b); }
};

struct SquareDifference {
  Vector from;
  [[gnu::always_inline]] Vector add(Vector sum, Vector x) const {
    const Vector difference = Floats::subtract(x, from);
    return Floats::fma(difference, difference, sum);
  }
  [[gnu::always_inline]] static Vector both(Vector a, Vector b) { return Floats::add(a, b); }
};

struct Difference {
  Vector from;
  [[gnu::always_inline]] Vector add(Vector sum, Vector x) const { return Floats::add(sum, Floats::subtract(x, from)); }
  [[gnu::always_inline]] static Vector both(Vector a, Vector b) { return Floats::add(a, b); }
};

/// e^(x - largest) of a row to `to`, in the order of steps, whole steps; returns the sum.
template <typename Row>
[[gnu::always_inline]] inline Vector exponentials(const typename Row::Element* row, std::int64_t n, Vector largest, float* to) {
  Vector sums[2] = {Floats::all(0.0f), Floats::all(0.0f)};
  std::int64_t i = 0;
  for (; i + Row::kStep <= n; i += Row::kStep) {
    const auto step = Row::load(row + i);
#pragma GCC unroll 2
    for (int s = 0; s < Row::kVectors; ++s) {
      const Vector e = exponential(Floats::subtract(step.v[s], largest));
      Lanes::store(to + i + s * kLanes, Floats::bits_of(e));
      sums[s] = Floats::add(sums[s], e);
    }
  }
  if (i < n) {
    const auto step = Row::load_part(row + i, n - i);
#pragma GCC unroll 2
    for (int s = 0; s < Row::kVectors; ++s) {
      const Vector e = exponential(Floats::subtract(step.v[s], largest));
      Lanes::store(to + i + s * kLanes, Floats::bits_of(e));
      sums[s] = Floats::add(sums[s], Floats::keep(e, Row::lanes_of(n - i, s), Floats::all(0.0f)));
    }
  }
  return Floats::add(sums[0], sums[1]);
}

template <typename Row>
[[gnu::always_inline]] inline typename Row::Step step_of(const float* from) {
  typename Row::Step step;
#pragma GCC unroll 2
  for (int s = 0; s < Row::kVectors; ++s) step.v[s] = Floats::of_bits(Lanes::load(from + s * kLanes));
  return step;
}

template <typename Row>
void softmax_rows(const SoftmaxArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch) {
  using Element = typename Row::Element;
  constexpr float kLowest = -__builtin_inff();
  const std::int64_t n = args.columns;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const Element* from = static_cast<const Element*>(args.from) + row * n;
    Element* to = static_cast<Element*>(args.to) + row * n;
    const float largest = Floats::largest(fold<Row>(from, n, kLowest, kLowest, Largest{}));
    const Vector sum = exponentials<Row>(from, n, Floats::all(largest), scratch);
    const Vector scale = Floats::all(1.0f / Floats::sum(sum));
    const auto scaled = [&](std::int64_t i) __attribute__((always_inline)) {
      auto step = step_of<Row>(scratch + i);
#pragma GCC unroll 2
      for (int s = 0; s < Row::kVectors; ++s) step.v[s] = Floats::multiply(step.v[s], scale);
      return step;
    };
    std::int64_t i = 0;
    for (; i + Row::kStep <= n; i += Row::kStep) Row::store(to + i, scaled(i));
    if (i < n) Row::store_part(to + i, scaled(i), n - i);
  }
}

/// Weights or biases as fp32 in the order of steps, whole steps; the caller's own where they lie so already.
template <typename Row>
const float* parameters(const void* from, DType dtype, std::int64_t n, float missing, float* scratch) {
  if (Row::kVectors == 1 && dtype == DType::kF32 && from != nullptr) return static_cast<const float*>(from);
  const auto keep = [&](std::int64_t i, const typename Row::Step& step) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int s = 0; s < Row::kVectors; ++s) Lanes::store(scratch + i + s * kLanes, Floats::bits_of(step.v[s]));
  };
  typename Row::Step step;
  if (from == nullptr) {
    for (Vector& v : step.v) v = Floats::all(missing);
    for (std::int64_t i = 0; i < n; i += Row::kStep) keep(i, step);
  } else if constexpr (Row::kVectors == 1) {
    for (std::int64_t i = 0; i < n; ++i) scratch[i] = bf16_to_f32(static_cast<const std::uint16_t*>(from)[i]);
  } else if (dtype == DType::kBf16) {
    const auto* given = static_cast<const typename Row::Element*>(from);
    std::int64_t i = 0;
    for (; i + Row::kStep <= n; i += Row::kStep) keep(i, Row::load(given + i));
    if (i < n) keep(i, Row::load_part(given + i, n - i));
  } else {
    const auto* given = static_cast<const float*>(from);
    for (std::int64_t i = 0; i < n; i += Row::kStep) {
      Lanes::Vector v[2];
      for (int s = 0; s < 2; ++s) {
        const std::int64_t left = n - i - s * kLanes;
        const float* at = given + i + s * kLanes;
        v[s] = left >= kLanes ? Lanes::load(at) : left > 0 ? Lanes::load_part(at, Lanes::part(left * 4)) : Lanes::zero();
      }
      Lanes::split(v[0], v[1]);
      for (int s = 0; s < 2; ++s) {
        const Vector value = Floats::of_bits(v[s]);
        // No bits of a NaN in the lower half, as rounded_result() wants.
        step.v[s] = Floats::pick(Floats::nan(value), Floats::all(__builtin_nanf("")), value);
      }
      keep(i, step);
    }
  }
  return scratch;
}

void put(void* data, DType dtype, std::int64_t index, float value) {
  if (data == nullptr) return;
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<std::uint16_t*>(data)[index] = bf16_from_f32(value);
  }
}

/// Sum of all elements of a row, in double beyond a block.
template <typename Row, typename Fold>
double long_fold(const typename Row::Element* row, std::int64_t n, float fill, const Fold& of) {
  constexpr std::int64_t kBlock = 4096;
  double sum = 0;
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t count = n - i < kBlock ? n - i : kBlock;
    sum += static_cast<double>(Floats::sum(fold<Row>(row + i, count, 0.0f, fill, of)));
  }
  return sum;
}

/// a + b of a row, rounded as it is stored.
template <typename Row>
[[gnu::always_inline]] inline void add_rows(const typename Row::Element* a, const typename Row::Element* b, typename Row::Element* to,
                                            std::int64_t n) {
  const auto sum = [](typename Row::Step x, const typename Row::Step& y) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int s = 0; s < Row::kVectors; ++s) x.v[s] = Floats::add(x.v[s], y.v[s]);
    return x;
  };
  std::int64_t i = 0;
  for (; i + Row::kStep <= n; i += Row::kStep) Row::store(to + i, sum(Row::load(a + i), Row::load(b + i)));
  if (i < n) Row::store_part(to + i, sum(Row::load_part(a + i, n - i), Row::load_part(b + i, n - i)), n - i);
}

/// A row of fp32, which is in L1, as bf16.
void narrow_row(const float* from, std::uint16_t* to, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) InOrderBf16::store(to + i, InOrderF32::load(from + i));
  if (i < n) InOrderBf16::store_part(to + i, InOrderF32::load_part(from + i, n - i), n - i);
}

struct Moments {
  float mean;
  float square;  ///< of differences from it, in the mean
};

/// Where numbers are all but alike, what float32 rounds of the mean is no longer small beside their differences: it is found by these.
template <typename Row>
Moments moments(const typename Row::Element* row, std::int64_t n) {
  constexpr float kAlike = 1e-6f;
  const auto count = static_cast<double>(n);
  const auto square_from = [&](float mean) {
    return static_cast<float>(long_fold<Row>(row, n, mean, SquareDifference{Floats::all(mean)}) / count);
  };
  auto mean = static_cast<float>(long_fold<Row>(row, n, 0.0f, Sum{}) / count);
  float square = square_from(mean);
  if (square < kAlike * mean * mean) {
    mean += static_cast<float>(long_fold<Row>(row, n, mean, Difference{Floats::all(mean)}) / count);
    square = square_from(mean);
  }
  return {mean, square};
}

constexpr float kLargest = 0x1.fffffep+127f;  // FLT_MAX

template <typename Row, bool Centered>
void norm_rows(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch) {
  using Element = typename Row::Element;
  const std::int64_t n = args.columns;
  const auto count = static_cast<double>(n);
  const std::int64_t padded = (n + kNormalizePadding - 1) / kNormalizePadding * kNormalizePadding;
  const float* weight = parameters<Row>(args.weight, args.parameter_dtype, n, 1.0f, scratch);
  const float* bias = parameters<Row>(args.bias, args.parameter_dtype, n, 0.0f, scratch + padded);
  float* const spare = scratch + 2 * padded;  // a row for what the caller does not want; of two the second is the result's
  float* const spare_result = args.residual != nullptr && args.sum == nullptr ? spare + padded : spare;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const Element* from = static_cast<const Element*>(args.from) + row * n;
    Element* to = args.to != nullptr ? static_cast<Element*>(args.to) + row * n : reinterpret_cast<Element*>(spare_result);
    if (args.residual != nullptr) {
      Element* sum = args.sum != nullptr ? static_cast<Element*>(args.sum) + row * n : reinterpret_cast<Element*>(spare);
      add_rows<Row>(from, static_cast<const Element*>(args.residual) + row * n, sum, n);
      from = sum;
    }
    const auto [mean, square] =
        Centered ? moments<Row>(from, n)
                 : Moments{0.0f, static_cast<float>(long_fold<Row>(from, n, 0.0f, SquareDifference{Floats::all(0.0f)}) / count)};
    const bool beyond = Centered && square > kLargest;
    const float rstd = beyond ? __builtin_nanf("") : 1.0f / Floats::root(square + static_cast<float>(args.eps));
    const auto result = [&](typename Row::Step step, const auto& w, const auto& b) __attribute__((always_inline)) {
#pragma GCC unroll 2
      for (int s = 0; s < Row::kVectors; ++s) {
        const Vector unit = Floats::multiply(Floats::subtract(step.v[s], Floats::all(mean)), Floats::all(rstd));
        step.v[s] = Floats::fma(unit, w.v[s], b.v[s]);
      }
      return step;
    };
    std::int64_t i = 0;
    for (; i + Row::kStep <= n; i += Row::kStep) {
      Row::store(to + i, result(Row::load(from + i), step_of<Row>(weight + i), step_of<Row>(bias + i)));
    }
    if (i < n) {
      // Scratch holds whole steps; the caller's own parameters end with the row.
      typename Row::Step w;
      typename Row::Step b;
      if constexpr (Row::kVectors == 1) {
        w = Row::load_part(weight + i, n - i);
        b = Row::load_part(bias + i, n - i);
      } else {
        w = step_of<Row>(weight + i);
        b = step_of<Row>(bias + i);
      }
      Row::store_part(to + i, result(Row::load_part(from + i, n - i), w, b), n - i);
    }
    if constexpr (Row::kVectors == 1) {
      if (args.narrow != nullptr) narrow_row(to, static_cast<std::uint16_t*>(args.narrow) + row * n, n);
    }
    if (Centered) put(args.mean, args.stats_dtype, row, mean);
    put(args.rstd, args.stats_dtype, row, rstd);
  }
}

/// (x - middle) * scale + shift of n elements.
template <typename Row>
[[gnu::always_inline]] inline void scale_row(const typename Row::Element* from, typename Row::Element* to, std::int64_t n, float middle,
                                             float scale, float shift) {
  const auto scaled = [&](typename Row::Step step) __attribute__((always_inline)) {
#pragma GCC unroll 2
    for (int s = 0; s < Row::kVectors; ++s) {
      step.v[s] = Floats::fma(Floats::subtract(step.v[s], Floats::all(middle)), Floats::all(scale), Floats::all(shift));
    }
    return step;
  };
  std::int64_t i = 0;
  for (; i + Row::kStep <= n; i += Row::kStep) Row::store(to + i, scaled(Row::load(from + i)));
  if (i < n) Row::store_part(to + i, scaled(Row::load_part(from + i, n - i)), n - i);
}

/// A NaN has no bits in the lower half, as rounded_result() wants.
float parameter(const void* from, DType dtype, std::int64_t i, float missing) {
  if (from == nullptr) return missing;
  const float value = dtype == DType::kF32 ? static_cast<const float*>(from)[i] : bf16_to_f32(static_cast<const std::uint16_t*>(from)[i]);
  return value != value ? __builtin_nanf("") : value;
}

template <typename Row>
void group_rows(const GroupNormArgs& args, std::int64_t row_begin, std::int64_t row_end) {
  using Element = typename Row::Element;
  const std::int64_t channels = args.columns / args.pixels;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const Element* from = static_cast<const Element*>(args.from) + row * args.columns;
    Element* to = static_cast<Element*>(args.to) + row * args.columns;
    const auto [mean, square] = moments<Row>(from, args.columns);
    const float rstd = 1.0f / Floats::root(square + static_cast<float>(args.eps));
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t channel = row % args.groups * channels + c;
      const float weight = parameter(args.weight, args.parameter_dtype, channel, 1.0f);
      const float bias = parameter(args.bias, args.parameter_dtype, channel, 0.0f);
      scale_row<Row>(from + c * args.pixels, to + c * args.pixels, args.pixels, mean, rstd * weight, bias);
    }
    put(args.mean, args.stats_dtype, row, mean);
    put(args.rstd, args.stats_dtype, row, rstd);
  }
}

template <typename Row>
void scale_rows(const ChannelScaleArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch) {
  using Element = typename Row::Element;
  const std::int64_t n = args.columns;
  const Element* from = static_cast<const Element*>(args.from);
  Element* to = static_cast<Element*>(args.to);
  if (!args.adjacent) {
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      const std::int64_t channel = row % args.channels;
      const float scale = parameter(args.scale, DType::kF32, channel, 1.0f);
      const float shift = parameter(args.shift, DType::kF32, channel, 0.0f);
      scale_row<Row>(from + row * n, to + row * n, n, 0.0f, scale, shift);
    }
    return;
  }
  const std::int64_t padded = (n + kNormalizePadding - 1) / kNormalizePadding * kNormalizePadding;
  // Copies, so that whole steps may be read at the end of a row.
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t place = i % Row::kStep;
    const std::int64_t at = i - place + place % Row::kVectors * kLanes + place / Row::kVectors;
    scratch[at] = parameter(args.scale, DType::kF32, i, 1.0f);
    scratch[padded + at] = parameter(args.shift, DType::kF32, i, 0.0f);
  }
  const auto scaled = [&](typename Row::Step step, std::int64_t i) __attribute__((always_inline)) {
    const auto scale = step_of<Row>(scratch + i);
    const auto shift = step_of<Row>(scratch + padded + i);
#pragma GCC unroll 2
    for (int s = 0; s < Row::kVectors; ++s) step.v[s] = Floats::fma(step.v[s], scale.v[s], shift.v[s]);
    return step;
  };
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const Element* source = from + row * n;
    Element* target = to + row * n;
    std::int64_t i = 0;
    for (; i + Row::kStep <= n; i += Row::kStep) Row::store(target + i, scaled(Row::load(source + i), i));
    if (i < n) Row::store_part(target + i, scaled(Row::load_part(source + i, n - i), i), n - i);
  }
}

}  // namespace

void softmax(const SoftmaxArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch) {
  (args.dtype == DType::kF32 ? softmax_rows<F32> : softmax_rows<Bf16>)(args, row_begin, row_end, scratch);
}

void layer_norm(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch) {
  (args.dtype == DType::kF32 ? norm_rows<F32, true> : norm_rows<Bf16, true>)(args, row_begin, row_end, scratch);
}

void rms_norm(const NormArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch) {
  (args.dtype == DType::kF32 ? norm_rows<F32, false> : norm_rows<Bf16, false>)(args, row_begin, row_end, scratch);
}

void group_norm(const GroupNormArgs& args, std::int64_t row_begin, std::int64_t row_end, float*) {
  (args.dtype == DType::kF32 ? group_rows<F32> : group_rows<Bf16>)(args, row_begin, row_end);
}

void scale_channels(const ChannelScaleArgs& args, std::int64_t row_begin, std::int64_t row_end, float* scratch) {
  (args.dtype == DType::kF32 ? scale_rows<F32> : scale_rows<Bf16>)(args, row_begin, row_end, scratch);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
