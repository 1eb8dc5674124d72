// Philox4x32-10 for 16 counters; see philox_avx2.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/dropout_rule.h"

namespace ipexrun::kernels::avx512 {
namespace {

struct Philox {
  using Mask = __mmask16;

  /// word[w]: word w of counters `counter` to `counter` + 15.
  [[gnu::always_inline]] static void words(std::uint64_t counter, std::uint64_t seed, __m512i (&word)[4]) {
    const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    __m512i c[2][4];
    c[0][0] = _mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(counter)), even);
    c[1][0] = _mm512_add_epi64(c[0][0], _mm512_set1_epi64(1));
#pragma GCC unroll 2
    for (auto& s : c) {
      s[1] = _mm512_srli_epi64(s[0], 32);
      s[2] = s[3] = _mm512_setzero_si512();
    }
    auto key0 = static_cast<std::uint32_t>(seed);
    auto key1 = static_cast<std::uint32_t>(seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m512i k0 = _mm512_set1_epi64(key0);
      const __m512i k1 = _mm512_set1_epi64(key1);
#pragma GCC unroll 2
      for (auto& s : c) {
        const __m512i a = _mm512_mul_epu32(s[0], _mm512_set1_epi64(kPhiloxFactor[0]));
        const __m512i b = _mm512_mul_epu32(s[2], _mm512_set1_epi64(kPhiloxFactor[1]));
        s[0] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(b, 32), s[1], k0, 0x96);
        s[2] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(a, 32), s[3], k1, 0x96);
        s[1] = b;
        s[3] = a;
      }
      key0 += kPhiloxStep[0];
      key1 += kPhiloxStep[1];
    }
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) word[w] = _mm512_mask_blend_epi32(0xaaaa, c[0][w], _mm512_slli_epi64(c[1][w], 32));
  }

  /// `least` is below 2^32.
  [[gnu::always_inline]] static Mask at_least(__m512i word, std::uint32_t least) {
    return _mm512_cmpge_epu32_mask(word, _mm512_set1_epi32(static_cast<int>(least)));
  }
  [[gnu::always_inline]] static __m512 chosen(Mask mask, float value) { return _mm512_maskz_mov_ps(mask, _mm512_set1_ps(value)); }
  /// A byte an element, 1 or 0.
  [[gnu::always_inline]] static void store(std::uint8_t* to, Mask mask) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_maskz_set1_epi8(mask, 1));
  }
  [[gnu::always_inline]] static Mask load(const std::uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm_test_epi8_mask(bytes, bytes);
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx512
