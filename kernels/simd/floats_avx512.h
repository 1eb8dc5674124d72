// Vectors of 16 floats for elementwise kernels; see floats_avx2.h for what the functions mean.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/simd/lanes_avx512.h"

namespace ipexrun::kernels::avx512 {
namespace {

struct Floats {
  using Vector = __m512;

  [[gnu::always_inline]] static Vector all(float value) { return _mm512_set1_ps(value); }
  [[gnu::always_inline]] static Vector of_bits(Lanes::Vector bits) { return _mm512_castsi512_ps(bits); }
  [[gnu::always_inline]] static Lanes::Vector bits_of(Vector value) { return _mm512_castps_si512(value); }

  [[gnu::always_inline]] static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  [[gnu::always_inline]] static Vector subtract(Vector a, Vector b) { return _mm512_sub_ps(a, b); }
  [[gnu::always_inline]] static Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  [[gnu::always_inline]] static Vector quotient(Vector a, Vector b) { return _mm512_div_ps(a, b); }
  [[gnu::always_inline]] static Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  [[gnu::always_inline]] static Vector fms(Vector a, Vector b, Vector c) { return _mm512_fmsub_ps(a, b, c); }
  [[gnu::always_inline]] static Vector at_least(Vector low, Vector value) { return _mm512_max_ps(low, value); }
  [[gnu::always_inline]] static Vector at_most(Vector high, Vector value) { return _mm512_min_ps(high, value); }
  [[gnu::always_inline]] static Vector nearest(Vector value) {
    return _mm512_roundscale_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  [[gnu::always_inline]] static Vector magnitude(Vector value) { return _mm512_andnot_ps(all(-0.0f), value); }
  [[gnu::always_inline]] static Vector with_sign(Vector value, Vector sign) {
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(_mm512_castps_si512(value), _mm512_castps_si512(sign), _mm512_castps_si512(all(-0.0f)), 0xf8));
  }
  [[gnu::always_inline]] static Vector scale(Vector value, Vector n) { return _mm512_scalef_ps(value, n); }

  [[gnu::always_inline]] static Vector scale_from(Vector value, Vector n, Vector least) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, least, _CMP_NLT_UQ), value, n);
  }

  // Division is slow (16 cycles on many cores): an estimate of 14 bits and one step of Newton's method, for 2^-126 <= |b| <= 2^126.
  [[gnu::always_inline]] static Vector divide(Vector a, Vector b) {
    const Vector estimate = _mm512_rcp14_ps(b);
    const Vector refined = _mm512_fmadd_ps(estimate, _mm512_fnmadd_ps(b, estimate, all(1.0f)), estimate);
    return _mm512_mul_ps(a, refined);
  }
  [[gnu::always_inline]] static Vector reciprocal_up_to(Vector value, Vector key, Vector limit) {
    const Vector estimate = _mm512_rcp14_ps(value);
    const Vector error = _mm512_fnmadd_ps(value, estimate, all(1.0f));
    return _mm512_maskz_fmadd_ps(_mm512_cmp_ps_mask(key, limit, _CMP_NGT_UQ), estimate, error, estimate);
  }

  /// In each lane the element of `table` that the lowest five bits of that lane of `index` name.
  [[gnu::always_inline]] static Vector lookup(const float (&table)[32], Vector index) {
    return _mm512_permutex2var_ps(_mm512_loadu_ps(table), _mm512_castps_si512(index), _mm512_loadu_ps(table + 16));
  }

  [[gnu::always_inline]] static Vector keep(Vector value, std::int64_t n, Vector fill) {
    return _mm512_mask_blend_ps(static_cast<__mmask16>(_bzhi_u32(0xffffu, static_cast<unsigned>(n))), fill, value);
  }
  [[gnu::always_inline]] static Vector among(Vector low, Vector high, __m512i places) { return _mm512_permutex2var_ps(low, places, high); }
  [[gnu::always_inline]] static Vector gather(const float* from, __m512i places) { return _mm512_i32gather_ps(places, from, 4); }

  [[gnu::always_inline]] static __m512i order_key(Vector value) {
    const __m512i bits = _mm512_castps_si512(_mm512_add_ps(value, all(0.0f)));
    const __m512i most = _mm512_set1_epi32(0x7fffffff);
    const __m512i key = _mm512_xor_si512(bits, _mm512_and_si512(_mm512_srai_epi32(bits, 31), most));
    return _mm512_mask_mov_epi32(key, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), most);
  }

  using Mask = __mmask16;
  [[gnu::always_inline]] static Mask above_or_nan(Vector value, Vector most) {
    return static_cast<Mask>(_mm512_cmp_ps_mask(value, most, _CMP_GT_OQ) | _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q));
  }
  [[gnu::always_inline]] static Mask above(Vector value, Vector most) { return _mm512_cmp_ps_mask(value, most, _CMP_GT_OQ); }
  [[gnu::always_inline]] static Mask nan(Vector value) { return _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q); }
  [[gnu::always_inline]] static Vector pick(Mask mask, Vector yes, Vector no) { return _mm512_mask_blend_ps(mask, no, yes); }
  [[gnu::always_inline]] static float sum(Vector value) { return _mm512_reduce_add_ps(value); }
  [[gnu::always_inline]] static float largest(Vector value) { return _mm512_reduce_max_ps(value); }
  [[gnu::always_inline]] static float root(float value) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(value))); }
};

}  // namespace
}  // namespace ipexrun::kernels::avx512
