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
  /// Rounded once, where divide() may be an estimate.
  [[gnu::always_inline]] static Vector quotient(Vector a, Vector b) { return _mm256_div_ps(a, b); }
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

  /// value * 2^n for integral n <= 127, or 0 where n is below `least` (at least -126) or so is -inf; NaN stays.
  [[gnu::always_inline]] static Vector scale_from(Vector value, Vector n, Vector least) {
    return _mm256_andnot_ps(_mm256_cmp_ps(n, least, _CMP_LT_OQ), scale(value, n));
  }

  /// 1 / value, or 0 where `key` is above `limit`; NaN stays.
  [[gnu::always_inline]] static Vector reciprocal_up_to(Vector value, Vector key, Vector limit) {
    return _mm256_andnot_ps(_mm256_cmp_ps(key, limit, _CMP_GT_OQ), divide(all(1.0f), value));
  }

  /// The first `n` lanes of `value`, the rest of `fill`.
  [[gnu::always_inline]] static Vector keep(Vector value, std::int64_t n, Vector fill) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i first = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
    return _mm256_blendv_ps(fill, value, _mm256_castsi256_ps(first));
  }

  /// In each lane the element of `low` and then `high` that the lane of `places`, below 16, names.
  [[gnu::always_inline]] static Vector among(Vector low, Vector high, __m256i places) {
    const Vector second = _mm256_castsi256_ps(_mm256_slli_epi32(places, 28));
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, places), _mm256_permutevar8x32_ps(high, places), second);
  }
  [[gnu::always_inline]] static Vector gather(const float* from, __m256i places) { return _mm256_i32gather_ps(from, places, 4); }

  /// Integers in the order of the numbers: NaN above all, -0 as 0.
  [[gnu::always_inline]] static __m256i order_key(Vector value) {
    const __m256i bits = _mm256_castps_si256(_mm256_add_ps(value, all(0.0f)));
    const __m256i most = _mm256_set1_epi32(0x7fffffff);
    const __m256i key = _mm256_xor_si256(bits, _mm256_and_si256(_mm256_srai_epi32(bits, 31), most));
    return _mm256_blendv_epi8(key, most, _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q)));
  }

  using Mask = Vector;
  /// Where `value` is above `most`, or NaN.
  [[gnu::always_inline]] static Mask above_or_nan(Vector value, Vector most) {
    return _mm256_or_ps(_mm256_cmp_ps(value, most, _CMP_GT_OQ), _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  }
  [[gnu::always_inline]] static Mask above(Vector value, Vector most) { return _mm256_cmp_ps(value, most, _CMP_GT_OQ); }
  [[gnu::always_inline]] static Mask nan(Vector value) { return _mm256_cmp_ps(value, value, _CMP_UNORD_Q); }
  [[gnu::always_inline]] static Vector pick(Mask mask, Vector yes, Vector no) { return _mm256_blendv_ps(no, yes, mask); }

  [[gnu::always_inline]] static float sum(Vector value) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
  }
  [[gnu::always_inline]] static float largest(Vector value) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(value), _mm256_extractf128_ps(value, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
  }
  [[gnu::always_inline]] static float root(float value) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value))); }
};

}  // namespace
}  // namespace ipexrun::kernels::avx2
