// Elements of any type as doubles: what the references read and write.
#pragma once

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/dtype.h"

namespace ipexrun::kernels::ref {

inline double get(const void* data, DType dtype, std::int64_t index) {
  const float value =
      dtype == DType::kF32 ? static_cast<const float*>(data)[index] : bf16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
  return static_cast<double>(value);
}

/// Rounded to fp32 and, for bf16, once more.
inline void put(void* data, DType dtype, std::int64_t index, double value) {
  const auto rounded = static_cast<float>(value);
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[index] = rounded;
  } else {
    static_cast<std::uint16_t*>(data)[index] = bf16_from_f32(rounded);
  }
}

}  // namespace ipexrun::kernels::ref
