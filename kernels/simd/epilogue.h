// The epilogue of a product, for parts of rows of sums.
#pragma once

#include "kernels/epilogue.h"
#include "kernels/simd/activation_kinds.h"
#include "kernels/simd/in_order.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

struct Identity {
  [[gnu::always_inline]] static Floats::Vector run(Floats::Vector x) { return x; }
};

struct Relu {
  [[gnu::always_inline]] static Floats::Vector run(Floats::Vector x) { return Floats::at_least(Floats::all(0.0f), x); }
};

/// run.operator()<Kind>() with the function that `unary` names.
template <typename Run>
[[gnu::always_inline]] inline void with_unary(Unary unary, const Run& run) {
  if (unary == Unary::kNone) return run.template operator()<Identity>();
  if (unary == Unary::kRelu) return run.template operator()<Relu>();
  with_kind(activation_of(unary), run);
}

[[gnu::always_inline]] inline Floats::Vector combine(Binary binary, Floats::Vector x, Floats::Vector other) {
  return binary == Binary::kAdd ? Floats::add(x, other) : Floats::multiply(x, other);
}

[[gnu::always_inline]] inline Floats::Vector load_other(const Epilogue& epilogue, std::int64_t at, std::int64_t n) {
  const bool whole = n >= Lanes::kCount;
  if (epilogue.other_dtype == DType::kF32) {
    const float* from = static_cast<const float*>(epilogue.other) + at;
    return whole ? InOrderF32::load(from) : InOrderF32::load_part(from, n);
  }
  const std::uint16_t* from = static_cast<const std::uint16_t*>(epilogue.other) + at;
  return whole ? InOrderBf16::load(from) : InOrderBf16::load_part(from, n);
}

/// `n` sums of each of `rows` rows, from `column` on: from `values`, whose rows are `stride` apart and have room for whole vectors, to
/// `to`, which may be the same place. Not inlined: products come between calls, and their loop is better off with its registers.
[[gnu::noinline]] inline void finish_rows_to(const Epilogue& epilogue, std::int64_t row, std::int64_t rows, std::int64_t column,
                                             std::int64_t n, const float* values, std::int64_t stride, float* to, std::int64_t to_stride) {
  with_unary(epilogue.unary, [&]<typename Kind>() {
    for (std::int64_t r = 0; r < rows; ++r, values += stride, to += to_stride) {
      const std::int64_t at = (row + r) * epilogue.ld_other + column;
      for (std::int64_t i = 0; i < n; i += Lanes::kCount) {
        Floats::Vector x = InOrderF32::load(values + i);
        if (epilogue.binary == Binary::kNone) {
          x = Kind::run(x);
        } else {
          const Floats::Vector other = load_other(epilogue, at + i, n - i);
          x = epilogue.binary_first ? Kind::run(combine(epilogue.binary, x, other)) : combine(epilogue.binary, Kind::run(x), other);
        }
        if (n - i >= Lanes::kCount) {
          InOrderF32::store(to + i, x);
        } else {
          InOrderF32::store_part(to + i, x, n - i);
        }
      }
    }
  });
}

/// In place.
inline void finish_rows(const Epilogue& epilogue, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t n, float* values,
                        std::int64_t stride) {
  finish_rows_to(epilogue, row, rows, column, n, values, stride, values, stride);
}

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
