// Groups of rows times panels of fp32: the sums of a group live in registers for a block of K. What linear_f32 and winograd are made of;
// compiled for avx2 and avx512.
#pragma once

#include <immintrin.h>

#include "kernels/packed.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

constexpr std::int64_t kBlockK = 256;
constexpr std::int64_t kRowStride = kBlockK + 16;
constexpr std::int64_t kAheadRows = 16;
constexpr std::int64_t kPrefetchBytes = 4096;  // of B, where there are few rows
constexpr int kInlineRows = 4;                 // so few
constexpr std::int64_t kNearBytes = 2048;      // of B, on its way from L2 to L1, where there are more

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
using Vector = __m512;
constexpr int kWidth = 16;
constexpr int kRows = 14;     // 28 sums, 2 operands and a broadcast in 32 registers
constexpr int kColumns = 32;  // of a part
constexpr int kPairRows = 6;  // 24 sums of pairs

inline Vector load(const float* from) { return _mm512_loadu_ps(from); }
inline void store(float* to, Vector v) { _mm512_storeu_ps(to, v); }
inline Vector all(float value) { return _mm512_set1_ps(value); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
inline Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
inline Vector zero() { return _mm512_setzero_ps(); }
inline Vector widened(const std::uint16_t* from) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))); }
inline void store_half(std::uint16_t* to, Vector v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Vector pair(const float* two) {
  double bits;
  __builtin_memcpy(&bits, two, 8);
  return _mm512_castpd_ps(_mm512_set1_pd(bits));
}
/// Sums of neighbours: those of a, then of b.
inline Vector add_neighbours(Vector a, Vector b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b));
}
/// A line of packed.h, 16 columns, as two rows of K.
inline void widen_line(const std::uint16_t* line, float* even, float* odd) {
  const __m512i pairs = _mm512_loadu_si512(line);
  _mm512_storeu_ps(even, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)));
  _mm512_storeu_ps(odd, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16))));
}
#else
using Vector = __m256;
constexpr int kWidth = 8;
constexpr int kRows = 6;
constexpr int kColumns = 16;
constexpr int kPairRows = 3;

inline Vector load(const float* from) { return _mm256_loadu_ps(from); }
inline void store(float* to, Vector v) { _mm256_storeu_ps(to, v); }
inline Vector all(float value) { return _mm256_set1_ps(value); }
inline Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
inline Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
inline Vector zero() { return _mm256_setzero_ps(); }
inline Vector widened(const std::uint16_t* from) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))); }
inline void store_half(std::uint16_t* to, Vector v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Vector pair(const float* two) {
  double bits;
  __builtin_memcpy(&bits, two, 8);
  return _mm256_castpd_ps(_mm256_set1_pd(bits));
}
inline Vector add_neighbours(Vector a, Vector b) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_hadd_ps(a, b)), 0xd8));
}
inline void widen_line(const std::uint16_t* line, float* even, float* odd) {
  for (int half = 0; half < 2; ++half, line += 16, even += 8, odd += 8) {
    const __m256 low = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line)));
    const __m256 high = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + 8)));
    const __m256d evens = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
    const __m256d odds = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
    _mm256_storeu_ps(even, _mm256_castpd_ps(_mm256_permute4x64_pd(evens, 0xd8)));
    _mm256_storeu_ps(odd, _mm256_castpd_ps(_mm256_permute4x64_pd(odds, 0xd8)));
  }
}
#endif

constexpr int kVectors = kColumns / kWidth;
constexpr int kPanelsMost = 4;

/// What one group of rows is multiplied with.
struct Group {
  const float* a;             // of its first row
  std::int64_t a_stride;      // from a row to the next
  std::int64_t a_block;       // from a block of K to the next
  const void* b;              // a part of a panel
  std::int64_t next;          // bytes to that part of the next panel
  std::int64_t k;             // rows of K
  const float* start;         // of the sums, a panel is 32
  std::int64_t start_stride;  // from a row of it to the next
  float* out;                 // a row is `stride` from the next, a panel 32
  std::int64_t stride;
  const char* ahead;   // what the next panel reads first, fetched into L2 meanwhile
  std::int64_t lines;  // of it, each kAheadRows rows of K
};

/// One column of R rows of A, which are a distance apart that only the run knows: addresses of three rows each share a register, else there
/// are not enough of them, and each column would read addresses from memory again.
template <int R>
class Rows {
 public:
  Rows(const float* first, std::int64_t stride) : stride_(stride) {
#pragma GCC unroll 8
    for (int i = 0; i < kBases; ++i) {
      bases_[i] = first + i * 3 * stride;
      asm("" : "+r"(bases_[i]));  // so that the compiler does not compute them from each other
    }
  }
  [[gnu::always_inline]] float at(int row) const { return bases_[row / 3][row % 3 * stride_]; }
  [[gnu::always_inline]] void next() {
#pragma GCC unroll 8
    for (int i = 0; i < kBases; ++i) ++bases_[i];
  }

 private:
  static constexpr int kBases = (R + 2) / 3;
  const float* bases_[kBases];
  std::int64_t stride_;
};

/// R rows x that part of P panels of fp32.
template <int R, int P>
void multiply(const Group& group) {
  constexpr int kAll = P * kVectors;
  const char* b = static_cast<const char*>(group.b);
  const std::int64_t next = group.next;
  const std::int64_t a_stride = group.a_stride;
  const float* block = group.a;
  const char* ahead = group.ahead;
  const float* start = group.start;
  std::int64_t start_stride = group.start_stride;
  for (std::int64_t k = 0; k < group.k; k += kBlockK, block += group.a_block, start = group.out, start_stride = group.stride) {
    // Each block of K has sums of its own: what is rounded grows with the root of their length.
    Vector sums[R][kAll];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kAll; ++v) sums[r][v] = zero();
    }
    const std::int64_t depth = group.k - k < kBlockK ? group.k - k : kBlockK;
    Rows<R> a(block, a_stride);
    for (std::int64_t left = depth; left > 0; left -= kAheadRows) {
      for (std::int64_t i = 0; i < group.lines; ++i, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
      for (std::int64_t end = left < kAheadRows ? left : kAheadRows; end > 0; --end, a.next(), b += kPanelColumns * 4) {
        constexpr std::int64_t kFetch = R <= kInlineRows ? kPrefetchBytes : kNearBytes;
        for (int p = 0; p < P; ++p) {
          __builtin_prefetch(b + p * next + kFetch);
          if (kVectors * kWidth == kPanelColumns) __builtin_prefetch(b + p * next + kFetch + 64);
        }
        if constexpr (R > P) {
          Vector operands[kAll];
#pragma GCC unroll 8
          for (int v = 0; v < kAll; ++v)
            operands[v] = load(reinterpret_cast<const float*>(b + v / kVectors * next) + v % kVectors * kWidth);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            const Vector one = all(a.at(r));
#pragma GCC unroll 8
            for (int v = 0; v < kAll; ++v) sums[r][v] = fma(one, operands[v], sums[r][v]);
          }
        } else {
          Vector ones[R];
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) ones[r] = all(a.at(r));
#pragma GCC unroll 8
          for (int v = 0; v < kAll; ++v) {
            const Vector operand = load(reinterpret_cast<const float*>(b + v / kVectors * next) + v % kVectors * kWidth);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) sums[r][v] = fma(ones[r], operand, sums[r][v]);
          }
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kAll; ++v) {
        const std::int64_t column = v / kVectors * kPanelColumns + v % kVectors * kWidth;
        store(group.out + r * group.stride + column, add(load(start + r * start_stride + column), sums[r][v]));
      }
    }
  }
}

using Multiply = void (*)(const Group&);
struct Choice {
  Multiply run;
  int panels;
};

// By rows - 1. Few rows take several panels at once: few chains of additions would wait for their latency.
#if defined(IPEXRUN_KERNEL_ISA_AVX512)
constexpr Choice kMultiply[] = {{multiply<1, 4>, 4},  {multiply<2, 4>, 4},  {multiply<3, 4>, 4},  {multiply<4, 2>, 2}, {multiply<5, 2>, 2},
                                {multiply<6, 2>, 2},  {multiply<7, 1>, 1},  {multiply<8, 1>, 1},  {multiply<9, 1>, 1}, {multiply<10, 1>, 1},
                                {multiply<11, 1>, 1}, {multiply<12, 1>, 1}, {multiply<13, 1>, 1}, {multiply<14, 1>, 1}};
constexpr Choice kMultiplyOne[] = {{multiply<1, 1>, 1}, {multiply<2, 1>, 1}, {multiply<3, 1>, 1},
                                   {multiply<4, 1>, 1}, {multiply<5, 1>, 1}, {multiply<6, 1>, 1}};
#else
constexpr Choice kMultiply[] = {{multiply<1, 4>, 4}, {multiply<2, 2>, 2}, {multiply<3, 2>, 2},
                                {multiply<4, 1>, 1}, {multiply<5, 1>, 1}, {multiply<6, 1>, 1}};
constexpr Choice kMultiplyOne[] = {{multiply<1, 1>, 1}, {multiply<2, 1>, 1}, {multiply<3, 1>, 1}};
#endif
static_assert(sizeof(kMultiply) / sizeof(kMultiply[0]) == kRows);

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
