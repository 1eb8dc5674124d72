// 16 bf16 in their order, as the bits of 16 floats; see halves_avx2.h for what the functions mean.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/simd/lanes_avx512.h"

namespace ipexrun::kernels::avx512 {
namespace {

struct Halves {
  [[gnu::always_inline]] static __m512i load(const std::uint16_t* from) {
    return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  [[gnu::always_inline]] static __m512i load_part(const std::uint16_t* from, std::int64_t n) {
    return widened(_mm256_maskz_loadu_epi16(part(n), from));
  }
  [[gnu::always_inline]] static void store(std::uint16_t* to, __m512i bits) { store_upper(to, Lanes::rounded(bits)); }
  [[gnu::always_inline]] static void store_upper(std::uint16_t* to, __m512i bits) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrowed(bits));
  }
  [[gnu::always_inline]] static void store_part(std::uint16_t* to, __m512i bits, std::int64_t n) {
    store_upper_part(to, Lanes::rounded(bits), n);
  }
  [[gnu::always_inline]] static void store_upper_part(std::uint16_t* to, __m512i bits, std::int64_t n) {
    _mm256_mask_storeu_epi16(to, part(n), narrowed(bits));
  }

 private:
  [[gnu::always_inline]] static __mmask16 part(std::int64_t n) {
    return static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(n)));
  }
  [[gnu::always_inline]] static __m512i widened(__m256i halves) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16); }
  [[gnu::always_inline]] static __m256i narrowed(__m512i bits) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)); }
};

}  // namespace
}  // namespace ipexrun::kernels::avx512
