// The tables of conv; see variants.cpp.
#include "kernels/conv_variants.h"

#include "kernels/conv_dense.h"
#include "kernels/ref/conv.h"
#ifdef IPEXRUN_KERNELS_AMX
#include "kernels/amx/conv.h"
#endif
#ifdef IPEXRUN_KERNELS_SIMD
#include "kernels/simd/depthwise.h"
#endif

namespace ipexrun::kernels {
namespace {

constexpr DepthwiseVariant kDepthwise[] = {
#if defined(IPEXRUN_KERNELS_AVX512) && defined(IPEXRUN_KERNELS_AVX512_BF16)
    {"avx512_bf16", kLevelAvx512 | kIsaAvx512Bf16, avx512::depthwise, avx512_bf16::conv_put},
#endif
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::depthwise, avx512::conv_put},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::depthwise, avx2::conv_put},
#endif
    {"ref", 0, ref::depthwise, nullptr},
};

constexpr DenseVariant kDense[] = {
#ifdef IPEXRUN_KERNELS_AMX
    {"amx_bf16", kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16, amx::dense_conv},
#endif
    {"ref", 0, ref::dense_conv},
};

}  // namespace

DepthwiseVariants depthwise_variants() { return {kDepthwise, sizeof(kDepthwise) / sizeof(kDepthwise[0])}; }

DenseVariants dense_variants() { return {kDense, sizeof(kDense) / sizeof(kDense[0])}; }

}  // namespace ipexrun::kernels
