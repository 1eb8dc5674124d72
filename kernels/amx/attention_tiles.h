// K and V as tiles of pairs, and the product of blocks that they enter. Include after attention_load.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/amx/tile.h"

namespace ipexrun::kernels::amx {
namespace {

constexpr std::int64_t kTileBytes = 1024;
constexpr std::int64_t kPair = 2 * kTileBytes;  ///< two tiles beside each other: 32 keys or 32 columns of V
constexpr std::int64_t kStep = 32;              ///< of a sum, that one tile holds

constexpr std::int64_t steps_of(std::int64_t n) { return (n + kStep - 1) / kStep; }

/// kStep elements of a row from element i on; past `valid` zeros.
[[gnu::always_inline]] inline __m512i load_step(const std::uint16_t* row, std::int64_t i, std::int64_t valid) {
  const std::int64_t left = valid - i;
  if (left >= kStep) return _mm512_loadu_si512(row + i);
  return left <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(_bzhi_u32(~0u, static_cast<unsigned>(left)), row + i);
}

/// The same of fp32, rounded to bf16.
[[gnu::always_inline]] inline __m512i load_step(const float* row, std::int64_t i, std::int64_t valid) {
  const std::int64_t left = valid - i;
  const unsigned keep = left >= kStep ? ~0u : left <= 0 ? 0 : _bzhi_u32(~0u, static_cast<unsigned>(left));
  const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(keep), row + i);
  const __m512 second = _mm512_maskz_loadu_ps(static_cast<__mmask16>(keep >> 16), row + i + kLanes);
  return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

/// What the rounding of fp32 to bf16 leaves, as a row of its own: 0 where the rounded number is not finite.
struct Rest {
  const float* at;
  [[nodiscard]] Rest operator+(std::int64_t i) const { return {at + i}; }
};

[[gnu::always_inline]] inline __m512 rest_of(__m512 value, __m256i rounded) {
  const __m512 taken = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
  const auto finite = static_cast<__mmask16>(~_mm512_fpclass_ps_mask(taken, 0x99));  // both NaN, both infinities
  return _mm512_maskz_sub_ps(finite, value, taken);
}

[[gnu::always_inline]] inline __m512i load_step(Rest row, std::int64_t i, std::int64_t valid) {
  const std::int64_t left = valid - i;
  const unsigned keep = left >= kStep ? ~0u : left <= 0 ? 0 : _bzhi_u32(~0u, static_cast<unsigned>(left));
  const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(keep), row.at + i);
  const __m512 second = _mm512_maskz_loadu_ps(static_cast<__mmask16>(keep >> 16), row.at + i + kLanes);
  const auto rounded = (__m512i)_mm512_cvtne2ps_pbh(second, first);
  return (__m512i)_mm512_cvtne2ps_pbh(rest_of(second, _mm512_extracti64x4_epi64(rounded, 1)),
                                      rest_of(first, _mm512_castsi512_si256(rounded)));
}

/// `keys` rows of K, whole pairs of tiles.
template <typename From>
void pack_k(From from, std::int64_t stride, std::int64_t keys, std::int64_t depth, char* to) {
  const std::int64_t steps = steps_of(depth);
  for (std::int64_t key = 0; key < keys; key += kStep) {
    for (std::int64_t s = 0; s < steps; ++s) {
      for (std::int64_t half = 0; half < 2; ++half) {
        Lanes::Vector lines[kLanes];
        const std::int64_t first = key + half * kLanes;
        if (first + kLanes <= keys && (s + 1) * kStep <= depth) {
          for (std::int64_t i = 0; i < kLanes; ++i) lines[i] = load_step(from + (first + i) * stride, s * kStep, (s + 1) * kStep);
        } else {
          for (std::int64_t i = 0; i < kLanes; ++i) {
            lines[i] = first + i < keys ? load_step(from + (first + i) * stride, s * kStep, depth) : Lanes::zero();
          }
        }
        Lanes::transpose(lines);
        for (std::int64_t i = 0; i < kLanes; ++i) _mm512_store_si512(to + half * kTileBytes + i * 64, lines[i]);
      }
      to += kPair;
    }
  }
}

/// `keys` rows of V, whole pairs of tiles; `panel_bytes` from one panel of 32 columns to the next.
template <typename From>
void pack_v(From from, std::int64_t stride, std::int64_t keys, std::int64_t depth, std::int64_t panel_bytes, char* to) {
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);  // so that the two unpackings give columns 0-15 and 16-31
  const std::int64_t panels = steps_of(depth);
  for (std::int64_t key = 0; key < steps_of(keys) * kStep; key += 2) {
    const From row = from + key * stride;
    char* line = to + key / kStep * kPair + key % kStep / 2 * 64;
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const __m512i even = key < keys ? _mm512_permutexvar_epi64(order, load_step(row, panel * kStep, depth)) : Lanes::zero();
      const __m512i odd = key + 1 < keys ? _mm512_permutexvar_epi64(order, load_step(row + stride, panel * kStep, depth)) : Lanes::zero();
      _mm512_store_si512(line + panel * panel_bytes, _mm512_unpacklo_epi16(even, odd));
      _mm512_store_si512(line + panel * panel_bytes + kTileBytes, _mm512_unpackhi_epi16(even, odd));
    }
  }
}

/// Tiles of 16 rows: how far the lines of one, the next step and the lower rows are apart, in bytes.
struct Rows {
  const char* at;
  std::int64_t line;
  std::int64_t step;
  std::int64_t down;
};

/// C [16 or 32 rows, 32 columns] = A B or C + A B, one half of the columns after the other in few registers (tile.h); `line` are C's bytes
/// a row.
[[gnu::always_inline]] inline void multiply(const Rows& a, bool lower, const char* b, std::int64_t steps, char* c, std::int64_t line,
                                            bool add) {
  for (std::int64_t half = 0; half < 2; ++half, c += 64, b += kTileBytes) {
    char* const down = c + 16 * line;
    if (add) {
      tile_load<0>(c, line);
      if (lower) tile_load<1>(down, line);
    } else {
      tile_zero<0>();
      tile_zero<1>();
    }
    const char* at = a.at;
    const char* columns = b;
    if (lower) {
      for (std::int64_t s = 0; s < steps; ++s, at += a.step, columns += kPair) {
        tile_load<6>(columns, 64);
        tile_load<4>(at, a.line);
        tile_multiply<0, 4, 6>();
        tile_load<4>(at + a.down, a.line);
        tile_multiply<1, 4, 6>();
      }
    } else {
      for (std::int64_t s = 0; s < steps; ++s, at += a.step, columns += kPair) {
        tile_load<4>(at, a.line);
        tile_load<6>(columns, 64);
        tile_multiply<0, 4, 6>();
      }
    }
    tile_store<0>(c, line);
    if (lower) tile_store<1>(down, line);
  }
}

inline void configure_whole_tiles() { tile_configure(whole_tiles()); }

}  // namespace
}  // namespace ipexrun::kernels::amx
