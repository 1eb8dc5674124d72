// The tables of linear_f32. A variant that the compiler could not build is not in one (IPEXRUN_KERNELS_* from CMakeLists.txt).
#include "kernels/linear_f32_variants.h"

#include "kernels/amx/linear_f32.h"
#include "kernels/ref/linear_f32.h"
#include "kernels/simd/linear_f32.h"

namespace ipexrun::kernels {
namespace {

constexpr LinearF32Variant kRef = {"ref", 0, false, ref::linear_f32_scratch_bytes, ref::linear_f32};

constexpr LinearF32Variant kOfF32[] = {
#if defined(IPEXRUN_KERNELS_AVX512) && defined(IPEXRUN_KERNELS_AMX)
    {"amx", kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16, true, amx::linear_f32_scratch_bytes, amx::linear_f32},
#endif
#ifdef IPEXRUN_KERNELS_AVX512
    kLinearF32Avx512,
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    kLinearF32Avx2,
#endif
    kRef,
};

constexpr LinearF32Variant kOfF16[] = {
#if defined(IPEXRUN_KERNELS_AVX512) && defined(IPEXRUN_KERNELS_AVX512_FP16)
    {"avx512_fp16", kLevelAvx512 | kIsaAvx512Fp16, false, avx512_fp16::linear_f32_scratch_bytes, avx512_fp16::linear_f32},
#endif
#ifdef IPEXRUN_KERNELS_AVX512
    kLinearF32Avx512,
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    kLinearF32Avx2,
#endif
    kRef,
};

}  // namespace

LinearF32Variants linear_f32_variants(bool half) {
  if (half) return {kOfF16, sizeof kOfF16 / sizeof kOfF16[0]};
  return {kOfF32, sizeof kOfF32 / sizeof kOfF32[0]};
}

}  // namespace ipexrun::kernels
