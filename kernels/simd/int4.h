// Weights of 4 bits, as linear_int4.h describes them, to bf16. Internal linkage, see dispatch.h.
//
// Two rows of 16 bytes, k and k + 1, become 16 lanes of two bytes; one shift, and a mask that is taken together with the bits of 128, make
// two operands of 16 columns each out of them. What that adds is taken off by int4_scales().
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/linear_int4.h"

namespace ipexrun::kernels {

[[maybe_unused]] static constexpr std::int64_t kInt4LineBytes = kInt4Columns / 2;
[[maybe_unused]] static constexpr std::int64_t kInt4PrefetchBytes = 2048;

/// Lane d: byte d of k in the lower half, of k + 1 in the upper one.
[[gnu::always_inline]] static inline __m512i int4_pairs(const std::uint8_t* line) {
  const __m512i first = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line)));
  const __m512i second = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + kInt4LineBytes)));
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

/// The lower four bits of each half as the bf16 128 + q: between 128 and 256 its last bit counts one.
[[gnu::always_inline]] static inline __m512i int4_numbers(__m512i halves) {
  return _mm512_ternarylogic_epi32(halves, _mm512_set1_epi32(0x000f000f), _mm512_set1_epi32(0x43004300), 0xea);  // (a & b) | c
}

/// Of 16 columns: the sum of a * w is scale * (the sum of a * number) + rest * (the sum of a).
[[gnu::always_inline]] static inline void int4_scales(const std::uint16_t* pairs, __m512* scale, __m512* rest, float added = 136) {
  const __m512i both = _mm512_loadu_si512(pairs);
  *scale = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
  const __m512 zero = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  *rest = _mm512_fnmadd_ps(_mm512_set1_ps(added), *scale, zero);
}

}  // namespace ipexrun::kernels
