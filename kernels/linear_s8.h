// linear_s8: C[M,N] = A[M,K] * B[K,N] of bytes, with B (signed) packed once and sums in int32; what becomes of the sums is a choice.
//
// With s = the sum over k of (A - a_zero) * B, exact modulo 2^32 on every variant, C is s, or in fp32
//   v = fma(s, a_scale * b_scale, bias) + residual, then the activation
// as fp32 or bf16 (rounded to nearest even), or as a byte: round(v * c_inverse_scale) + c_zero, to nearest even, saturated; a NaN there
// becomes the smallest byte. Without an activation every variant gives the same bits; an activation is within activation.h's bounds.
// Methods: AMX tiles (TDPBUSD, TDPBSSD), dot products of AVX512-VNNI and AVX-VNNI, 16-bit products of AVX2; the truth is
// ref/linear_s8.cpp.
// Thread rule: all functions may be called concurrently; a packed B is immutable. Any alignment of whole elements of A and C will do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

/// Where element (k, n) of B lies: data[k * stride_k + n * stride_n].
struct MatrixS8 {
  const std::int8_t* data = nullptr;
  std::int64_t k = 0;
  std::int64_t n = 0;
  std::int64_t stride_k = 1;
  std::int64_t stride_n = 0;
};

/// Bytes that pack_s8 writes for a K x N matrix, a multiple of 64; 0 when the shape is empty or not supported.
std::size_t packed_s8_bytes(std::int64_t k, std::int64_t n);

/// Packs B, and the sums of its columns, into `to` (64-byte aligned, packed_s8_bytes long).
void pack_s8(const MatrixS8& b, void* to, const Parallel& parallel);

enum class LinearS8Output : int { kI32 = 0, kF32 = 1, kBf16 = 2, kU8 = 3, kS8 = 4 };
enum class LinearS8Activation : int { kNone = 0, kRelu = 1, kGelu = 2, kGeluTanh = 3, kSilu = 4 };

struct LinearS8Args {
  const void* a = nullptr;  ///< [M, K]
  bool a_signed = false;
  std::int64_t lda = 0;  ///< elements between rows of A, >= K
  std::int32_t a_zero = 0;
  const float* a_scale = nullptr;  ///< one, or [M]; null = 1
  bool a_scale_per_row = false;
  const void* packed_b = nullptr;
  const float* b_scale = nullptr;  ///< one, or [N]; null = 1
  bool b_scale_per_column = false;
  const float* bias = nullptr;     ///< [N], null = none
  const void* residual = nullptr;  ///< [M, N], null = none; may be C where they are of one type and stride
  DType residual_dtype = DType::kF32;
  std::int64_t ldr = 0;  ///< elements between its rows
  LinearS8Activation activation = LinearS8Activation::kNone;
  void* c = nullptr;  ///< [M, N], must not overlap the other inputs
  LinearS8Output c_type = LinearS8Output::kI32;
  std::int64_t ldc = 0;       ///< elements between rows of C, >= N
  float c_inverse_scale = 1;  ///< bytes only
  std::int32_t c_zero = 0;    ///< bytes only; within the bytes
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// True when `isa` has instructions for sums of byte products.
bool linear_s8_supported(const LinearS8Args& args, IsaSet isa);

/// Computes C. Uses at most `isa`; falls back to slower variants down to the reference, so it is always right. False when memory for
/// scratch was short; C is then undefined.
bool linear_s8(const LinearS8Args& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that linear_s8() would use: "amx_int8", "avx512_vnni", "avx2_vnni", "avx2", "ref".
const char* linear_s8_variant(const LinearS8Args& args, IsaSet isa);

}  // namespace ipexrun::kernels
