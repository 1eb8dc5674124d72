// The sums of 16 vectors, for the scores of four rows with four keys; see sums_avx2.h for what the functions mean.
#pragma once

#include <immintrin.h>

namespace ipexrun::kernels::avx512 {
namespace {

struct Sums {
  static constexpr int kKeys = 4;
  static constexpr int place(int query, int key) { return 4 * key + query; }

  [[gnu::always_inline]] static __m512 of(const __m512 (&v)[16]) {
    __m512 w[4];  // part p of w[i]: four partial sums of v[4i + p]
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) w[i] = halved(halved(v[4 * i], v[4 * i + 1]), halved(v[4 * i + 2], v[4 * i + 3]));
    const __m512 low = _mm512_add_ps(_mm512_unpacklo_ps(w[0], w[1]), _mm512_unpackhi_ps(w[0], w[1]));
    const __m512 high = _mm512_add_ps(_mm512_unpacklo_ps(w[2], w[3]), _mm512_unpackhi_ps(w[2], w[3]));
    const __m512d a = _mm512_castps_pd(low);
    const __m512d b = _mm512_castps_pd(high);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }

 private:
  /// Neighbouring 128-bit parts added: those of a, then those of b.
  [[gnu::always_inline]] static __m512 halved(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx512
