// Products of few rows with a B that lies as it came, for batched, and what surrounds the others; compiled for avx2 and avx512.
//
// rows(): R rows x V vectors of columns in registers for the whole of K. dots(): as many columns at once as a vector has lanes, each with a
// vector of partial sums over the lanes of K; a transpose and additions in a fixed order then give the vector of results.
#include "kernels/simd/batched.h"

#include "kernels/bf16.h"
#include "kernels/packed.h"
#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

using Vector = Floats::Vector;
constexpr std::int64_t kLanes = Lanes::kCount;

template <DType kType>
struct InOrder : InOrderF32 {};
template <>
struct InOrder<DType::kBf16> : InOrderBf16 {};

template <typename In>
[[gnu::always_inline]] inline Vector load_some(const typename In::Element* from, std::int64_t n) {
  return n >= kLanes ? In::load(from) : In::load_part(from, n);
}

/// `n` of what is added, from (row, column) on, times beta.
[[gnu::always_inline]] inline Vector added(const BatchedPlace& to, std::int64_t row, std::int64_t column, std::int64_t n, Vector sums) {
  const std::int64_t first = row * to.c_row + column * to.c_column;
  const auto* singles = reinterpret_cast<const float*>(to.c) + first;
  const auto* halves = reinterpret_cast<const std::uint16_t*>(to.c) + first;
  const bool wide = to.c_dtype == DType::kF32;
  Vector c;
  if (to.c_column == 1) {
    c = wide ? load_some<InOrderF32>(singles, n) : load_some<InOrderBf16>(halves, n);
  } else {
    float numbers[kLanes] = {};
    for (std::int64_t i = 0; i < kLanes && i < n; ++i) {
      numbers[i] = wide ? singles[i * to.c_column] : bf16_to_f32(halves[i * to.c_column]);
    }
    c = Floats::of_bits(Lanes::load(numbers));
  }
  return Floats::fma(Floats::all(to.beta), c, sums);
}

/// Up to a vector of sums to row `row`, from `column` on.
[[gnu::always_inline]] inline void put(const BatchedPlace& to, std::int64_t row, std::int64_t column, std::int64_t n, Vector sums) {
  Vector value = Floats::multiply(Floats::all(to.alpha), sums);
  if (to.c != nullptr) value = added(to, row, column, n, value);
  const std::int64_t at = row * to.ldo + column;
  if (to.out_dtype == DType::kF32) {
    float* out = reinterpret_cast<float*>(to.out) + at;
    n >= kLanes ? InOrderF32::store(out, value) : InOrderF32::store_part(out, value, n);
  } else {
    auto* out = reinterpret_cast<std::uint16_t*>(to.out) + at;
    n >= kLanes ? InOrderBf16::store(out, value) : InOrderBf16::store_part(out, value, n);
  }
}

/// R rows from `row` on x V vectors from `column` on, the last of `last` columns.
template <DType kType, int R, int V, bool kPart>
void multiply(const BatchedRows& args, std::int64_t row, std::int64_t column, std::int64_t last) {
  using In = InOrder<kType>;
  Vector sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v] = Floats::all(0.0f);
  }
  const float* a = args.a + row * args.lda;
  const auto* b = static_cast<const typename In::Element*>(args.b) + column;
  for (std::int64_t k = 0; k < args.k; ++k, ++a, b += args.ldb) {
    Vector operands[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) operands[v] = kPart && v + 1 == V ? In::load_part(b + v * kLanes, last) : In::load(b + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vector one = Floats::all(a[r * args.lda]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = Floats::fma(one, operands[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) put(args.to, row + r, column + v * kLanes, v + 1 == V ? last : kLanes, sums[r][v]);
  }
}

template <DType kType, int R, int V>
void columns_of(const BatchedRows& args, std::int64_t row, std::int64_t column, std::int64_t last) {
  last < kLanes ? multiply<kType, R, V, true>(args, row, column, last) : multiply<kType, R, V, false>(args, row, column, last);
}

#if defined(IPEXRUN_KERNEL_ISA_AVX512)
constexpr int kVectorsMost[] = {8, 8, 4, 4, 4, 4, 2, 2};  // by rows - 1: sums and operands fit into 32 registers
#else
constexpr int kVectorsMost[] = {4, 4, 2, 2};
#endif
constexpr std::int64_t kRowsMost = sizeof(kVectorsMost) / sizeof(kVectorsMost[0]);

template <DType kType, int R>
void rows_of(const BatchedRows& args, std::int64_t row) {
  constexpr int kMost = kVectorsMost[R - 1];
  for (std::int64_t column = 0; column < args.columns;) {
    const std::int64_t left = args.columns - column;
    const std::int64_t vectors = ceil_div(left, kLanes);
    if (kMost >= 8 && vectors >= 8) {
      columns_of<kType, R, kMost >= 8 ? 8 : 1>(args, row, column, left - 7 * kLanes);
      column += 8 * kLanes;
    } else if (kMost >= 4 && vectors >= 4) {
      columns_of<kType, R, kMost >= 4 ? 4 : 1>(args, row, column, left - 3 * kLanes);
      column += 4 * kLanes;
    } else if (vectors >= 2) {
      columns_of<kType, R, 2>(args, row, column, left - kLanes);
      column += 2 * kLanes;
    } else {
      columns_of<kType, R, 1>(args, row, column, left);
      column += kLanes;
    }
  }
}

template <DType kType>
void all_rows(const BatchedRows& args) {
  std::int64_t row = 0;
#if defined(IPEXRUN_KERNEL_ISA_AVX512)
  for (; row + 8 <= args.rows; row += 8) rows_of<kType, 8>(args, row);
#endif
  for (; row + 4 <= args.rows; row += 4) rows_of<kType, 4>(args, row);
  if (args.rows - row == 3) {
    rows_of<kType, 3>(args, row);
  } else if (args.rows - row == 2) {
    rows_of<kType, 2>(args, row);
  } else if (args.rows > row) {
    rows_of<kType, 1>(args, row);
  }
}

/// The sum over the lanes of each vector, in lanes.
[[gnu::always_inline]] inline Vector across(Vector (&sums)[kLanes]) {
  Lanes::Vector bits[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) bits[i] = Floats::bits_of(sums[i]);
  Lanes::transpose(bits);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) sums[i] = Floats::of_bits(bits[i]);
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) sums[i] = Floats::add(sums[i], sums[i + half]);
  }
  return sums[0];
}

template <DType kType>
void all_dots(const BatchedRows& args) {
  using In = InOrder<kType>;
  const auto* b = static_cast<const typename In::Element*>(args.b);
  const std::int64_t whole = args.k / kLanes * kLanes;
  const std::int64_t rest = args.k - whole;
  for (std::int64_t column = 0; column < args.columns; column += kLanes, b += kLanes * args.ldb) {
    const std::int64_t n = args.columns - column;
    const typename In::Element* at[kLanes];  // columns past the last are the last once more
    for (std::int64_t i = 0; i < kLanes; ++i) at[i] = b + (i < n ? i : n - 1) * args.ldb;
    for (std::int64_t row = 0; row < args.rows; ++row) {
      const float* a = args.a + row * args.lda;
      Vector sums[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) sums[i] = Floats::all(0.0f);
      for (std::int64_t k = 0; k < whole; k += kLanes) {
        const Vector values = InOrderF32::load(a + k);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) sums[i] = Floats::fma(values, In::load(at[i] + k), sums[i]);
      }
      if (rest != 0) {
        const Vector values = InOrderF32::load_part(a + whole, rest);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) sums[i] = Floats::fma(values, In::load_part(at[i] + whole, rest), sums[i]);
      }
      put(args.to, row, column, n < kLanes ? n : kLanes, across(sums));
    }
  }
}

}  // namespace

void batched_rows(const BatchedRows& args) { args.b_dtype == DType::kF32 ? all_rows<DType::kF32>(args) : all_rows<DType::kBf16>(args); }

void batched_dots(const BatchedRows& args) { args.b_dtype == DType::kF32 ? all_dots<DType::kF32>(args) : all_dots<DType::kBf16>(args); }

void batched_widen(const void* from, DType dtype, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* to,
                   std::int64_t ld) {
  for (std::int64_t row = 0; row < rows; ++row, to += ld) {
    if (dtype == DType::kF32) {
      const float* values = static_cast<const float*>(from) + row * stride;
      __builtin_memcpy(to, values, static_cast<std::size_t>(columns) * 4);
      continue;
    }
    const auto* values = static_cast<const std::uint16_t*>(from) + row * stride;
    std::int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) InOrderF32::store(to + i, InOrderBf16::load(values + i));
    if (i < columns) InOrderF32::store_part(to + i, InOrderBf16::load_part(values + i, columns - i), columns - i);
  }
}

void batched_finish(const float* sums, std::int64_t ld, std::int64_t rows, std::int64_t columns, const BatchedPlace& to) {
  for (std::int64_t row = 0; row < rows; ++row, sums += ld) {
    std::int64_t i = 0;
    for (; i + kLanes <= columns; i += kLanes) put(to, row, i, kLanes, InOrderF32::load(sums + i));
    if (i < columns) put(to, row, i, columns - i, InOrderF32::load_part(sums + i, columns - i));
  }
}

}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
