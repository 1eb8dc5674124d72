// What simd/linear.cpp needs of AVX2 with FMA.
#pragma once

#include <immintrin.h>

#include "kernels/bf16.h"
#include "kernels/linear.h"
#include "kernels/packed.h"

namespace ipexrun::kernels::avx2 {
namespace {

struct Isa {
  using Vector = __m256;
  using A = float;  ///< rounded to bf16, so that all variants multiply the same numbers
  struct Operand {
    Vector even;
    Vector odd;
  };
  using Pair = Operand;
  static constexpr int kOperandRegisters = 2;
  static constexpr int kWidth = 8;
  static constexpr int kTilesAtOnce = 1;  ///< two vectors cover the 16 columns of a tile
  static constexpr int kRows = 4;         ///< 8 sums, 4 operands, a mask and a broadcast in 16 registers
  static constexpr std::int64_t kVectorStride = kTileColumns;

  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(float* to, Vector value) { _mm256_storeu_ps(to, value); }

  static Operand load_b(const std::uint16_t* b) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
  }

  static Pair broadcast(const A* a) { return {_mm256_set1_ps(a[0]), _mm256_set1_ps(a[1])}; }

  static Vector add(Vector acc, const Pair& a, const Operand& b) {
    return _mm256_fmadd_ps(a.odd, b.odd, _mm256_fmadd_ps(a.even, b.even, acc));
  }

  static void convert_row(const void* row, DType dtype, std::int64_t k, A* to) { round_row(row, dtype, k, to); }
};

}  // namespace
}  // namespace ipexrun::kernels::avx2
