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
[[maybe_unused]] static constexpr std::int64_t kInt4PrefetchBytes = 1024;

/// Lane d: byte d of k in the lower half, of k + 1 in the upper one.
[[gnu::always_inline]] static inline __m512i int4_pairs(const std::uint8_t* line) {
  const __m512i first = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line)));
  const __m512i second = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + kInt4LineBytes)));
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

/// What spreads two lines of 32 bytes, k and k + 1, over 16 columns at a time, and the numbers of these.
struct Int4Spread {
  __m512i left;   ///< to the words that hold columns 0 to 15 (32 to 47), those of k in the lower halves
  __m512i right;  ///< 16 to 31 (48 to 63)
  __m512i low;    ///< down to the lower four bits of the byte of each half: a column of an odd number has the upper one
  __m512i high;   ///< to the upper four
};

[[gnu::always_inline]] static inline Int4Spread int4_spread() {
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i word = _mm512_srli_epi32(lane, 1);
  const __m512i left = _mm512_or_si512(word, _mm512_slli_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(16)), 16));
  const __m512i odd = _mm512_and_si512(lane, _mm512_set1_epi32(1));
  const __m512i low = _mm512_or_si512(_mm512_slli_epi32(odd, 3), _mm512_slli_epi32(odd, 19));
  return {left, _mm512_add_epi16(left, _mm512_set1_epi16(8)), low, _mm512_add_epi16(low, _mm512_set1_epi16(4))};
}

/// The lower four bits of each half as the bf16 128 + q: between 128 and 256 its last bit counts one.
[[gnu::always_inline]] static inline __m512i int4_numbers(__m512i halves) {
  return _mm512_ternarylogic_epi32(halves, _mm512_set1_epi32(0x000f000f), _mm512_set1_epi32(0x43004300), 0xea);  // (a & b) | c
}

/// The numbers of two lines: columns 0 to 15, 16 to 31, 32 to 47, 48 to 63, pairs of k in each lane. Eleven instructions for 128 weights.
[[gnu::always_inline]] static inline void int4_numbers_of(const std::uint8_t* lines, const Int4Spread& spread, __m512i (&to)[4]) {
  const __m512i both = _mm512_loadu_si512(lines);
  const __m512i left = _mm512_permutexvar_epi16(spread.left, both);
  const __m512i right = _mm512_permutexvar_epi16(spread.right, both);
  to[0] = int4_numbers(_mm512_srlv_epi16(left, spread.low));
  to[1] = int4_numbers(_mm512_srlv_epi16(right, spread.low));
  to[2] = int4_numbers(_mm512_srlv_epi16(left, spread.high));
  to[3] = int4_numbers(_mm512_srlv_epi16(right, spread.high));
}

/// Of 16 columns: the sum of a * w is scale * (the sum of a * number) + rest * (the sum of a).
[[gnu::always_inline]] static inline void int4_scales(const std::uint16_t* pairs, __m512* scale, __m512* rest, float added = 136) {
  const __m512i both = _mm512_loadu_si512(pairs);
  *scale = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
  const __m512 zero = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  *rest = _mm512_fnmadd_ps(_mm512_set1_ps(added), *scale, zero);
}

}  // namespace ipexrun::kernels
