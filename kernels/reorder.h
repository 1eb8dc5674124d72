// reorder: images between planar (NCHW) and channels-last (NHWC) order, converted between fp32 and bf16 on the way.
//
// An image is C channels of P pixels: planar is [N][C][P], channels last [N][P][C], both dense. One pass reads each element once and
// writes it once. Method: both directions transpose N matrices, in registers, by squares of 32-bit lanes; a pair of bf16 is one lane
// (see simd/reorder.cpp); the truth is ref/reorder.cpp, and every variant gives its bits.
// fp32 to bf16 rounds to nearest even, NaN stays NaN, denormals are kept.
// Thread rule: may be called concurrently. Any alignment of whole elements will do.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

struct ReorderArgs {
  const void* from = nullptr;
  DType from_dtype = DType::kF32;
  void* to = nullptr;  ///< must not overlap `from`
  DType to_dtype = DType::kF32;
  std::int64_t images = 0;
  std::int64_t channels = 0;
  std::int64_t pixels = 0;
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool reorder_supported(IsaSet isa);

// Both use at most `isa` and fall back to slower variants down to the reference, so they are always right.
/// [N][C][P] to [N][P][C].
void to_channels_last(const ReorderArgs& args, const Parallel& parallel, IsaSet isa);

/// [N][P][C] to [N][C][P].
void to_planar(const ReorderArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that both use: "avx512", "avx2", "ref".
const char* reorder_variant(IsaSet isa);

}  // namespace ipexrun::kernels
