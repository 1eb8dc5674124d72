// What simd/linear.cpp needs of AVX-512 without bf16 instructions: a bf16 is the upper half of an fp32.
#pragma once

#include <immintrin.h>

#include "kernels/simd/isa_avx512_store.h"

namespace ipexrun::kernels::avx512 {
namespace {

struct Isa : Store512 {
  using A = float;  ///< rounded to bf16, so that all variants multiply the same numbers
  struct Operand {
    Vector even;
    Vector odd;
  };
  using Pair = Operand;
  static constexpr int kOperandRegisters = 2;
  static constexpr int kRows = 10;
  static constexpr std::int64_t kVectorStride = kTileElements;

  static Operand load_b(const std::uint16_t* b) {
    const __m512i pairs = _mm512_loadu_si512(b);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))))};
  }

  static Pair broadcast(const A* a) { return {_mm512_set1_ps(a[0]), _mm512_set1_ps(a[1])}; }

  static Vector add(Vector acc, const Pair& a, const Operand& b) {
    return _mm512_fmadd_ps(a.odd, b.odd, _mm512_fmadd_ps(a.even, b.even, acc));
  }

  static void convert_row(const void* row, DType dtype, std::int64_t k, A* to) { round_row(row, dtype, k, to); }
};

}  // namespace
}  // namespace ipexrun::kernels::avx512
