// The table of batch_norm; see variants.cpp.
#include "kernels/batch_norm_variants.h"

#include "kernels/ref/batch_norm.h"
#ifdef IPEXRUN_KERNELS_SIMD
#include "kernels/simd/batch_norm.h"
#endif

namespace ipexrun::kernels {
namespace {

constexpr BatchNormVariant kBatchNorm[] = {
#ifdef IPEXRUN_KERNELS_AVX512_BF16
    {"avx512_bf16", kLevelAvx512 | kIsaAvx512Bf16, avx512_bf16::batch_moments, avx512_bf16::batch_norm, avx512_bf16::batch_norm_grad_sums,
     avx512_bf16::batch_norm_grad},
#endif
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::batch_moments, avx512::batch_norm, avx512::batch_norm_grad_sums, avx512::batch_norm_grad},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::batch_moments, avx2::batch_norm, avx2::batch_norm_grad_sums, avx2::batch_norm_grad},
#endif
    {"ref", 0, ref::batch_moments, ref::batch_norm, ref::batch_norm_grad_sums, ref::batch_norm_grad},
};

}  // namespace

BatchNormVariants batch_norm_variants() { return {kBatchNorm, sizeof(kBatchNorm) / sizeof(kBatchNorm[0])}; }

}  // namespace ipexrun::kernels
