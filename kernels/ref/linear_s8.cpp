// The truth: sums modulo 2^32, then the formula of linear_s8.h a number at a time.
#include "kernels/ref/linear_s8.h"

#include <cmath>

#include "kernels/ref/activation.h"
#include "kernels/ref/element.h"

namespace ipexrun::kernels::ref {
namespace {

float activated(LinearS8Activation kind, float x) {
  switch (kind) {
    case LinearS8Activation::kNone:
      return x;
    case LinearS8Activation::kRelu:
      return x < 0 ? 0 : x;
    case LinearS8Activation::kGelu:
      return static_cast<float>(activation_of(Activation::kGelu, static_cast<double>(x)));
    case LinearS8Activation::kGeluTanh:
      return static_cast<float>(activation_of(Activation::kGeluTanh, static_cast<double>(x)));
    case LinearS8Activation::kSilu:
      return static_cast<float>(activation_of(Activation::kSilu, static_cast<double>(x)));
  }
  return x;
}

/// To nearest even, saturated; a NaN is the smallest.
int quantized(float value, float inverse_scale, std::int32_t zero, int low, int high) {
  const float nearest = std::nearbyint(value * inverse_scale);
  if (!(nearest > static_cast<float>(low - zero))) return low;
  if (nearest >= static_cast<float>(high - zero)) return high;
  return static_cast<int>(nearest) + zero;
}

}  // namespace

std::size_t linear_s8_scratch_bytes(const LinearS8Args&, const LinearBlock&) { return 0; }

void linear_s8(const LinearS8Args& args, const LinearBlock& block, const PanelS8* panels, void*) {
  const std::int64_t last = block.panel_end * kPanelColumns;
  const std::int64_t column_end = last < args.n ? last : args.n;
  for (std::int64_t m = block.row_begin; m < block.row_end; ++m) {
    const float a_scale = args.a_scale == nullptr ? 1.0f : args.a_scale[args.a_scale_per_row ? m : 0];
    for (std::int64_t n = block.panel_begin * kPanelColumns; n < column_end; ++n) {
      const PanelS8& panel = panels[n / kPanelColumns - block.panel_begin];
      const std::int64_t i = n % kPanelColumns;
      const auto* b = static_cast<const std::int8_t*>(args.packed_b) + n / kPanelColumns * steps_of_s8(args.k) * kStepBytesS8;
      auto sum = static_cast<std::uint32_t>(panel.start[i]);
      for (std::int64_t k = 0; k < args.k; ++k) {
        const std::int64_t at = m * args.lda + k;
        const int a = args.a_signed ? static_cast<const std::int8_t*>(args.a)[at] : static_cast<const std::uint8_t*>(args.a)[at];
        sum += static_cast<std::uint32_t>(a * b[packed_offset_s8(k, i)]);
      }
      const std::int64_t at = m * args.ldc + n;
      if (args.c_type == LinearS8Output::kI32) {
        static_cast<std::int32_t*>(args.c)[at] = static_cast<std::int32_t>(sum);
        continue;
      }
      float value = std::fma(static_cast<float>(static_cast<std::int32_t>(sum)), a_scale * panel.scale[i], panel.bias[i]);
      if (args.residual != nullptr) value += static_cast<float>(get(args.residual, args.residual_dtype, m * args.ldr + n));
      value = activated(args.activation, value);
      if (args.c_type == LinearS8Output::kU8) {
        static_cast<std::uint8_t*>(args.c)[at] = static_cast<std::uint8_t>(quantized(value, args.c_inverse_scale, args.c_zero, 0, 255));
      } else if (args.c_type == LinearS8Output::kS8) {
        static_cast<std::int8_t*>(args.c)[at] = static_cast<std::int8_t>(quantized(value, args.c_inverse_scale, args.c_zero, -128, 127));
      } else {
        put(args.c, args.c_type == LinearS8Output::kF32 ? DType::kF32 : DType::kBf16, at, static_cast<double>(value));
      }
    }
  }
}

}  // namespace ipexrun::kernels::ref
