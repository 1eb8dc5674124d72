// The table of batched. A variant that the compiler could not build is not in it (IPEXRUN_KERNELS_* from CMakeLists.txt).
#include "kernels/batched_variants.h"

#include "kernels/simd/batched.h"
#ifdef IPEXRUN_KERNELS_SIMD
#include "kernels/simd/linear.h"
#include "kernels/simd/linear_f32.h"
#include "kernels/simd/reorder.h"
#endif
#ifdef IPEXRUN_KERNELS_AMX
#include "kernels/amx/batched.h"
#include "kernels/amx/linear.h"
#endif

namespace ipexrun::kernels {
namespace {

#ifdef IPEXRUN_KERNELS_AMX
constexpr LinearVariant kTilesAmx = {"amx_bf16", kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16, true, amx::linear_scratch_bytes, amx::linear};
#endif
#ifdef IPEXRUN_KERNELS_AVX512_BF16
constexpr LinearVariant kTiles512 = {"avx512_bf16", kLevelAvx512 | kIsaAvx512Bf16, true, avx512_bf16::linear_scratch_bytes,
                                     avx512_bf16::linear};
#endif

constexpr BatchedVariant kBatched[] = {
#if defined(IPEXRUN_KERNELS_AMX) && defined(IPEXRUN_KERNELS_AVX512_BF16)
    {"amx_bf16", kTilesAmx.needs, avx512::batched_rows, avx512::batched_dots, avx512::batched_widen, avx512::batched_finish,
     avx512::transpose, &kLinearF32Avx512, &kTilesAmx, avx512_bf16::batched_pack, amx::batched_tiles, amx::batched_tiles_bytes,
     amx::batched_tiles_begin, amx::batched_tiles_end},
#endif
#ifdef IPEXRUN_KERNELS_AVX512_BF16
    {"avx512_bf16", kTiles512.needs, avx512::batched_rows, avx512::batched_dots, avx512::batched_widen, avx512::batched_finish,
     avx512::transpose, &kLinearF32Avx512, &kTiles512, avx512_bf16::batched_pack, nullptr, nullptr, nullptr, nullptr},
#endif
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::batched_rows, avx512::batched_dots, avx512::batched_widen, avx512::batched_finish, avx512::transpose,
     &kLinearF32Avx512, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::batched_rows, avx2::batched_dots, avx2::batched_widen, avx2::batched_finish, avx2::transpose,
     &kLinearF32Avx2, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr},
#endif
    {"ref", 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

BatchedVariants batched_variants() { return {kBatched, sizeof(kBatched) / sizeof(kBatched[0])}; }

}  // namespace ipexrun::kernels
