// What simd/linear.cpp needs of AVX512-BF16: pairs of bf16 multiplied and added in one instruction.
#pragma once

#include <immintrin.h>

#include "kernels/simd/isa_avx512_store.h"

namespace ipexrun::kernels::avx512_bf16 {
namespace {

struct Isa : Store512 {
  using A = std::uint16_t;  ///< what rows of A are converted to
  using Operand = __m512i;
  using Pair = __m512i;
  static constexpr int kRows = 14;  ///< 28 sums, two operands and a pair in 32 registers
  static constexpr int kOperandRegisters = 1;
  static constexpr std::int64_t kVectorStride = kTileElements;

  static Operand load_b(const std::uint16_t* b) { return _mm512_loadu_si512(b); }

  static Pair broadcast(const A* a) {
    int pair;
    __builtin_memcpy(&pair, a, sizeof(pair));
    return _mm512_set1_epi32(pair);
  }

  /// acc + a[0] * even k + a[1] * odd k
  static Vector add(Vector acc, Pair a, Operand b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }

  /// 32 neighbours, rounded.
  static void store_bf16(std::uint16_t* to, Vector first, Vector second) {
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(second, first));
  }

  static void store_bf16(std::uint16_t* to, Vector value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(value));
  }

  static void convert_row(const void* row, DType dtype, std::int64_t k, A* to) {
    const std::int64_t whole = k / kStepK * kStepK;
    if (dtype == DType::kF32) {
      const float* from = static_cast<const float*>(row);
      for (std::int64_t i = 0; i < whole; i += kStepK) {
        _mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + i + 16), _mm512_loadu_ps(from + i)));
      }
      for (std::int64_t i = whole; i < k; ++i) to[i] = bf16_from_f32(from[i]);
    } else {
      __builtin_memcpy(to, row, static_cast<std::size_t>(k) * 2);
    }
    for (std::int64_t i = k; i < steps_of(k) * kStepK; ++i) to[i] = 0;
  }
};

}  // namespace
}  // namespace ipexrun::kernels::avx512_bf16
