// cross_entropy, a vector at a time; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
#include "kernels/simd/cross_entropy.h"

#include "kernels/bf16.h"
#include "kernels/simd/in_order.h"
//
#include "kernels/simd/exp2.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr std::int64_t kLanes = Lanes::kCount;
/// Columns that are read twice, the second time from L1.
constexpr std::int64_t kBlock = 2048;

double one(float value) { return static_cast<double>(value); }
double one(std::uint16_t value) { return static_cast<double>(bf16_to_f32(value)); }
double one(const void* data, DType dtype, std::int64_t i) {
  return dtype == DType::kF32 ? one(static_cast<const float*>(data)[i]) : one(static_cast<const std::uint16_t*>(data)[i]);
}
double weight_of(const CrossEntropyRows& args, std::int64_t i) {
  return args.weight == nullptr ? 1.0 : one(args.weight, args.weight_dtype, i);
}

/// Weights from element `i` on.
template <typename Row>
struct Given {
  using Element = typename Row::Element;
  [[gnu::always_inline]] static Vector load(const Element* weight, std::int64_t i) { return Row::load(weight + i); }
  [[gnu::always_inline]] static Vector load_part(const Element* weight, std::int64_t i, std::int64_t n) {
    return Row::load_part(weight + i, n);
  }
};

/// No weights.
struct Ones {
  using Element = float;
  [[gnu::always_inline]] static Vector load(const float*, std::int64_t) { return Floats::all(1.0f); }
  [[gnu::always_inline]] static Vector load_part(const float*, std::int64_t, std::int64_t) { return Floats::all(1.0f); }
};

template <typename Row>
[[gnu::always_inline]] inline float largest_of(const typename Row::Element* from, std::int64_t n) {
  const Vector lowest = Floats::all(-__builtin_inff());
  Vector most[4] = {lowest, lowest, lowest, lowest};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) most[u] = Floats::at_least(most[u], Row::load(from + i + u * kLanes));
  }
  for (; i + kLanes <= n; i += kLanes) most[0] = Floats::at_least(most[0], Row::load(from + i));
  if (i < n) most[1] = Floats::at_least(most[1], Floats::keep(Row::load_part(from + i, n - i), n - i, lowest));
  return Floats::largest(Floats::at_least(Floats::at_least(most[0], most[1]), Floats::at_least(most[2], most[3])));
}

struct Sums {
  float exponentials;
  float weighted;  ///< weight * (x - shift)
  float weights;
};

/// Of a block, whose weights begin at `first`; without `Smooth` the first sum only.
template <typename Row, typename Weights, bool Smooth>
[[gnu::always_inline]] inline Sums sums_of(const typename Row::Element* from, const typename Weights::Element* weight, std::int64_t first,
                                           std::int64_t n, float shift) {
  const Vector zero = Floats::all(0.0f);
  Vector sums[2] = {zero, zero};
  Vector weighted = zero;
  Vector weights = zero;
  std::int64_t i = 0;
  const auto add = [&](int u, Vector x) __attribute__((always_inline)) {
    const Vector d = Floats::subtract(x, Floats::all(shift));
    sums[u] = Floats::add(sums[u], exponential(d));
    if constexpr (Smooth) {
      const Vector w = Weights::load(weight, first + i + u * kLanes);
      weighted = Floats::fma(w, d, weighted);
      weights = Floats::add(weights, w);
    }
  };
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
#pragma GCC unroll 2
    for (int u = 0; u < 2; ++u) {
      __builtin_prefetch(from + i + u * kLanes + kBlock);  // a prefetch cannot fault
      add(u, Row::load(from + i + u * kLanes));
    }
  }
  for (; i + kLanes <= n; i += kLanes) add(0, Row::load(from + i));
  if (i < n) {
    const Vector d = Floats::subtract(Row::load_part(from + i, n - i), Floats::all(shift));
    sums[1] = Floats::add(sums[1], Floats::keep(exponential(d), n - i, zero));
    if constexpr (Smooth) {
      const Vector w = Weights::load_part(weight, first + i, n - i);
      weighted = Floats::add(weighted, Floats::keep(Floats::multiply(w, d), n - i, zero));
      weights = Floats::add(weights, Floats::keep(w, n - i, zero));
    }
  }
  return {Floats::sum(Floats::add(sums[0], sums[1])), Smooth ? Floats::sum(weighted) : 0, Smooth ? Floats::sum(weights) : 0};
}

template <typename Row, typename Weights, bool Smooth>
void losses_of(const CrossEntropyArgs& args, double weight_sum, std::int64_t row_begin, std::int64_t row_end, double* losses) {
  using Element = typename Row::Element;
  const auto* weight = static_cast<const typename Weights::Element*>(args.weight);
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const Element* from = static_cast<const Element*>(args.logits) + row * args.row_stride;
    float largest = -__builtin_inff();
    double sum = 0;
    double weighted = 0;
    for (std::int64_t i = 0; i < args.columns; i += kBlock) {
      const std::int64_t n = args.columns - i < kBlock ? args.columns - i : kBlock;
      const float here = largest_of<Row>(from + i, n);
      if (!(here <= largest)) {
        if (i > 0) sum *= __builtin_exp(static_cast<double>(largest) - static_cast<double>(here));
        largest = here;
      }
      const float shift = largest == -__builtin_inff() ? 0.0f : largest;
      const Sums sums = sums_of<Row, Weights, Smooth>(from + i, weight, i, n, shift);
      sum += static_cast<double>(sums.exponentials);
      if (Smooth) weighted += static_cast<double>(sums.weighted) + static_cast<double>(sums.weights) * static_cast<double>(shift);
    }
    const double lse = static_cast<double>(largest) + __builtin_log(sum);
    if (args.lse != nullptr) args.lse[row] = static_cast<float>(lse);
    const std::int64_t target = args.targets[row];
    losses[row] = 0;
    if (target == args.ignored) continue;
    losses[row] = (1 - args.smoothing) * weight_of(args, target) * (lse - one(from[target]));
    if (Smooth) losses[row] += args.smoothing / static_cast<double>(args.columns) * (weight_sum * lse - weighted);
  }
}

template <typename Row>
void losses_in(const CrossEntropyArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end, double* losses) {
  const auto run = args.smoothing == 0                ? losses_of<Row, Ones, false>
                   : args.weight == nullptr           ? losses_of<Row, Ones, true>
                   : args.weight_dtype == DType::kF32 ? losses_of<Row, Given<InOrderF32>, true>
                                                      : losses_of<Row, Given<InOrderBf16>, true>;
  run(args, weights, row_begin, row_end, losses);
}

/// exp(x - lse) * factor - share * weight for a row.
template <typename Row, typename Weights, bool Smooth>
void grads_of(const CrossEntropyGradArgs& args, double weight_sum, std::int64_t row_begin, std::int64_t row_end) {
  using Element = typename Row::Element;
  const auto* weight = static_cast<const typename Weights::Element*>(args.weight);
  const double part = args.smoothing / static_cast<double>(args.columns);
  const std::int64_t n = args.columns;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const Element* from = static_cast<const Element*>(args.logits) + row * args.row_stride;
    Element* to = static_cast<Element*>(args.grad) + row * args.grad_stride;
    const std::int64_t target = args.targets[row];
    if (target == args.ignored) {
      __builtin_memset(to, 0, static_cast<std::size_t>(n) * sizeof(Element));
      continue;
    }
    const double g = one(args.loss_grad, args.loss_grad_dtype, row * args.loss_grad_stride) / args.divisor;
    const double own = (1 - args.smoothing) * weight_of(args, target);
    const double factor = g * (own + part * weight_sum);
    const auto lse = static_cast<double>(args.lse[row]);
    double at_target = __builtin_exp(one(from[target]) - lse) * factor - g * own;
    if (Smooth) at_target -= g * part * weight_of(args, target);
    const Vector shift = Floats::all(args.lse[row]);
    const Vector scale = Floats::all(static_cast<float>(factor));
    const Vector share = Floats::all(static_cast<float>(g * part));
    const auto result = [&](Vector x, Vector w) __attribute__((always_inline)) {
      const Vector e = exponential(Floats::subtract(x, shift));
      if constexpr (Smooth) return Floats::fms(e, scale, Floats::multiply(share, w));
      return Floats::multiply(e, scale);
    };
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) Row::store(to + i, result(Row::load(from + i), Weights::load(weight, i)));
    if (i < n) Row::store_part(to + i, result(Row::load_part(from + i, n - i), Weights::load_part(weight, i, n - i)), n - i);
    const auto rounded = static_cast<float>(at_target);
    if constexpr (sizeof(Element) == 4) {
      to[target] = rounded;
    } else {
      to[target] = bf16_from_f32(rounded);
    }
  }
}

template <typename Row>
void grads_in(const CrossEntropyGradArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end) {
  const auto run = args.smoothing == 0                ? grads_of<Row, Ones, false>
                   : args.weight == nullptr           ? grads_of<Row, Ones, true>
                   : args.weight_dtype == DType::kF32 ? grads_of<Row, Given<InOrderF32>, true>
                                                      : grads_of<Row, Given<InOrderBf16>, true>;
  run(args, weights, row_begin, row_end);
}

}  // namespace

void cross_entropy_losses(const CrossEntropyArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end, double* losses) {
  (args.dtype == DType::kF32 ? losses_in<InOrderF32> : losses_in<InOrderBf16>)(args, weights, row_begin, row_end, losses);
}

void cross_entropy_grads(const CrossEntropyGradArgs& args, double weights, std::int64_t row_begin, std::int64_t row_end) {
  (args.dtype == DType::kF32 ? grads_in<InOrderF32> : grads_in<InOrderBf16>)(args, weights, row_begin, row_end);
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
