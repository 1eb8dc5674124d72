// linear_int8: C[M,N] = (A[M,K] * B[N,K]^T) * scales[N], B of int8 as it lies in the program's memory: nothing is packed or kept.
//
// Few rows of A read B once, as dot products in fp32. Of up to 64 rows of bf16 AMX multiplies tiles that B is read into, as bf16, which
// holds every int8; where A has NaN, infinities or numbers of 2^26 and more that is left to dot products. More rows, and where AVX512-FP16
// is missing more than 4, unpack B to bf16 a part of the columns at a time and multiply by the variants of linear. The truth is
// ref/linear_int8.cpp.
// Thread rule: may be called concurrently.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

struct LinearInt8Args {
  const void* a = nullptr;  ///< [M, K]
  DType a_dtype = DType::kF32;
  std::int64_t lda = 0;            ///< elements between rows of A, >= K
  const std::int8_t* b = nullptr;  ///< [N, K]
  std::int64_t ldb = 0;            ///< elements between rows of B, >= K
  const void* scales = nullptr;    ///< [N]
  DType scales_dtype = DType::kF32;
  void* c = nullptr;  ///< [M, N], must not overlap the inputs
  DType c_dtype = DType::kF32;
  std::int64_t ldc = 0;  ///< elements between rows of C, >= N
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// False where only the reference would compute it, or nothing is to be computed.
bool linear_int8_supported(const LinearInt8Args& args, IsaSet isa);

/// Computes C: sums of fp32 products, one rounding for the scale and one for a bf16 C. NaN and infinities go where arithmetic takes them.
/// Allocates scratch per thread; false when memory for it is short, C is undefined then.
bool linear_int8(const LinearInt8Args& args, const Parallel& parallel, IsaSet isa);

/// "amx_bf16", "avx512", "avx2" or "ref"; where rows are many enough to unpack B, "avx512+" and the name of linear's variant.
const char* linear_int8_variant(const LinearInt8Args& args, IsaSet isa);

}  // namespace ipexrun::kernels
