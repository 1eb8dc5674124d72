// The table of linear_f32. A variant that the compiler could not build is not in it (IPEXRUN_KERNELS_* from CMakeLists.txt).
#include "kernels/linear_f32_variants.h"

#include "kernels/ref/linear_f32.h"
#include "kernels/simd/linear_f32.h"

namespace ipexrun::kernels {
namespace {

constexpr LinearF32Variant kLinearF32[] = {
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::linear_f32_scratch_bytes, avx512::linear_f32},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::linear_f32_scratch_bytes, avx2::linear_f32},
#endif
    {"ref", 0, ref::linear_f32_scratch_bytes, ref::linear_f32},
};

}  // namespace

LinearF32Variants linear_f32_variants(bool) { return {kLinearF32, sizeof(kLinearF32) / sizeof(kLinearF32[0])}; }

}  // namespace ipexrun::kernels
