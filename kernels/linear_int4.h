// linear_int4: C[M,N] = A[M,K] * W, with W[k,n] = (q[k,n] - 8) * scale[k / group, n] + zero[k / group, n], q of 4 bits; bf16 in and out.
//
// q as stock torch packs it for CPUs with AVX-512 (aten::_convert_weight_to_int4pack_for_cpu), read where it lies: blocks of 64 columns, of
// each k 32 bytes; byte d holds column d in its lower half and column d + 32 in its upper one.
// Few rows of A: each q becomes the bf16 number 128 + q by one logical instruction, pairs of k are multiplied by VDPBF16PS, and what the
// 136 added is taken off once a group, by the sum of A. With AMX that does for up to 256 rows;
// more unpack W to bf16 and multiply by the variants of linear.
// Thread rule: may be called concurrently.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

inline constexpr std::int64_t kInt4Columns = 64;  ///< of a block

struct LinearInt4Args {
  const std::uint16_t* a = nullptr;                 ///< [M, K], bf16
  std::int64_t lda = 0;                             ///< elements between rows of A, >= K
  const std::uint8_t* b = nullptr;                  ///< [N / 64, K, 32]
  const std::uint16_t* scales_and_zeros = nullptr;  ///< [K / group, N, 2], bf16
  std::uint16_t* c = nullptr;                       ///< [M, N], bf16, must not overlap the inputs
  std::int64_t ldc = 0;                             ///< elements between rows of C, >= N
  std::int64_t m = 0;
  std::int64_t n = 0;      ///< a multiple of 64
  std::int64_t k = 0;      ///< a multiple of group
  std::int64_t group = 0;  ///< a multiple of 32
};

/// False for shapes that do not fit, and where only the reference would compute it.
bool linear_int4_supported(const LinearInt4Args& args, IsaSet isa);

/// Computes C, in fp32 sums; where rows are many W is rounded to bf16 before. Where A holds NaN, infinities or sums beyond 1e36, the call
/// is computed by the reference, which sends them where arithmetic takes them. False when memory for scratch is short, C is undefined then.
bool linear_int4(const LinearInt4Args& args, const Parallel& parallel, IsaSet isa);

/// "amx_bf16", "avx512_bf16" or "ref".
const char* linear_int4_variant(IsaSet isa);

}  // namespace ipexrun::kernels
