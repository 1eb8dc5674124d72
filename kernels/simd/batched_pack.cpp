// B as panels of packed.h, for batched; compiled for avx512_bf16.
//
// Columns adjacent: two rows of K at a time, over all panels, so that memory is read along its rows. Rows adjacent: 16 columns x 32 rows of
// K become a tile by a transpose of 16 x 16 pairs. Elements past either end are not touched; what they would be is zero.
#include <immintrin.h>

#include "kernels/packed.h"
#include "kernels/simd/batched.h"
#include "kernels/simd/lanes_avx512.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using avx512::Lanes;

constexpr std::int64_t kTileBytes = kTileElements * 2;
constexpr std::int64_t kAheadRows = 8;

inline __mmask32 mask32(std::int64_t n) { return n >= 32 ? 0xffffffffu : n <= 0 ? 0u : (1u << n) - 1u; }
inline __mmask16 mask16(std::int64_t n) { return static_cast<__mmask16>(mask32(n >= 16 ? 16 : n)); }

/// 32 neighbours from element i on as bf16, the first n of them.
template <typename T>
[[gnu::always_inline]] inline __m512i load(const T* from, std::int64_t n) {
  if constexpr (sizeof(T) == 2) {
    return n >= 32 ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(mask32(n), from);
  } else {
    if (n >= 32) return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
    const __m512 low = _mm512_maskz_loadu_ps(mask16(n), from);
    return (__m512i)_mm512_cvtne2ps_pbh(n > 16 ? _mm512_maskz_loadu_ps(mask16(n - 16), from + 16) : _mm512_setzero_ps(), low);
  }
}

template <typename T>
void pack_rows(const BatchedPanels& args) {
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);  // so that the two unpackings give columns 0-15 and 16-31
  const std::int64_t steps = steps_of(args.k);
  const bool apart = args.row > args.columns;  // each row a stream of its own, too short for the processor to notice
  const T* row = reinterpret_cast<const T*>(args.b);
  for (std::int64_t k = 0; k < steps * kStepK; k += 2, row += 2 * args.row) {
    char* line = args.to + k / kStepK * kStepBytes + k % kStepK / 2 * 64;
    for (std::int64_t column = 0; column < args.columns; column += kPanelColumns, line += steps * kStepBytes) {
      const std::int64_t n = args.columns - column;
      __m512i even = _mm512_setzero_si512();
      __m512i odd = _mm512_setzero_si512();
      if (k < args.k) {
        even = load(row + column, n);
        if (k + 1 < args.k) odd = load(row + args.row + column, n);
        if (apart && k + kAheadRows + 1 < args.k) {
          const auto* ahead = reinterpret_cast<const char*>(row + kAheadRows * args.row + column);
          const auto* below = reinterpret_cast<const char*>(row + (kAheadRows + 1) * args.row + column);
          for (std::size_t i = 0; i < 32 * sizeof(T); i += 64) {
            _mm_prefetch(ahead + i, _MM_HINT_T0);
            _mm_prefetch(below + i, _MM_HINT_T0);
          }
        }
      }
      even = _mm512_permutexvar_epi64(order, even);
      odd = _mm512_permutexvar_epi64(order, odd);
      _mm512_store_si512(line, _mm512_unpacklo_epi16(even, odd));
      _mm512_store_si512(line + kTileBytes, _mm512_unpackhi_epi16(even, odd));
    }
  }
}

template <typename T>
void pack_columns(const BatchedPanels& args) {
  const std::int64_t steps = steps_of(args.k);
  const T* b = reinterpret_cast<const T*>(args.b);
  char* to = args.to;
  for (std::int64_t column = 0; column < args.columns; column += kPanelColumns, to += steps * kStepBytes) {
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t first = column + half * kTileColumns;
      for (std::int64_t k = 0; k < args.k; k += kStepK) {
        Lanes::Vector lines[16];
        if (first + kTileColumns <= args.columns && k + kStepK <= args.k) {
#pragma GCC unroll 16
          for (std::int64_t i = 0; i < 16; ++i) lines[i] = load(b + (first + i) * args.column + k, kStepK);
        } else {
          for (std::int64_t i = 0; i < 16; ++i) {
            lines[i] = first + i < args.columns ? load(b + (first + i) * args.column + k, args.k - k) : Lanes::zero();
          }
        }
        Lanes::transpose(lines);
        char* tile = to + k / kStepK * kStepBytes + half * kTileBytes;
#pragma GCC unroll 16
        for (std::int64_t i = 0; i < 16; ++i) _mm512_store_si512(tile + i * 64, lines[i]);
      }
    }
  }
}

}  // namespace

void batched_pack(const BatchedPanels& args) {
  if (args.column == 1) {
    args.dtype == DType::kF32 ? pack_rows<float>(args) : pack_rows<std::uint16_t>(args);
  } else {
    args.dtype == DType::kF32 ? pack_columns<float>(args) : pack_columns<std::uint16_t>(args);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
