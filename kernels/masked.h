// masked: to = from * (mask ? scale : 0), and its own gradient: what dropout does with a mask of bytes.
//
// Method, in simd/masked.cpp: vectors of fp32; of bf16 the product is rounded once. A number that is masked is multiplied by 0 as in stock:
// NaN and infinity become NaN. The truth is ref/masked.cpp. Thread rule: may be called concurrently. Any alignment of whole elements will
// do. Takes no memory and cannot fail.
#pragma once

#include <cstdint>

#include "configs/base/isa.h"
#include "kernels/dtype.h"
#include "kernels/parallel.h"

namespace ipexrun::kernels {

struct MaskedArgs {
  const void* from = nullptr;
  const std::uint8_t* mask = nullptr;  ///< 0 or 1
  void* to = nullptr;                  ///< may be `from`, must not overlap it otherwise
  DType dtype = DType::kF32;           ///< of both sides
  std::int64_t n = 0;
  float scale = 1;
};

/// True when `isa` has a variant that is worth offering: not the reference.
bool masked_supported(IsaSet isa);

/// Uses at most `isa` and falls back to slower variants down to the reference, so it is always right.
void masked(const MaskedArgs& args, const Parallel& parallel, IsaSet isa);

/// Name of the variant that it uses: "avx512", "avx2", "ref".
const char* masked_variant(IsaSet isa);

}  // namespace ipexrun::kernels
