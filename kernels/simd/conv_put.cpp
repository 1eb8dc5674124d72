// Finished sums of conv to bf16; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
#include "kernels/simd/depthwise.h"

#if defined(IPEXRUN_KERNEL_ISA_AVX512_BF16)
#include <immintrin.h>

namespace ipexrun::kernels::avx512_bf16 {

void conv_put(const float* sums, std::int64_t pixels, std::int64_t channels, std::uint16_t* to, std::int64_t stride) {
  const __mmask32 mask = channels >= kConvChannels ? 0xffffffffu : (1u << channels) - 1u;
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, sums += kConvChannels, to += stride) {
    _mm512_mask_storeu_epi16(to, mask, (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(sums + 16), _mm512_load_ps(sums)));
  }
}

}  // namespace ipexrun::kernels::avx512_bf16
#else
#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {

void conv_put(const float* sums, std::int64_t pixels, std::int64_t channels, std::uint16_t* to, std::int64_t stride) {
  for (std::int64_t pixel = 0; pixel < pixels; ++pixel, sums += kConvChannels, to += stride) {
    std::int64_t i = 0;
    for (; i + Lanes::kCount <= channels; i += Lanes::kCount) InOrderBf16::store(to + i, InOrderF32::load(sums + i));
    if (i < channels) InOrderBf16::store_part(to + i, InOrderF32::load(sums + i), channels - i);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
#endif
