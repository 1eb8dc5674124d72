// One row of scores to softmax weights, block of keys after block. Include after attention_load.h and exp2.h.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/bf16.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

/// What a row has seen so far.
struct Seen {
  float largest;  ///< score
  float sum;      ///< of weights
};

constexpr float kNothing = -__builtin_inff();

/// e^d for d <= 0 (or a little above), 0 below the smallest normal number. d * log2(e) is rounded once: that is 1e-7 of a weight for
/// each unit that its score lies below the largest, while the weight itself becomes small.
[[gnu::always_inline]] inline Floats::Vector power(Floats::Vector d) {
  const Floats::Vector y = Floats::multiply(d, Floats::all(kLog2E));
  const Floats::Vector n = Floats::nearest(y);
  return Floats::scale_from(exp2_of(Floats::subtract(y, n)), n, Floats::all(-126.0f));
}

inline float power(float d) {
  float lanes[Lanes::kCount];
  Lanes::store(lanes, Floats::bits_of(power(Floats::all(d))));
  return lanes[0];
}

struct NoMask {
  static constexpr bool kChanges = false;
  [[gnu::always_inline]] Floats::Vector add(Floats::Vector t, std::int64_t, std::int64_t) const { return t; }
};
struct OneMask {
  static constexpr bool kChanges = true;
  Floats::Vector value;
  [[gnu::always_inline]] Floats::Vector add(Floats::Vector t, std::int64_t, std::int64_t) const { return Floats::add(t, value); }
};
template <typename Element>
struct RowMask {
  static constexpr bool kChanges = true;
  const Element* row;
  [[gnu::always_inline]] Floats::Vector add(Floats::Vector t, std::int64_t i, std::int64_t n) const {
    return Floats::add(t, Floats::of_bits(load_some(row + i, n)));
  }
};

/// The largest of n scores, scaled and masked, among the lanes; with a mask these are put in the scores' place, in whole vectors.
template <typename Mask>
Floats::Vector most_of(float* row, std::int64_t n, Floats::Vector scale, const Mask& mask) {
  constexpr std::int64_t kStep = Lanes::kCount;
  const auto at = [&](std::int64_t i, std::int64_t left) __attribute__((always_inline)) {
    const Floats::Vector t = mask.add(Floats::multiply(Floats::of_bits(Lanes::load(row + i)), scale), i, left);
    if (Mask::kChanges) Lanes::store(row + i, Floats::bits_of(t));
    return t;
  };
  Floats::Vector most[2] = {Floats::all(kNothing), Floats::all(kNothing)};
  std::int64_t i = 0;
  for (; i + 2 * kStep <= n; i += 2 * kStep) {
    most[0] = Floats::at_least(most[0], at(i, kStep));
    most[1] = Floats::at_least(most[1], at(i + kStep, kStep));
  }
  for (; i < n; i += kStep) {
    const Floats::Vector t = at(i, n - i);
    most[0] = Floats::at_least(most[0], n - i < kStep ? Floats::keep(t, n - i, Floats::all(kNothing)) : t);
  }
  return Floats::at_least(most[0], most[1]);
}

/// Where a row's mask begins at a block of keys; null = none.
struct MaskRow {
  const void* data;
  DType dtype;
  bool repeated;
};

inline Floats::Vector most_of(float* row, std::int64_t n, float scale, const MaskRow& mask) {
  const Floats::Vector factor = Floats::all(scale);
  if (mask.data == nullptr) return most_of(row, n, factor, NoMask{});
  const auto* f32 = static_cast<const float*>(mask.data);
  const auto* bf16 = static_cast<const std::uint16_t*>(mask.data);
  if (mask.repeated) return most_of(row, n, factor, OneMask{Floats::all(mask.dtype == DType::kF32 ? *f32 : bf16_to_f32(*bf16))});
  if (mask.dtype == DType::kF32) return most_of(row, n, factor, RowMask<float>{f32});
  return most_of(row, n, factor, RowMask<std::uint16_t>{bf16});
}

/// Where nothing but -inf was found: a maximum may have lost a NaN.
inline bool any_nan(const float* row, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) {
    if (__builtin_isnan(row[i] * factor)) return true;
  }
  return false;
}

/// n scores (n may be 0) to the weights e^(score - largest seen), written with P::put up to element `end`, which zeros fill. The row
/// has room for whole pairs of vectors. Returns what everything summed before has to be multiplied by.
template <typename P>
[[gnu::always_inline]] inline float weigh(float* row, std::int64_t n, std::int64_t end, float scale, const MaskRow& mask, Seen* seen) {
  constexpr std::int64_t kStep = Lanes::kCount;
  const Floats::Vector zero = Floats::all(0.0f);
  std::int64_t i = 0;
  float before = 1.0f;
  if (n > 0) {
    float largest = Floats::largest(most_of(row, n, scale, mask));
    const float factor = mask.data == nullptr ? scale : 1.0f;  // of what is left in the row
    if (largest == kNothing && any_nan(row, n, factor)) largest = __builtin_nanf("");
    if (largest == -kNothing) largest = __builtin_nanf("");  // as inf - inf is
    if (seen->largest > largest) largest = seen->largest;    // a NaN stays, here or in the sum
    if (largest != kNothing) {
      before = seen->largest == largest ? 1.0f : seen->largest == kNothing ? 0.0f : power(seen->largest - largest);
      const Floats::Vector factors = Floats::all(factor);
      const Floats::Vector top = Floats::all(largest);
      const auto weight = [&](std::int64_t at) __attribute__((always_inline)) {
        return power(Floats::fms(Floats::of_bits(Lanes::load(row + at)), factors, top));
      };
      Floats::Vector sums[2] = {zero, zero};
      for (; i + 2 * kStep <= n; i += 2 * kStep) {
        const Floats::Vector first = weight(i);
        const Floats::Vector second = weight(i + kStep);
        sums[0] = Floats::add(sums[0], first);
        sums[1] = Floats::add(sums[1], second);
        P::put(row, i, first, second);
      }
      if (i < n) {
        Floats::Vector first = weight(i);
        Floats::Vector second = zero;
        if (n - i > kStep) {
          second = Floats::keep(weight(i + kStep), n - i - kStep, zero);
        } else {
          first = Floats::keep(first, n - i, zero);
        }
        sums[0] = Floats::add(sums[0], first);
        sums[1] = Floats::add(sums[1], second);
        P::put(row, i, first, second);
        i += 2 * kStep;
      }
      seen->sum = seen->sum * before + Floats::sum(Floats::add(sums[0], sums[1]));
      seen->largest = largest;
    }
  }
  for (; i < end; i += 2 * kStep) P::put(row, i, zero, zero);
  return before;
}

inline MaskRow mask_row(const AttentionMask& mask, const Head& head, std::int64_t row, std::int64_t key) {
  if (mask.data == nullptr) return {nullptr, DType::kF32, false};
  const std::int64_t place = head.batch * mask.batch_stride + head.head * mask.head_stride + row * mask.row_stride + key * mask.key_stride;
  return {static_cast<const char*>(mask.data) + place * bytes_of(mask.dtype), mask.dtype, mask.key_stride == 0};
}

/// Ends a row: what its sums are multiplied by, and its logsumexp.
inline float finish(const Seen& seen, float* logsumexp) {
  const float sum = seen.sum == 0.0f ? 1.0f : seen.sum;
  if (logsumexp != nullptr) *logsumexp = (seen.largest == kNothing ? 0.0f : seen.largest) + __builtin_logf(sum);
  return 1.0f / sum;
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
