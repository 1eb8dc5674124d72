// gated: act(a) * b of every element, as the feed-forward layers of Llama (silu) and of GeGLU (gelu) have it; fp32 to fp32 or bf16 to bf16.
//
// a, b and the result are [rows, columns], each with its own distance between rows: two tensors, or the halves of one row of 2 columns
// (a first or b first, as the model has it).
// Method: activation.h's functions; the product is taken in fp32, so bf16 is rounded once, where two operations round twice.
// Errors against ref/gated.cpp, in doubles: those of activation.h, relative to b, and one rounding more. NaN stay; inf * 0 is NaN.
// The result of an element does not depend on where it lies or on the number of threads.
// Thread rule: may be called concurrently. Any alignment of whole elements will do. Takes no memory and cannot fail.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/activation.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

struct GatedArgs {
  Activation kind = Activation::kSilu;  ///< of a
  DType dtype = DType::kF32;            ///< of all three
  const void* a = nullptr;
  const void* b = nullptr;
  void* to = nullptr;  ///< may be `a` or `b` with the same distance between rows, must not overlap them otherwise
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t a_stride = 0;  ///< elements from one row to the next
  std::int64_t b_stride = 0;
  std::int64_t to_stride = 0;
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool gated_supported(IsaSet isa);

/// Uses at most `isa`; falls back to slower variants down to the reference, so it is always right.
void gated(const GatedArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that gated() uses: "avx512", "avx2", "ref".
const char* gated_variant(IsaSet isa);

}  // namespace ipexrun::kernels
