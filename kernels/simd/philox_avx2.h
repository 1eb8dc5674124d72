// Philox4x32-10 for 8 counters. A counter's words are 64-bit lanes of which only the lower halves count, as the multiplication takes
// them; even and odd counters are kept apart until the end.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/dropout_rule.h"

namespace ipexrun::kernels::avx2 {
namespace {

struct Philox {
  using Mask = __m256;

  /// word[w]: word w of counters `counter` to `counter` + 7.
  [[gnu::always_inline]] static void words(std::uint64_t counter, std::uint64_t seed, __m256i (&word)[4]) {
    __m256i c[2][4];
    c[0][0] = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<long long>(counter)), _mm256_setr_epi64x(0, 2, 4, 6));
    c[1][0] = _mm256_add_epi64(c[0][0], _mm256_set1_epi64x(1));
#pragma GCC unroll 2
    for (auto& s : c) {
      s[1] = _mm256_srli_epi64(s[0], 32);
      s[2] = s[3] = _mm256_setzero_si256();
    }
    auto key0 = static_cast<std::uint32_t>(seed);
    auto key1 = static_cast<std::uint32_t>(seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m256i k0 = _mm256_set1_epi64x(key0);
      const __m256i k1 = _mm256_set1_epi64x(key1);
#pragma GCC unroll 2
      for (auto& s : c) {
        const __m256i a = _mm256_mul_epu32(s[0], _mm256_set1_epi64x(kPhiloxFactor[0]));
        const __m256i b = _mm256_mul_epu32(s[2], _mm256_set1_epi64x(kPhiloxFactor[1]));
        s[0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(b, 32), s[1]), k0);
        s[2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(a, 32), s[3]), k1);
        s[1] = b;
        s[3] = a;
      }
      key0 += kPhiloxStep[0];
      key1 += kPhiloxStep[1];
    }
#pragma GCC unroll 4
    for (int w = 0; w < 4; ++w) word[w] = _mm256_blend_epi32(c[0][w], _mm256_slli_epi64(c[1][w], 32), 0xaa);
  }

  /// `least` is below 2^32.
  [[gnu::always_inline]] static Mask at_least(__m256i word, std::uint32_t least) {
    const __m256i bound = _mm256_set1_epi32(static_cast<int>(least));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_max_epu32(word, bound), word));
  }
  [[gnu::always_inline]] static __m256 chosen(Mask mask, float value) { return _mm256_and_ps(mask, _mm256_set1_ps(value)); }
  /// A byte an element, 1 or 0.
  [[gnu::always_inline]] static void store(std::uint8_t* to, Mask mask) {
    const __m256i lanes = _mm256_castps_si256(mask);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    const __m128i bytes = _mm_and_si128(_mm_packs_epi16(words, words), _mm_set1_epi8(1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
  }
  [[gnu::always_inline]] static Mask load(const std::uint8_t* from) {
    const __m256i lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(lanes, _mm256_setzero_si256()));
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx2
