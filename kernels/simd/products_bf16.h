// A word is two bf16, multiplied and added in one instruction; see products_f32.h. Include after floats_avx512.h.
#pragma once

#include <immintrin.h>

namespace ipexrun::kernels::avx512_bf16 {
namespace {

struct Products {
  static constexpr std::int64_t kPerWord = 2;
  static constexpr int kVectors = 4;

  [[gnu::always_inline]] static Floats::Vector add(Floats::Vector sum, const float* word, Lanes::Vector b) {
    int pair;
    __builtin_memcpy(&pair, word, sizeof(pair));
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)b);
  }
  [[gnu::always_inline]] static void put(float* row, std::int64_t i, Floats::Vector first, Floats::Vector second) {
    Lanes::store(row + i / 2, (__m512i)_mm512_cvtne2ps_pbh(second, first));
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx512_bf16
