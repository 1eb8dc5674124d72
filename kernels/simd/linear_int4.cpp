// linear_int4 for AVX512-BF16, see linear_int4.h for the method.
//
// Nine instructions for 64 weights and one row of A, 4.5 cycles for 32 bytes.
#include "kernels/simd/linear_int4.h"

#include <immintrin.h>

#include "kernels/packed.h"
#include "kernels/simd/int4.h"
#include "kernels/simd/lanes_avx512.h"

namespace ipexrun::kernels::avx512_bf16 {
namespace {

using avx512::Lanes;

constexpr std::int64_t kLanes = 16;
constexpr float kLargeSum = 1e36f / kLanes;  // of a lane

/// Two numbers of A, in all lanes.
[[gnu::always_inline]] inline __m512bh pair_of_a(const std::uint16_t* a) {
  std::int32_t both;
  __builtin_memcpy(&both, a, 4);
  return (__m512bh)_mm512_set1_epi32(both);
}

/// R rows of A, H of the two halves (columns 0-15 and 32-47, 16-31 and 48-63) from `half` on; adds to total[r][64].
template <int R, int H>
[[gnu::always_inline]] inline void add_group(const LinearInt4Args& args, const std::uint8_t* lines, const std::uint16_t* a,
                                             const std::uint16_t* pairs, int half, const float (&sums)[R], float (*total)[kInt4Columns]) {
  __m512 sum[R][2 * H];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < 2 * H; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  for (std::int64_t i = 0; i < args.group; i += 2) {
    if (half == 0) __builtin_prefetch(lines + i * kInt4LineBytes + kInt4PrefetchBytes);  // one line of the cache: two of ours
    __m512bh numbers[2 * H];
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) {
      const __m512i both = int4_pairs(lines + i * kInt4LineBytes + (half + h) * kLanes);
      numbers[2 * h] = (__m512bh)int4_numbers(both);
      numbers[2 * h + 1] = (__m512bh)int4_numbers(_mm512_srli_epi32(both, 4));
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512bh pair = pair_of_a(a + r * args.lda + i);
#pragma GCC unroll 4
      for (int v = 0; v < 2 * H; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], numbers[v], pair);
    }
  }
  for (int v = 0; v < 2 * H; ++v) {
    const int column = (v % 2) * 32 + (half + v / 2) * 16;
    __m512 scale;
    __m512 rest;
    int4_scales(pairs + 2 * column, &scale, &rest);
    for (int r = 0; r < R; ++r) {
      const __m512 before = _mm512_load_ps(total[r] + column);
      _mm512_store_ps(total[r] + column, _mm512_fmadd_ps(scale, sum[r][v], _mm512_fmadd_ps(rest, _mm512_set1_ps(sums[r]), before)));
    }
  }
}

template <int R>
void dot(const LinearInt4Args& args, std::int64_t block, std::int64_t row, const float* group_sums) {
  alignas(64) float total[R][kInt4Columns] = {};
  const std::int64_t groups = args.k / args.group;
  const std::uint8_t* lines = args.b + block * args.k * kInt4LineBytes;
  for (std::int64_t g = 0; g < groups; ++g, lines += args.group * kInt4LineBytes) {
    const std::uint16_t* a = args.a + row * args.lda + g * args.group;
    const std::uint16_t* pairs = args.scales_and_zeros + (g * args.n + block * kInt4Columns) * 2;
    float sums[R];
    for (int r = 0; r < R; ++r) sums[r] = group_sums[r * groups + g];
    if constexpr (R == 1) {
      add_group<R, 2>(args, lines, a, pairs, 0, sums, total);
    } else {
      add_group<R, 1>(args, lines, a, pairs, 0, sums, total);
      add_group<R, 1>(args, lines, a, pairs, 1, sums, total);
    }
  }
  for (int r = 0; r < R; ++r) {
    std::uint16_t* to = args.c + (row + r) * args.ldc + block * kInt4Columns;
    for (std::int64_t column = 0; column < kInt4Columns; column += 32) {
      const __m512 low = _mm512_load_ps(total[r] + column);
      const __m512 high = _mm512_load_ps(total[r] + column + 16);
      _mm512_storeu_si512(to + column, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
  }
}

}  // namespace

bool int4_group_sums(const LinearInt4Args& args, float* sums) {
  const __m512 most = _mm512_set1_ps(kLargeSum);
  for (std::int64_t row = 0; row < args.m; ++row) {
    const std::uint16_t* from = args.a + row * args.lda;
    for (std::int64_t begin = 0; begin < args.k; begin += args.group) {
      __m512 sum = _mm512_setzero_ps();
      __m512 size = _mm512_setzero_ps();
      for (std::int64_t i = begin; i < begin + args.group; i += 2 * kLanes) {
        const __m512i pairs = Lanes::load(from + i);
        const __m512 even = _mm512_castsi512_ps(Lanes::shift_left_16(pairs));
        const __m512 odd = _mm512_castsi512_ps(Lanes::upper_half(pairs));
        sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
        size = _mm512_add_ps(size, _mm512_add_ps(_mm512_abs_ps(even), _mm512_abs_ps(odd)));
      }
      *sums++ = _mm512_reduce_add_ps(sum);
      if (_mm512_cmp_ps_mask(size, most, _CMP_LT_OQ) != 0xffff) return false;  // NaN is not less
    }
  }
  return true;
}

void int4_dot(const LinearInt4Args& args, std::int64_t block, std::int64_t row, std::int64_t rows, const float* sums) {
  switch (rows) {
    case 1:
      return dot<1>(args, block, row, sums);
    case 2:
      return dot<2>(args, block, row, sums);
    case 3:
      return dot<3>(args, block, row, sums);
    default:
      return dot<4>(args, block, row, sums);
  }
}

/// 32 columns, which are the lower or the upper halves of all bytes of a block, as a panel of packed.h.
void int4_unpack(const LinearInt4Args& args, std::int64_t panel, std::uint16_t* to) {
  const std::int64_t block = panel / 2;
  const int shift = panel % 2 == 0 ? 0 : 4;
  const std::uint8_t* lines = args.b + block * args.k * kInt4LineBytes;
  const __m512i mask = _mm512_set1_epi32(0x000f);
  const __m128i down = _mm_cvtsi32_si128(shift);
  const __m128i down_second = _mm_cvtsi32_si128(shift + 16);
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i alternating = _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(0x00010001)), _mm512_set1_epi32(16 << 16));
  for (std::int64_t half = 0; half < 2; ++half) {
    for (std::int64_t g = 0; g < args.k / args.group; ++g) {
      __m512 scale;
      __m512 rest;
      int4_scales(args.scales_and_zeros + (g * args.n + panel * kPanelColumns + half * kTileColumns) * 2, &scale, &rest, 8);
      for (std::int64_t i = g * args.group; i < (g + 1) * args.group; i += 2) {
        const std::uint8_t* line = lines + i * kInt4LineBytes + half * kLanes;
        if (half == 0) __builtin_prefetch(line + kInt4PrefetchBytes);
        const __m512i both = int4_pairs(line);
        const __m512 first = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srl_epi32(both, down), mask)), scale, rest);
        const __m512 second = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srl_epi32(both, down_second), mask)), scale, rest);
        const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(second, first);
        Lanes::store(to + packed_offset(i, half * kTileColumns), _mm512_permutexvar_epi16(alternating, rounded));
      }
    }
  }
}

}  // namespace ipexrun::kernels::avx512_bf16
