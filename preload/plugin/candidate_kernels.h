// What the candidates of several ops share.
#pragma once

#include <ATen/core/Tensor.h>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "preload/plugin/tier_state.h"

namespace ipexrun::preload {

/// bf16 products in hardware.
inline bool bf16_is_native(IsaSet isa) { return isa_has(isa, kIsaAvx512Bf16) || isa_has(isa, kIsaAmxBf16); }

/// Whether fp32 calls may be computed in bf16. (bf16 calls are bf16 products already, whatever the policy says.)
inline bool bf16_inside_allowed(const TierOptions& options) {
  return options.dtype == DtypePolicy::kBfloat16 || (options.dtype == DtypePolicy::kAuto && bf16_is_native(options.isa));
}

/// Products of 16 bits in hardware, of operands that are such.
inline bool half_is_native(at::ScalarType dtype, IsaSet isa) {
  return dtype == at::kHalf ? isa_has(isa, kIsaAvx512Fp16) : bf16_is_native(isa);
}

/// In keys of sites.
inline const char* dtype_word(at::ScalarType dtype) { return dtype == at::kFloat ? "f32" : dtype == at::kHalf ? "f16" : "bf16"; }

/// The tensor is float32 or bfloat16.
inline kernels::DType kernel_dtype(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? kernels::DType::kF32 : kernels::DType::kBf16;
}

}  // namespace ipexrun::preload
