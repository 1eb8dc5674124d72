// Vectors of 16 32-bit lanes for simd/reorder.cpp; see lanes_avx2.h for what the functions mean.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace ipexrun::kernels::avx512 {
namespace {

struct Lanes {
  using Vector = __m512i;
  static constexpr int kCount = 16;

  [[gnu::always_inline]] static Vector zero() { return _mm512_setzero_si512(); }
  [[gnu::always_inline]] static Vector load(const void* from) { return _mm512_loadu_si512(from); }
  [[gnu::always_inline]] static void store(void* to, Vector value) { _mm512_storeu_si512(to, value); }

  [[gnu::always_inline]] static Vector all(std::int32_t value) { return _mm512_set1_epi32(value); }
  [[gnu::always_inline]] static Vector add(Vector a, Vector b) { return _mm512_add_epi32(a, b); }
  [[gnu::always_inline]] static Vector exclusive_or(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
  [[gnu::always_inline]] static unsigned at_least(Vector a, Vector b) { return _mm512_cmpge_epi32_mask(a, b); }
  [[gnu::always_inline]] static void store_as_int64(std::int64_t* to, Vector value) {
    store(to, _mm512_cvtepi32_epi64(_mm512_castsi512_si256(value)));
    store(to + 8, _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(value, 1)));
  }

  /// The lanes of a and then b: those at even places to a, those at odd places to b.
  [[gnu::always_inline]] static void split(Vector& a, Vector& b) {
    const Vector even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const Vector odd = _mm512_add_epi32(even, all(1));
    const Vector first = a;
    a = _mm512_permutex2var_epi32(first, even, b);
    b = _mm512_permutex2var_epi32(first, odd, b);
  }

  /// What split() took apart.
  [[gnu::always_inline]] static void join(Vector& a, Vector& b) {
    const Vector low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const Vector high = _mm512_add_epi32(low, all(8));
    const Vector first = a;
    a = _mm512_permutex2var_epi32(first, low, b);
    b = _mm512_permutex2var_epi32(first, high, b);
  }

  using Part = __mmask64;
  [[gnu::always_inline]] static Part part(std::int64_t bytes) { return _bzhi_u64(~0ull, static_cast<unsigned>(bytes)); }
  [[gnu::always_inline]] static Vector load_part(const void* from, Part part) { return _mm512_maskz_loadu_epi8(part, from); }
  [[gnu::always_inline]] static void store_part(void* to, Vector value, Part part) { _mm512_mask_storeu_epi8(to, part, value); }

  [[gnu::always_inline]] static Vector shift_left_16(Vector value) { return _mm512_slli_epi32(value, 16); }
  [[gnu::always_inline]] static Vector shift_right_16(Vector value) { return _mm512_srli_epi32(value, 16); }
  [[gnu::always_inline]] static Vector upper_half(Vector value) {
    return _mm512_and_si512(value, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  }
  [[gnu::always_inline]] static Vector halves(Vector low, Vector high) { return _mm512_mask_blend_epi16(0xaaaaaaaau, low, high); }

  [[gnu::always_inline]] static Vector rounded_result(Vector bits) {
    const Vector odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  }
  [[gnu::always_inline]] static Vector rounded(Vector bits) {
    const __m512 value = _mm512_castsi512_ps(bits);
    return _mm512_mask_or_epi32(rounded_result(bits), _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x400000));
  }

  [[gnu::always_inline]] static void transpose(Vector (&v)[kCount]) {
    Vector t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
      t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    // v[4g + j]: in each 128-bit part q, lane 4q + j of the four vectors 4g .. 4g + 3.
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      v[4 * g] = _mm512_unpacklo_epi64(t[4 * g], t[4 * g + 2]);
      v[4 * g + 1] = _mm512_unpackhi_epi64(t[4 * g], t[4 * g + 2]);
      v[4 * g + 2] = _mm512_unpacklo_epi64(t[4 * g + 1], t[4 * g + 3]);
      v[4 * g + 3] = _mm512_unpackhi_epi64(t[4 * g + 1], t[4 * g + 3]);
    }
    // The rest is a 4 x 4 transpose of 128-bit parts, for each j.
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Vector a = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);
      const Vector b = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xdd);
      const Vector c = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
      const Vector d = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xdd);
      t[j] = _mm512_shuffle_i32x4(a, c, 0x88);
      t[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
      t[8 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
      t[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) v[i] = t[i];
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx512
