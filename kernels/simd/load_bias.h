// The bias of a product's columns as fp32.
#pragma once

#include "kernels/bf16.h"
#include "kernels/dtype.h"

namespace ipexrun::kernels {
namespace {

/// `columns` of them from `column` on; zeros where there is none, and behind the last. Args: bias, bias_dtype and n.
template <typename Args>
inline void load_bias(const Args& args, std::int64_t column, std::int64_t columns, float* to) {
  for (std::int64_t n = 0; n < columns; ++n) {
    if (args.bias == nullptr || column + n >= args.n) {
      to[n] = 0.0f;
    } else if (args.bias_dtype == DType::kF32) {
      to[n] = static_cast<const float*>(args.bias)[column + n];
    } else {
      to[n] = bf16_to_f32(static_cast<const std::uint16_t*>(args.bias)[column + n]);
    }
  }
}

}  // namespace
}  // namespace ipexrun::kernels
