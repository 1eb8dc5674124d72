// activation: gelu (exact and tanh form), tanh, sigmoid and silu of every element, fp32 to fp32 or bf16 to bf16 (computed in fp32).
//
// Methods, in simd/activation.cpp: gelu by the normal distribution function, as 32 polynomials of degree 5 (AVX-512) or an odd one of
// degree 29; the others by 2^f on [-1/2, 1/2] as a polynomial, scaled, and one division. tools/fit_activation.py fits them all. The
// truth is ref/activation.cpp, in doubles.
// Errors against it, fp32: at most 4 units in the last place; below x = -1, where Phi is small, gelu may also be wrong by |x| 2e-7 (as
// stock's 1 + erf is) and gelu in tanh form by x^2 1.2e-7 of the result (from rounding x + 0.044715 x^3).
// What lies below the smallest normal fp32 in sigmoid is 0. NaN stays NaN, zeros keep their sign; gelu, its tanh form and silu of -inf
// are NaN, as the formulas give. gelu of +inf is +inf: stock's vector code has NaN there, its scalar code inf.
// The result of an element does not depend on where it lies or on the number of threads.
// Thread rule: may be called concurrently. Any alignment of whole elements will do.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

enum class Activation : int { kGelu = 0, kGeluTanh = 1, kTanh = 2, kSigmoid = 3, kSilu = 4 };

struct ActivationArgs {
  Activation kind = Activation::kGelu;
  DType dtype = DType::kF32;  ///< of both sides
  const void* from = nullptr;
  void* to = nullptr;  ///< may be `from`, must not overlap it otherwise
  std::int64_t n = 0;
};

/// True when `isa` has a variant that is worth offering: not the reference, and not gelu on AVX2, where stock is as fast.
bool activation_supported(const ActivationArgs& args, IsaSet isa);

/// Uses at most `isa`; falls back to slower variants down to the reference, so it is always right.
void activation(const ActivationArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that activation() uses: "avx512", "avx2", "ref".
const char* activation_variant(IsaSet isa);

}  // namespace ipexrun::kernels
