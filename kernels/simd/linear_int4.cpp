// linear_int4 for AVX512-BF16, see linear_int4.h for the method.
//
// Two rows of 16 bytes, k and k + 1, become 16 lanes of two bytes; one shift, and a mask that is taken together with the bits of 128, make
// two operands of 16 columns each out of them. Nine instructions for 64 weights and one row of A, 4.5 cycles for 32 bytes.
#include "kernels/simd/linear_int4.h"

#include <immintrin.h>

#include "kernels/packed.h"
#include "kernels/simd/lanes_avx512.h"

namespace ipexrun::kernels::avx512_bf16 {
namespace {

using avx512::Lanes;

constexpr std::int64_t kLineBytes = kInt4Columns / 2;
constexpr std::int64_t kLanes = 16;
constexpr float kAdded = 136;  // 128 by the bits, 8 by the meaning of q

/// Lane d: byte d of k in the lower half, of k + 1 in the upper one.
[[gnu::always_inline]] inline __m512i pairs_of(const std::uint8_t* line) {
  const __m512i first = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line)));
  const __m512i second = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(line + kLineBytes)));
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

/// The lower four bits of each half as the bf16 128 + q: between 128 and 256 its last bit counts one.
[[gnu::always_inline]] inline __m512bh numbers_of(__m512i halves) {
  const __m512i mask = _mm512_set1_epi32(0x000f000f);
  const __m512i one_hundred_twenty_eight = _mm512_set1_epi32(0x43004300);
  return (__m512bh)_mm512_ternarylogic_epi32(halves, mask, one_hundred_twenty_eight, 0xea);  // (a & b) | c
}

/// Two numbers of A, in all lanes.
[[gnu::always_inline]] inline __m512bh pair_of_a(const std::uint16_t* a) {
  std::int32_t both;
  __builtin_memcpy(&both, a, 4);
  return (__m512bh)_mm512_set1_epi32(both);
}

struct ScaleAndZero {
  __m512 scale;
  __m512 zero;
};

/// Of 16 columns.
[[gnu::always_inline]] inline ScaleAndZero scale_and_zero(const std::uint16_t* pairs) {
  const __m512i both = Lanes::load(pairs);
  return {_mm512_castsi512_ps(Lanes::shift_left_16(both)), _mm512_castsi512_ps(Lanes::upper_half(both))};
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
    __m512bh numbers[2 * H];
#pragma GCC unroll 2
    for (int h = 0; h < H; ++h) {
      const __m512i both = pairs_of(lines + i * kLineBytes + (half + h) * kLanes);
      numbers[2 * h] = numbers_of(both);
      numbers[2 * h + 1] = numbers_of(_mm512_srli_epi32(both, 4));
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
    const ScaleAndZero of = scale_and_zero(pairs + 2 * column);
    const __m512 rest = _mm512_fnmadd_ps(_mm512_set1_ps(kAdded), of.scale, of.zero);
    for (int r = 0; r < R; ++r) {
      const __m512 before = _mm512_load_ps(total[r] + column);
      _mm512_store_ps(total[r] + column, _mm512_fmadd_ps(of.scale, sum[r][v], _mm512_fmadd_ps(rest, _mm512_set1_ps(sums[r]), before)));
    }
  }
}

template <int R>
void dot(const LinearInt4Args& args, std::int64_t block, std::int64_t row, const float* group_sums) {
  alignas(64) float total[R][kInt4Columns] = {};
  const std::int64_t groups = args.k / args.group;
  const std::uint8_t* lines = args.b + block * args.k * kLineBytes;
  for (std::int64_t g = 0; g < groups; ++g, lines += args.group * kLineBytes) {
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
  const std::uint8_t* lines = args.b + block * args.k * kLineBytes;
  const __m512i mask = _mm512_set1_epi32(0x000f);
  for (std::int64_t half = 0; half < 2; ++half) {
    for (std::int64_t g = 0; g < args.k / args.group; ++g) {
      const ScaleAndZero of = scale_and_zero(args.scales_and_zeros + (g * args.n + panel * kPanelColumns + half * kTileColumns) * 2);
      const __m512 rest = _mm512_fnmadd_ps(_mm512_set1_ps(8), of.scale, of.zero);
      for (std::int64_t i = g * args.group; i < (g + 1) * args.group; i += 2) {
        const __m512i both = _mm512_srl_epi32(pairs_of(lines + i * kLineBytes + half * kLanes), _mm_cvtsi32_si128(shift));
        const __m512 first = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_and_si512(both, mask)), of.scale, rest);
        const __m512 second = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(both, 16), mask)), of.scale, rest);
        const __m512i low = Lanes::shift_right_16(Lanes::rounded(_mm512_castps_si512(first)));
        Lanes::store(to + packed_offset(i, half * kTileColumns), Lanes::halves(low, Lanes::rounded(_mm512_castps_si512(second))));
      }
    }
  }
}

}  // namespace ipexrun::kernels::avx512_bf16
