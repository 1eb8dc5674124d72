// transpose with conversion, in registers; compiled once per instruction set, with IPEXRUN_KERNEL_ISA naming the namespace.
//
// The unit is a square transpose of L x L 32-bit lanes (L = 8 or 16). bf16 go through it in pairs: as a target, two rows are
// interleaved before it (a lane = two rows of one column), as a source, a lane is two columns of one row and is split after it or,
// from bf16 to bf16, regrouped before it. So every load and store of a whole block is a full vector.
#include "kernels/simd/reorder.h"

#include "kernels/bf16.h"
#include "kernels/packed.h"

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
#include "kernels/simd/lanes_avx512.h"
#else
#include "kernels/simd/lanes_avx2.h"
#endif

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Lanes::Vector;
constexpr int kLanes = Lanes::kCount;

/// One block: `rows` x `columns` elements, at most kRows x kColumns of its kind; strides in bytes.
struct Block {
  const char* from;
  std::int64_t from_stride;
  char* to;
  std::int64_t to_stride;
  std::int64_t rows;
  std::int64_t columns;
  Lanes::Part row;     ///< as much of a vector as a row of the source is
  Lanes::Part column;  ///< ... a column of the target
};

template <bool Whole>
[[gnu::always_inline]] inline Vector load_row(const Block& block, int r) {
  const char* from = block.from + r * block.from_stride;
  if constexpr (Whole) return Lanes::load(from);
  return r < block.rows ? Lanes::load_part(from, block.row) : Lanes::zero();
}

template <bool Whole>
[[gnu::always_inline]] inline void store_column(const Block& block, int c, Vector value) {
  char* to = block.to + c * block.to_stride;
  if constexpr (Whole) {
    Lanes::store(to, value);
  } else if (c < block.columns) {
    Lanes::store_part(to, value, block.column);
  }
}

struct F32ToF32 {
  static constexpr int kFromSize = 4;
  static constexpr int kToSize = 4;
  static constexpr int kRows = kLanes;
  static constexpr int kColumns = kLanes;

  template <bool Whole>
  static void run(const Block& block) {
    Vector v[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = load_row<Whole>(block, i);
    Lanes::transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store_column<Whole>(block, i, v[i]);
  }
};

struct F32ToBf16 {
  static constexpr int kFromSize = 4;
  static constexpr int kToSize = 2;
  static constexpr int kRows = 2 * kLanes;
  static constexpr int kColumns = kLanes;

  template <bool Whole>
  static void run(const Block& block) {
    Vector v[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (!Whole && 2 * i >= block.rows) {
        v[i] = Lanes::zero();
        continue;
      }
      const Vector low = Lanes::rounded(load_row<Whole>(block, 2 * i));
      const Vector high = Lanes::rounded(load_row<Whole>(block, 2 * i + 1));
      v[i] = Lanes::halves(Lanes::shift_right_16(low), high);
    }
    Lanes::transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store_column<Whole>(block, i, v[i]);
  }
};

struct Bf16ToF32 {
  static constexpr int kFromSize = 2;
  static constexpr int kToSize = 4;
  static constexpr int kRows = kLanes;
  static constexpr int kColumns = 2 * kLanes;

  template <bool Whole>
  static void run(const Block& block) {
    Vector v[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) v[i] = load_row<Whole>(block, i);
    Lanes::transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      store_column<Whole>(block, 2 * i, Lanes::shift_left_16(v[i]));
      store_column<Whole>(block, 2 * i + 1, Lanes::upper_half(v[i]));
    }
  }
};

struct Bf16ToBf16 {
  static constexpr int kFromSize = 2;
  static constexpr int kToSize = 2;
  static constexpr int kRows = 2 * kLanes;
  static constexpr int kColumns = 2 * kLanes;

  template <bool Whole>
  static void run(const Block& block) {
    Vector even[kLanes];
    Vector odd[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (!Whole && 2 * i >= block.rows) {
        even[i] = odd[i] = Lanes::zero();
        continue;
      }
      const Vector low = load_row<Whole>(block, 2 * i);
      const Vector high = load_row<Whole>(block, 2 * i + 1);
      even[i] = Lanes::halves(low, Lanes::shift_left_16(high));
      odd[i] = Lanes::halves(Lanes::shift_right_16(low), high);
    }
    Lanes::transpose(even);
    Lanes::transpose(odd);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      store_column<Whole>(block, 2 * i, even[i]);
      store_column<Whole>(block, 2 * i + 1, odd[i]);
    }
  }
};

/// Block `i` of those that cover `size` begins here: the last one ends with the matrix, overlapping the one before it, so that it is
/// whole too.
inline std::int64_t block_begin(std::int64_t i, std::int64_t step, std::int64_t size) {
  return size > step && size - i * step < step ? size - step : i * step;
}

/// Along the pixels of the source, which the prefetcher follows; or, with Down, along each column of the target.
template <typename Kind, bool Down>
void run_blocks(const TransposeBlock& all) {
  constexpr std::int64_t kBlocksInLine = 64 / (Kind::kRows * Kind::kToSize);  ///< that fill one cache line of the target
  const std::int64_t from_stride = all.from_stride * Kind::kFromSize;
  const std::int64_t to_stride = all.to_stride * Kind::kToSize;
  const std::int64_t rows = all.rows < Kind::kRows ? all.rows : Kind::kRows;
  const std::int64_t columns = all.columns < Kind::kColumns ? all.columns : Kind::kColumns;
  const Lanes::Part row_part = Lanes::part(columns * Kind::kFromSize);
  const Lanes::Part column_part = Lanes::part(rows * Kind::kToSize);
  const std::int64_t down = ceil_div(all.rows, Kind::kRows);
  const std::int64_t across = ceil_div(all.columns, Kind::kColumns);
  const std::int64_t step = Down ? down : kBlocksInLine;
  for (std::int64_t line = 0; line < down; line += step) {
    const std::int64_t end = down - line < step ? down : line + step;
    for (std::int64_t c = 0; c < across; ++c) {
      const std::int64_t column = block_begin(c, Kind::kColumns, all.columns);
      for (std::int64_t r = line; r < end; ++r) {
        const std::int64_t row = block_begin(r, Kind::kRows, all.rows);
        const Block block{static_cast<const char*>(all.from) + row * from_stride + column * Kind::kFromSize,
                          from_stride,
                          static_cast<char*>(all.to) + column * to_stride + row * Kind::kToSize,
                          to_stride,
                          rows,
                          columns,
                          row_part,
                          column_part};
        if (rows == Kind::kRows && columns == Kind::kColumns) {
          Kind::template run<true>(block);
        } else {
          Kind::template run<false>(block);
        }
      }
    }
  }
}

// Images of a few channels would leave most lanes of a square empty. With the number of channels known, the compiler's own vectorizer
// finds the shuffles (this file is compiled with -O3 for it).
constexpr std::int64_t kNarrow = 4;

template <typename To, typename From>
[[gnu::always_inline]] inline To converted(From value) {
  if constexpr (sizeof(To) == sizeof(From)) {
    return value;
  } else if constexpr (sizeof(To) == sizeof(float)) {
    return bf16_to_f32(value);
  } else {
    return bf16_from_f32(value);
  }
}

template <int N, typename From, typename To>
void interleave(const TransposeBlock& all) {
  const From* __restrict__ from = static_cast<const From*>(all.from);
  To* __restrict__ to = static_cast<To*>(all.to);
  for (std::int64_t i = 0; i < all.columns; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) to[i * N + n] = converted<To>(from[n * all.from_stride + i]);
  }
}

template <int N, typename From, typename To>
void separate(const TransposeBlock& all) {
  const From* __restrict__ from = static_cast<const From*>(all.from);
  To* __restrict__ to = static_cast<To*>(all.to);
  for (std::int64_t i = 0; i < all.rows; ++i) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) to[n * all.to_stride + i] = converted<To>(from[i * N + n]);
  }
}

template <typename From, typename To>
void run_narrow(const TransposeBlock& all) {
  using Run = void (*)(const TransposeBlock&);
  constexpr Run kInterleave[] = {interleave<1, From, To>, interleave<2, From, To>, interleave<3, From, To>, interleave<4, From, To>};
  constexpr Run kSeparate[] = {separate<1, From, To>, separate<2, From, To>, separate<3, From, To>, separate<4, From, To>};
  all.rows <= kNarrow&& all.to_stride == all.rows ? kInterleave[all.rows - 1](all) : kSeparate[all.columns - 1](all);
}

template <typename Kind, typename From, typename To>
void run(const TransposeBlock& all) {
  const bool rows_fill = all.rows <= kNarrow && all.to_stride == all.rows;
  const bool columns_fill = all.columns <= kNarrow && all.from_stride == all.columns;
  if (rows_fill || columns_fill) return run_narrow<From, To>(all);
  // Lines 4 KiB apart share a set of L1: columns so far apart are written one after the other. Measured, it pays for fp32 alone.
  const bool one_set = sizeof(To) == 4 && all.to_stride * static_cast<std::int64_t>(sizeof(To)) % 4096 == 0;
  one_set ? run_blocks<Kind, true>(all) : run_blocks<Kind, false>(all);
}

}  // namespace

void transpose(const TransposeBlock& block) {
  const bool to_f32 = block.to_dtype == DType::kF32;
  if (block.from_dtype == DType::kF32) {
    to_f32 ? run<F32ToF32, float, float>(block) : run<F32ToBf16, float, std::uint16_t>(block);
  } else {
    to_f32 ? run<Bf16ToF32, std::uint16_t, float>(block) : run<Bf16ToBf16, std::uint16_t, std::uint16_t>(block);
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
