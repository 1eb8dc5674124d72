// The table of linear_f32. A variant that the compiler could not build is not in it (IPEXRUN_KERNELS_* from CMakeLists.txt).
#include "kernels/linear_f32_variants.h"

#include "kernels/ref/linear_f32.h"
#include "kernels/simd/linear_f32.h"

namespace ipexrun::kernels {
namespace {

// The first one is of fp16 alone.
constexpr LinearF32Variant kLinear[] = {
#if defined(IPEXRUN_KERNELS_AVX512) && defined(IPEXRUN_KERNELS_AVX512_FP16)
    {"avx512_fp16", kLevelAvx512 | kIsaAvx512Fp16, avx512_fp16::linear_f32_scratch_bytes, avx512_fp16::linear_f32},
#endif
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::linear_f32_scratch_bytes, avx512::linear_f32},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::linear_f32_scratch_bytes, avx2::linear_f32},
#endif
    {"ref", 0, ref::linear_f32_scratch_bytes, ref::linear_f32},
};
constexpr std::size_t kCount = sizeof(kLinear) / sizeof(kLinear[0]);
#if defined(IPEXRUN_KERNELS_AVX512) && defined(IPEXRUN_KERNELS_AVX512_FP16)
constexpr std::size_t kOfHalvesAlone = 1;
#else
constexpr std::size_t kOfHalvesAlone = 0;
#endif

}  // namespace

LinearF32Variants linear_f32_variants(bool half) {
  const std::size_t first = half ? 0 : kOfHalvesAlone;
  return {kLinear + first, kCount - first};
}

}  // namespace ipexrun::kernels
