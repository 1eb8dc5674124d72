// The table of linear_s8. A variant that the compiler could not build is not in it (IPEXRUN_KERNELS_* from CMakeLists.txt).
#include "kernels/linear_s8_variants.h"

#include "kernels/amx/linear_s8.h"
#include "kernels/ref/linear_s8.h"
#include "kernels/simd/linear_s8.h"

namespace ipexrun::kernels {
namespace {

constexpr LinearS8Variant kLinearS8[] = {
#if defined(IPEXRUN_KERNELS_AMX_INT8) && defined(IPEXRUN_KERNELS_AVX512)
    {"amx_int8", kLevelAvx512 | kIsaAmxInt8, true, false, amx_int8::linear_s8_scratch_bytes, amx_int8::linear_s8},
#endif
#if defined(IPEXRUN_KERNELS_AVX512_VNNI) && defined(IPEXRUN_KERNELS_AVX512)
    {"avx512_vnni", kLevelAvx512 | kIsaAvx512Vnni, true, true, avx512_vnni::linear_s8_scratch_bytes, avx512_vnni::linear_s8},
#endif
#if defined(IPEXRUN_KERNELS_AVX2_VNNI) && defined(IPEXRUN_KERNELS_AVX2)
    {"avx2_vnni", kLevelAvx2Vnni, true, true, avx2_vnni::linear_s8_scratch_bytes, avx2_vnni::linear_s8},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, false, false, avx2::linear_s8_scratch_bytes, avx2::linear_s8},
#endif
    {"ref", 0, false, false, ref::linear_s8_scratch_bytes, ref::linear_s8},
};

}  // namespace

LinearS8Variants linear_s8_variants() { return {kLinearS8, sizeof(kLinearS8) / sizeof(kLinearS8[0])}; }

}  // namespace ipexrun::kernels
