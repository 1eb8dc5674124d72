// linear: C[M,N] = A[M,K] * B[K,N] (+ bias[N]), and what may follow (epilogue.h), with B packed once to bf16 and fp32 accumulation.
//
// A and C are fp32 or bf16, row-major with a leading dimension. Method: cache-blocked GEMM over AMX tiles (TDPBF16PS),
// AVX512-BF16 dot products or a portable loop, chosen at run time by isa_of_process(); the truth is ref/linear.cpp.
// Thread rule: all functions may be called concurrently; a PackedB is immutable after pack_b().
#pragma once

#include <cstddef>
#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/epilogue.h"
#include "kernels/parallel.h"
#include "kernels/windows.h"

namespace ipexrun::kernels {

/// Where element (k, n) of B lies: data[k * stride_k + n * stride_n], in elements. A torch weight w[N,K] used as w.t() has
/// stride_k = 1 and stride_n = K.
struct MatrixB {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t k = 0;
  std::int64_t n = 0;
  std::int64_t stride_k = 1;
  std::int64_t stride_n = 0;
};

/// Bytes that pack_b writes for a K x N matrix, a multiple of 64; 0 when the shape is not supported.
std::size_t packed_b_bytes(std::int64_t k, std::int64_t n);

/// Packs B, rounding fp32 to bf16 to nearest even, into `to` (64-byte aligned, packed_b_bytes long). NaN stays NaN, denormals are kept:
/// the same bits with any `isa`. Fast where the rows or the columns of B are adjacent.
void pack_b(const MatrixB& b, void* to, const Parallel& parallel, IsaSet isa);

struct LinearArgs {
  const void* a = nullptr;  ///< [M, K]; with `windows`, the first pixel of the first image
  DType a_dtype = DType::kF32;
  std::int64_t lda = 0;  ///< elements between rows of A, >= K
  const void* packed_b = nullptr;
  const void* bias = nullptr;  ///< [N], null = none
  DType bias_dtype = DType::kF32;
  void* c = nullptr;  ///< [M, N], must not overlap the inputs but as epilogue.h says
  DType c_dtype = DType::kF32;
  std::int64_t ldc = 0;  ///< elements between rows of C, >= N
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Epilogue epilogue;
  const ImageWindows* windows = nullptr;  ///< K is what they have, and lda counts for nothing; not by AMX, for which conv.h is
};

/// True when linear_bf16() has a variant for these shapes on `isa` that is worth offering: where A is fp32, one that multiplies bf16
/// natively; where A is bf16, any but the reference, since others have to widen it as well.
bool linear_bf16_supported(const LinearArgs& args, IsaSet isa);

/// Computes C. Uses at most `isa`; falls back to slower variants down to the reference, so it is always right. Allocates scratch
/// per thread (thread-local, bounded); on failure to allocate returns false and C is undefined.
bool linear_bf16(const LinearArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that linear_bf16() would use: "amx_bf16", "avx512_bf16", "avx512", "avx2", "ref".
const char* linear_bf16_variant(const LinearArgs& args, IsaSet isa);

}  // namespace ipexrun::kernels
