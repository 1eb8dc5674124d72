// bf16 <-> fp32 for one number, in plain integer arithmetic. Internal linkage, see packed.h.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "kernels/packed.h"

namespace ipexrun::kernels {

[[maybe_unused]] static inline float bf16_to_f32(std::uint16_t value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value) << 16);
}

/// To nearest even; a NaN becomes a quiet NaN, denormals are kept, what rounds beyond the largest bf16 becomes infinity.
[[maybe_unused]] static inline std::uint16_t bf16_from_f32(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// `k` elements of a row of fp32 or bf16, each rounded to bf16 but kept as fp32, then zeros to a whole step of K.
[[maybe_unused]] static inline void round_row(const void* row, DType dtype, std::int64_t k, float* to) {
  if (dtype == DType::kF32) {
    const auto* from = static_cast<const float*>(row);
    for (std::int64_t i = 0; i < k; ++i) to[i] = bf16_to_f32(bf16_from_f32(from[i]));
  } else {
    const auto* from = static_cast<const std::uint16_t*>(row);
    for (std::int64_t i = 0; i < k; ++i) to[i] = bf16_to_f32(from[i]);
  }
  for (std::int64_t i = k; i < steps_of(k) * kStepK; ++i) to[i] = 0.0f;
}

}  // namespace ipexrun::kernels
