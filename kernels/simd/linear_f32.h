// The variants made from simd/linear_f32.cpp and simd/linear_f16.cpp, one namespace an instruction set; see linear_f32_variants.h for what
// the functions mean.
#pragma once

#include "kernels/linear_f32_variants.h"

#define IPEXRUN_DECLARE_LINEAR_F32(isa)                                                      \
  namespace ipexrun::kernels::isa {                                                          \
  std::size_t linear_f32_scratch_bytes(const LinearF32Args& args, const LinearBlock& block); \
  void linear_f32(const LinearF32Args& args, const LinearBlock& block, void* scratch);       \
  }
IPEXRUN_DECLARE_LINEAR_F32(avx2)
IPEXRUN_DECLARE_LINEAR_F32(avx512)
IPEXRUN_DECLARE_LINEAR_F32(avx512_fp16)
#undef IPEXRUN_DECLARE_LINEAR_F32

namespace ipexrun::kernels {

#ifdef IPEXRUN_KERNELS_AVX512
[[maybe_unused]] static constexpr LinearF32Variant kLinearF32Avx512 = {"avx512", kLevelAvx512, false, avx512::linear_f32_scratch_bytes,
                                                                       avx512::linear_f32};
#endif
#ifdef IPEXRUN_KERNELS_AVX2
[[maybe_unused]] static constexpr LinearF32Variant kLinearF32Avx2 = {"avx2", kLevelAvx2, false, avx2::linear_f32_scratch_bytes,
                                                                     avx2::linear_f32};
#endif

}  // namespace ipexrun::kernels
