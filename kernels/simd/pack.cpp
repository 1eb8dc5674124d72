// One panel of packed.h a vector at a time, where the rows or the columns of B are adjacent; compiled once per instruction set, with
// IPEXRUN_KERNEL_ISA naming the namespace. Bits are those of ref/pack.cpp.
//
// A tile is 16 lines of 16 words, a word two rows of K of one column. Columns adjacent: a line is two rows side by side. Rows adjacent:
// the words lie in memory as the transpose of the tile, which is taken in registers, L x L words at a time (L = 8 or 16).
#include "kernels/simd/pack.h"

#include "kernels/packed.h"

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/halves_avx512.h"
#else
#include "kernels/simd/halves_avx2.h"
#endif

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Lanes::Vector;
constexpr std::int64_t kLanes = Lanes::kCount;
constexpr std::int64_t kAheadRows = 16;  // two rows of K that far ahead are asked for: each is a stream too short to be noticed

constexpr std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

/// kLanes neighbours, the first n of them (the rest zero): the bits of bf16 in upper halves; what is below is left as it comes.
[[gnu::always_inline]] inline Vector load(const float* from, std::int64_t n) {
  return Lanes::rounded(n >= kLanes ? Lanes::load(from) : n > 0 ? Lanes::load_part(from, Lanes::part(n * 4)) : Lanes::zero());
}
[[gnu::always_inline]] inline Vector load(const std::uint16_t* from, std::int64_t n) {
  return n >= kLanes ? Halves::load(from) : n > 0 ? Halves::load_part(from, n) : Lanes::zero();
}

[[gnu::always_inline]] inline Vector pairs(Vector low, Vector high) { return Lanes::halves(Lanes::shift_right_16(low), high); }

/// 2 * kLanes neighbours, the first n of them, as words.
[[gnu::always_inline]] inline Vector words(const float* from, std::int64_t n) {
  Vector even = load(from, n);
  Vector odd = load(from + kLanes, n - kLanes);
  Lanes::split(even, odd);
  return pairs(even, odd);
}
[[gnu::always_inline]] inline Vector words(const std::uint16_t* from, std::int64_t n) {
  return n >= 2 * kLanes ? Lanes::load(from) : n > 0 ? Lanes::load_part(from, Lanes::part(n * 2)) : Lanes::zero();
}

/// kLanes columns of 2 * kLanes rows of K, of which `columns` and `depth` exist.
template <bool Whole, typename T>
[[gnu::always_inline]] inline void transpose(const T* from, std::int64_t stride, std::int64_t columns, std::int64_t depth,
                                             std::uint16_t* to) {
  Vector v[kLanes];
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kLanes; ++i) {
    if constexpr (Whole) {
      v[i] = words(from + i * stride, 2 * kLanes);
    } else {
      v[i] = i < columns ? words(from + i * stride, depth) : Lanes::zero();
    }
  }
  Lanes::transpose(v);
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < kLanes; ++i) Lanes::store(to + i * 2 * kTileColumns, v[i]);
}

template <typename T>
void pack_columns(const MatrixB& b, std::int64_t panel, std::uint16_t* to) {
  const std::int64_t first = panel * kPanelColumns;
  const T* data = static_cast<const T*>(b.data);
  for (std::int64_t k = 0; k < b.k; k += kStepK) {
    for (std::int64_t column = first; column < first + kPanelColumns; column += kTileColumns, to += kTileElements) {
      for (std::int64_t i = 0; i < kTileColumns; i += kLanes) {
        for (std::int64_t row = 0; row < kStepK; row += 2 * kLanes) {
          const std::int64_t columns = b.n - column - i;
          const std::int64_t depth = b.k - k - row;
          std::uint16_t* tile = to + row * kTileColumns + 2 * i;
          const T* from = columns > 0 && depth > 0 ? data + (column + i) * b.stride_n + k + row : data;
          if (columns >= kLanes && depth >= 2 * kLanes) {
            transpose<true>(from, b.stride_n, columns, depth, tile);
          } else {
            transpose<false>(from, b.stride_n, columns, depth, tile);
          }
        }
      }
    }
  }
}

template <typename T>
void pack_rows(const MatrixB& b, std::int64_t panel, std::uint16_t* to) {
  const std::int64_t first = panel * kPanelColumns;
  const std::int64_t columns = b.n - first;
  const T* row = static_cast<const T*>(b.data) + first;
  const std::int64_t bytes = least(columns, kPanelColumns) * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t k = 0; k < steps_of(b.k) * kStepK; k += 2, row += 2 * b.stride_k) {
    std::uint16_t* line = to + packed_offset(k, 0);
    if (k + kAheadRows + 1 < b.k) {
      const auto* ahead = reinterpret_cast<const char*>(row + kAheadRows * b.stride_k);
      const auto* below = reinterpret_cast<const char*>(row + (kAheadRows + 1) * b.stride_k);
      for (std::int64_t i = 0; i < bytes; i += 64) {
        _mm_prefetch(ahead + i, _MM_HINT_T0);
        _mm_prefetch(below + i, _MM_HINT_T0);
      }
    }
    for (std::int64_t i = 0; i < kPanelColumns; i += kLanes) {
      const Vector even = k < b.k && i < columns ? load(row + i, columns - i) : Lanes::zero();
      const Vector odd = k + 1 < b.k && i < columns ? load(row + b.stride_k + i, columns - i) : Lanes::zero();
      Lanes::store(line + packed_offset(0, i), pairs(even, odd));
    }
  }
}

}  // namespace

void pack_panel(const MatrixB& b, std::int64_t panel, std::uint16_t* to) {
  if (b.stride_k == 1) {
    b.dtype == DType::kF32 ? pack_columns<float>(b, panel, to) : pack_columns<std::uint16_t>(b, panel, to);
  } else {
    b.dtype == DType::kF32 ? pack_rows<float>(b, panel, to) : pack_rows<std::uint16_t>(b, panel, to);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
