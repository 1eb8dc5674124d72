#include "kernels/attention_grad_variants.h"

#include "kernels/amx/attention_grad.h"
#include "kernels/ref/attention_grad.h"
#include "kernels/simd/attention_grad.h"

namespace ipexrun::kernels {
namespace {

constexpr AttentionGradVariant kGrad[] = {
#if defined(IPEXRUN_KERNELS_AMX) && defined(IPEXRUN_KERNELS_AVX512)
    {"amx_bf16", kLevelAvx512 | kIsaAvx512Bf16 | kIsaAmxBf16, amx::attention_grad_scratch, amx::attention_grad},
#endif
#ifdef IPEXRUN_KERNELS_AVX512
    {"avx512", kLevelAvx512, avx512::attention_grad_scratch, avx512::attention_grad},
#endif
#ifdef IPEXRUN_KERNELS_AVX2
    {"avx2", kLevelAvx2, avx2::attention_grad_scratch, avx2::attention_grad},
#endif
    {"ref", 0, ref::attention_grad_scratch, ref::attention_grad},
};

}  // namespace

AttentionGradVariants attention_grad_variants(DType dtype) {
  std::size_t first = 0;  // tiles of bf16 are of no use for fp32
  while (dtype == DType::kF32 && (kGrad[first].needs & kIsaAmxBf16) != 0) ++first;
  return {kGrad + first, sizeof(kGrad) / sizeof(kGrad[0]) - first};
}

}  // namespace ipexrun::kernels
