// Vectors of 16 floats for the two AVX-512 variants of simd/linear.cpp.
#pragma once

#include <immintrin.h>

#include "kernels/bf16.h"
#include "kernels/linear.h"
#include "kernels/packed.h"

namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA {
namespace {

struct Store512 {
  using Vector = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kTilesAtOnce = 2;  ///< two vectors cover the 32 columns of a panel

  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(float* to, Vector value) { _mm512_storeu_ps(to, value); }
};

}  // namespace
}  // namespace ipexrun::kernels::IPEXRUN_KERNEL_ISA
