// batched: out[b] = alpha * a[b] * b[b] + beta * c[b], products of a batch of matrices that lie as they come: nothing is packed before.
//
// fp32 or bf16 operands, any strides (a transposed operand, a matrix for the whole batch); fp32 sums in an order that depends on the
// shape and the instruction set alone, rounded once into `out`. Method, by shape: few rows and small matrices are multiplied where they
// lie by vector units; else B is packed into the thread's scratch, a part of its columns at a time, for the loops of linear (bf16) or
// linear_f32. The truth is ref/batched.cpp.
// Thread rule: may be called concurrently. Any alignment of whole elements will do.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// Element (row r, column j) of matrix i: data[i * batch + r * row + j * column], in elements. Strides may be 0 or negative.
struct BatchedMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t batch = 0;
  std::int64_t row = 0;
  std::int64_t column = 1;
};

struct BatchedArgs {
  BatchedMatrix a;  ///< [batch, M, K]
  BatchedMatrix b;  ///< [batch, K, N], of a's dtype
  BatchedMatrix c;  ///< [batch, M, N]; data null = none. Not read where beta is 0
  void* out = nullptr;
  DType out_dtype = DType::kF32;
  std::int64_t out_batch = 0;  ///< elements between matrices; no two elements of `out` are one, and none is one of the operands'
  std::int64_t ldo = 0;        ///< elements between rows, >= N; columns are adjacent
  std::int64_t batch = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  float alpha = 1;
  float beta = 1;
  /// fp32 operands may be rounded to bf16 (to nearest even) before they are multiplied.
  bool bf16_inside = false;
};

/// True when `isa` has a variant for these shapes that is worth offering: where it was measured to be faster than stock's.
bool batched_supported(const BatchedArgs& args, IsaSet isa);

/// Computes `out`. Uses at most `isa`; falls back to slower variants down to the reference, so it is always right. False when memory for
/// scratch was short; `out` is then undefined.
bool batched(const BatchedArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that batched() would use: "amx_bf16", "avx512_bf16", "avx512", "avx2", "ref".
const char* batched_variant(const BatchedArgs& args, IsaSet isa);

}  // namespace ipexrun::kernels
