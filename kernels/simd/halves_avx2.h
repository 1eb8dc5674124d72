// 8 bf16 in their order, as the bits of 8 floats.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/simd/lanes_avx2.h"

namespace ipexrun::kernels::avx2 {
namespace {

struct Halves {
  [[gnu::always_inline]] static __m256i load(const std::uint16_t* from) {
    return widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  /// The first n, the rest zero.
  [[gnu::always_inline]] static __m256i load_part(const std::uint16_t* from, std::int64_t n) {
    std::uint16_t halves[8] = {};
    __builtin_memcpy(halves, from, static_cast<std::size_t>(n) * 2);
    return load(halves);
  }
  /// Rounded to the nearest bf16, any NaN included.
  [[gnu::always_inline]] static void store(std::uint16_t* to, __m256i bits) { store_upper(to, Lanes::rounded(bits)); }
  /// The upper halves as they are.
  [[gnu::always_inline]] static void store_upper(std::uint16_t* to, __m256i bits) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrowed(bits));
  }
  [[gnu::always_inline]] static void store_part(std::uint16_t* to, __m256i bits, std::int64_t n) {
    store_upper_part(to, Lanes::rounded(bits), n);
  }
  [[gnu::always_inline]] static void store_upper_part(std::uint16_t* to, __m256i bits, std::int64_t n) {
    std::uint16_t halves[8];
    store_upper(halves, bits);
    __builtin_memcpy(to, halves, static_cast<std::size_t>(n) * 2);
  }

 private:
  [[gnu::always_inline]] static __m256i widened(__m128i halves) { return _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16); }
  [[gnu::always_inline]] static __m128i narrowed(__m256i bits) {
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx2
