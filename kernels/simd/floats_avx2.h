// Vectors of 8 floats for elementwise kernels; lanes_avx2.h loads and stores their bits.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/simd/lanes_avx2.h"

namespace ipexrun::kernels::avx2 {
namespace {

struct Floats {
  using Vector = __m256;

  [[gnu::always_inline]] static Vector all(float value) { return _mm256_set1_ps(value); }
  [[gnu::always_inline]] static Vector of_bits(Lanes::Vector bits) { return _mm256_castsi256_ps(bits); }
  [[gnu::always_inline]] static Lanes::Vector bits_of(Vector value) { return _mm256_castps_si256(value); }

  [[gnu::always_inline]] static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  [[gnu::always_inline]] static Vector subtract(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
  [[gnu::always_inline]] static Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  [[gnu::always_inline]] static Vector divide(Vector a, Vector b) { return _mm256_div_ps(a, b); }
  [[gnu::always_inline]] static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  /// a * b - c
  [[gnu::always_inline]] static Vector fms(Vector a, Vector b, Vector c) { return _mm256_fmsub_ps(a, b, c); }
  /// A NaN in `value` stays.
  [[gnu::always_inline]] static Vector at_least(Vector low, Vector value) { return _mm256_max_ps(low, value); }
  [[gnu::always_inline]] static Vector at_most(Vector high, Vector value) { return _mm256_min_ps(high, value); }
  [[gnu::always_inline]] static Vector nearest(Vector value) {
    return _mm256_round_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  [[gnu::always_inline]] static Vector magnitude(Vector value) { return _mm256_andnot_ps(all(-0.0f), value); }
  /// `value`, which is not negative, with the sign of `sign`.
  [[gnu::always_inline]] static Vector with_sign(Vector value, Vector sign) { return _mm256_or_ps(value, _mm256_and_ps(sign, all(-0.0f))); }

  /// value * 2^n for integral n in [-126, 127]; what n is beyond counts as the bound.
  [[gnu::always_inline]] static Vector scale(Vector value, Vector n) {
    const __m256i exponent = _mm256_cvtps_epi32(at_most(all(127.0f), at_least(all(-126.0f), n)));
    return _mm256_mul_ps(value, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23)));
  }

  /// 1 / value, or 0 where `key` is above `limit`; NaN stays.
  [[gnu::always_inline]] static Vector reciprocal_up_to(Vector value, Vector key, Vector limit) {
    return _mm256_andnot_ps(_mm256_cmp_ps(key, limit, _CMP_GT_OQ), divide(all(1.0f), value));
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx2
