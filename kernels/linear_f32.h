// linear_f32: C[M,N] = A[M,K] * B[K,N] (+ bias[N], then the epilogue) in fp32, or with all of them in fp16, with B packed once and fp32
// accumulation.
//
// Nothing is rounded but the sums as they grow and, for fp16, C at the end, to nearest even; linear.h rounds operands to bf16. Method:
// blocks of C in registers of AVX-512 or AVX2, fp16 widened on the way, or, from 7 rows on, up to 32 products added up in fp16 by
// AVX512-FP16 (simd/linear_f16.cpp); on request, fp32 as sums of three bf16 parts on AMX, with errors of the same size
// (amx/linear_f32.cpp); the truth is ref/linear_f32.cpp. Thread rule: all functions may be called concurrently; a packed B is immutable.
// Any alignment of whole elements will do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/epilogue.h"
#include "kernels/parallel.h"
#include "kernels/windows.h"

namespace ipexrun::kernels {

/// Where element (k, n) of B lies: data[k * stride_k + n * stride_n], in elements.
struct MatrixF32 {
  const void* data = nullptr;
  bool half = false;  ///< fp16
  std::int64_t k = 0;
  std::int64_t n = 0;
  std::int64_t stride_k = 1;
  std::int64_t stride_n = 0;
};

/// Bytes that pack_f32 writes for a K x N matrix, a multiple of 64; 0 when the shape is empty or not supported.
std::size_t packed_f32_bytes(std::int64_t k, std::int64_t n, bool half);

/// Packs B into `to` (64-byte aligned, packed_f32_bytes long). The bits are the same whatever `isa`.
void pack_f32(const MatrixF32& b, void* to, const Parallel& parallel, IsaSet isa);

struct LinearF32Args {
  bool half = false;        ///< A, B, bias and C are fp16, not fp32
  bool parts = false;       ///< fp32 in parts, where `isa` has tiles: who is faster depends on who else uses the core
  const void* a = nullptr;  ///< [M, K]; with `windows`, the first pixel of the first image
  std::int64_t lda = 0;     ///< elements between rows of A, >= K
  const void* packed_b = nullptr;
  const void* bias = nullptr;  ///< [N], null = none
  void* c = nullptr;           ///< [M, N], must not overlap the inputs but epilogue.other
  std::int64_t ldc = 0;        ///< elements between rows of C, >= N
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const ImageWindows* windows = nullptr;  ///< of fp32; K is what they have, and lda counts for nothing
  Epilogue epilogue;                      ///< of fp32, its other one, too
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool linear_f32_supported(const LinearF32Args& args, IsaSet isa);

/// Whether args.parts would make a difference that is worth trying: for few rows memory bounds the product, and tiles are empty.
bool linear_f32_has_parts(const LinearF32Args& args, IsaSet isa);

/// Computes C. Uses at most `isa`; falls back to slower variants down to the reference, so it is always right. False when memory for
/// scratch was short; C is then undefined.
bool linear_f32(const LinearF32Args& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that linear_f32() would use: "avx512_fp16" (fp16 alone), "amx" (fp32 alone), "avx512", "avx2", "ref".
const char* linear_f32_variant(const LinearF32Args& args, IsaSet isa);

}  // namespace ipexrun::kernels
