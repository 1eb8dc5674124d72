// Vectors of 8 32-bit lanes for simd/reorder.cpp.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace ipexrun::kernels::avx2 {
namespace {

struct Lanes {
  using Vector = __m256i;
  static constexpr int kCount = 8;

  [[gnu::always_inline]] static Vector zero() { return _mm256_setzero_si256(); }
  [[gnu::always_inline]] static Vector load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
  [[gnu::always_inline]] static void store(void* to, Vector value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }

  [[gnu::always_inline]] static Vector all(std::int32_t value) { return _mm256_set1_epi32(value); }
  [[gnu::always_inline]] static Vector add(Vector a, Vector b) { return _mm256_add_epi32(a, b); }
  [[gnu::always_inline]] static Vector exclusive_or(Vector a, Vector b) { return _mm256_xor_si256(a, b); }
  /// Bit i: lane i of `a` is not below that of `b`.
  [[gnu::always_inline]] static unsigned at_least(Vector a, Vector b) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a)))) ^ 0xffu;
  }
  [[gnu::always_inline]] static void store_as_int64(std::int64_t* to, Vector value) {
    store(to, _mm256_cvtepi32_epi64(_mm256_castsi256_si128(value)));
    store(to + 4, _mm256_cvtepi32_epi64(_mm256_extracti128_si256(value, 1)));
  }

  /// The lanes of a and then b: those at even places to a, those at odd places to b.
  [[gnu::always_inline]] static void split(Vector& a, Vector& b) {
    const __m256 x = _mm256_castsi256_ps(a);
    const __m256 y = _mm256_castsi256_ps(b);
    a = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)), 0xd8);
    b = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xdd)), 0xd8);
  }

  /// What split() took apart.
  [[gnu::always_inline]] static void join(Vector& a, Vector& b) {
    const Vector low = _mm256_unpacklo_epi32(a, b);
    const Vector high = _mm256_unpackhi_epi32(a, b);
    a = _mm256_permute2x128_si256(low, high, 0x20);
    b = _mm256_permute2x128_si256(low, high, 0x31);
  }

  /// The first `bytes` bytes of a vector, an even number.
  using Part = std::int64_t;
  [[gnu::always_inline]] static Part part(std::int64_t bytes) { return bytes; }

  /// That part, the rest zero.
  [[gnu::always_inline]] static Vector load_part(const void* from, Part bytes) {
    const Vector lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const Vector whole = _mm256_set1_epi32(static_cast<int>(bytes / 4));
    const Vector loaded = _mm256_maskload_epi32(static_cast<const int*>(from), _mm256_cmpgt_epi32(whole, lane));
    if (bytes % 4 == 0) return loaded;
    std::uint16_t last;
    __builtin_memcpy(&last, static_cast<const char*>(from) + bytes - 2, 2);
    return _mm256_or_si256(loaded, _mm256_and_si256(_mm256_cmpeq_epi32(whole, lane), _mm256_set1_epi32(last)));
  }
  /// By halves: a masked store takes many steps on some machines.
  [[gnu::always_inline]] static void store_part(void* to, Vector value, Part bytes) {
    char* at = static_cast<char*>(to);
    __m128i rest = _mm256_castsi256_si128(value);
    if (bytes & 32) {
      store(to, value);
      return;
    }
    if (bytes & 16) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(at), rest);
      rest = _mm256_extracti128_si256(value, 1);
      at += 16;
    }
    if (bytes & 8) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(at), rest);
      rest = _mm_unpackhi_epi64(rest, rest);
      at += 8;
    }
    if (bytes & 4) {
      const int four = _mm_cvtsi128_si32(rest);
      __builtin_memcpy(at, &four, 4);
      rest = _mm_srli_epi64(rest, 32);
      at += 4;
    }
    if (bytes & 2) {
      const auto two = static_cast<std::uint16_t>(_mm_extract_epi16(rest, 0));
      __builtin_memcpy(at, &two, 2);
    }
  }

  [[gnu::always_inline]] static Vector shift_left_16(Vector value) { return _mm256_slli_epi32(value, 16); }
  [[gnu::always_inline]] static Vector shift_right_16(Vector value) { return _mm256_srli_epi32(value, 16); }
  [[gnu::always_inline]] static Vector upper_half(Vector value) { return _mm256_blend_epi16(value, _mm256_setzero_si256(), 0x55); }
  /// Each lane: the lower half of `low`, the upper half of `high`.
  [[gnu::always_inline]] static Vector halves(Vector low, Vector high) { return _mm256_blend_epi16(low, high, 0xaa); }

  /// fp32 lanes whose upper halves are the bf16 of bf16.h; the lower halves are left as they come. The NaN among them have no bits in
  /// the lower half, as in every result of arithmetic on widened bf16.
  [[gnu::always_inline]] static Vector rounded_result(Vector bits) {
    const Vector odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  }

  /// The same for any NaN.
  [[gnu::always_inline]] static Vector rounded(Vector bits) {
    const __m256 value = _mm256_castsi256_ps(bits);
    const __m256 quiet = _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(0x400000)));
    const __m256 up = _mm256_castsi256_ps(rounded_result(bits));
    return _mm256_castps_si256(_mm256_blendv_ps(up, quiet, _mm256_cmp_ps(value, value, _CMP_UNORD_Q)));
  }

  /// Lane j of v[i] becomes lane i of v[j].
  [[gnu::always_inline]] static void transpose(Vector (&v)[kCount]) {
    Vector t[8];
    Vector u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
      t[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      u[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
      u[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
      u[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
      u[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
      v[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx2
