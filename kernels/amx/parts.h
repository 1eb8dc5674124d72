// fp32 numbers as three bf16 ones that add up to them, for tiles. Internal linkage, see dispatch.h.
//
// Each part is what is left, rounded to the nearest bf16 (ties away from zero): 8 bits, 8 of the 16 behind them and the last 7. Nothing is
// lost, but where a part would be smaller than the least normal number, which tiles take as zero, and so they take sums. So rows of A and
// columns of B, a block of K of them at a time, are multiplied by parts only where their largest number is within bounds (or all are
// zero): what is lost then is below 2^-30 of the product of the two largest, and no sum overflows on the way. A number that is not finite
// is outside.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/packed.h"

namespace ipexrun::kernels::amx {
namespace {

constexpr std::int64_t kParts = 3;
/// Of the bits of a number without its sign, twice: 2^`exponent`.
constexpr std::uint32_t bound_of(int exponent) { return static_cast<std::uint32_t>(127 + exponent) << 24; }
constexpr std::uint32_t kLeastOfA = bound_of(-60);
constexpr std::uint32_t kLeastOfB = bound_of(-36);
constexpr std::uint32_t kMost = bound_of(50);

struct Rounded {
  __m512 to;    ///< bf16, as fp32
  __m512 left;  ///< exactly
};

[[gnu::always_inline]] inline Rounded rounded(__m512 x) {
  const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
  const __m512 to = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  return {to, _mm512_sub_ps(x, to)};
}

/// 16 pairs (first[i], second[i]) of numbers that are bf16.
[[gnu::always_inline]] inline __m512i pairs_of(__m512 first, __m512 second) {
  return _mm512_mask_mov_epi16(_mm512_srli_epi32(_mm512_castps_si512(first), 16), 0xaaaaaaaau, _mm512_castps_si512(second));
}

/// 16 pairs of fp32 numbers as three lines of a tile, `part_bytes` apart. `largest` holds the largest numbers so far, as bounds do.
[[gnu::always_inline]] inline void split_pairs(__m512 first, __m512 second, char* to, std::int64_t part_bytes, __m512i* largest) {
  const __m512i one = _mm512_castps_si512(first);
  const __m512i two = _mm512_castps_si512(second);
  *largest = _mm512_max_epu32(*largest, _mm512_max_epu32(_mm512_add_epi32(one, one), _mm512_add_epi32(two, two)));
  const Rounded high_one = rounded(first);
  const Rounded high_two = rounded(second);
  _mm512_store_si512(to, pairs_of(high_one.to, high_two.to));
  const Rounded middle_one = rounded(high_one.left);
  const Rounded middle_two = rounded(high_two.left);
  _mm512_store_si512(to + part_bytes, pairs_of(middle_one.to, middle_two.to));
  _mm512_store_si512(to + 2 * part_bytes, pairs_of(middle_one.left, middle_two.left));
}

/// Whether all are zero or within bounds.
[[gnu::always_inline]] inline bool are_within(__m512i largest, std::uint32_t least) {
  const __mmask16 small = _mm512_cmplt_epu32_mask(largest, _mm512_set1_epi32(static_cast<int>(least)));
  const __mmask16 zero = _mm512_testn_epi32_mask(largest, largest);
  const __mmask16 large = _mm512_cmpgt_epu32_mask(largest, _mm512_set1_epi32(static_cast<int>(kMost)));
  return static_cast<__mmask16>((small & ~zero) | large) == 0;
}

inline bool is_within(std::uint32_t largest, std::uint32_t least) { return largest == 0 || (largest >= least && largest <= kMost); }

}  // namespace
}  // namespace ipexrun::kernels::amx
